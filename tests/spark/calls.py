"""Calls of every scalar function over the grids: what the differential test asks of both engines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flowrun.core.types import BIGINT, BOOLEAN, DOUBLE, FLOAT, INT, INTERVAL_DAY_TIME, STRING, char
from flowrun.errors import ExpressionError
from flowrun.functions.contract import ScalarFunction
from flowrun.plan.expressions import Expression, Literal
from tests.spark.differential import call
from tests.spark.grids import GRIDS, column

NULL = Literal(STRING, None)
PLAIN = tuple(
    name
    for name in GRIDS
    if not name.endswith("_text") and name not in ("json", "members", "pairs", "url", "codes64", "great")
)
"""Grids that are their types' own; the others are texts for functions that read them."""
ARITHMETIC = (
    "tiny tiny|small small|int int|int long|long int|float float|double double|float int|cents cents|cents int|cents whole|exact exact"
    "|exact cents|wide wide|wide cents|wide exact|long cents|int tiny|day span|moment span|second span|fine span|instant span|clock3 span"
    "|span clock6|span moment|day months|moment months|months fine_instant|span span|months months|span int|long span|months int|day day"
    "|moment day|day fine|moment fine|fine_instant instant|fine second"
)
UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND")
FIELDS = (
    *UNITS,
    "DOY",
    "DOW",
    "ISODOW",
    "ISOYEAR",
    "MICROSECOND",
    "NANOSECOND",
    "EPOCH",
    "DECADE",
    "CENTURY",
    "MILLENNIUM",
)
TIMES = ("day", "clock", "clock3", "clock6", "second", "moment", "fine", "instant", "fine_instant")
NUMBERS = ("tiny", "int", "long", "float", "double", "cents", "whole", "exact", "wide")
LISTS = ("ints", "words", "reals", "nested")


def constant(value: Any) -> Expression:
    """A literal with the type that SQL gives it."""
    if isinstance(value, Expression):
        return value
    if isinstance(value, bool):
        return Literal(BOOLEAN, value)
    if isinstance(value, int):
        return Literal(INT if -(2**31) <= value < 2**31 else BIGINT, value)
    if isinstance(value, float):
        return Literal(DOUBLE, value)
    return Literal(char(len(value)) if value else STRING, value)


def a(name: str) -> Expression:
    return column(name, "a")


def b(name: str) -> Expression:
    return column(name, "b")


def c(name: str) -> Expression:
    return column(name, "c")


def _pairs(words: str) -> list[tuple[Expression, Expression]]:
    return [(a(x), b(y)) for x, y in (pair.split() for pair in words.split("|"))]


def _same(names: Sequence[str]) -> list[tuple[Expression, Expression]]:
    return [(a(n), b(n)) for n in names]


def _each(names: Sequence[str], *more: Any) -> list[tuple[Any, ...]]:
    return [(a(n), *more) for n in names]


def _units(units: Sequence[str], *more: Any) -> list[tuple[Any, ...]]:
    return [(unit, *more) for unit in units]


def _all(names: Sequence[str], arguments: Sequence[tuple[Any, ...]]) -> dict[str, Sequence[tuple[Any, ...]]]:
    return dict.fromkeys(names, arguments)


_HOUR = Literal(INTERVAL_DAY_TIME, 3_600_000)
_DAYS = Literal(INTERVAL_DAY_TIME, 3 * 86_400_000)
_SECOND = Literal(INTERVAL_DAY_TIME, 1000)
_COMPARED = [
    *_same(PLAIN),
    *((a("double"), constant(v)) for v in (0.0, 5.5, -1.5)),
    *((constant(v), a("double")) for v in (0.0, 5.5)),
    (a("float"), Literal(FLOAT, 1.5)),
]
_PATTERNS = (
    "a%",
    "%a",
    "%a%",
    "_",
    "%",
    "",
    "a_c%",
    "😀%",
    "_☂",
    "%\\%",
    "%_%",
    "a😀%",
    "ü%ß%",
    "\\b",
    "%\n%",
    "abc",
    "%\\b%$1%",
)
_REGEXES = (
    "a",
    "[a-c]+",
    "(a)(b)?",
    "(b)(c)",
    "\\d+",
    "^a",
    "c$",
    "",
    "(?i)A",
    "[^a-z]",
    "\\s",
    "☂|a",
    "x*",
    "(😀)",
    "\\$(1)",
)
_DATE_PATTERNS = ("yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd HH:mm:ss.SSS", "yyyyMMdd", "yy/M/d H:m:s", "hh:mm a", "EEE d MMM yyyy",
    "D", "HHmm", "y", "kk:mm",
                  "KK", "EEEE", "MMMM", "SSSSSS", "Q", "yyyy'T'MM", "e")  # fmt: skip

CALLS: dict[str, Sequence[tuple[Any, ...]]] = {
    **_all(("+", "-"), [
        *_pairs(ARITHMETIC), (a("clock"), _HOUR), (a("day"), _SECOND), (a("day"), _DAYS), (a("second"),
            Literal(INTERVAL_DAY_TIME, 1500))]),
    **_all(("*", "/", "%", "MOD"), _pairs(ARITHMETIC)),
    **_all(("NEGATE", "NOT"), _each(PLAIN)),
    **_all(("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"), _COMPARED),
    **_all(("IS NULL", "IS NOT NULL"), _each(PLAIN)),
    **_all(("IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NOT FALSE", "IS UNKNOWN", "IS NOT UNKNOWN"), _each(["truth"])),
    "||": _same(("text", "bytes")),
    "LIKE": [*_same(("text",)), *((a("text"), p) for p in _PATTERNS),
             *((a("text"), p, e) for p, e in (("%!%%", "!"), ("!_", "!"), ("a\\%", "\\"), ("%$_", "$"), ("a^^c", "^"),
                 ("😀☂%", "😀")))],
    "SIMILAR TO": [(a("text"), p) for p in ("a%", "(a|A)bc", "a_c", "%(abc){2}", "a?b*c+", "\\.%", "x,y%", "a.c", "%\n%",
        "_", "[a-c]+")],
    "ROW": [(a("moment"), b("ages"), "x'y"), (a("int"), b("person"), c("double"))],
    "ARRAY": [*_same(PLAIN), (a("double"), b("float"), Literal(DOUBLE, None))],
    "MAP": [(a("text"), b("double")), (a("int"), b("text"), 1, c("text")), (a("double"), b("int")), (a("words"), b("ints"))],
    "ITEM": [*_pairs("ints int|words long|nested int|ages text|codes int"), *((a("words"), n) for n in (1, 2, 5)),
        (a("ages"), "a"), (a("reals"), 2)],
    **_all(("UPPER", "LOWER", "INITCAP", "CHAR_LENGTH", "OCTET_LENGTH", "REVERSE", "ASCII", "UNHEX", "FROM_BASE64",
        "URL_ENCODE", "URL_DECODE"),
                    _each(["text", "number_text", "codes64"])),
    **_all(("TRIM", "LTRIM", "RTRIM"), [(a("text"),), (a("text"), b("text")), (a("text"), "ab "), (a("text"), "😀"),
        (a("text"), "")]),
    "SUBSTRING": [(a("text"), b("int")), (a("text"), b("int"), c("long")), *((a("text"),
        n) for n in (0, 1, 2, 5, -1, -3, -1000)),
                  *((a("text"), n, m) for n in (0, 1, 3, -2, -1000) for m in (0, 1, 2, 400, -1))],
    **_all(("LEFT", "RIGHT"), [(a("text"), b("tiny")), (a("text"), 2), (a("text"), 0), (a("text"), -1)]),
    **_all(("LPAD", "RPAD"), [(a("text"), b("tiny"), c("text")), (a("text"), 5, "ab"), (a("text"), 5, "😀"), (a("text"),
        0, "a"), (a("text"), -1, "a")]),
    "REPEAT": [(a("text"), b("tiny"))],
    "CONCAT": [(a("text"), b("text"), c("text")), (a("text"),)],
    "CONCAT_WS": [(a("text"), b("text"), c("text")), (",", b("text"), c("text")), (NULL, b("text"))],
    "OVERLAY": [(a("text"), b("text"), c("tiny")), (a("text"), b("text"), 2, c("tiny")), (a("text"), "😀", b("long"), c("long"))],
    "POSITION": [(a("text"), b("text")), ("a", b("text"))],
    "LOCATE": [(a("text"), b("text")), (a("text"), b("text"), 2), ("a", b("text"), -1), ("", b("text"), 3), (a("text"),
        b("text"), c("tiny"))],
    "INSTR": [(a("text"), b("text")), (a("text"), b("text"), 2)],
    "REPLACE": [(a("text"), "a", "b$1\\"), (a("text"), "abc", ""), (a("text"), "😀", b("text")), (a("text"), b("text"), "x")],
    "TRANSLATE": [(a("text"), b("text"), c("text")), (a("text"), "a😀b", "☂x"), (a("text"), NULL, "x")],
    "SPLIT_INDEX": [(a("text"), ",", b("tiny")), (a("text"), 44, 1), (a("text"), "$", 0), (a("text"), "ab", 1), (a("text"),
        "", 0), (a("text"), ".", 0)],
    "SPLIT": [(a("text"), ","), (a("text"), "a"), (a("text"), "."), (a("text"), b("text"))],
    **_all(("STARTSWITH", "ENDSWITH"), [(a("text"), b("text")), (a("text"), "a"), (a("bytes"), b("bytes"))]),
    "ELT": [(a("tiny"), b("text"), c("text")), (a("long"), b("bytes")), (1, b("text"))],
    "STR_TO_MAP": [(a("text"),), (a("pairs"),), (a("pairs"), ";"), (a("pairs"), "&", "=="), (a("pairs"), "|")],
    "PRINTF": [("%s", a("text")), ("%%%s|%d%% %s", a("text"), b("int"), c("long")), ("100%%", a("int")), ("%5d", a("int")),
        ("%s", a("double")), ("%d", a("text")), ("%s %s", a("text")), ("5 %", a("text"))],
    **_all(("IS_ALPHA", "IS_DIGIT", "IS_DECIMAL"), _each(["text", "number_text", "int", "double", "cents"])),
    "CHR": _each(["int", "long"]),
    "INET_ATON": [*_each(["text", "number_text"]), *(((t,)) for t in ("1.2.3.4", "127.1", "10.0.7", "9", "1.2.3.256", "1.2.3.4\n"))],
    "INET_NTOA": _each(["tiny", "int", "long"]),
    "HEX": _each(["tiny", "long", "text", "bytes"]),
    "BIN": _each(["long"]),
    "TO_BASE64": _each(["text", "bytes"]),
    "ENCODE": [(a("text"), s) for s in ("UTF-8", "UTF-16", "UTF-16BE", "UTF-16LE", "US-ASCII", "ISO-8859-1")],
    "DECODE": [(a("bytes"), s) for s in ("UTF-8", "UTF-16", "US-ASCII")],
    "PARSE_URL": [(a("text"), "HOST"), *((a("url"), part) for part in ("HOST", "PATH", "QUERY", "REF", "PROTOCOL", "AUTHORITY", "FILE",
        "USERINFO")), (a("url"), "QUERY", "k"), (a("url"), "QUERY", "a.b"), (a("url"), "HOST", "k"), (a("url"), "query", b("text"))],
    **_all(("MD5", "SHA1", "SHA224", "SHA256", "SHA384", "SHA512"), _each(["text", "bytes"])),
    "SHA2": [(a("text"), n) for n in (224, 256, 384, 512)],
    **_all(("REGEXP", "REGEXP_COUNT", "REGEXP_INSTR", "REGEXP_SUBSTR"), [*((a("text"), r) for r in _REGEXES), (a("text"),
        b("text"))]),
    "REGEXP_EXTRACT": [*((a("text"), r) for r in _REGEXES), (a("text"), "(b)(c)", 2), (a("text"), "(a)(b)?", 2), (a("text"),
        "(a)(b)", 1)],
    "REGEXP_EXTRACT_ALL": [*((a("text"), r) for r in ("(a)", "(b)(c)", "a", "(a)(b)?")), (a("text"), "[a-c]", 0), (a("text"),
        "(b)(c)", 2), (a("text"), "a?", 0)],
    "REGEXP_REPLACE": [*((a("text"), r, "<$1\\>") for r in _REGEXES), (a("text"), "[aA]", ""), (a("text"), "a", b("text"))],
    **_all(("ABS", "SIGN"), _each(NUMBERS)),
    **_all(("POWER", "ATAN2"), [(a("double"), b("double")), (a("int"), b("tiny"))]),
    **_all(("SQRT", "EXP", "LN", "LOG10", "LOG2", "SIN", "COS", "TAN", "COT", "ASIN", "ACOS", "ATAN", "SINH", "COSH", "TANH",
        "DEGREES", "RADIANS"),
                    _each(["double", "tiny", "cents"])),
    "LOG": [(a("double"),), (a("double"), b("double")), (a("tiny"), b("tiny"))],
    "PI": [()],
    "E": [()],
    "RAND": [(a("long"),)],
    "RAND_INTEGER": [(10,), (a("int"), 10)],
    "ROUND": [*_each(NUMBERS), *((a(n), d) for n in NUMBERS for d in (1, 2, -1, 20, -3)), (a("double"), b("tiny"))],
    "TRUNCATE": [*_each(NUMBERS), *((a(n), d) for n in NUMBERS for d in (1, -1, -20))],
    **_all(("FLOOR", "CEIL"), [*_each(NUMBERS), *((a(n), u) for n in TIMES for u in (*UNITS, "DECADE"))]),
    "EXTRACT": [(f, a(n)) for n in TIMES for f in FIELDS],
    **_all(("YEAR", "QUARTER", "MONTH", "WEEK", "DAYOFYEAR", "DAYOFMONTH", "DAYOFWEEK", "HOUR", "MINUTE", "SECOND"),
        _each(TIMES)),
    "TIMESTAMPADD": [(u, b("tiny"), a(n)) for n in ("day", "second", "moment", "fine", "instant", "clock3") for u in UNITS],
    "TIMESTAMPDIFF": [(u, a(x), b(y)) for x, y in (("moment", "moment"), ("fine", "fine"), ("day", "moment"), ("instant",
        "instant"), ("day", "day"))
                      for u in ("DAY", "HOUR", "SECOND", "WEEK", "MONTH")],
    "DATE_FORMAT": [*((a("fine"), p) for p in _DATE_PATTERNS), (a("day"), "yyyy-MM-dd"), (a("instant"), "HH:mm"),
        (a("time_text"), "yyyy"), (a("moment"), b("text"))],
    "TO_TIMESTAMP": [*_each(["time_text", "day_text", "clock_text", "text"]), (a("time_text"), "yyyy-MM-dd HH:mm:ss"),
        (a("time_text"), "yyyy-MM-dd")],
    "TO_DATE": [(a("time_text"),), (a("day_text"),), (a("clock_text"),), (a("time_text"), "yyyy-MM-dd")],
    "FROM_UNIXTIME": [(a("int"),), (a("int"), "yyyyMMdd"), (a("int"), "EEE")],
    "UNIX_TIMESTAMP": [(a("time_text"),), (a("text"),), (a("time_text"), "yyyy-MM-dd"), ()],
    "TO_TIMESTAMP_LTZ": [(a("int"),), (a("int"), 0), (a("int"), 3), (a("cents"),), (a("time_text"),), (a("day_text"),), (a("double"),),
        (a("time_text"), "yyyy-MM-dd", "UTC")],
    "CONVERT_TZ": [(a("time_text"), "UTC", "Europe/Berlin")],
    **_all(("CURRENT_TIMESTAMP", "PROCTIME", "LOCALTIMESTAMP", "CURRENT_DATE", "LOCALTIME"), [()]),
    "CARDINALITY": _each([*LISTS, "ages", "codes"]),
    "ELEMENT": _each(LISTS),
    **_all(("ARRAY_CONTAINS", "ARRAY_POSITION", "ARRAY_REMOVE", "ARRAY_APPEND", "ARRAY_PREPEND"),
                    [*_pairs("ints int|words text|reals double|nested ints"), (a("ints"), 1), (a("words"), NULL),
                        (a("words"), "a")]),
    **_all(("ARRAY_CONCAT", "ARRAY_UNION", "ARRAY_EXCEPT", "ARRAY_INTERSECT"), [*_same(LISTS), (a("ints"), b("reals"))]),
    **_all(("ARRAY_DISTINCT", "ARRAY_REVERSE", "ARRAY_MAX", "ARRAY_MIN"), _each(LISTS)),
    "ARRAY_SORT": [*_each(LISTS), *((a(n), up, first) for n in LISTS for up in (True, False) for first in (True, False)),
        (a("ints"), False)],
    "ARRAY_SLICE": [(a("ints"), b("tiny"), c("tiny")), (a("words"), 2), (a("words"), -2), (a("nested"), 0, -1), (a("reals"),
        1, 2)],
    "ARRAY_JOIN": [(a("words"), ","), (a("words"), b("text")), (a("words"), ",", "?"), (a("words"), ",", b("text"))],
    **_all(("MAP_KEYS", "MAP_VALUES", "MAP_ENTRIES"), _each(["ages", "codes"])),
    "MAP_FROM_ARRAYS": [(a("ints"), b("words")), (a("words"), b("reals")), (a("words"), a("words")), (a("reals"), b("ints"))],
    "MAP_UNION": [(a("ages"), b("ages")), (a("codes"), b("codes"), c("codes"))],
    **_all(("GREATEST", "LEAST"), [(a(n), b(n), c(n)) for n in PLAIN]),
    **_all(("JSON_VALUE", "JSON_QUERY", "JSON_EXISTS", "JSON_LENGTH", "JSON_TYPE"), [(a("json"), "$.a"), (a("json"),
        "lax $.a.b"), (a("json"), "$[0]")]),
    "IS_JSON": [(a("json"),), (a("json"), "OBJECT")],
    **_all(("JSON_ELEMENTS", "JSON_QUOTE", "JSON_UNQUOTE"), _each(["json", "text"])),
    "JSON": [(a("json"),)],
    **_all(("PARSE_JSON", "TRY_PARSE_JSON"), _each(["json"])),
    "JSON_STRING": _each([*PLAIN, "great"]),
    "JSON_OBJECT": [("NULL", "-", "k", a("text")), ("NULL", "---", "b\n", a("int"), "\ue000", b("double"), "😀", c("words")),
        ("ABSENT", "--j", "b", a("text"), "a", b("cents"), "b", c("json")), ("ABSENT", "-", "k", NULL), ("NULL", "")],
    "JSON_ARRAY": [("NULL", "-", a("text")), ("ABSENT", "--", a("text"), b("truth")), ("NULL", "-j-", a("moment"), b("json"), NULL),
        ("ABSENT", "")],
    "JSON_OBJECT_OF": [(a("members"),)],
    "UUID": [()],
}  # fmt: skip
"""By function: arguments, each a column of the grids or the value of a constant."""


def calls(function: ScalarFunction) -> Iterator[tuple[str, Expression]]:
    """The calls of a function that its type rule accepts, with a title each; the same types only once."""
    for arguments in CALLS[function.name]:
        given = [constant(argument) for argument in arguments]
        try:
            expression = call(function.name, *given)
        except ExpressionError:
            continue
        yield f"{function.name}({', '.join(map(str, given))})", expression
