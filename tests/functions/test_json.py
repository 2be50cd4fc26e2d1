"""JSON functions, by the examples of Flink's documentation and its strict and lax modes."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from flowrun.core.types import BOOLEAN, DOUBLE, FLOAT, INT, STRING, array, char, decimal, map_of, row, timestamp
from flowrun.errors import DataError, ExpressionError
from flowrun.functions.json.path import compile_path
from tests.functions.kernel_calls import Column, Constant, call, check, signature

DOC = '{"a": {"b": 1, "c d": "ü☂"}, "list": [1, 2.50, {"x": null}], "t": true, "big": 12345678901234567890123}'
NULL = Constant(None, STRING)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("JSON_VALUE", ('{"a": true}', "$.a"), "true"),
        ("JSON_VALUE", (DOC, "$.a.b"), "1"),
        ("JSON_VALUE", (DOC, "$.a['c d']"), "ü☂"),
        ("JSON_VALUE", (DOC, '$.a["c d"]'), "ü☂"),
        ("JSON_VALUE", (DOC, "$.list[1]"), "2.50"),
        ("JSON_VALUE", (DOC, "$.list[-2]"), "2.50"),
        ("JSON_VALUE", (DOC, "$.big"), "12345678901234567890123"),
        ("JSON_VALUE", (DOC, "$.list"), None),
        ("JSON_VALUE", (DOC, "lax $.list[2].x"), None),
        ("JSON_VALUE", (DOC, "$.nope"), None),
        ("JSON_VALUE", ("{", "$.a"), None),
        ("JSON_VALUE", ('{"a": true}', "lax $.b", "DEFAULT", "false", "NULL", NULL), "false"),
        ("JSON_VALUE", ('{"a": true}', "strict $.b", "NULL", NULL, "DEFAULT", "false"), "false"),
        (
            "JSON_VALUE",
            ('{"contains blank": "right"}', "strict $.['contains blank']", "NULL", NULL, "DEFAULT", "wrong"),
            "right",
        ),
        ("JSON_VALUE", ('{"a.b": [0.998,0.996]}', '$.["a.b"][0]'), "0.998"),
        ("JSON_VALUE", ("{", "lax $.a", "DEFAULT", "empty", "DEFAULT", "error"), "empty"),
        ("JSON_VALUE", ("{", "$.a", "DEFAULT", "empty", "DEFAULT", "error"), "error"),
        ("JSON_VALUE", ('{"a": null}', "$.a", "DEFAULT", "empty", "DEFAULT", "error"), "error"),
        ("JSON_VALUE", ('{"a": null}', "lax $.a", "DEFAULT", "empty", "DEFAULT", "error"), "empty"),
        ("JSON_EXISTS", ('{"a": null}', "$.a", "TRUE"), True),
        ("JSON_VALUE", ("{}", "$.a", "DEFAULT", "empty", "DEFAULT", "error"), "error"),
        ("JSON_QUERY", ('{"a": null}', "$.a", "UNCONDITIONAL", "EMPTY ARRAY", "EMPTY OBJECT"), "{}"),
        ("JSON_ELEMENTS", ('["x", 1, {"b": [true]}, null]',), ["x", "1", '{"b":[true]}', None]),
        ("JSON_ELEMENTS", ('{"x": 1}',), None),
        ("JSON_QUERY", ('{ "a": { "b": 1 } }', "$.a"), '{"b":1}'),
        ("JSON_QUERY", ("[1, 2]", "$"), "[1,2]"),
        ("JSON_QUERY", ('{"a":[{"c":"c1"},{"c":"c2"}]}', "lax $.a[*].c"), '["c1","c2"]'),
        ("JSON_QUERY", ("{}", "$", "CONDITIONAL"), "[{}]"),
        ("JSON_QUERY", ("[1, 2]", "$", "CONDITIONAL"), "[1,2]"),
        ("JSON_QUERY", ("[1, 2]", "$", "UNCONDITIONAL"), "[[1,2]]"),
        ("JSON_QUERY", ("1", "$"), None),
        ("JSON_QUERY", ("1", "$", "CONDITIONAL"), "[1]"),
        ("JSON_QUERY", ('"x"', "$", "UNCONDITIONAL"), '["x"]'),
        ("JSON_QUERY", ("{}", "lax $.invalid", "WITHOUT", "EMPTY OBJECT"), "{}"),
        ("JSON_QUERY", ("{}", "strict $.invalid", "WITHOUT", "NULL", "EMPTY ARRAY"), "[]"),
        ("JSON_QUERY", ('{"b": 1.50, "a": 1e3}', "$"), '{"a":1E+3,"b":1.50}'),
        ("JSON_VALUE", ('{"a": 1e400, "b": -1.50E-400}', "$.a"), "1E+400"),
        ("JSON_VALUE", ('{"a": 1e400, "b": -1.50E-400}', "$.b"), "-1.50E-400"),
        ("JSON_VALUE", ('{"a": 1e12345678901234567890}', "$.a"), "1e12345678901234567890"),
        ("JSON_VALUE", ('{"a": 1e-12345678901234567890}', "$.a"), "1e-12345678901234567890"),
        ("JSON_VALUE", ('{"a": "\\ud800", "b": 1e400}', "$.b"), None),
        ("JSON_VALUE", ('{"a": ["\\ud800"], "a": 1, "b": 1e400}', "$.b"), None),
        ("JSON_VALUE", ('{"a": NaN, "b": 1e400}', "$.b"), None),
        ("JSON_QUERY", ('{"a": "\\u001f \\\\u001f \\u000b\x7f"}', "$"), '{"a":"\\u001F \\\\u001f \\u000B\x7f"}'),
        ("JSON_QUERY", ('{"\ue000": 1, "😀": 2, "a": 1.0}', "$"), '{"a":1.0,"😀":2,"\ue000":1}'),
        ("JSON_QUERY", ("[" * 300 + "1.50" + "]" * 300, "$"), "[" * 300 + "1.50" + "]" * 300),
        (
            "JSON_ELEMENTS",
            ("[1.10, 12345678901234567890123, [1e3], 1.10]",),
            ["1.10", "12345678901234567890123", "[1E+3]", "1.10"],
        ),
        ("JSON_EXISTS", ('{"a": true}', "$.a"), True),
        ("JSON_EXISTS", ('{"a": true}', "$.b"), False),
        ("JSON_EXISTS", ('{"a": [{ "b": 1 }]}', "$.a[0].b"), True),
        ("JSON_EXISTS", ('{"a": true}', "strict $.b", "TRUE"), True),
        ("JSON_EXISTS", ('{"a": true}', "strict $.b", "FALSE"), False),
        ("JSON_EXISTS", ('{"a": true}', "strict $.b", "UNKNOWN"), None),
        ("IS_JSON", ("1",), True),
        ("IS_JSON", ('"abc"', "SCALAR"), True),
        ("IS_JSON", ("abc",), False),
        ("IS_JSON", ("{}", "ARRAY"), False),
        ("IS_JSON", ("{}", "OBJECT"), True),
        ("IS_JSON", (NULL,), False),
        ("JSON_LENGTH", ('{"a": [1, 2, 3]}', "$.a"), 3),
        ("JSON_LENGTH", ("null",), 1),
        ("JSON_LENGTH", ("{}", "$.a"), None),
        ("JSON_TYPE", ('{"a": 1.5}', "$.a"), "number"),
        ("JSON_TYPE", ("null",), "null"),
        ("JSON_QUOTE", ('V"a\\b\n☂\x7f',), '"V\\"a\\\\b\\n\\u2602\x7f"'),
        ("JSON_UNQUOTE", ('"\\u00fc\\t"',), "ü\t"),
        ("JSON_UNQUOTE", ('"abc',), '"abc'),
        ("JSON_STRING", (1,), "1"),
        ("JSON_STRING", (True,), "true"),
        ("JSON_STRING", ('Hello, "☂"',), '"Hello, \\"☂\\""'),
        ("JSON_STRING", (Constant(Decimal("1.50"), decimal(10, 2)),), "1.50"),
        ("JSON_STRING", (1e7,), "1.0E+7"),
        ("JSON_STRING", (123456789.125,), "123456789.125"),
        ("JSON_STRING", (-0.0,), "0.0"),
        ("JSON_STRING", (Constant(0.1, FLOAT),), "0.10000000149011612"),
        ("JSON_STRING", (float("-inf"),), '"-Infinity"'),
        (
            "JSON_STRING",
            (Constant([0.1, 1e-5, float("nan"), None], array(FLOAT)),),
            '[0.10000000149011612,0.000009999999747378752,"NaN",null]',
        ),
        ("JSON_STRING", (Constant([Decimal("0.0000001")], array(decimal(10, 7))),), "[1E-7]"),
        ("JSON_STRING", (Constant(Decimal("0E-18"), decimal(38, 18)),), "0E-18"),
        ("JSON", ('  {"b" : 1.50, "a":1e3}',), '{"a":1E+3,"b":1.50}'),
        ("JSON", ("null",), "null"),
        ("JSON", (NULL,), None),
        ("JSON_STRING", ("a\x1f",), '"a\\u001F"'),
        ("JSON_STRING", (Constant([1, 2], array(INT)),), "[1,2]"),
        ("JSON_STRING", (Constant(None, INT),), None),
        ("JSON_OBJECT", ("NULL", Constant("", STRING)), "{}"),
        ("JSON_OBJECT", ("NULL", "--", "K2", "V2", "K1", 7), '{"K1":7,"K2":"V2"}'),
        ("JSON_OBJECT", ("NULL", "-", "K1", NULL), '{"K1":null}'),
        ("JSON_OBJECT", ("ABSENT", "-", "K1", NULL), "{}"),
        ("JSON_OBJECT", ("NULL", "j", "K1", '{"K2":"V"}'), '{"K1":{"K2":"V"}}'),
        ("JSON_ARRAY", ("ABSENT", Constant("", STRING)), "[]"),
        ("JSON_ARRAY", ("ABSENT", "---", 1, "2", NULL), '[1,"2"]'),
        ("JSON_ARRAY", ("NULL", "-", NULL), "[null]"),
        ("JSON_ARRAY", ("ABSENT", "j", "[1]"), "[[1]]"),
    ],
)
def test_values(name, arguments, expected):
    if name in ("JSON_OBJECT", "JSON_ARRAY"):
        assert call(name, *arguments) == expected
    else:
        check(name, arguments, expected)


def test_null_documents_give_null():
    for name in ("JSON_VALUE", "JSON_QUERY", "JSON_EXISTS"):
        check(name, (NULL, "$.a"), None)
        check(name, ("{}", NULL), None)


def test_rows_share_documents_and_nulls_stay():
    documents = Column(['{"a": 1}', None, '{"a": 1}', "x", '{"a": [2]}'])
    for sliced in (False, True):
        assert call("JSON_VALUE", documents, "$.a", sliced=sliced) == ["1", None, "1", None, None]
        assert call("JSON_QUERY", documents, "$.a", sliced=sliced) == [None, None, None, None, "[2]"]
        assert call("JSON_EXISTS", documents, "$.a", sliced=sliced) == [True, None, True, False, True]


def test_default_and_path_may_vary_by_row():
    documents = Column(['{"a": 1}', '{"b": 2}', None])
    assert call("JSON_VALUE", documents, "lax $.a", "DEFAULT", Column(["x", "y", "z"]), "NULL", NULL) == [
        "1",
        "y",
        None,
    ]
    assert call("JSON_VALUE", documents, Column(["$.a", "$.b", "$.a"])) == ["1", "2", None]
    assert call("JSON_VALUE", documents, Column(["oops", "$.b", None])) == [None, "2", None]


def test_error_modes_name_the_row():
    with pytest.raises(DataError, match="JSON_VALUE") as caught:
        call("JSON_VALUE", Column(["{}", "{"]), "lax $", "NULL", NULL, "NULL", NULL) and call(
            "JSON_VALUE", Column(['{"a": 1}', "{}"]), "lax $.a", "ERROR"
        )
    assert caught.value.row == 1
    assert "NULL ON EMPTY" in str(caught.value)
    with pytest.raises(DataError, match="JSON_EXISTS"):
        call("JSON_EXISTS", Column(["{"]), "$.a", "ERROR")


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$..x", [1, 2]),
        ("$.a[?(@.x > 1)].x", [2]),
        ("$.a[?(@.n == 'b')].x", [2]),
        ("$.a[?(@.y)].x", []),
        ("$.a[0,1].x", [1, 2]),
        ("$.a[1:].n", ["b"]),
        ("$.a[*].n", ["a", "b"]),
        ("$['a'][0]['n']", "a"),
        ("$.a[-1].x", 2),
    ],
)
def test_paths(path, found):
    document = {"a": [{"x": 1, "n": "a"}, {"x": 2, "n": "b"}]}
    assert compile_path(path).find(document) == found


@pytest.mark.parametrize("path", ["a.b", "$.", "$[", "$.a.length()", "$[?(@.x == 1 && @.y == 2)]", "$['a'"])
def test_wrong_paths_are_refused_at_validation(path):
    with pytest.raises(ExpressionError, match="JSON path"):
        signature("JSON_VALUE", "{}", path)


def test_modes_must_be_known_words():
    with pytest.raises(ExpressionError, match="not one of NULL, ERROR, DEFAULT"):
        signature("JSON_VALUE", "{}", "$", "NOTHING")


def test_nested_values_as_json():
    type = row(("at", timestamp(3)), ("tags", array(STRING)), ("attrs", map_of(STRING, DOUBLE)), ("ok", BOOLEAN))
    value = {"at": dt.datetime(2024, 3, 1, 9, 58, 30, 640000), "tags": ["ü", None], "attrs": [("k", 1.5)], "ok": True}
    text = '{"at":"2024-03-01T09:58:30.64","attrs":{"k":1.5},"ok":true,"tags":["ü",null]}'
    assert call("JSON_STRING", Column([value, None], type)) == [text, None]


def test_objects_of_columns():
    names, ages = Column(["a", None]), Column([1, 2], INT)
    assert call("JSON_OBJECT", "NULL", "--", "name", names, "age", ages) == [
        '{"age":1,"name":"a"}',
        '{"age":2,"name":null}',
    ]
    assert call("JSON_OBJECT", "ABSENT", "--", "name", names, "age", ages) == ['{"age":1,"name":"a"}', '{"age":2}']
    with pytest.raises(ExpressionError, match="keys must be constant"):
        signature("JSON_OBJECT", "NULL", "-", names, 1)
    with pytest.raises(ExpressionError, match="the last key has no value"):
        signature("JSON_OBJECT", "NULL", "-", "k")


def test_an_object_of_rows_needs_each_key_once():
    pairs = array(row(("k", STRING), ("v", STRING)))

    def member(key, value):
        return {"k": key, "v": value}

    column = Column([[member("b", "1"), member("a", '"x"')], None, [member("a", None)]], pairs)
    assert call("JSON_OBJECT_OF", column) == ['{"a":"x","b":1}', "{}", '{"a":null}']
    with pytest.raises(DataError, match="the key 'a' is there twice"):
        call("JSON_OBJECT_OF", Column([[member("a", "1"), member("a", "2")]], pairs))
    with pytest.raises(DataError, match="a key is NULL"):
        call("JSON_OBJECT_OF", Column([[member(None, "1")]], pairs))
    with pytest.raises(ExpressionError, match="takes an ARRAY<ROW<key STRING, value STRING>>"):
        signature("JSON_OBJECT_OF", "{}")


def test_result_types():
    assert signature("JSON_VALUE", "{}", "$").result == STRING
    assert signature("JSON_EXISTS", "{}", "$").result == BOOLEAN
    assert signature("JSON_LENGTH", "{}").result == INT
    assert signature("MD5", "x").result == char(32)
