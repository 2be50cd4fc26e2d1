"""Types are read from text in Flink's syntax, with its defaults and with errors that point at the wrong part."""

import pytest

from flowrun.core import types as t
from flowrun.core.type_parser import TypeTextError, parse_type


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("BIGINT", t.BIGINT),
        (" integer ", t.INT),
        ("Double Precision", t.DOUBLE),
        ("STRING", t.STRING),
        ("varchar(7)", t.varchar(7)),
        ("VARCHAR(2147483647)", t.STRING),
        ("VARCHAR", t.STRING),
        ("CHARACTER VARYING(5)", t.varchar(5)),
        ("CHAR(3)", t.char(3)),
        ("CHAR", t.char(1)),
        ("BYTES", t.BYTES),
        ("VARBINARY(4)", t.varbinary(4)),
        ("DECIMAL", t.decimal(10, 0)),
        ("DECIMAL(10,2)", t.decimal(10, 2)),
        ("numeric(5)", t.decimal(5, 0)),
        ("TIME", t.time(0)),
        ("TIMESTAMP", t.timestamp(6)),
        ("TIMESTAMP(3) WITHOUT TIME ZONE", t.timestamp(3)),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", t.timestamp_ltz(3)),
        ("TIMESTAMP_LTZ(3)", t.timestamp_ltz(3)),
        ("INTERVAL DAY(3) TO SECOND(3)", t.INTERVAL_DAY_TIME),
        ("INTERVAL YEAR TO MONTH", t.INTERVAL_YEAR_MONTH),
        ("ARRAY<STRING>", t.array(t.STRING)),
        ("INT ARRAY", t.array(t.INT)),
        ("MAP<STRING,STRING>", t.map_of(t.STRING, t.STRING)),
        ("MULTISET<STRING>", t.map_of(t.STRING, t.INT)),
        ("BIGINT MULTISET", t.map_of(t.BIGINT, t.INT)),
        ("ROW<os STRING, version INT>", t.row(("os", t.STRING), ("version", t.INT))),
        ("ROW(a INT NOT NULL 'comment', `b c` ARRAY<INT>)", t.row(("a", t.INT), ("b c", t.array(t.INT)))),
        ("BIGINT NOT NULL", t.BIGINT),
        ("ROW<`timestamp` TIMESTAMP(3), 名前 STRING>", t.row(("timestamp", t.timestamp(3)), ("名前", t.STRING))),
    ],
)
def test_every_spelling_gives_its_type(text, expected):
    assert parse_type(text) == expected


@pytest.mark.parametrize(
    "type",
    [t.decimal(38, 10), t.timestamp_ltz(9), t.map_of(t.STRING, t.row(("a", t.array(t.char(2))))), t.INTERVAL_DAY_TIME],
)
def test_the_printed_form_reads_back(type):
    assert parse_type(str(type)) == type


@pytest.mark.parametrize(
    ("text", "message", "offset"),
    [
        ("BIGNT", "unknown type 'BIGNT' in type 'BIGNT'; did you mean 'BIGINT'", 0),
        ("ARRAY<STRNG>", "unknown type 'STRNG'", 6),
        ("ARRAY<INT", "expected '>', got the end", 9),
        ("ARRAY", "expected ARRAY<type>, got the end", 5),
        ("MAP<INT>", "expected ',', got '>'", 7),
        ("ROW<INT>", "expected a type, got '>'", 7),
        ("ROW<a INT, a INT>", "field 'a' occurs twice", 11),
        ("DECIMAL(39)", "precision must be 1 to 38", 0),
        ("TIMESTAMP(12)", "at most 9 fractional digits", 10),
        ("CHAR(0)", "a length must be at least 1", 5),
        ("TIMESTAMP WITH TIME ZONE", "TIMESTAMP WITH TIME ZONE is not supported", 0),
        ("INT INT", "unexpected 'INT'", 4),
        ("INT; DROP", "unexpected character ';'", 3),
        ("", "expected a type, got the end", 0),
        ("INTERVAL 5", "expected a unit like DAY or MONTH", 9),
    ],
)
def test_a_wrong_text_is_a_clear_error_at_its_place(text, message, offset):
    with pytest.raises(TypeTextError) as caught:
        parse_type(text)
    assert message in str(caught.value)
    assert caught.value.offset == offset
