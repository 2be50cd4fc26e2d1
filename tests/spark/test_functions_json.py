"""JSON functions on Spark over documents that are hard to read alike: what their kernels give, row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from flowrun.core.schema import Schema
from flowrun.core.types import INT, STRING
from flowrun.plan.expressions import ColumnRef, Expression, Literal
from flowrun.spark.arrow import to_spark
from flowrun.spark.expressions import spark_text
from flowrun.spark.frame import NotNative
from tests.spark.calls import constant
from tests.spark.differential import call, differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = (
    "0", "-0", "7", "-12", "1.10", "-0.0", "0.000001", "-0.0000001", "0.00000012", "1e5", "1E+3", "-1.50e2", "12e-9", "1.5e-3", "0e7",
    "0.00e-9", "100.00", "9223372036854775807", "9223372036854775808", "18446744073709551616", "1" + "0" * 23, "9" * 45,
    "3." + "1" * 50, "1e400", "-1E400", "1e-400", "1e-12345678901234567890", "5e99999999999999999", "0.1e1", "123456789012345678.5",
    "01", "+1", ".5", "1.", "1e", "--1", "0x1F", "NaN", "Infinity", "-Infinity", "1_0", "1 2", "1x", "1.2.3",
)  # fmt: skip
"""Numbers, and what is none."""
STRINGS = (
    '""', '"x"', '"7"', '"1.50"', '"-"', '"{"', '"["', '"Infinity"', '"null"', '" a  b "', '"a\\"b\\\\c\\/d"', '"\\b\\f\\n\\r\\t"',
    '"\\u0000\\u0001\\u001f\x7f"', '"\\\\u001f"', '"\\u00e9\\u00C9é☂"', '"\\ud83d\\ude00😀"', '"\\ud800"', '"\\udc00\\ud800"', '"\\ud83dx"',
    '"\\ud83d\\ud83d"', '"\\u12"', '"\\x"', '"a\tb"', '"a\nb"', '"\x00"', '"a', 'a"', "'a'", '"a" "b"', '"\u2028\u0085"', '"]"', '"],["',
    '"1.5 2e3"', '"x\\u005d"',
)  # fmt: skip
NESTED = (
    "{}", "[]", " [ ] ", '{"a":{}}', '{"a":[]}', '{"a":null}', '{"a" : { "b" : 1.50 , "B":2 } }\n', '{"b":1,"a":2}', '{"a":1,"a":2}',
    '{"a":{"b":1},"a":{"c":2}}', '{"a":1,"\\u0061":"last"}', '{"a":[1,2.50,{"b":null,"a":1e3}],"n":1e400}', '{"a":[0,[1,[2]]]}',
    '[{"a":1},{"a":2}]', '["a",1,null,true,{"b":"]"},[1.0],"1.0",1.0,1e400,"Infinity","\\"","\\\\"]', '[[1],[2]]', "[null]", '{"":{"":5}}',
    '{"a b":1,"c.d":2,"e?f":3,"x]y":4,"q\'":5,"t\\"u":6,"ü☂😀":7,"1":8,"p\\\\q":9,"*":10,"$":11,"z-9":[1,2], " ":12,"a\\nb":13}',
    '{"\ue000":1,"😀":2,"z":3,"Z":4,"é":5,"":6}', '{"a":{"\uffff":1.0,"😀":{"😀":1,"\ue000":2}}}', '{"a":"{\\"b\\":1}"}',
    '{"a":"\\ud800","a":1e400}', "[-0,1.0,-0.0]",
    '{"a":true,"b":false}', '{"a":tRUE}', '{"a":1}x', '{"a":1} {"b":2}', '{"a":1}]', '{"a":1}}', '{"a":1},', '{"a":1},{"a":2}', "[1],[2]",
    "[1] ] , [ [2]", '{"a":[1]}] , [{"a":1}', '1],"x":[2', '1},"x":{"y":2', '1,"":2', "1], [2",
    '"a"]', "null]", "]", "}", ",", "[1,]", "[,1]",
    '{"a":1,}', '{"a"}', '{"a":}', '{1:2}', "{'a':1}", '{a:1}', '{"a":1 "b":2}', '{"a" 1}', '{"a":[1}', '{"a":1}/*x*/',
    "// x\n1", "\ufeff{}",
    "\u00a01", "\x0b1", "\x0c1", "1\x00", "\x001", " \t\r\n1\n", "", " ", "nul", "nulll", "null", " true ", "True", "[" * 200 + "]" * 200,
    "[" * 300 + "1.50" + "]" * 300, '{"a":' * 260 + "null" + "}" * 260, "[" * 1100 + "]" * 1100, "[" * 20, "]" * 20,
    '{"a":"' + "x" * 5000 + '","b":[' + "1.5," * 500 + "2]}", '{"a":{"b":1.10,"c":[-0.0,"1.10"],"d":"\\u001f 1.10"},"s":"\\u001F"}',
)  # fmt: skip
DOCUMENTS = (None, *NESTED, *STRINGS, *NUMBERS, *(f'{{"a":{value}, "z":[{value}]}}' for value in (*STRINGS, *NUMBERS)))
SCHEMA = Schema.from_pairs([("place", INT), ("json", STRING)])
JSON = ColumnRef(STRING, 1, "json")
PATHS = ("$", "$.a", "lax $.a", "$.a.b", "$[0]", "$.z[0]", "lax $[1]", "$.a.a", "$['']['']")
NAMES = (
    "$['a b']", "$['c.d']", "$['x]y']", "$[\"q'\"]", "$['t\"u']", "$.ü☂😀", "$['1']", "$['p\\\\q']", "$['*']", "$['$']", "$.z-9[1]",
    "$[' ']",
    "$['a\\nb']", "$['a\nb']",
)  # fmt: skip
HOSTED = (
    ("JSON_VALUE", "$.a[-1]"), ("JSON_VALUE", "$['e?f']"), ("JSON_VALUE", "$['\\'\"']"), ("JSON_QUERY", "$.a[*]"), ("JSON_EXISTS", "$..a"),
    ("JSON_TYPE", "$.a[?(@.b)]"), ("JSON_VALUE", "$[99999999999]"), ("JSON_LENGTH", ColumnRef(STRING, 1, "json")),
)  # fmt: skip


def calls() -> list[tuple[str, Expression]]:
    """Calls of the functions that read a document, in all their modes."""
    made = [(name, path) for name in ("JSON_VALUE", "JSON_QUERY") for path in PATHS]
    made += [(name, path) for name in ("JSON_LENGTH", "JSON_TYPE") for path in ("$", "lax $.a", "$.z[0]")]
    made += [("JSON_EXISTS", path) for path in (*PATHS, *NAMES)]
    made += [
        (name,) for name in ("JSON_LENGTH", "JSON_TYPE", "JSON_ELEMENTS", "JSON_QUOTE", "JSON_UNQUOTE", "JSON_STRING")
    ]
    made += [("IS_JSON",), *(("IS_JSON", kind) for kind in ("VALUE", "SCALAR", "ARRAY", "OBJECT"))]
    for mode in ("$.a", "lax $.a"):
        made += [
            ("JSON_VALUE", mode, "DEFAULT", "empty", "DEFAULT", JSON),
            ("JSON_VALUE", mode, "DEFAULT", JSON),
            ("JSON_VALUE", mode, "ERROR", Literal(STRING, None), "NULL"),
            ("JSON_VALUE", mode, "NULL", Literal(STRING, None), "ERROR"),
            ("JSON_QUERY", mode, "WITHOUT", "EMPTY ARRAY", "EMPTY OBJECT"),
            ("JSON_QUERY", mode, "CONDITIONAL", "NULL", "EMPTY ARRAY"),
            ("JSON_QUERY", mode, "UNCONDITIONAL", "EMPTY OBJECT"),
            ("JSON_QUERY", mode, "UNCONDITIONAL", "ERROR", "ERROR"),
            *(("JSON_EXISTS", mode, word) for word in ("TRUE", "FALSE", "UNKNOWN", "ERROR")),
        ]
    made.append(("JSON_VALUE", Literal(STRING, "$.b"), "DEFAULT", "empty"))
    nested = call("JSON_QUERY", JSON, constant("$.a"))
    cases = [(str(arguments), call(arguments[0], JSON, *map(constant, arguments[1:]))) for arguments in made]
    return [
        *cases,
        ("nested", call("JSON_VALUE", nested, constant("$.b"))),
        ("elements", call("JSON_ELEMENTS", nested)),
    ]


def test_documents_are_read_alike(spark: SparkSession, interpreted: None) -> None:
    table = pa.table([pa.array(range(len(DOCUMENTS)), pa.int32()), pa.array(DOCUMENTS)], schema=SCHEMA.arrow)
    frame = to_spark(table, SCHEMA, spark).coalesce(1).cache()
    cases = calls()
    for title, expression in cases:
        assert spark_text(expression, ["`place`", "`json`"]), title
    assert differences(cases, frame, table.combine_chunks().to_batches()[0], SCHEMA, chunk=150) == []


@pytest.mark.parametrize(("name", "path"), HOSTED)
def test_what_variant_cannot_find_is_hosted(name: str, path: object) -> None:
    with pytest.raises(NotNative):
        spark_text(call(name, JSON, constant(path)), ["`place`", "`json`"])
