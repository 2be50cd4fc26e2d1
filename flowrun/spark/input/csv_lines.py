"""Reads CSV files with Spark's own text functions, if each line is a record that they split as flowrun does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from flowrun.connectors.filesystem.source import FileSource
from flowrun.connectors.formats.csv_options import CsvSettings, csv_settings
from flowrun.core.types import DataType
from flowrun.functions.spark_text import quote_text, quoted
from flowrun.spark.input.exactness import NotExactError, must
from flowrun.spark.input.physical import Physical
from flowrun.spark.input.text_leaves import Leaf, leaf_of_text
from flowrun.spark.input.text_lines import LINE, read_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FIELDS = "`flowrun$fields`"
_MARK = r"'\ufeff'"


def read_csv(session: SparkSession, source: FileSource, *, ordered: bool) -> Physical:
    """The rows of a CSV source.

    Raises:
        ConnectorError: the path does not exist.
        NotExactError: flowrun's reader must read it.
    """
    settings = csv_settings(source.options)
    if settings.header:
        raise NotExactError("a header: only who reads a file from its beginning knows which line it is")
    if settings.escape is not None:
        raise NotExactError("an escape character")
    declared = source.request.declared.names
    leaves = {f.name: _leaf(declared.index(f.name), f.type, settings) for f in source.request.schema}
    whole = f"CASE WHEN endswith({LINE}, '\\r') THEN left({LINE}, length({LINE}) - 1) ELSE {LINE} END AS {LINE}"
    lines = read_lines(session, source, ordered=ordered)
    beside = [quoted(n) for n in lines.columns if n != LINE]
    lines = lines.selectExpr(*beside, whole).where(_is_record(settings))
    # A generator, so that Spark computes its result once, however often the columns after it are read.
    rows = lines.selectExpr(*beside, LINE, f"inline(array(named_struct('flowrun$fields', {_split(settings)})))")
    needed = [
        f"size({_FIELDS}) = {len(declared)}",
        f"is_valid_utf8({LINE})",
        f"NOT startswith({LINE}, {_MARK})",
        *_whole(settings),
        *(leaf.sure for leaf in leaves.values() if leaf.sure != "TRUE"),
        *(f"{leaves[f.name].value} IS NOT NULL" for f in source.request.schema if not f.nullable),
    ]
    return Physical(
        rows.where(must(" AND ".join(needed))),
        tuple(leaves[n].value if n in leaves else quoted(n) for n in source.schema.names),
        checked=all(f.nullable for f in source.schema if f.name not in leaves),
    )


def _is_record(settings: CsvSettings) -> str:
    filled = f"{LINE} <> ''"
    return f"{filled} AND NOT startswith({LINE}, '#')" if settings.comments else filled


def _split(settings: CsvSettings) -> str:
    """The fields of a line as they are written, with their quotes."""
    delimiter = re.escape(settings.delimiter)
    plain = f"split({LINE}, {quote_text(delimiter)}, -1)"
    if settings.quote is None:
        return plain
    quote = re.escape(settings.quote)
    field = f"{delimiter}({quote}(?:[^{quote}]++|{quote}{quote})*+{quote}|[^{delimiter}{quote}]*+)"
    quoted_fields = f"regexp_extract_all(concat({quote_text(settings.delimiter)}, {LINE}), {quote_text(field)}, 1)"
    return f"CASE WHEN contains({LINE}, {quote_text(settings.quote)}) THEN {quoted_fields} ELSE {plain} END"


def _whole(settings: CsvSettings) -> list[str]:
    """Conditions that the fields make up the whole line: else a quote is not closed, or is within a field that is not quoted."""
    if settings.quote is None:
        return []
    joined = f"array_join({_FIELDS}, {quote_text(settings.delimiter)})"
    return [f"(NOT contains({LINE}, {quote_text(settings.quote)}) OR {joined} = {LINE})"]


def _leaf(position: int, type: DataType, settings: CsvSettings) -> Leaf:
    text = f"get({_FIELDS}, {position})"
    if settings.quote is not None:
        quote = quote_text(settings.quote)
        inner = f"replace(substring({text}, 2, length({text}) - 2), {quote_text(settings.quote * 2)}, {quote})"
        text = f"CASE WHEN startswith({text}, {quote}) THEN {inner} ELSE {text} END"
    if settings.null_literal is not None:
        text = f"nullif({text}, {quote_text(settings.null_literal)})"
    if not type.is_character:
        text = f"nullif({text}, '')"  # an empty field is NULL for all types but text
    return leaf_of_text(text, type)
