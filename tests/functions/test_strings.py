"""String functions, by the values that Flink's documentation and behaviour give."""

from __future__ import annotations

import re

import pytest

from flowrun.core.types import BYTES, INT, STRING, array, map_of
from flowrun.errors import DataError, ExpressionError
from tests.functions.kernel_calls import Column, Constant, call, check, signature

NULL = Constant(None, STRING)
UMBRELLA = "Ünïcode ☂"
ASTRAL = "a😀b"


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("UPPER", (UMBRELLA,), "ÜNÏCODE ☂"),
        ("UPPER", ("straße",), "STRASSE"),
        ("UPPER", ("",), ""),
        ("LOWER", ("ÀB",), "àb"),
        ("INITCAP", ("bird seed",), "Bird Seed"),
        ("INITCAP", ("hELLO wORLD 3rd-place",), "Hello World 3rd-Place"),
        ("TRIM", ("  x\t ",), "x\t"),
        ("TRIM", ("xxaxbxx", "x"), "axb"),
        ("BTRIM", ("abcba", "ab"), "c"),
        ("TRIM", ("abc", ""), "abc"),
        ("LTRIM", ("  x ",), "x "),
        ("LTRIM", ("yxa", "xy"), "a"),
        ("RTRIM", (" x  ",), " x"),
        ("RTRIM", ("☂a☂☂", "☂"), "☂a"),
        ("CHAR_LENGTH", (UMBRELLA,), 9),
        ("CHARACTER_LENGTH", (ASTRAL,), 3),
        ("OCTET_LENGTH", (ASTRAL,), 6),
        ("SUBSTRING", (UMBRELLA, 2, 3), "nïc"),
        ("SUBSTRING", (ASTRAL, 2, 1), "😀"),
        ("SUBSTRING", ("flowrun", 5), "run"),
        ("SUBSTRING", ("flowrun", -3, 2), "ru"),
        ("SUBSTRING", ("flowrun", -3), "run"),
        ("SUBSTRING", ("flowrun", -3, 9), "run"),
        ("SUBSTRING", ("abc", -5, 3), ""),
        ("SUBSTRING", ("abc", 0, 2), "ab"),
        ("SUBSTRING", ("abc", 9), ""),
        ("SUBSTRING", ("abc", 2, 0), ""),
        ("SUBSTR", ("abc", 2, -1), None),
        ("LEFT", (UMBRELLA, 3), "Ünï"),
        ("LEFT", ("abc", -1), ""),
        ("RIGHT", (UMBRELLA, 1), "☂"),
        ("RIGHT", ("abc", 9), "abc"),
        ("RIGHT", ("abc", 0), ""),
        ("LPAD", ("hi", 4, "??"), "??hi"),
        ("LPAD", ("hi", 1, "?"), "h"),
        ("LPAD", ("42", 6, "0"), "000042"),
        ("LPAD", ("hi", 5, "ab"), "abahi"),
        ("LPAD", ("hi", -1, "a"), None),
        ("LPAD", ("hi", 4, ""), None),
        ("RPAD", ("hi", 4, "☂"), "hi☂☂"),
        ("RPAD", ("hi", 0, "x"), ""),
        ("REPEAT", ("ab", 3), "ababab"),
        ("REPEAT", ("ab", -2), ""),
        ("REVERSE", (ASTRAL,), "b😀a"),
        ("CONCAT", ("a", "", "ü"), "aü"),
        ("CONCAT_WS", ("~", "AA", "BB", "", "CC"), "AA~BB~~CC"),
        ("OVERLAY", ("xxxxxtest", "xxxx", 6), "xxxxxxxxx"),
        ("OVERLAY", ("xxxxxtest", "xxxx", 6, 2), "xxxxxxxxxst"),
        ("OVERLAY", ("abc", "z", 0), "abc"),
        ("POSITION", ("e", UMBRELLA), 7),
        ("POSITION", ("☂", UMBRELLA), 9),
        ("POSITION", ("x", "abc"), 0),
        ("POSITION", ("", "abc"), 1),
        ("LOCATE", ("b", "abcb", 3), 4),
        ("INSTR", ("corporate floor", "or", 3, 2), 14),
        ("INSTR", ("corporate floor", "or", -3, 2), 2),
        ("INSTR", ("abc", "c"), 3),
        ("REPLACE", ("hello world", "world", "flink"), "hello flink"),
        ("REPLACE", ("ababab", "abab", "z"), "zab"),
        ("REPLACE", ("ab", "", "-"), "-a-b-"),
        ("TRANSLATE", ("banana", "abn", "xy"), "yxxx"),
        ("SPLIT_INDEX", ("/home/7?q=1", "/", 1), "home"),
        ("SPLIT_INDEX", ("a//b", "/", 1), ""),
        ("SPLIT_INDEX", ("a/b", "/", 2), None),
        ("SPLIT_INDEX", ("a/b", "/", -1), None),
        ("SPLIT_INDEX", ("", "/", 0), None),
        ("SPLIT_INDEX", ("a, b", ", ", 1), "b"),
        ("SPLIT_INDEX", ("a,b", 44, 1), "b"),
        ("SPLIT_INDEX", ("a b", "", 1), "b"),
        ("SPLIT_INDEX", ("a,b", 0, 0), None),
        ("SPLIT", ("a,,b", ","), ["a", "", "b"]),
        ("SPLIT", ("abc", ""), ["a", "b", "c"]),
        ("SPLIT", ("abc", "x"), ["abc"]),
        ("SPLIT", ("", ","), []),
        ("SPLIT", (",", ","), ["", ""]),
        ("STARTSWITH", (UMBRELLA, "Ün"), True),
        ("STARTSWITH", ("abc", ""), True),
        ("ENDSWITH", (UMBRELLA, "x"), False),
        ("ELT", (2, "scala", "java"), "java"),
        ("ELT", (3, "scala", "java"), None),
        ("STR_TO_MAP", ("k1=v1,k2=v2,k3",), [("k1", "v1"), ("k2", "v2"), ("k3", None)]),
        ("STR_TO_MAP", ("k1:v1;k1:v2", ";", ":"), [("k1", "v2")]),
        ("STR_TO_MAP", ("k1=v=1,k2=", "(,)", "(=)"), [("k1", "v=1"), ("k2", "")]),
        ("STR_TO_MAP", ("ab,c", ",", ""), [("a", "b"), ("c", "")]),
        ("STR_TO_MAP", ("",), []),
        ("PRINTF", ("%s=%05d|%.2f%%", "x", 42, 1.005), "x=00042|1.01%"),
        ("PRINTF", ("%d", "x"), None),
        ("PRINTF", ("%c", "x"), None),
        ("PRINTF", ("%c", 228), "ä"),
        ("PRINTF", ("[%05d]", Constant(None, INT)), "[ null]"),
        ("PRINTF", ("%g %.3g %g", 2.25, 1234.5, 1e-7), "2.25000 1.23e+03 1.00000e-07"),
        ("PRINTF", ("%.1f", 1.7e308), "17" + "0" * 307 + ".0"),
        ("IS_ALPHA", ("abcÜ",), True),
        ("IS_ALPHA", ("ab1",), False),
        ("IS_DIGIT", ("0123",), True),
        ("IS_DIGIT", ("",), False),
        ("IS_DECIMAL", ("1.5e3",), True),
        ("IS_DECIMAL", ("x1",), False),
        ("ASCII", ("abc",), 97),
        ("ASCII", ("",), 0),
        ("CHR", (353,), "a"),
        ("CHR", (-1,), ""),
        ("HEX", ("hello,world",), "68656C6C6F2C776F726C64"),
        ("HEX", (100,), "64"),
        ("UNHEX", ("466C696E6B",), b"Flink"),
        ("UNHEX", ("zz",), None),
        ("BIN", (12,), "1100"),
        ("TO_BASE64", ("hello world",), "aGVsbG8gd29ybGQ="),
        ("FROM_BASE64", ("aGVsbG8gd29ybGQ=",), "hello world"),
        ("ENCODE", ("ü", "UTF-16BE"), b"\x00\xfc"),
        ("DECODE", (Constant(b"\xc3\xbc", BYTES), "utf-8"), "ü"),
        ("URL_ENCODE", ("a b/ü~",), "a+b%2F%C3%BC%7E"),
        ("URL_DECODE", ("a+b%2F%C3%BC",), "a b/ü"),
        ("URL_DECODE", ("100%",), None),
        ("PARSE_URL", ("http://facebook.com/path1/p.php?k1=v1&k2=v2#Ref1", "HOST"), "facebook.com"),
        ("PARSE_URL", ("http://facebook.com/path1/p.php?k1=v1&k2=v2#Ref1", "QUERY", "k2"), "v2"),
        ("PARSE_URL", ("http://u:p@h:8080/a?b#c", "AUTHORITY"), "u:p@h:8080"),
        ("PARSE_URL", ("http://u:p@h:8080/a?b#c", "FILE"), "/a?b"),
        ("PARSE_URL", ("no url", "HOST"), None),
        ("INET_ATON", ("192.168.0.1",), 3232235521),
        ("INET_ATON", ("127.1",), 2130706433),
        ("INET_ATON", ("1.2.3",), 16908291),
        ("INET_ATON", ("7",), 7),
        ("INET_ATON", ("001.0000000002.3.4",), 16909060),
        ("INET_ATON", ("1.2.3.256",), None),
        ("INET_ATON", ("1.2.3.4.5",), None),
        ("INET_ATON", ("1..2",), None),
        ("INET_ATON", ("1.2.3.4\n",), None),
        ("INET_ATON", ("",), None),
        ("INET_NTOA", (4294967295,), "255.255.255.255"),
        ("INET_NTOA", (16909060,), "1.2.3.4"),
        ("INET_NTOA", (-1,), None),
        ("INET_NTOA", (4294967296,), None),
    ],
)
def test_values(name, arguments, expected):
    check(name, arguments, expected)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("UPPER", (NULL,)),
        ("SUBSTRING", ("abc", Constant(None, INT))),
        ("SUBSTRING", (NULL, 1)),
        ("CONCAT", ("a", NULL)),
        ("CONCAT_WS", (NULL, "a", "b")),
        ("LPAD", (NULL, 3, "x")),
        ("SPLIT_INDEX", ("a/b", NULL, 1)),
        ("REPLACE", ("abc", NULL, "x")),
        ("TRIM", ("abc", NULL)),
        ("POSITION", (NULL, "abc")),
        ("STARTSWITH", ("abc", NULL)),
        ("REPEAT", (NULL, 2)),
        ("LEFT", ("abc", Constant(None, INT))),
        ("ELT", (Constant(None, INT), "a", "b")),
        ("PARSE_URL", (NULL, "HOST")),
    ],
)
def test_null_in_null_out(name, arguments):
    check(name, arguments, None)


def test_null_rows_stay_null_among_ascii_and_other_text():
    column = Column(["abc", None, UMBRELLA, ""])
    assert call("UPPER", column, sliced=True) == ["ABC", None, "ÜNÏCODE ☂", ""]
    assert call("POSITION", "c", column, sliced=True) == [3, None, 4, 0]
    assert call("SPLIT_INDEX", column, "b", 0) == ["a", None, UMBRELLA, None]
    assert call("SUBSTRING", column, -2) == ["bc", None, " ☂", ""]


def test_concat_ws_leaves_nulls_out():
    assert call("CONCAT_WS", "/", Column(["a", None]), Column([None, None]), Column(["c", "d"])) == ["a/c", "d"]


def test_tests_of_text_are_false_for_null():
    assert call("IS_ALPHA", Column([None, "a"])) == [False, True]
    assert call("IS_DIGIT", Column([7, None], INT)) == [True, False]
    assert call("IS_DECIMAL", Column([None, "1"])) == [False, True]


def test_translate_with_null_tables_keeps_or_removes():
    assert call("TRANSLATE", "abc", NULL, "x") == "abc"
    assert call("TRANSLATE", "abc", "b", NULL) == "ac"


def test_arguments_that_vary_by_row():
    assert call("SUBSTRING", Column(["abcdef"] * 3), Column([1, -2, 9], INT), Column([2, None, 1], INT)) == [
        "ab",
        None,
        "",
    ]
    assert call("LPAD", Column(["a", "b"]), Column([3, -1], INT), Column(["xy", "z"])) == ["xya", None]
    assert call("SPLIT_INDEX", Column(["a/b", "a-b"]), Column(["/", "-"]), Column([0, 1], INT)) == ["a", "b"]
    assert call("REPEAT", Column(["ab", "c"]), Column([2, -1], INT)) == ["abab", ""]
    assert call("ELT", Column([1, 2, 3, None], INT), Column(list("abcd")), "z") == ["a", "z", None, None]


def test_result_types():
    assert signature("SPLIT", "a", "b").result == array(STRING)
    assert signature("STR_TO_MAP", "a").result == map_of(STRING, STRING)
    assert signature("CHAR_LENGTH", "a").result == INT


def test_uuids_are_random_version_4():
    first, second = call("UUID"), call("UUID")
    form = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
    assert form.fullmatch(first[0])
    assert first != second


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("UPPER", (5,), "argument 1 of UPPER must be a character string, INT given"),
        ("UPPER", (), "UPPER takes 1 argument, 0 given"),
        ("SUBSTRING", ("a",), "SUBSTRING takes 2 to 3 arguments, 1 given"),
        ("CONCAT", (), "CONCAT takes at least 1"),
        ("ENCODE", ("a", "UTF-9"), "'UTF-9' is not one of"),
        ("PARSE_URL", ("a", "HOTS"), "did you mean 'HOST'"),
        ("PARSE_URL", ("a", Column(["HOST"])), "must be a constant"),
        ("SPLIT_INDEX", ("a", 1.5, 0), "the separator must be"),
    ],
)
def test_wrong_calls_are_refused_at_validation(name, arguments, message):
    with pytest.raises(ExpressionError, match=re.escape(message)) as caught:
        signature(name, *arguments)
    assert "usage: " in str(caught.value)


def test_bad_base64_names_the_row():
    with pytest.raises(DataError, match="FROM_BASE64") as caught:
        call("FROM_BASE64", Column(["YQ==", None, "?"]))
    assert caught.value.row == 2


def test_corners_are_those_of_java():
    assert call("IS_DECIMAL", Column(["٣", "3"])) == [False, True]
    assert call("ENCODE", Column(["", "a"]), "UTF-16") == [b"", b"\xfe\xff\x00a"]
