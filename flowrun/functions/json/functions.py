# ruff: noqa: ARG001 - kernels share one signature
"""JSON functions that read documents: JSON_VALUE, JSON_QUERY, JSON_EXISTS, IS JSON, JSON_TYPE, JSON_LENGTH, JSON_(UN)QUOTE.

Each call parses each distinct document of a batch once and drops it at once: keeping the parsed documents for the next call was measured
at three times the cost of parsing them again. Paths and their errors are those of `json_path`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.types import BOOLEAN, INT, STRING, DataType, array
from flowrun.errors import DataError
from flowrun.functions.contract import Datum, ScalarFunction
from flowrun.functions.json import construct_spark_texts as construct_texts
from flowrun.functions.json import spark_texts as texts
from flowrun.functions.json.documents import (
    INVALID,
    container_text,
    dump,
    has_fractions,
    parse,
    parse_exact,
    scalar_text,
)
from flowrun.functions.json.path import MISSING, JsonPath, JsonPathError, compile_path, path_problem
from flowrun.functions.rules import TEXT, Parameter, Rule, word
from flowrun.functions.vectors import Distinct, as_array, is_constant, map_distinct, null_of

JSON_PATH = Parameter("a JSON path", TEXT.resolve, STRING, check=path_problem)
"""A parameter that takes a JSON path."""

_EMPTY = object()
_ERROR = object()
_FOUND, _IS_EMPTY, _IS_ERROR = 0, 1, 2
_ESCAPES = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_QUOTABLE = re.compile(r'["\\/\x00-\x1f\x80-\U0010ffff]')


def _at_path(path: JsonPath, document: Any) -> Any:
    """The value at a path; `_EMPTY` (lax) or `_ERROR` (strict) if there is none, or JSON null."""
    found = MISSING if document is INVALID else path.find(document)
    if found is MISSING or found is None:
        return _ERROR if path.strict else _EMPTY
    return found


def find_value(text: str, document: Any, path: JsonPath) -> Any:
    """What JSON_VALUE finds: a scalar's text, `_EMPTY` or `_ERROR`."""
    found = MISSING if document is INVALID else path.find(document)
    kind = type(found)
    if kind is str:  # the common kinds first: this runs once a distinct document
        return found
    if kind is int:
        return str(found)
    if found is MISSING or found is None or kind is dict or kind is list:  # JSON null is no value
        return _ERROR if path.strict else _EMPTY
    return scalar_text(text, path, found)


def find_query(wrapper: str, text: str, document: Any, path: JsonPath) -> Any:
    """What JSON_QUERY finds: an object or array as JSON, `_EMPTY` or `_ERROR`."""
    found = _at_path(path, document)
    if found is _EMPTY or found is _ERROR:
        return found
    scalar = not isinstance(found, dict | list)
    if wrapper == "UNCONDITIONAL" or (wrapper == "CONDITIONAL" and not isinstance(found, list)):
        if isinstance(found, str):
            return f"[{dump(found)}]"
        return f"[{scalar_text(text, path, found) if scalar else container_text(text, path, found)}]"
    if scalar:
        return _ERROR if path.strict else _EMPTY
    return container_text(text, path, found)


def _search(
    find: Callable[[str, Any, JsonPath], Any], text: Datum, path: Datum, rows: int
) -> tuple[pa.Array, np.ndarray[Any, np.dtype[np.int8]]]:
    """What `find` gives for each row: text (NULL where nothing was found), and found, empty or error."""
    column = as_array(text, rows)
    if is_constant(path):
        compiled = compile_path(path.as_py())
        encoded = pc.dictionary_encode(column)
        results: list[Any] = [find(text, parse(text), compiled) for text in encoded.dictionary.to_pylist()]
        indices = encoded.indices
    else:
        pairs = zip(column.to_pylist(), path.to_pylist(), strict=True)
        results = [_search_one(find, t, p) for t, p in pairs]
        missing = pc.or_(pc.is_null(column), pc.is_null(path)).to_numpy(zero_copy_only=False)
        indices = pa.array(np.arange(len(results)), mask=missing)
    values = pa.array([None if r is _EMPTY or r is _ERROR else r for r in results], pa.string()).take(indices)
    kinds = np.array([_IS_EMPTY if r is _EMPTY else _IS_ERROR if r is _ERROR else _FOUND for r in results], np.int8)
    if not len(kinds):
        return values, np.zeros(len(column), np.int8)
    kind = np.where(
        pc.is_null(indices).to_numpy(zero_copy_only=False), _FOUND, kinds[pc.fill_null(indices, 0).to_numpy()]
    )
    return values, kind


def _search_one(find: Callable[[str, Any, JsonPath], Any], text: str | None, path: str | None) -> Any:
    if text is None or path is None:
        return None
    try:
        return find(text, parse(text), compile_path(path))
    except JsonPathError:
        return _ERROR


def _option(arguments: Sequence[Datum], place: int, default: str) -> str:
    """A mode given as a constant at `place`, upper-case."""
    if len(arguments) <= place or not arguments[place].is_valid:
        return default
    return str(arguments[place].as_py()).upper()


def _behave(name: str, values: pa.Array, kind: Any, code: int, mode: str, default: Datum) -> pa.Array:
    """The values with what a mode says in the rows whose kind is `code`."""
    wanted = kind == code
    if not wanted.any() or mode == "NULL":
        return values
    situation = (
        "the path leads to no value" if code == _IS_EMPTY else "the text is not JSON or the path does not fit it"
    )
    if mode == "ERROR":
        clause = "EMPTY" if code == _IS_EMPTY else "ERROR"
        raise DataError(
            f"{name}: {situation}",
            row=int(np.flatnonzero(wanted)[0]),
            hint=f"say NULL ON {clause} or DEFAULT … ON {clause}",
        )
    return pc.if_else(pa.array(wanted), default, values)


def _json_value(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    text, path = arguments[:2]
    if is_constant(path) and not path.is_valid:
        return null_of(result)
    values, kind = _search(find_value, text, path, rows)
    empty_default = arguments[3] if len(arguments) > 3 else null_of(result)
    error_default = arguments[5] if len(arguments) > 5 else null_of(result)
    values = _behave("JSON_VALUE", values, kind, _IS_EMPTY, _option(arguments, 2, "NULL"), empty_default)
    return _behave("JSON_VALUE", values, kind, _IS_ERROR, _option(arguments, 4, "NULL"), error_default)


def _json_query(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    text, path = arguments[:2]
    if is_constant(path) and not path.is_valid:
        return null_of(result)
    wrapper = _option(arguments, 2, "WITHOUT")
    values, kind = _search(lambda t, v, p: find_query(wrapper, t, v, p), text, path, rows)
    for code, place in ((_IS_EMPTY, 3), (_IS_ERROR, 4)):
        mode = _option(arguments, place, "NULL")
        default = pa.scalar("[]" if mode == "EMPTY ARRAY" else "{}")
        values = _behave("JSON_QUERY", values, kind, code, mode, default)
    return values


def _found_at_all(text: str, document: Any, path: JsonPath) -> Any:
    found = _at_path(path, document)
    return found if found is _EMPTY or found is _ERROR else "true"


def _json_exists(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    text, path = arguments[:2]
    if is_constant(path) and not path.is_valid:
        return null_of(result)
    mode = _option(arguments, 2, "FALSE")
    values, kind = _search(_found_at_all, text, path, rows)
    given = pc.is_valid(as_array(text, rows))
    if not is_constant(path):
        given = pc.and_(given, pc.is_valid(path))
    exists = pc.if_else(given, pc.is_valid(values), pa.scalar(None, pa.bool_()))
    if mode == "FALSE" or not (kind == _IS_ERROR).any():
        return exists
    unknown = {"TRUE": pa.scalar(True), "UNKNOWN": pa.scalar(None, pa.bool_())}
    return _behave("JSON_EXISTS", exists, kind, _IS_ERROR, mode, unknown.get(mode, pa.scalar(False)))


def is_json(text: str | None, kind: str = "VALUE") -> bool:
    """Whether a text is JSON of a kind: VALUE, SCALAR, ARRAY or OBJECT.

    >>> is_json("[1]", "ARRAY"), is_json("1", "OBJECT"), is_json("abc"), is_json(None)
    (True, False, False, False)
    """
    value = INVALID if text is None else parse(text)
    if value is INVALID:
        return False
    actual = "OBJECT" if isinstance(value, dict) else "ARRAY" if isinstance(value, list) else "SCALAR"
    return kind.upper() in ("VALUE", actual)


def _resolved(text: str, path: str | None) -> Any:
    """The one value at a path (the document without one), or `MISSING`; paths are plain, JSON null is a value."""
    document = parse(text)
    if document is INVALID or path is None:
        return MISSING if document is INVALID else document
    try:
        compiled = compile_path(path)
    except JsonPathError:
        return MISSING
    found = compiled.find(document)
    if compiled.definite or found is MISSING:
        return found
    return found[0] if len(found) == 1 else MISSING


def json_length(text: str, path: str | None = None) -> int | None:
    """Members of an object, elements of an array, 1 for a scalar; NULL without such a value.

    >>> json_length('{"a": [1, 2, 3]}', "$.a"), json_length("7"), json_length("{")
    (3, 1, None)
    """
    found = _resolved(text, path)
    if found is MISSING:
        return None
    return len(found) if isinstance(found, dict | list) else 1


def json_type(text: str, path: str | None = None) -> str | None:
    """object, array, string, number, boolean or null; NULL without such a value.

    >>> json_type('{"a": null}', "$.a"), json_type("[1]"), json_type("{")
    ('null', 'array', None)
    """
    found = _resolved(text, path)
    if found is MISSING:
        return None
    names = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(found), "number")


def json_elements(text: str) -> list[str | None] | None:
    """The elements of a JSON array as text: strings as they are, others as JSON; NULL for anything else.

    >>> json_elements('["a", 1, {"b": null}, null]'), json_elements("{}")
    (['a', '1', '{"b":null}', None], None)
    """
    found = parse(text)
    if not isinstance(found, list):
        return None
    if has_fractions(text):
        found = parse_exact(text)
    return [e if e is None or isinstance(e, str) else dump(e) for e in found]


def json_quote(text: str) -> str:
    r"""A text as a JSON string of ASCII.

    >>> json_quote('a"b/c'), json_quote("ü😀")
    ('"a\\"b\\/c"', '"\\u00fc\\ud83d\\ude00"')
    """
    return '"' + _QUOTABLE.sub(lambda m: _ESCAPES.get(m[0]) or json.dumps(m[0])[1:-1], text) + '"'


def json_unquote(text: str) -> str:
    r"""The text behind a JSON string; anything else unchanged.

    >>> json_unquote('"a\\u00fc"'), json_unquote("abc"), json_unquote('"a')
    ('aü', 'abc', '"a')
    """
    if len(text) < 2 or text[0] != '"' or text[-1] != '"':
        return text
    value = parse(text)
    return value if isinstance(value, str) else text


def _is_json_kernel(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    kind = _option(arguments, 1, "VALUE")
    return map_distinct(lambda text: is_json(text, kind), arguments[:1], rows, result.arrow, pass_nulls=True)


_EMPTY_OR_ERROR = word("NULL", "EMPTY ARRAY", "EMPTY OBJECT", "ERROR")
_VALUE_MODE = word("NULL", "ERROR", "DEFAULT")
_VALUE_RULE = Rule("JSON_VALUE(json, path, …)", STRING, (TEXT, JSON_PATH), (_VALUE_MODE, TEXT, _VALUE_MODE, TEXT))
_QUERY_RULE = Rule(
    "JSON_QUERY(json, path, …)",
    STRING,
    (TEXT, JSON_PATH),
    (word("WITHOUT", "CONDITIONAL", "UNCONDITIONAL"), _EMPTY_OR_ERROR, _EMPTY_OR_ERROR),
)
_EXISTS_RULE = Rule(
    "JSON_EXISTS(json, path, …)", BOOLEAN, (TEXT, JSON_PATH), (word("TRUE", "FALSE", "UNKNOWN", "ERROR"),)
)
_IS_JSON_RULE = Rule("IS_JSON(string, kind)", BOOLEAN, (TEXT,), (word("VALUE", "SCALAR", "ARRAY", "OBJECT"),))

JSONS = (
    ScalarFunction(
        "JSON_VALUE", _VALUE_RULE, _json_value,
        "JSON_VALUE(json, path [RETURNING type] [NULL | ERROR | DEFAULT value ON EMPTY] [… ON ERROR])",
        "The scalar at a path of a JSON text, as text.", texts.value_text, fallible=True,
    ),
    ScalarFunction(
        "JSON_QUERY", _QUERY_RULE, _json_query,
        "JSON_QUERY(json, path [WITHOUT | WITH [UN]CONDITIONAL ARRAY WRAPPER] [… ON EMPTY] [… ON ERROR])",
        "The object or array at a path of a JSON text, as JSON.", texts.query_text, fallible=True,
    ),
    ScalarFunction(
        "JSON_EXISTS", _EXISTS_RULE, _json_exists,
        "JSON_EXISTS(json, path [TRUE | FALSE | UNKNOWN | ERROR ON ERROR])",
        "Whether a path of a JSON text leads to a value.", texts.exists_text, fallible=True,
    ),
    ScalarFunction(
        "IS_JSON", _IS_JSON_RULE, _is_json_kernel, "string IS JSON [VALUE | SCALAR | ARRAY | OBJECT]",
        "Whether the string is JSON of a kind; false for NULL.", texts.is_json_text,
    ),
    ScalarFunction(
        "JSON_LENGTH", Rule("JSON_LENGTH(json[, path])", INT, (TEXT,), (JSON_PATH,)), Distinct(json_length),
        "JSON_LENGTH(json[, path])", "Members of an object, elements of an array, 1 for a scalar.", texts.length_text,
    ),
    ScalarFunction(
        "JSON_TYPE", Rule("JSON_TYPE(json[, path])", STRING, (TEXT,), (JSON_PATH,)), Distinct(json_type),
        "JSON_TYPE(json[, path])", "object, array, string, number, boolean or null.", texts.type_text,
    ),
    ScalarFunction(
        "JSON_ELEMENTS", Rule("JSON_ELEMENTS(json)", array(STRING), (TEXT,)), Distinct(json_elements),
        "JSON_ELEMENTS(json)", "The elements of a JSON array as text: what JSON_QUERY(… RETURNING ARRAY<STRING>) gives.",
        texts.elements_text,
    ),
    ScalarFunction(
        "JSON_QUOTE", Rule("JSON_QUOTE(string)", STRING, (TEXT,)), Distinct(json_quote), "JSON_QUOTE(string)",
        "The string as a JSON string.", construct_texts.quote_json_text,
    ),
    ScalarFunction(
        "JSON_UNQUOTE", Rule("JSON_UNQUOTE(string)", STRING, (TEXT,)), Distinct(json_unquote), "JSON_UNQUOTE(string)",
        "The text behind a JSON string; anything else unchanged.", texts.unquote_text,
    ),
)  # fmt: skip
"""Functions that read JSON."""
