"""Reads JSON files with Spark's own parser, if it certainly reads them as flowrun's does."""

from __future__ import annotations

import json
import re
from itertools import count
from typing import TYPE_CHECKING

from flowrun.connectors.filesystem.source import FileSource
from flowrun.core.types import DataType, TypeRoot
from flowrun.functions.spark_text import quote_text, quoted, spark_type
from flowrun.spark.input.exactness import NotExactError, must
from flowrun.spark.input.physical import Physical
from flowrun.spark.input.text_leaves import Leaf, leaf_of_text
from flowrun.spark.input.text_lines import LINE, read_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROW, _BAD = "`flowrun$row`", "flowrun$bad"
_BLANK = r"' \t\r\u000b\u000c'"
_PARSED = (
    TypeRoot.BOOLEAN,
    TypeRoot.SMALLINT,
    TypeRoot.INTEGER,
    TypeRoot.BIGINT,
    TypeRoot.FLOAT,
    TypeRoot.DOUBLE,
    TypeRoot.DECIMAL,
)
"""Types that Spark's parser reads only from JSON values of the same kind; decimals also from texts, which may have commas then."""
_DECIMAL_WITH_COMMA = '"[-+0-9.]*[0-9],[-+0-9.,eE]*"'
_SPACE = r"[ \t\r]*"
_FLOAT = "^-?[0-9]+[.][0-9]+(E-?[0-9]+)?$"
_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _BAD,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}


def read_json(session: SparkSession, source: FileSource, *, ordered: bool) -> Physical:
    """The rows of a source of JSON lines.

    Raises:
        ConnectorError: the path does not exist.
        NotExactError: flowrun's reader must read it.
    """
    if source.options.flag("json.fail-on-missing-field"):
        raise NotExactError("json.fail-on-missing-field")
    fields = source.request.schema.fields
    asked = ", ".join([*(f"{quoted(f.name)} {_asked(f.type)}" for f in fields), f"{quoted(_BAD)} STRING"])
    leaves = {f.name: _leaf(f"{_ROW}.{quoted(f.name)}", f.type, f.name) for f in fields}
    options = ", ".join(f"{quote_text(k)}, {quote_text(v)}" for k, v in _OPTIONS.items())
    parsed = f"CASE WHEN {_is_one_object()} THEN from_json({LINE}, {quote_text(asked)}, map({options})) END"
    lines = read_lines(session, source, ordered=ordered).where(f"trim(BOTH {_BLANK} FROM {LINE}) <> ''")
    beside = [quoted(n) for n in lines.columns if n != LINE]
    # A generator, so that Spark computes its result once, however often the columns after it are read.
    rows = lines.selectExpr(*beside, LINE, f"inline(array(named_struct('flowrun$row', {parsed})))")
    needed = [f"{_ROW} IS NOT NULL", f"{_ROW}.{quoted(_BAD)} IS NULL", *(leaf.sure for leaf in leaves.values())]
    needed += [f"{_ROW}.{quoted(f.name)} IS NOT NULL" for f in fields if not f.nullable]
    if any(map(_has_decimals, source.request.schema.types)):
        needed.append(f"NOT {LINE} RLIKE {quote_text(_DECIMAL_WITH_COMMA)}")
    texts = {name: leaf.value for name, leaf in leaves.items()}
    return Physical(
        rows.where(must(" AND ".join(n for n in needed if n != "TRUE"))),
        tuple(texts.get(name, quoted(name)) for name in source.schema.names),
        checked=all(f.nullable for f in source.schema if f.name not in texts),
    )


def _is_one_object() -> str:
    """Whether a line is one JSON object and nothing else, without halves of surrogate pairs."""
    return " AND ".join(
        (
            f"startswith(trim(LEADING {_BLANK} FROM {LINE}), '{{')",
            f"json_array_length(concat('[', {LINE}, ']')) = 1",
            f"is_valid_utf8({LINE})",
            f"NOT contains({LINE}, '\\\\ud')",
            f"NOT contains({LINE}, '\\\\uD')",
        )
    )


def _asked(type: DataType) -> str:
    """The type that Spark's parser reads: text for types that it reads more or less leniently than flowrun."""
    match type.root:
        case root if root in _PARSED:
            return spark_type(type)
        case TypeRoot.TINYINT:
            return "INT"  # Spark reads 200 as TINYINT -56
        case TypeRoot.ARRAY:
            return f"ARRAY<{_asked(type.children[0])}>"
        case TypeRoot.ROW:
            inner = (f"{quoted(n)}: {_asked(c)}" for n, c in zip(type.names, type.children, strict=True))
            return f"STRUCT<{', '.join(inner)}>"
        case TypeRoot.MAP:  # Spark keeps all entries with equal keys
            raise NotExactError(f"{type} in JSON")
        case _:
            return "STRING"


def _has_decimals(type: DataType) -> bool:
    return type.root is TypeRoot.DECIMAL or any(map(_has_decimals, type.children))


_numbers = count()


def _leaf(text: str, type: DataType, key: str | None) -> Leaf:
    """How a parsed value becomes one of the table's type; `key` is the field of the object that it comes from, None: it is an element."""
    match type.root:
        case root if root in _PARSED:
            return Leaf(text, "TRUE")
        case TypeRoot.TINYINT:
            value = f"TRY_CAST({text} AS TINYINT)"
            return Leaf(value, f"({text} IS NULL OR {value} IS NOT NULL)")
        case TypeRoot.CHAR | TypeRoot.VARCHAR:
            return Leaf(text, f"({text} IS NULL OR NOT ({_may_be_no_text(text, key)}))")
        case TypeRoot.ARRAY:
            each = f"`flowrun$e{next(_numbers)}`"
            element = _leaf(each, type.children[0], None)
            value = text if element.value == each else f"transform({text}, {each} -> {element.value})"
            sure = "TRUE" if element.sure == "TRUE" else f"({text} IS NULL OR forall({text}, {each} -> {element.sure}))"
            return Leaf(value, sure)
        case TypeRoot.ROW:
            inner = [f"{text}.{quoted(n)}" for n in type.names]
            leaves = [_leaf(t, c, n) for t, c, n in zip(inner, type.children, type.names, strict=True)]
            made = ", ".join(f"{quote_text(n)}, {leaf.value}" for n, leaf in zip(type.names, leaves, strict=True))
            unchanged = [leaf.value for leaf in leaves] == inner
            value = text if unchanged else f"CASE WHEN {text} IS NOT NULL THEN named_struct({made}) END"
            return Leaf(value, " AND ".join(leaf.sure for leaf in leaves if leaf.sure != "TRUE") or "TRUE")
        case _ if type.is_binary:
            leaf = leaf_of_text(text, type)  # Spark gives the text of numbers too, which flowrun refuses
            return Leaf(leaf.value, f"({leaf.sure} AND NOT coalesce({text} RLIKE '^([0-9]+|true|false)$', FALSE))")
        case _:
            return leaf_of_text(text, type)


def _may_be_no_text(text: str, key: str | None) -> str:
    """Whether a text from Spark may have been an object, an array or a number, for which flowrun has another text."""
    is_float = f"{text} < ':' AND {text} RLIKE {quote_text(_FLOAT)}"
    if key is not None:
        spellings = "|".join(sorted({re.escape(json.dumps(key, ensure_ascii=a)) for a in (True, False)}))
        is_float += f" AND {LINE} RLIKE {quote_text(f'({spellings}){_SPACE}:{_SPACE}-?[0-9]')}"
    return f"startswith({text}, '{{') OR startswith({text}, '[') OR ({is_float})"
