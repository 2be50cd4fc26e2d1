"""Expressions are fully typed when they are bound, as Flink types them; what does not fit is an error that says where and what else."""

import pickle

import pytest

from flowrun.core.schema import Schema
from flowrun.core.types import DOUBLE, INT, STRING, decimal
from flowrun.errors import ExpressionError
from flowrun.frontend.sql.expressions.from_text import bind_expression, bind_predicate
from flowrun.plan.expressions import ColumnRef, InList, Literal
from tests.frontend.sql.expressions.evaluation import ORDERS, type_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # what Flink 2.3 itself gave for like expressions (../shared/sqlsuite) is marked F
        ("d * a", "DECIMAL(21, 2)"),  # F
        ("ABS(d - 20)", "DECIMAL(13, 2)"),  # F
        ("ROUND(d, 1)", "DECIMAL(10, 1)"),  # F
        ("FLOOR(d)", "DECIMAL(10, 0)"),  # F
        ("MOD(b, 7)", "INT"),  # F
        ("b / 7", "BIGINT"),  # F
        ("-b", "BIGINT"),  # F
        ("POWER(CAST(a AS DOUBLE), 2)", "DOUBLE"),  # F
        ("GREATEST(a, 2)", "INT"),  # F
        ("CASE WHEN s IS NULL THEN 'unknown' WHEN s = 'paid' THEN 'ok' ELSE 'other' END", "VARCHAR(7)"),  # F
        ("COALESCE(a, 0)", "INT"),  # F
        ("CAST(b AS DOUBLE) / 3", "DOUBLE"),  # F
        ("device.version + 1", "INT"),  # F
        ("attrs['k1']", "STRING"),  # F
        ("tags[1]", "STRING"),  # F
        ("EXTRACT(MINUTE FROM ts)", "BIGINT"),  # F
        ("FLOOR(ts TO MINUTE)", "TIMESTAMP(3)"),  # F
        ("TIMESTAMPDIFF(SECOND, TIMESTAMP '2024-03-01 09:00:00', ts)", "INT"),  # F
        ("ts + INTERVAL '1' DAY", "TIMESTAMP(3)"),  # F
        ("s || '-' || s", "STRING"),  # F
        ("MD5(s)", "CHAR(32)"),  # F
        ("JSON_VALUE(s, '$.a' RETURNING INT)", "INT"),  # F
        ("a + b", "BIGINT"),
        ("a + d", "DECIMAL(13, 2)"),
        ("d / a", "DECIMAL(21, 13)"),
        ("d * x", "DOUBLE"),
        ("20", "INT"),
        ("3000000000", "BIGINT"),
        ("9223372036854775808", "DECIMAL(19, 0)"),
        ("-2147483648", "INT"),
        ("-9223372036854775808", "BIGINT"),
        ("1.50", "DECIMAL(3, 2)"),
        ("1e3", "DOUBLE"),
        ("'text'", "CHAR(4)"),
        ("'a' || 'bc'", "CHAR(3)"),
        ("X'0aff'", "BINARY(2)"),
        ("DATE '2024-01-01' + INTERVAL '5' DAY", "DATE"),
        ("DATE '2024-01-01' + INTERVAL '5' HOUR", "TIMESTAMP(3)"),
        ("TIMESTAMP '2024-01-01 00:00:00'", "TIMESTAMP(0)"),
        ("TIMESTAMP '2024-01-01 00:00:00.25'", "TIMESTAMP(2)"),
        ("ts - ts", "INTERVAL DAY TO SECOND"),
        ("INTERVAL '1-6' YEAR TO MONTH", "INTERVAL YEAR TO MONTH"),
        ("ARRAY[1, b]", "ARRAY<BIGINT>"),
        ("MAP['a', 1, 'bc', 2.5]", "MAP<VARCHAR(2), DECIMAL(11, 1)>"),
        ("ROW(a, 'x')", "ROW<EXPR$0 INT, EXPR$1 CHAR(1)>"),
        ("IF(f, a, b)", "BIGINT"),
        ("NULLIF(a, 5)", "INT"),
        ("CURRENT_TIMESTAMP", "TIMESTAMP_LTZ(3)"),
        ("CASE WHEN f THEN 1 END", "INT"),
    ],
)
def test_types_are_those_of_flink(text, expected):
    assert type_of(text) == expected


@pytest.mark.parametrize(
    ("text", "message", "hint", "offset", "length"),
    [
        ("aa + 1", "column 'aa' does not exist in the input", "did you mean 'a'?", 0, 2),
        ("A + 1", "column 'A' does not exist", "names are case-sensitive: did you mean 'a'?", 0, 1),
        ("1 + device.vers", "device has no field 'vers'", "did you mean 'version'?", 11, 4),
        ("a.b", "a is INT, it has no field 'b'", None, 2, 1),
        ("attrs.k", "attrs is MAP<STRING, STRING>, it has no field 'k'", "write attrs['k'] for a value of a MAP", 6, 1),
        ("SUBSTRIN(s, 1)", "function 'SUBSTRIN' does not exist", "SUBSTRING", 0, 14),
        ("PI", "column 'PI' does not exist", "write PI(…) to call the function", 0, 2),
        ("a > 1 AND s > 5", "operator > does not take STRING and INT", "text and numbers do not mix", 10, 5),
        ("s + 1", "operator + does not take STRING and INT", "use || to join text", 0, 5),
        ("s || 5", "operator || does not take STRING and INT", "CAST the other side AS STRING", 0, 6),
        ("f > a", "operator > does not take BOOLEAN and INT", "CAST one side", 0, 5),
        ("attrs = attrs", "operator = does not take MAP<", "MAP values do not compare", 0, 13),
        ("a AND f", "an operand of AND must be BOOLEAN, this is INT", "compare it", 0, 1),
        ("NOT a", "NOT takes a BOOLEAN, INT given", "compare it", 0, 5),
        ("-s", "unary minus does not take STRING", None, 0, 2),
        ("tags[0]", "array positions start at 1, got 0", None, 0, 7),
        ("tags['x']", "an array is accessed by a whole number, CHAR(1) given", None, 0, 9),
        ("device[1]", "[…] takes an ARRAY or a MAP", "a field of a ROW is written row.field", 0, 9),
        ("ts > 'abc'", "cannot cast 'abc' to TIMESTAMP(3)", None, 5, 5),
        ("CAST(a AS STRNG)", "unknown type 'STRNG'", "did you mean 'STRING'?", 10, 5),
        ("CAST(a AS TIMESTAMP(3))", "CAST from INT to TIMESTAMP(3) is not possible", "TO_TIMESTAMP_LTZ", 0, 23),
        ("CASE WHEN f THEN 1 ELSE 'x' END", "the results of CASE have no common type: INT, CHAR(1)", "CAST", 24, 3),
        ("COALESCE(a, s)", "the arguments of COALESCE have no common type: INT, STRING", "CAST", 12, 1),
        ("IF(a, 1, 2)", "the condition of IF must be BOOLEAN, this is INT", "compare it", 3, 1),
        (
            "OBJECT_OF(s, 'k', a)",
            "the class name of OBJECT_OF must be a constant character string",
            "usage: OBJECT_OF",
            10,
            1,
        ),
        ("OBJECT_OF('c', 'k', a, 'k', b)", "the key 'k' is there twice", None, 23, 3),
        ("OBJECT_UPDATE(device, 'oss', a)", "has no field 'oss'", "did you mean 'os'?", 0, 31),
        ("NULLIF(a)", "NULLIF takes", "usage: NULLIF(value, other)", 0, 9),
        ("TYPEOF()", "TYPEOF takes 1 to 2 arguments", "usage: TYPEOF(value[, force_serializable])", 0, 8),
        ("TYPEOF(a, s)", "argument 2 of TYPEOF must be TRUE or FALSE", "usage: TYPEOF(", 10, 1),
        ("CURRENT_DATABASE(a)", "CURRENT_DATABASE takes 0 arguments", "usage: CURRENT_DATABASE()", 0, 19),
        ("CURRENT_WATERMARK(ts)", "CURRENT_WATERMARK is not supported", "drop late rows themselves", 0, 21),
        ("a IN (1, 'x')", "a list for INT cannot hold CHAR(1)", "CAST", 9, 3),
        ("s LIKE 5", "LIKE takes texts, INT given", "CAST", 0, 8),
        ("s LIKE 'x' ESCAPE 'ab'", "ESCAPE takes a text of one character", None, 0, 22),
        ("1.5e400", "1.5e400 is too large for DOUBLE", None, 0, 7),
        ("123456789012345678901234567890123456789", "has 39 digits, at most 38 are possible", None, 0, 39),
        ("TIMESTAMP '2024-13-01 00:00:00'", "'2024-13-01 00:00:00' is no TIMESTAMP", None, 0, 31),
        ("(5 - 3) DAY", "(a - b) DAY is the time between two points in time, got INT and INT", "AS", 0, 11),
        ("(ts - ts) DAY TO YEAR", "'DAY TO YEAR' is no interval unit", None, 0, 21),
        ("_foo'x'", "there is no character set 'foo'", None, 0, 4),
        ("_latin1'€'", "the character set 'latin1' has no '€'", None, 0, 10),
        ("INTERVAL '1:75:x' HOUR TO SECOND", "'x' is no number of SECONDs", None, 0, 32),
        ("INTERVAL '1' FORTNIGHT", "'FORTNIGHT' is no interval unit", None, 0, 22),
        ("INTERVAL '0.0001' SECOND", "finer than a millisecond", None, 0, 24),
        ("SUM(a)", "SUM is an aggregate, it works only under 'aggregate'", "move it there", 0, 6),
        ("COUNT(*) + 1", "COUNT is an aggregate", None, 0, 8),
        ("UPPER(s) FILTER (WHERE f)", "FILTER (WHERE …) follows only aggregates", None, 0, 25),
        ("RAND() OVER (ORDER BY ts)", "OVER (…) is not possible here", None, 0, 25),
        ("*", "* stands for columns only in a select list", None, 0, 1),
        ("a = ", "expected an expression, got the end", None, 3, 1),
        ("ARRAY[1, 'x']", "ARRAY[…] takes values of one type", "CAST", 0, 13),
        ("MAP['a']", "MAP[…] takes pairs", None, 0, 8),
        ("ITEM(tags, 1)", "function 'ITEM' does not exist", None, 0, 13),
    ],
)
def test_an_error_says_where_what_and_what_else(text, message, hint, offset, length):
    with pytest.raises(ExpressionError) as caught:
        bind_expression(text, ORDERS)
    assert message in caught.value.message
    assert (hint is None) or (caught.value.hint is not None and hint in caught.value.hint)
    assert (caught.value.offset, caught.value.length) == (offset, length)


def test_conversions_are_explicit_in_the_tree():
    bound = bind_expression("a + b", ORDERS)
    assert str(bound) == "(CAST(a AS BIGINT) + b)"
    compared = bind_expression("s = 'x'", ORDERS)
    assert compared.children[1] == Literal(STRING, "x")


def test_a_list_of_constants_is_one_membership_test():
    bound = bind_expression("a NOT IN (1, 1 + 1, NULL, 2)", ORDERS)
    assert bound == InList(ColumnRef(INT, 0, "a"), (1, 2, None), True)
    assert str(bind_expression("a IN (b, 5)", ORDERS)) == "((CAST(a AS BIGINT) = b) OR (CAST(a AS BIGINT) = 5))"


def test_long_chains_of_conditions_do_not_nest():
    bound = bind_expression(" OR ".join(f"a = {i}" for i in range(300)), ORDERS)
    assert len(bound.children) == 300


def test_absurd_nesting_is_an_error_not_a_crash():
    with pytest.raises(ExpressionError, match="nested too deeply"):
        bind_expression("(" * 5000 + "a" + ")" * 5000, ORDERS)


def test_a_condition_must_be_boolean():
    assert bind_predicate("f", ORDERS) == bind_expression("f", ORDERS)
    assert bind_predicate("NULL", ORDERS).type.root.value == "BOOLEAN"
    with pytest.raises(ExpressionError, match="a condition must be BOOLEAN, this is INT"):
        bind_predicate("a", ORDERS)


def test_a_column_may_be_called_like_a_function_or_a_type():
    schema = Schema.of(date=INT, timestamp=INT, CURRENT_DATE=DOUBLE, interval=decimal(5, 2), count=INT)
    for name in schema.names:
        assert bind_expression(name, schema) == ColumnRef(schema.field(name).type, schema.index(name), name)


def test_trees_pickle():
    bound = bind_expression("CASE WHEN a IN (1, 2) THEN UPPER(s) ELSE device.os END", ORDERS)
    assert pickle.loads(pickle.dumps(bound)) == bound
