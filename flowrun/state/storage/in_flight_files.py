"""Rows in flight in files: one Parquet file an exchange and subtask, written by it. Events between the rows are in the metadata."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from flowrun.core.elements import Event, RecordBatch, Watermark, WatermarkStatus
from flowrun.errors import InternalError
from flowrun.state.checkpoints import (
    FORMAT_VERSION,
    InFlight,
    InFlightFile,
    KeptElement,
    StoredRows,
    has_row_kinds,
    schema_in_flight,
)
from flowrun.state.storage.names import state_file_name
from flowrun.state.storage.parquet_read import StateFileReader
from flowrun.state.storage.parquet_types import as_schema
from flowrun.state.storage.parquet_write import write_rows
from flowrun.state.storage.state_path import StatePath

_CHANNEL = "__channel"
_TIMESTAMP = "__timestamp"
_ROW_KIND = "__row_kind"
_ROW = "row"


def write_in_flight(
    folder: StatePath, prefix: str, in_flight: Sequence[InFlight]
) -> tuple[list[InFlightFile], list[list[dict[str, Any]]]]:
    """Write the rows in flight that are in memory; gives all files, and for each channel its elements as JSON: batches by length and file.

    Raises:
        StateError: they cannot be written.
    """
    numbers: dict[tuple[str, bytes | str], int] = {}
    schemas: list[tuple[str, pa.Schema]] = []
    parts: list[list[pa.Table]] = []
    stored: dict[int, InFlightFile] = {}
    channels: list[list[dict[str, Any]]] = []
    for channel, flight in enumerate(in_flight):
        elements = []
        for element in flight.elements:
            if not isinstance(element, RecordBatch | StoredRows):
                elements.append(_event(element))
                continue
            schema = schema_in_flight(element)
            inside = element.source.file.path if isinstance(element, StoredRows) else schema.serialize().to_pybytes()
            number = numbers.setdefault((flight.data_set_id, inside), len(parts))
            if number == len(parts):
                schemas.append((flight.data_set_id, schema))
                parts.append([])
            if isinstance(element, StoredRows):
                stored[number] = element.source
                has_times = element.timestamps
            else:
                parts[number].append(_rows(channel, element))
                has_times = element.timestamps is not None
            elements.append(
                {
                    "rows": element.num_rows,
                    "file": number,
                    "timestamps": has_times,
                    "row_kinds": has_row_kinds(element),
                }
            )
        channels.append(elements)
    files = []
    for number, ((data_set_id, schema), tables) in enumerate(zip(schemas, parts, strict=True)):
        if number in stored:
            files.append(stored[number])
            continue
        name = state_file_name("in-flight", data_set_id, "rows")
        notes = {"flowrun.format": str(FORMAT_VERSION), "flowrun.in_flight": data_set_id}
        files.append(
            InFlightFile(data_set_id, schema, write_rows(folder / name, prefix + name, pa.concat_tables(tables), notes))
        )
    return files, channels


def store_in_flight(folder: StatePath, prefix: str, in_flight: Sequence[InFlight]) -> tuple[InFlight, ...]:
    """Write the rows in flight of one subtask; gives the same elements, with the places of the rows instead of them.

    Raises:
        StateError: they cannot be written.
    """
    files, channels = write_in_flight(folder, prefix, in_flight)
    positions = [0] * len(files)
    kept = []
    for flight, described in zip(in_flight, channels, strict=True):
        elements: list[KeptElement] = []
        for element, description in zip(flight.elements, described, strict=True):
            if isinstance(element, RecordBatch):
                number, rows = description["file"], element.num_rows
                has_times = element.timestamps is not None
                elements.append(StoredRows(files[number], positions[number], rows, has_times, has_row_kinds(element)))
                positions[number] += rows
            else:
                elements.append(element)
        kept.append(replace(flight, elements=tuple(elements)))
    return tuple(kept)


def load_in_flight(root: StatePath, channels: Sequence[Sequence[KeptElement]]) -> list[tuple[RecordBatch | Event, ...]]:
    """The elements of channels with their rows; files are found below `root`, and read once each.

    Raises:
        DamagedFileError: a file is missing, truncated or altered.
    """
    batches: dict[str, _Batches] = {}

    def loaded(element: KeptElement) -> RecordBatch | Event:
        if not isinstance(element, StoredRows):
            return element
        path = element.source.file.path
        if path not in batches:
            batches[path] = _Batches(root, element.source)
        return batches[path].rows(element.first, element.num_rows, element.timestamps, element.row_kinds)

    return [tuple(loaded(e) for e in elements) for elements in channels]


def read_in_flight(
    root: StatePath, files: Sequence[InFlightFile], channels: Sequence[Sequence[dict[str, Any]]]
) -> list[tuple[RecordBatch | Event, ...]]:
    """The elements of each channel, in order.

    Raises:
        DamagedFileError: a file is missing, truncated or altered.
    """
    batches = [_Batches(root, file) for file in files]
    return [tuple(_elements(batches, elements)) for elements in channels]


class _Batches:
    """Cuts the rows of a file into batches again."""

    def __init__(self, root: StatePath, source: InFlightFile) -> None:
        with StateFileReader(root.below(source.file.path), source.file) as file:
            table = file.rows().combine_chunks()
        self._timestamps = _array(table.column(1))
        self._kinds = _array(table.column(2))
        rows = as_schema(table.select([3]), pa.schema([_row_field(source.schema)]))
        self._rows = _array(rows.column(0))
        self._schema = source.schema
        self._position = 0

    def next(self, rows: int, timestamps: bool, row_kinds: bool) -> RecordBatch:
        first = self._position
        self._position += rows
        return self.rows(first, rows, timestamps, row_kinds)

    def rows(self, first: int, rows: int, timestamps: bool, row_kinds: bool) -> RecordBatch:
        where = slice(first, first + rows)
        columns = [self._rows[where].field(i) for i in range(len(self._schema))]
        return RecordBatch(
            pa.RecordBatch.from_arrays(columns, schema=self._schema),
            self._timestamps[where] if timestamps else None,
            self._kinds[where] if row_kinds else None,
        )


def _elements(batches: Sequence[_Batches], elements: Sequence[dict[str, Any]]) -> Iterator[RecordBatch | Event]:
    for element in elements:
        if "rows" in element:
            yield batches[element["file"]].next(element["rows"], element["timestamps"], element["row_kinds"])
        elif "watermark" in element:
            yield Watermark(element["watermark"])
        else:
            yield WatermarkStatus(element["idle"])


def _event(element: Event) -> dict[str, Any]:
    match element:
        case Watermark(timestamp):
            return {"watermark": timestamp}
        case WatermarkStatus(idle):
            return {"idle": idle}
        case _:
            raise InternalError(f"{type(element).__name__} is never stored with rows in flight")


def _row_field(schema: pa.Schema) -> pa.Field:
    return pa.field(_ROW, pa.struct(list(schema)), nullable=False)


def _rows(channel: int, batch: RecordBatch) -> pa.Table:
    rows = batch.num_rows
    field = _row_field(batch.columns.schema)
    struct = pa.StructArray.from_arrays(batch.columns.columns, fields=list(field.type))
    columns = [
        pa.array(np.full(rows, channel, np.int32)),
        pa.nulls(rows, pa.int64()) if batch.timestamps is None else batch.timestamps,
        pa.nulls(rows, pa.int8()) if batch.row_kinds is None else batch.row_kinds,
        struct,
    ]
    names = [(_CHANNEL, pa.int32()), (_TIMESTAMP, pa.int64()), (_ROW_KIND, pa.int8())]
    return pa.Table.from_arrays(columns, schema=pa.schema([pa.field(n, t) for n, t in names] + [field]))


def _array(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
