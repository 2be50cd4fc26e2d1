"""What operators, CASE, CAST and element access give, row by row, with NULL in every place."""

import datetime as dt
from decimal import Decimal

import pytest

from flowrun.errors import DataError
from tests.frontend.sql.expressions.evaluation import constant, evaluate


def at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a % 2", [1, -1, None, 0]),
        ("b / 3", [3, 1, None, -1]),
        ("MOD(d, 0.4)", [Decimal("0.13"), Decimal("-0.35"), None, Decimal("0.00")]),
        ("d / 3", [Decimal("3.3766666666667"), Decimal("-0.5166666666667"), None, Decimal("0E-13")]),
        ("x / 2", [0.75, -1.125, None, 5e9]),
        ("a IN (1, 2, NULL)", [True, None, None, None]),
        ("a NOT IN (1, 2)", [False, True, None, True]),
        ("a IN (b, 40)", [False, False, None, True]),
        ("d IN (10.13, 0)", [True, False, None, True]),
        ("a BETWEEN -7 AND 1", [True, True, None, False]),
        ("a NOT BETWEEN -7 AND 1", [False, False, None, True]),
        ("a BETWEEN SYMMETRIC 1 AND -7", [True, True, None, False]),
        ("CASE a WHEN 1, 40 THEN 'x' WHEN -7 THEN 'y' END", ["x", "y", None, "x"]),
        ("'a' 'b''c'", ["ab'c"] * 4),
        ("a IS DISTINCT FROM 1", [False, True, True, True]),
        ("a IS NOT DISTINCT FROM NULL", [False, False, True, False]),
        ("f IS NOT TRUE", [False, True, True, False]),
        ("f IS UNKNOWN", [False, False, True, False]),
        ("NOT f", [False, True, None, False]),
        ("s IS NULL OR a > 1", [False, False, True, True]),
        ("f AND NULL", [None, False, None, None]),
        ("f OR NULL", [True, None, None, True]),
        ("s LIKE '%b%'", [True, False, None, False]),
        ("s LIKE '_n%☂'", [False, False, None, True]),
        ("s NOT LIKE 'a%'", [False, True, None, True]),
        ("s LIKE s", [True, True, None, True]),
        ("'50%' LIKE '50!%' ESCAPE '!'", [True] * 4),
        ("'a\\b' LIKE 'a\\b'", [True] * 4),
        ("'a.c' LIKE 'a_c' AND 'abc' NOT LIKE 'a.c'", [True] * 4),
        ("s SIMILAR TO '(a|x)[b-c]+'", [True, False, None, False]),
        ("s SIMILAR TO 'a.c'", [True, False, None, False]),
        ("s SIMILAR TO '^a%+%'", [True, False, None, False]),
        ("'a$' SIMILAR TO '_$' AND 'a.b' SIMILAR TO 'a_b'", [True] * 4),
        ("U&'a\\000ab' SIMILAR TO 'a%b' AND NOT U&'a\\000ab' SIMILAR TO 'a_b'", [True] * 4),
        ("JSON_OBJECT('j' VALUE JSON('[1, {\"a\":2}]'), 'n' VALUE JSON(NULL))", ['{"j":[1,{"a":2}],"n":null}'] * 4),
        ("JSON_ARRAY(JSON('null'), JSON(''), JSON(NULL))", ["[null,null]"] * 4),
        ("COALESCE(a, b, 0)", [1, -7, 0, 40]),
        ("NULLIF(a, 1)", [None, -7, None, 40]),
        ("IFNULL(s, 'none')", ["abc", " 12 ", "none", "Ünï☂"]),
        ("CASE a WHEN 1 THEN 'one' WHEN 40 THEN 'forty' END", ["one", None, None, "forty"]),
        ("CASE WHEN a > 0 THEN a ELSE 0.5 END", [Decimal("1.0"), Decimal("0.5"), Decimal("0.5"), Decimal("40.0")]),
        ("tags[1]", ["u", None, None, "z"]),
        ("tags[a]", ["u", None, None, None]),
        ("tags[5]", [None] * 4),
        ("attrs['k']", ["v", None, None, None]),
        ("attrs[SUBSTRING('kkkq', 4, 1)]", [None, None, None, "w"]),
        ("attrs[CASE WHEN f THEN 'k' END]", ["v", None, None, None]),
        ("device.os", ["ios", None, None, "web"]),
        ("OBJECT_OF('shop.User', 'id', a, 'name', s).name", ["abc", " 12 ", None, "Ünï☂"]),
        ("OBJECT_UPDATE(device, 'version', 7).version", [7, 7, None, 7]),
        ("OBJECT_UPDATE(device, 'version', 7).os", ["ios", None, None, "web"]),
        ("device = ROW('web', 5)", [False, False, None, True]),
        ("(a, f) = (1, TRUE)", [True, False, None, False]),
        ("(a, f) <> (1, FALSE)", [True, True, None, True]),
        ("ROW(a, s) = ROW(1, 'abc')", [True, False, None, False]),
        ("(a, b) IN ((1, 10), (40, 0))", [True, False, None, False]),
        ("(a, (s, b)) = (1, ('abc', 10.0))", [True, False, None, False]),
        ("tags = ARRAY['u', 'v']", [True, False, None, False]),
        ("tags IS DISTINCT FROM ARRAY['z']", [True, True, True, False]),
        ("ARRAY[a, 5]", [[1, 5], [-7, 5], [None, 5], [40, 5]]),
        ("MAP['x', a, 'x', 2]", [[("x", 2)]] * 4),
        ("ROW(a, f)", [{"EXPR$0": a, "EXPR$1": f} for a, f in ((1, True), (-7, False), (None, None), (40, True))]),
        ("CASE WHEN f THEN tags END", [["u", "v"], None, None, ["z"]]),
        ("CASE WHEN f THEN attrs END", [[("k", "v")], None, None, [("k", None), ("q", "w")]]),
        ("COALESCE(device.os, s)", ["ios", " 12 ", None, "web"]),
        ("ts + INTERVAL '1' MONTH", [at("2024-02-29T10:00:00.123"), at("1970-01-31T23:59:59"), None, at("2024-03-29")]),
        ("dt - INTERVAL '1' YEAR", [dt.date(2023, 1, 31), dt.date(1959, 2, 28), None, dt.date(2023, 3, 1)]),
        ("INTERVAL '2' DAY + dt", [dt.date(2024, 2, 2), dt.date(1960, 3, 2), None, dt.date(2024, 3, 3)]),
        ("ts - INTERVAL '0.123' SECOND", [at("2024-01-31T10:00:00"), at("1969-12-31T23:59:58.877"), None, at("2024-02-28T23:59:59.877")]),
        ("dt + INTERVAL '90' MINUTE", [at("2024-01-31T01:30:00"), at("1960-02-29T01:30:00"), None, at("2024-03-01T01:30:00")]),
        ("ts > '2024-01-31 10:00:00'", [True, False, None, True]),
        ("ts >= dt", [True, True, None, False]),
        ("ts - ts = INTERVAL '0' SECOND", [True, True, None, True]),
    ],
)  # fmt: skip
def test_values(text, expected):
    assert evaluate(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-7 / 2", -3),
        ("-7 % 2", -1),
        ("7 % -2", 1),
        ("TIME '23:30:00' + INTERVAL '1' HOUR", dt.time(0, 30)),
        ("TIMESTAMP '2024-03-01 00:00:00' - INTERVAL '0.5' SECOND", at("2024-02-29T23:59:59.5")),
        ("INTERVAL '1:30' HOUR TO MINUTE * 2 = INTERVAL '3' HOUR", True),
        ("INTERVAL '1 2:03:04.5' DAY TO SECOND", dt.timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("-INTERVAL '1' DAY", dt.timedelta(days=-1)),
        ("INTERVAL -'1' DAY", dt.timedelta(days=-1)),
        ("(TIMESTAMP '2024-01-02 00:00:00.5' - DATE '2024-01-01') DAY TO SECOND", dt.timedelta(days=1, seconds=0.5)),
        ("(TIME '10:00:00' - TIME '09:00:00') HOUR + INTERVAL '1' HOUR", dt.timedelta(hours=2)),
        ("(DATE '2024-01-02' - INTERVAL '1' DAY - DATE '2024-01-01') SECOND", dt.timedelta()),
        (
            "(TIMESTAMP '2024-02-29 10:00:00' - TIMESTAMP '2023-01-31 11:00:00') YEAR TO MONTH = INTERVAL '12' MONTH",
            True,
        ),
        ("(TIMESTAMP '2023-01-31 11:00:00' - TIMESTAMP '2024-02-29 10:00:00') QUARTER = INTERVAL '-13' MONTH", True),
        ("DATE '2023-01-31' + (DATE '2024-02-29' - DATE '2023-01-31') MONTH", dt.date(2024, 2, 29)),
        ("_UTF8'it''s €' || N'é' || _ISO-8859-1''", "it's €é"),
        ("1.5 + 2", Decimal("3.5")),
        ("TYPEOF(1.5 + 2)", "DECIMAL(12, 1) NOT NULL"),
        ("TYPEOF(NULL)", "NULL"),
        ("TYPEOF(TRY_CAST('x' AS INT), FALSE)", "INT"),
        ("TYPEOF(CAST(NULL AS ARRAY<STRING>), TRUE)", "ARRAY<VARCHAR(2147483647)>"),
        (
            "TYPEOF(CAST(NULL AS ROW<`a``b` BYTES, t TIMESTAMP_LTZ(3)>), TRUE)",
            "ROW<`a``b` VARBINARY(2147483647), `t` TIMESTAMP(3) WITH LOCAL TIME ZONE>",
        ),
        ("CURRENT_DATABASE()", "default_database"),
        ("0.1 * 0.1", Decimal("0.01")),
        ("1.00 / 3.00", Decimal("0.333333")),
        ("U&'\\00e4x'", "äx"),
        ("u&'\\d83d\\de00ä'", "😀ä"),
        ("U&'#0041##\\00e4' UESCAPE '#'", "A#\\00e4"),
        ("NULL IS NULL", True),
        ("NULL = NULL", None),
        ("X'0aff' || X'01'", b"\x0a\xff\x01"),
        ("CAST(MAP['a', 1] AS STRING)", "{a=1}"),
        (
            "CAST(99999999999999999999999999999999999999 AS DECIMAL(38, 0)) - 1",
            Decimal("99999999999999999999999999999999999998"),
        ),
    ],
)
def test_constants(text, expected):
    assert constant(text) == expected


@pytest.mark.parametrize(
    ("text", "message", "row"),
    [
        ("10 / (a - 40)", "division by zero, in (10 / (a - 40))", 3),
        ("x / (a - 1)", "division by zero, in (x / CAST((a - 1) AS DOUBLE))", 0),
        ("d % (a + 7)", "division by zero", 1),
        ("a * 100000000", "the result does not fit INT (overflow), in (a * 100000000)", 3),
        ("b - 9223372036854775807 - 10", "the result does not fit BIGINT", 3),
        ("CAST(s AS INT)", "cannot cast 'abc' to INT, in CAST(s AS INT)", 0),
        ("CAST(a AS TINYINT) * CAST(40 AS TINYINT)", "the result does not fit TINYINT", 1),
        ("CAST(d AS DECIMAL(3, 2))", "cannot cast 10.13 to DECIMAL(3, 2)", 0),
        ("MAP[s, 1]", "a key of MAP[…] is NULL", 2),
        ("NOT (f OR 1 / (a + 7) = 1)", "division by zero", 1),
        ("1 / 0", "division by zero", 0),
        ("CASE WHEN a < 0 THEN CAST(s || 'x' AS INT) ELSE 0 END", "cannot cast ' 12 x' to INT", 1),
        ("CASE WHEN f THEN CASE WHEN a > 1 THEN a / 0 END END", "division by zero", 3),
    ],
)
def test_a_failing_row_is_named_with_its_expression(text, message, row):
    with pytest.raises(DataError) as caught:
        evaluate(text)
    assert message in caught.value.message
    assert caught.value.row == row


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CASE WHEN a <> 40 THEN 10 / (a - 40) ELSE 0 END", [0, 0, 0, 0]),
        ("a <> 40 AND 10 / (a - 40) = 0", [True, True, None, False]),
        ("a = 40 OR 10 / (a - 40) = 0", [True, True, None, True]),
        ("COALESCE(TRY_CAST(s AS INT), CAST(a AS INT) / 1)", [1, 12, None, 40]),
        ("IF(f, CAST(CASE WHEN s = 'abc' THEN '1' ELSE '2' END AS INT), CAST(s AS INT))", [1, 12, None, 2]),
        ("10 / NULLIF(a - 40, 0)", [0, 0, None, None]),
        ("CASE WHEN a > 0 THEN 100 / a WHEN a < 0 THEN -100 / a END", [100, 14, None, 2]),
        ("CASE WHEN f THEN tags[1] || CAST(100 / a AS STRING) ELSE s END", ["u100", " 12 ", None, "z2"]),
        ("CASE WHEN FALSE THEN 1 / 0 ELSE 5 END", [5] * 4),
        ("f AND FALSE AND 1 / 0 = 1", [False] * 4),
    ],
)
def test_guarded_parts_see_only_the_rows_that_reach_them(text, expected):
    # IF's third argument fails for NULL conditions' rows unless s there is NULL too, which it is
    assert evaluate(text) == expected
