"""The grammar of queries: what binds to what, and where things stand."""

from __future__ import annotations

import pytest

from flowrun.core.semantics import JoinKind
from flowrun.frontend.sql.grammar.queries import parse_query
from flowrun.frontend.sql.grammar.syntax import (
    AliasedTable,
    DerivedTable,
    FunctionTable,
    JoinTable,
    MatchTable,
    NamedTable,
    Ordered,
    Select,
    SetKind,
    SetOperation,
    SetOperator,
    TableArgument,
    UnnestTable,
    ValuesRows,
    WithQuery,
)
from flowrun.frontend.sql.spans import FlinkSyntaxError


def select(text: str) -> Select:
    query = parse_query(text)
    assert isinstance(query, Select)
    return query


class TestQueries:
    def test_intersect_binds_tighter_than_union(self) -> None:
        query = parse_query("SELECT 1 UNION SELECT 2 INTERSECT SELECT 3")
        assert isinstance(query, SetOperation)
        assert query.operator is SetOperator.UNION
        assert isinstance(query.right, SetOperation)
        assert query.right.operator is SetOperator.INTERSECT

    def test_unions_are_read_from_the_left(self) -> None:
        query = parse_query("SELECT 1 UNION ALL SELECT 2 EXCEPT SELECT 3")
        assert isinstance(query, SetOperation)
        assert query.operator is SetOperator.EXCEPT
        assert isinstance(query.left, SetOperation)
        assert query.left.all

    def test_parentheses_say_otherwise(self) -> None:
        query = parse_query("(SELECT 1 UNION SELECT 2) INTERSECT (SELECT 3 ORDER BY 1 LIMIT 1)")
        assert isinstance(query, SetOperation)
        assert query.operator is SetOperator.INTERSECT
        assert isinstance(query.right, Ordered)

    @pytest.mark.parametrize(
        "text",
        [
            "SELECT a FROM t ORDER BY a LIMIT 3 OFFSET 2",
            "SELECT a FROM t ORDER BY a OFFSET 2 ROWS LIMIT 3",
            "SELECT a FROM t ORDER BY a OFFSET 2 ROWS FETCH NEXT 3 ROWS ONLY",
            "SELECT a FROM t ORDER BY a ASC OFFSET 2 FETCH FIRST 3 ROW ONLY",
        ],
    )
    def test_bounds(self, text: str) -> None:
        query = parse_query(text)
        assert isinstance(query, Ordered)
        assert query.limit is not None
        assert query.offset is not None
        assert (query.limit.name, query.offset.name) == ("3", "2")

    def test_order_of_a_union_belongs_to_the_whole(self) -> None:
        query = parse_query("SELECT a FROM t UNION SELECT a FROM u ORDER BY a DESC NULLS LAST")
        assert isinstance(query, Ordered)
        assert isinstance(query.query, SetOperation)
        assert (query.order[0].descending, query.order[0].nulls_first) == (True, False)

    def test_with_values_and_table(self) -> None:
        query = parse_query("WITH a (x, y) AS (VALUES (1, 2), (3, 4)), b AS (TABLE a) SELECT * FROM b")
        assert isinstance(query, WithQuery)
        first, second = query.tables
        assert [c.text for c in first.columns] == ["x", "y"]
        assert isinstance(first.query, ValuesRows)
        assert isinstance(second.query, Select)

    def test_keywords_may_be_apart(self) -> None:
        query = select("SELECT a FROM t GROUP /* by */ BY a HAVING COUNT(*) > 1")
        assert query.grouping is not None
        assert query.having is not None


class TestSelect:
    def test_items(self) -> None:
        items = select("SELECT *, t.*, a AS x, b y, c `select`, COUNT(*) FROM t").items
        assert [i.star for i in items] == [True, True, False, False, False, False]
        assert [i.alias.text if i.alias else None for i in items] == [None, None, "x", "y", "select", None]

    def test_a_span_is_the_items_text(self) -> None:
        text = "SELECT a + 1 AS x, COUNT(DISTINCT b) FROM t"
        assert [text[slice(*i.span)] for i in select(text).items] == ["a + 1 AS x", "COUNT(DISTINCT b)"]

    def test_grouping_elements(self) -> None:
        elements = select(
            "SELECT 1 FROM t GROUP BY a, (b, c), (), ROLLUP(d, (e, f)), GROUPING SETS ((a), CUBE(b), ())"
        ).grouping
        assert elements is not None
        assert [len(e.expressions) for e in elements] == [1, 2, 0, 0, 0]
        assert [e.kind for e in elements] == [None, None, None, SetKind.ROLLUP, SetKind.SETS]
        assert [e.kind for e in elements[4].elements] == [None, SetKind.CUBE, None]

    def test_over_and_windows(self) -> None:
        query = select(
            "SELECT SUM(a) FILTER (WHERE a > 1) OVER (PARTITION BY b, c ORDER BY d DESC "
            "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW), COUNT(*) OVER w FROM t WINDOW w AS (ORDER BY d)"
        )
        first, second = (i.expression for i in query.items)
        assert first is not None
        assert second is not None
        clause = first.meta["over"]
        assert (len(clause.partition), len(clause.order), clause.frame.end.is_current) == (2, 1, True)
        assert second.meta["over"].base.text == "w"
        assert query.windows[0][0].text == "w"

    def test_subqueries_in_expressions(self) -> None:
        query = select(
            "SELECT (SELECT 1), ((SELECT 2) + 1) FROM t WHERE a IN (SELECT 3) AND EXISTS (SELECT 4) OR b = ANY (VALUES 5)"
        )
        assert query.items[0].expression is not None
        assert isinstance(query.items[0].expression.meta["query"], Select)
        assert query.where is not None
        assert sum("query" in n.meta for n in query.where.walk()) == 3


class TestTables:
    def test_joins_are_read_from_the_left(self) -> None:
        source = select("SELECT * FROM a, b LEFT OUTER JOIN c ON TRUE NATURAL JOIN d").source
        assert isinstance(source, JoinTable)
        assert isinstance(source.left, NamedTable)
        assert isinstance(source.right, JoinTable)
        assert source.right.natural
        assert isinstance(source.right.left, JoinTable)
        assert source.right.left.kind is JoinKind.LEFT

    def test_versions_with_an_alias(self) -> None:
        source = select("SELECT * FROM o JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.c = r.c").source
        assert isinstance(source, JoinTable)
        assert isinstance(source.right, AliasedTable)
        assert source.right.alias.text == "r"
        assert isinstance(source.right.table, NamedTable)
        assert source.right.table.as_of is not None

    def test_unnest_and_functions(self) -> None:
        source = select(
            "SELECT * FROM t CROSS JOIN UNNEST(a) WITH ORDINALITY AS u (x, n) LEFT JOIN LATERAL TABLE(f(x)) AS g ON TRUE"
        ).source
        assert isinstance(source, JoinTable)
        assert isinstance(source.right, AliasedTable)
        assert isinstance(source.right.table, FunctionTable)
        assert source.right.table.lateral
        assert isinstance(source.left, JoinTable)
        assert isinstance(source.left.right, AliasedTable)
        assert isinstance(source.left.right.table, UnnestTable)
        assert source.left.right.table.ordinality

    def test_window_functions(self) -> None:
        source = select(
            "SELECT * FROM TABLE(SESSION(DATA => TABLE t PARTITION BY (a, b), TIMECOL => DESCRIPTOR(ts), GAP => INTERVAL '1' MINUTE))"
        ).source
        assert isinstance(source, FunctionTable)
        assert [a.name.text for a in source.arguments if a.name] == ["DATA", "TIMECOL", "GAP"]
        data = source.arguments[0].value
        assert isinstance(data, TableArgument)
        assert len(data.partition) == 2

    def test_match_recognize_is_kept_as_text(self) -> None:
        text = "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY ts PATTERN (A (B) C) DEFINE A AS f(x) > 1) AS m WHERE 1 = 1"
        source = select(text).source
        assert isinstance(source, AliasedTable)
        assert isinstance(source.table, MatchTable)
        assert text[slice(*source.table.body)] == "ORDER BY ts PATTERN (A (B) C) DEFINE A AS f(x) > 1"

    def test_parentheses_hold_queries_or_joins(self) -> None:
        assert isinstance(select("SELECT * FROM ((SELECT 1) UNION SELECT 2)").source, DerivedTable)
        assert isinstance(select("SELECT * FROM ((SELECT 1) a JOIN b ON TRUE)").source, JoinTable)

    def test_hints(self) -> None:
        source = select("SELECT /*+ LOOKUP('a'='b') */ * FROM t /*+ OPTIONS('k' = 'v') */ AS x").source
        assert isinstance(source, AliasedTable)
        assert isinstance(source.table, NamedTable)
        assert source.table.hints == ("OPTIONS('k' = 'v')",)


@pytest.mark.parametrize(
    ("text", "start", "message"),
    [
        ("SELECT a FROM t WHERE", 21, "expected an expression"),
        ("SELECT a FROM t JOIN u", 22, "expected ON or USING"),
        ("SELECT a b c FROM t", 11, "unexpected 'c'"),
        ("SELECT a FROM t LIMIT 1, 2", 23, "LIMIT takes one number"),
        ("SELECT a FROM t GROUP BY DISTINCT a", 25, "GROUP BY DISTINCT"),
        ("SELECT SUM(a) OVER (ORDER BY b GROUPS 2 PRECEDING) FROM t", 31, "GROUPS is not supported"),
        ("SELECT a FROM t CROSS APPLY f(a)", 22, "APPLY is not part of Flink SQL"),
        ("SELECT a INTO u FROM t", 9, "SELECT INTO is not part of Flink SQL"),
        ("DELETE FROM t", 0, "expected a query"),
        ("", 0, "the query is empty"),
    ],
)
def test_syntax_errors_have_a_place(text: str, start: int, message: str) -> None:
    with pytest.raises(FlinkSyntaxError, match=message) as caught:
        parse_query(text)
    assert caught.value.offset == start
