"""MATCH_RECOGNIZE as text: what its parts become, and what is refused with which words."""

from __future__ import annotations

import pytest

from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING, timestamp
from flowrun.errors import ExpressionError
from flowrun.frontend.sql.queries.tables.match_recognize import bind_match
from flowrun.plan.matching import AfterMatch, MatchRecognize, PatternVariable
from flowrun.plan.nodes import NodeHints, PlanNode

INPUT = PlanNode(Schema.from_pairs([("user", STRING), ("price", BIGINT), ("ts", timestamp(3))]), NodeHints())


def bind(body: str) -> MatchRecognize:
    text = f"SELECT * FROM t MATCH_RECOGNIZE ({body})"
    start = text.index("(") + 1
    return bind_match(text, (start, len(text) - 1), INPUT, INPUT.schema.names, NodeHints())


def refused(body: str) -> tuple[str, str]:
    """(message, the text that is marked)."""
    text = f"SELECT * FROM t MATCH_RECOGNIZE ({body})"
    try:
        bind(body)
    except ExpressionError as error:
        return error.message, text[error.offset : error.offset + error.length]
    raise AssertionError("nothing was refused")


def test_all_parts() -> None:
    node = bind(
        "PARTITION BY `user` ORDER BY ts, price DESC MEASURES FIRST(A.price) AS f, LAST(B.price, 1) AS l, COUNT(*) AS n, "
        "SUM(B.price + 1) AS s ONE ROW PER MATCH AFTER MATCH SKIP TO LAST B PATTERN (A B{2,} C*? D) WITHIN INTERVAL '1' MINUTE "
        "DEFINE B AS price > PREV(price) AND B.price > A.price"
    )
    assert str(node.schema) == "user STRING, f BIGINT, l BIGINT, n BIGINT, s BIGINT"
    assert [str(m) for m in node.measures] == [
        "FIRST(A.price, 0)",
        "LAST(B.price, 1)",
        "COUNT(*) OF *",
        "SUM((price + 1)) OF B",
    ]
    assert node.pattern == (
        PatternVariable("A"),
        PatternVariable("B", 2, None),
        PatternVariable("C", 0, None, greedy=False),
        PatternVariable("D"),
    )
    assert (node.partition, node.after, node.skip_to, node.within_ms) == ((0,), AfterMatch.SKIP_TO_LAST, "B", 60_000)
    assert [str(e) for _, e in node.defines] == ["((price > PREV(price, 1)) AND (B.price > A.price))"]


@pytest.mark.parametrize(
    ("clause", "after"),
    [
        ("", AfterMatch.SKIP_TO_NEXT_ROW),  # as Apache Flink 2.3 does, not as the standard says
        ("AFTER MATCH SKIP TO NEXT ROW ", AfterMatch.SKIP_TO_NEXT_ROW),
        ("AFTER MATCH SKIP PAST LAST ROW ", AfterMatch.SKIP_PAST_LAST_ROW),
    ],
)
def test_where_the_search_goes_on(clause: str, after: AfterMatch) -> None:
    assert bind(f"ORDER BY ts {clause}PATTERN (A B)").after is after


@pytest.mark.parametrize(
    ("body", "message", "marked"),
    [
        ("ORDER BY ts PATTERN (A B+)", "the pattern must not end with the greedy B+", "B+"),
        ("ORDER BY ts PATTERN (A B A)", "the variable A occurs twice", "A"),
        ("PARTITION BY `user`, `user` ORDER BY ts PATTERN (A B)", "column 'user' more than once", "`user`"),
        ("ORDER BY ts PATTERN (A? B*?)", "the pattern matches no rows at all", "A? B*?"),
        ("ORDER BY ts PATTERN (A | B)", "alternatives (A | B) are not supported", "|"),
        ("ORDER BY ts PATTERN ((A B)+ C)", "groups of variables are not supported", "("),
        ("ORDER BY ts PATTERN (A B) DEFINE C AS C.price > 1", "the pattern has no variable C", "C"),
        ("ORDER BY ts PATTERN (A B) DEFINE B AS B.prize > 1", "column 'prize' does not exist", "prize"),
        ("ORDER BY ts PATTERN (A B) DEFINE B AS B.price", "must be BOOLEAN", "B.price"),
        ("ORDER BY ts DESC PATTERN (A B)", "must be ascending", "ts DESC"),
        ("ORDER BY ts ALL ROWS PER MATCH PATTERN (A B)", "ALL ROWS PER MATCH is not supported", "ROWS"),
        ("ORDER BY ts AFTER MATCH SKIP TO FIRST A PATTERN (A B)", "the same match for ever", "A"),
        ("ORDER BY ts MEASURES SUM(A.price + B.price) AS s PATTERN (A B)", "of one variable", "SUM(A.price + B.price)"),
        ("ORDER BY ts MEASURES SUM(A.*) AS s PATTERN (A B)", "SUM(*) has no meaning", "SUM(A.*)"),
        ("ORDER BY ts MEASURES COUNT(DISTINCT *) AS n PATTERN (A B)", "is not possible", "COUNT(DISTINCT *)"),
        ("ORDER BY ts MEASURES COUNT() AS n PATTERN (A B)", "COUNT needs an argument", "COUNT()"),
        ("ORDER BY ts MEASURES NEXT(A.price) AS s PATTERN (A B)", "rows that have not come yet", "NEXT(A.price)"),
        ("ORDER BY ts PATTERN (A B) WITHIN 5", "positive interval", "5"),
        ("PATTERN (A B)", "expected ORDER BY", "PATTERN"),
        ("ORDER BY ts MEASURES A.price PATTERN (A B)", "expected AS and a name", "PATTERN"),
        ("ORDER BY ts PATTERN (A B{3,2}? C)", "takes no row", "{"),
    ],
)
def test_what_is_refused_is_marked(body: str, message: str, marked: str) -> None:
    said, where = refused(body)
    assert message in said
    assert where == marked
