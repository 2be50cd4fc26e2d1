"""Flink's expression syntax is read with Flink's meaning, and wrong syntax is an error at its place."""

import pytest
from sqlglot import exp

from flowrun.frontend.sql.grammar.expressions import parse_text
from flowrun.frontend.sql.spans import FlinkSyntaxError


def shape(text: str) -> str:
    """The tree as calls and operators, fully bracketed."""
    return _shape(parse_text(text))


def _shape(node: object) -> str:
    if isinstance(node, exp.Anonymous):
        return f"{node.this}({', '.join(map(_shape, node.expressions))})"
    if isinstance(node, exp.Literal):
        return f"'{node.this}'" if node.is_string else node.this
    if isinstance(node, exp.Column):
        return ".".join(p.name for p in node.parts)
    if isinstance(node, exp.Null):
        return "NULL"
    if isinstance(node, exp.Cast):
        return f"{type(node).__name__}({_shape(node.this)}, {node.args['to'].this})"
    if isinstance(node, exp.Binary):
        return f"{type(node).__name__}({_shape(node.this)}, {_shape(node.expression)})"
    return type(node).__name__


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a + b * 2", "Add(a, Mul(b, 2))"),
        ("a || b || 'it''s'", "DPipe(DPipe(a, b), 'it's')"),
        ("EXTRACT(minute FROM ts)", "EXTRACT('MINUTE', ts)"),
        ("FLOOR(ts TO DAY)", "FLOOR(ts, 'DAY')"),
        ("CEILING(x)", "CEIL(x)"),
        ("TIMESTAMPADD(SECOND, 90, ts)", "TIMESTAMPADD('SECOND', 90, ts)"),
        ("TIMESTAMPDIFF(SQL_TSI_DAY, a, b)", "TIMESTAMPDIFF('DAY', a, b)"),
        ("POSITION('e' IN product)", "POSITION('e', product)"),
        ("TRIM(x)", "TRIM(x)"),
        ("TRIM('-' FROM x)", "TRIM(x, '-')"),
        ("TRIM(LEADING '-' FROM x)", "LTRIM(x, '-')"),
        ("TRIM(TRAILING FROM x)", "RTRIM(x)"),
        ("OVERLAY(x PLACING 'y' FROM 2 FOR 3)", "OVERLAY(x, 'y', 2, 3)"),
        ("SUBSTRING(x FROM 2 FOR 3)", "SUBSTRING(x, 2, 3)"),
        ("SUBSTRING(x, 2)", "SUBSTRING(x, 2)"),
        ("CAST(x AS ARRAY<ROW<a INT, b DECIMAL(10,2)>>)", "Cast(x, ARRAY<ROW<a INT, b DECIMAL(10,2)>>)"),
        ("TRY_CAST(x AS TIMESTAMP(3) WITH LOCAL TIME ZONE)", "TryCast(x, TIMESTAMP(3) WITH LOCAL TIME ZONE)"),
        ("JSON_VALUE(p, '$.a')", "JSON_VALUE(p, '$.a', 'NULL', NULL, 'NULL', NULL)"),
        (
            "JSON_VALUE(p, '$.a' RETURNING INT DEFAULT 5 ON EMPTY ERROR ON ERROR)",
            "Cast(JSON_VALUE(p, '$.a', 'DEFAULT', '5', 'ERROR', NULL), INT)",
        ),
        ("JSON_QUERY(p, '$.a' WITH CONDITIONAL ARRAY WRAPPER EMPTY ARRAY ON EMPTY)",
         "JSON_QUERY(p, '$.a', 'CONDITIONAL', 'EMPTY ARRAY', 'NULL')"),
        ("JSON_EXISTS(p, '$.a' TRUE ON ERROR)", "JSON_EXISTS(p, '$.a', 'TRUE')"),
        ("JSON_OBJECT(KEY 'a' VALUE 1, 'b' VALUE JSON_ARRAY(2) ABSENT ON NULL)",
         "JSON_OBJECT('ABSENT', '-j', 'a', 1, 'b', JSON_ARRAY('ABSENT', '-', 2))"),
        ("ARRAY[1, 2]", "ARRAY(1, 2)"),
        ("MAP['k', v]", "MAP('k', v)"),
        ("LEFT(a, 2)", "LEFT(a, 2)"),
        ("REPLACE(a, 'x', 'y')", "REPLACE(a, 'x', 'y')"),
        ("TRUNCATE(a, 1)", "TRUNCATE(a, 1)"),
        ("`date`.`x y`", "date.x y"),
        ("comment", "comment"),
        ("user", "user"),
        ("timestamp", "timestamp"),
        ("a -- a remark\n + 1 /* and more */", "Add(a, 1)"),
    ],
)  # fmt: skip
def test_syntax_means_what_flink_means(text, expected):
    assert shape(text) == expected


@pytest.mark.parametrize(
    ("text", "message", "start"),
    [
        ("a +", "expected an expression, got the end", 3),
        ("a b", "unexpected 'b' after the expression", 2),
        ("  ", "the expression is empty", 0),
        ("CASE a END", "expected WHEN, got 'END'", 7),
        ("CASE WHEN a 1 END", "expected THEN, got '1'", 12),
        ("f(a", "expected ',' or ')', got the end", 3),
        ("CAST(a)", "expected AS and a type, got ')'", 6),
        ("CAST(a AS )", "expected a type, got ')'", 10),
        ("INTERVAL 5 SECOND", "an interval is written INTERVAL '5' SECOND", 9),
        ("a BETWEEN 1", "expected AND, got the end", 11),
        ("a IS 5", "expected NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM, got '5'", 5),
        ("a IN 5", "expected '(' and a list of values, got '5'", 5),
        ('"a" > 1', "write names in `back ticks` and text in 'single quotes'", 0),
        ("name = 'x", "missing closing '", 7),
        ("a; DROP", "unexpected ';'", 1),
        ("a == b", "expected an expression, got '='", 3),
        ("SELECT 1", "expected an expression, got 'SELECT'", 0),
        ("a::int", "unexpected ':'", 1),
        ("tags[1", "expected ]", 6),
        ("COUNT(*) FILTER (a > 1)", "expected WHERE, got 'a'", 17),
        ("COUNT(*) FILTER (WHERE a > 1", "expected ')', got the end", 28),
    ],
)
def test_wrong_syntax_is_an_error_at_its_place(text, message, start):
    with pytest.raises(FlinkSyntaxError) as caught:
        parse_text(text)
    assert message in caught.value.message
    assert caught.value.offset == start


def test_nodes_know_their_place():
    tree = parse_text("a > 5 AND  b = 'x'")
    assert tree.meta["span"] == (0, 18)
    assert tree.expression.meta["span"] == (11, 18)
