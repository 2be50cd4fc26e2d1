"""Rows in flight in files: one Parquet file an exchange; the events between the rows are in the metadata."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from flowrun.core.elements import Event, RecordBatch, Watermark, WatermarkStatus
from flowrun.core.record import record
from flowrun.errors import InternalError
from flowrun.state.checkpoints import FORMAT_VERSION, InFlight, StateFile
from flowrun.state.storage.names import state_file_name
from flowrun.state.storage.parquet_read import StateFileReader
from flowrun.state.storage.parquet_types import as_schema
from flowrun.state.storage.parquet_write import write_rows
from flowrun.state.storage.state_path import StatePath

_CHANNEL = "__channel"
_TIMESTAMP = "__timestamp"
_ROW_KIND = "__row_kind"
_ROW = "row"


@record
class InFlightFile:
    """Rows in flight on one exchange, channel by channel and in order.

    Attributes:
        data_set_id: the exchange.
        schema: of the rows.
        file: columns `__channel` (position in the metadata's list), `__timestamp`, `__row_kind` and `row`, a struct.
    """

    data_set_id: str
    schema: pa.Schema
    file: StateFile


def write_in_flight(
    folder: StatePath, prefix: str, in_flight: Sequence[InFlight]
) -> tuple[list[InFlightFile], list[list[dict[str, Any]]]]:
    """Write the rows in flight; gives the files, and for each channel its elements as JSON: batches by their length and file.

    Raises:
        StateError: they cannot be written.
    """
    numbers: dict[tuple[str, bytes], int] = {}
    schemas: list[tuple[str, pa.Schema]] = []
    parts: list[list[pa.Table]] = []
    channels: list[list[dict[str, Any]]] = []
    for channel, flight in enumerate(in_flight):
        elements = []
        for element in flight.elements:
            if not isinstance(element, RecordBatch):
                elements.append(_event(element))
                continue
            schema = element.columns.schema
            key = (flight.data_set_id, schema.serialize().to_pybytes())
            number = numbers.setdefault(key, len(parts))
            if number == len(parts):
                schemas.append((flight.data_set_id, schema))
                parts.append([])
            parts[number].append(_rows(channel, element))
            elements.append(
                {
                    "rows": element.num_rows,
                    "file": number,
                    "timestamps": element.timestamps is not None,
                    "row_kinds": element.row_kinds is not None,
                }
            )
        channels.append(elements)
    files = []
    for (data_set_id, schema), tables in zip(schemas, parts, strict=True):
        name = state_file_name("in-flight", data_set_id, "rows")
        notes = {"flowrun.format": str(FORMAT_VERSION), "flowrun.in_flight": data_set_id}
        files.append(
            InFlightFile(data_set_id, schema, write_rows(folder / name, prefix + name, pa.concat_tables(tables), notes))
        )
    return files, channels


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
        where = slice(self._position, self._position + rows)
        self._position += rows
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
