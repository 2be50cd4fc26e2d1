"""Rows as tests write them, and what they are as columns of a schema; every value knows its place."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import orjson
import pyarrow as pa

from flowrun.core.elements import RecordBatch, RowKind
from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import DataError, Location, did_you_mean
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.trees.nodes import YamlMapping, YamlNode, YamlScalar, YamlSequence, describe
from flowrun.functions.casts.casts import read_array

KINDS = {kind.symbol: kind for kind in RowKind}
"""How changes are written."""
_KIND_COLUMN = "op"
_MIDNIGHT = re.compile(r"[^T ]+([T ][0:.]*)?")
_FRACTION = re.compile(r":\d\d\.(\d+)")
_BYTES = re.compile(r"x'((?:[0-9a-fA-F]{2})*)'")
Value: TypeAlias = "str | list[Value] | dict[str, Value] | None"
"""Of a cell: text, or what is made of texts; None is NULL."""


@record
class Cell:
    """One value and its place."""

    value: Value
    location: Location


@record
class WrittenRow:
    """One row: its kind, and its values by column. `kind` is None where none is written."""

    kind: RowKind | None
    cells: Mapping[str, Cell]
    location: Location


@record(eq=False)
class WrittenRows:
    """Rows, and the tree that they are written as."""

    node: YamlNode
    rows: tuple[WrittenRow, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that are named, in the order in which they occur."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row.cells))


def read_rows(node: YamlNode, folder: Path, diagnostics: Diagnostics) -> WrittenRows | None:
    """The rows of a tree; None if something is wrong, which `diagnostics` then says.

    Args:
        node: a list of mappings, a text with comma-separated values, `{file: PATH}`, or nothing for no rows.
        folder: paths start here.
        diagnostics: receives every problem.
    """
    match node:
        case YamlScalar() if node.is_null:
            return WrittenRows(node, ())
        case YamlScalar():
            return _from_text(node, node.text, diagnostics)
        case YamlMapping() if [e.name for e in node.entries] == ["file"]:
            return _from_file(node, folder, diagnostics)
        case YamlSequence():
            rows = [_row(item, diagnostics) for item in node.items]
            return None if any(row is None for row in rows) else WrittenRows(node, tuple(r for r in rows if r))
    diagnostics.error(
        f"rows are expected, got {describe(node)}",
        node.location,
        hint="write a list of mappings from columns to values, a text with comma-separated values, or {file: PATH}",
    )
    return None


def _row(node: YamlNode, diagnostics: Diagnostics) -> WrittenRow | None:
    if not isinstance(node, YamlMapping):
        diagnostics.error(
            f"a row is a mapping from columns to values, got {describe(node)}", node.location, hint="{id: 1, name: a}"
        )
        return None
    kind, columns = None, node
    if len(node.entries) == 1 and node.entries[0].name in KINDS:
        kind = KINDS[node.entries[0].name]
        inner = node.entries[0].value
        if not isinstance(inner, YamlMapping):
            diagnostics.error(
                f"a change is a row under its kind, got {describe(inner)}", inner.location, hint="+U: {id: 1, name: a}"
            )
            return None
        columns = inner
    return WrittenRow(kind, {e.name: _cell(e.value) for e in columns.entries}, node.location)


def _cell(node: YamlNode) -> Cell:
    return Cell(_value(node), node.location)


def _value(node: YamlNode) -> Value:
    match node:
        case YamlMapping():
            return {e.name: _value(e.value) for e in node.entries}
        case YamlSequence():
            return [_value(item) for item in node.items]
        case YamlScalar():
            return None if node.is_null else node.text
    raise TypeError(node)


def _from_text(node: YamlScalar, text: str, diagnostics: Diagnostics) -> WrittenRows | None:
    """Comma-separated values: the first line names the columns, white space around values does not count, nothing is NULL."""
    return _table(node, text, node.location, diagnostics)


def _table(node: YamlNode, text: str, at: Location, diagnostics: Diagnostics) -> WrittenRows | None:
    """The rows of comma-separated values; a value in quotes may go over several lines."""
    try:
        parsed = [
            values for values in csv.reader(io.StringIO(text), skipinitialspace=True) if any(map(str.strip, values))
        ]
    except csv.Error as error:
        diagnostics.error(f"these are no comma-separated values: {error}", at)
        return None
    if not parsed:
        return WrittenRows(node, ())
    names = [name.strip() for name in parsed[0]]
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        diagnostics.error(f"the first line names column '{twice}' twice", at, hint="name each column once")
        return None
    rows = []
    for number, values in enumerate(parsed[1:], start=1):
        if len(values) != len(names):
            diagnostics.error(
                f"row {number} has {len(values)} values, but the first line names {len(names)} columns",
                at,
                hint="leave nothing between two commas for NULL; put values with commas into quotes",
            )
            return None
        cells = {n: Cell(v.strip() or None, at) for n, v in zip(names, values, strict=True)}
        kind = None
        if names[0] == _KIND_COLUMN and (written := cells[_KIND_COLUMN].value) in KINDS:
            kind = KINDS[str(written)]
            del cells[_KIND_COLUMN]
        rows.append(WrittenRow(kind, cells, at))
    return WrittenRows(node, tuple(rows))


def _from_file(node: YamlMapping, folder: Path, diagnostics: Diagnostics) -> WrittenRows | None:
    """Rows of a file beside the tests: JSON, an object a line, if its name says so; else comma-separated values."""
    named = node.entries[0].value
    if not isinstance(named, YamlScalar) or named.is_null:
        diagnostics.error(f"'file' expects a path, got {describe(named)}", named.location)
        return None
    path = folder / named.text
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error.strerror
        diagnostics.error(f"cannot read the rows in '{path}': {reason}", named.location)
        return None
    if path.suffix not in (".json", ".jsonl", ".ndjson"):
        return _table(node, text, named.location, diagnostics)
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):  # not splitlines(): JSON may hold other line breaks
        if not line.strip():
            continue
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            diagnostics.error(f"line {number} of '{path}' is not JSON: {error}", named.location)
            return None
        if not isinstance(value, dict):
            diagnostics.error(f"line {number} of '{path}' is no object", named.location, hint="one object a line")
            return None
        cells = {name: Cell(_as_text(v), named.location) for name, v in value.items()}
        rows.append(WrittenRow(None, cells, named.location))
    return WrittenRows(node, tuple(rows))


def _as_text(value: Any) -> Value:  # Any: what JSON can hold
    match value:
        case None | str():
            return value
        case bool():
            return str(value).lower()
        case list():
            return [_as_text(v) for v in value]
        case dict():
            return {k: _as_text(v) for k, v in value.items()}
    return str(value)


def to_batch(written: WrittenRows, schema: Schema, what: str, diagnostics: Diagnostics) -> RecordBatch | None:
    """The rows as a batch; columns that a row does not name are NULL. None if something is wrong, which `diagnostics` then says.

    Args:
        written: the rows.
        schema: the columns of the batch.
        what: has the columns, e.g. `source 'orders'`.
        diagnostics: receives every problem.
    """
    unknown: dict[str, Location] = {}
    for row in written.rows:
        for name, cell in row.cells.items():
            if name not in schema.names:
                unknown.setdefault(name, cell.location)
    for name, at in unknown.items():  # each once, however many rows have it
        diagnostics.error(f"{what} has no column '{name}'", at, hint=did_you_mean(name, list(schema.names)))
    if unknown:
        return None
    columns = [_column(f, [row.cells.get(f.name) for row in written.rows], what, diagnostics) for f in schema]
    if any(c is None for c in columns):
        return None
    kinds = [row.kind for row in written.rows]
    given = None if all(k is None for k in kinds) else pa.array([int(k or RowKind.INSERT) for k in kinds], pa.int8())
    return RecordBatch(pa.RecordBatch.from_arrays(columns, schema=schema.arrow), row_kinds=given)


def _column(field: Field, cells: list[Cell | None], what: str, diagnostics: Diagnostics) -> pa.Array | None:
    values = [None if cell is None else cell.value for cell in cells]
    try:
        return _array(values, field.type)
    except _MisfitError:
        pass
    for cell in cells:
        if cell is not None:
            try:
                _array([cell.value], field.type)
            except _MisfitError as error:
                diagnostics.error(
                    f"column '{field.name}' of {what} is {field.type}: {error}", cell.location, hint=error.hint
                )
    return None


class _MisfitError(Exception):
    """A value is none of its type."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def _array(values: list[Value], type: DataType) -> pa.Array:
    if type.children or type.root is TypeRoot.ROW:
        return pa.array([_nested(v, type) for v in values], type.arrow)
    for value in values:
        if value is not None and not isinstance(value, str):
            raise _MisfitError(f"a {'list' if isinstance(value, list) else 'mapping'} is no value of it")
    if type.is_binary:
        return pa.array([None if v is None else _bytes(str(v)) for v in values], type.arrow)
    texts = pa.array(values, pa.string())
    try:
        made = read_array(texts, type)
    except DataError as error:
        raise _MisfitError(error.message, _hint(type)) from None
    for text, value in zip(values, made, strict=True):
        if text is not None and (lost := _lost(str(text), value, type)) is not None:
            raise _MisfitError(f"'{text}' {lost}", "write the value as the column holds it")
    return made


def _lost(text: str, value: pa.Scalar, type: DataType) -> str | None:
    """What a text has that CAST leaves out, so that two values would be equal that are not; None: nothing."""
    if type.is_integer:
        if not any(map(str.isdigit, text)):
            return "has no digit"
        return None if Decimal(text.strip()) == value.as_py() else "has a fraction"
    if type.root is TypeRoot.DECIMAL:
        return None if Decimal(text.strip()) == value.as_py() else f"has more digits behind the point than {type.scale}"
    if type.is_character:
        return None if type.length is None or len(text) <= type.length else f"is longer than {type.length}"
    if type.root is TypeRoot.DATE:
        return None if _MIDNIGHT.fullmatch(text.strip()) else "has a time of day"
    if type.is_temporal:
        fraction = _FRACTION.search(text)
        digits = 0 if fraction is None else len(fraction[1].rstrip("0"))
        return None if digits <= (type.precision or 0) else f"has {digits} digits of fractions of a second"
    return None


def _bytes(text: str) -> bytes:
    match = _BYTES.fullmatch(text)
    return text.encode() if match is None else bytes.fromhex(match[1])


def _hint(type: DataType) -> str | None:
    if type.root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        return "write times like 2024-01-01T10:00:00.000"
    return "write true or false" if type.root is TypeRoot.BOOLEAN else None


def _nested(value: Value, type: DataType) -> Any:  # Any: what pa.array takes for the type
    if value is None:
        return None
    if type.root is TypeRoot.ARRAY:
        if not isinstance(value, list):
            raise _MisfitError("a list is expected")
        return [_nested(v, type.children[0]) for v in value]
    if not type.children and type.root is not TypeRoot.ROW:
        return _array([value], type)[0].as_py()
    if not isinstance(value, dict):
        raise _MisfitError("a mapping is expected")
    if type.root is TypeRoot.MAP:
        return [(_nested(k, type.children[0]), _nested(v, type.children[1])) for k, v in value.items()]
    for name in value:
        if name not in type.names:
            raise _MisfitError(f"it has no field '{name}'", did_you_mean(name, type.names))
    return {n: _nested(value.get(n), t) for n, t in zip(type.names, type.children, strict=True)}
