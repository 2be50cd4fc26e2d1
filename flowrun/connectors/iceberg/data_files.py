"""The data files of an Iceberg table: which partition they are of, and their description for manifests, as JSON and as records."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from flowrun.connectors.iceberg.catalog import library
from flowrun.connectors.iceberg.table import IcebergName, IcebergTable
from flowrun.connectors.lake.columns import fitted
from flowrun.connectors.lake.committables import CHANGE_FOLDER
from flowrun.connectors.lake.storage import TableStorage
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.shapes import Shape, integer, listed, mapping, members, optional, text
from flowrun.errors import SetupError, StateError

_NUMBERS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS = ("lower_bounds", "upper_bounds")

_counts = optional(mapping(integer()))
_bounds = optional(mapping(text))
DATA_FILE: Shape = members(
    {
        "path": text,
        "size": integer(),
        "rows": integer(),
        "spec": integer(),
        "partition": listed(optional(text)),
        "split_offsets": optional(listed(integer())),
        **dict.fromkeys(_NUMBERS, _counts),
        **dict.fromkeys(_BOUNDS, _bounds),
    }
)
"""The shape of a data file's description."""


@record
class OpenIcebergTable:
    """Opens a table for a writer; can be pickled.

    Attributes:
        name: of the table.
        schema: the columns of the rows.
        partitions: the columns that partition a table that is created.
        keys: those of the primary key by which changes are applied; empty: rows are appended.
    """

    name: IcebergName
    schema: Schema
    partitions: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()

    def __call__(self) -> IcebergFiles:
        """The data files of the table, which is created if it is not there."""
        try:
            table = self.name.open()
        except SetupError:
            self.name.create(self.schema, self.partitions)
            table = self.name.open()
        table.check_sink(self.schema, self.partitions, self.keys)
        return IcebergFiles(table)


class IcebergFiles:
    """How an Iceberg table wants its data files, by its current schema and partitioning."""

    def __init__(self, table: IcebergTable) -> None:
        self._opened = table
        self._table = table.table
        self._arrow = table.arrow
        self._spec = self._table.spec()
        self._provider = self._table.location_provider()
        self._keys: dict[str, Any] = {}
        """Text of a partition → the client library's `PartitionKey`."""

    @property
    def storage(self) -> TableStorage:
        """The folder of the table."""
        return self._opened.storage

    @property
    def arrow(self) -> pa.Schema:
        """The columns of a data file: all of the table, with the ids of its fields."""
        return self._arrow

    @property
    def required(self) -> Sequence[str]:
        """The columns of the table that are NOT NULL."""
        return tuple(field.name for field in self._arrow if not field.nullable)

    @property
    def change_location(self) -> str:
        """The folder of changes that wait for their commit."""
        return f"{self._table.location().rstrip('/')}/{CHANGE_FOLDER}"

    def split(self, columns: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """(a partition as JSON, its rows), for each partition of a batch."""
        rows = fitted(columns, self._arrow)
        if not self._spec.fields:
            yield "", rows
            return
        codes = np.zeros(rows.num_rows, np.int64)
        values: list[list[Any]] = []
        for column in self._transformed(rows):
            encoded = column.dictionary_encode(null_encoding="encode")
            codes = codes * max(1, len(encoded.dictionary)) + encoded.indices.to_numpy(zero_copy_only=False)
            values.append(encoded.dictionary.to_pylist())
        present, inverse = np.unique(codes, return_inverse=True)
        order = np.argsort(inverse, kind="stable")
        sorted_rows = rows if len(present) == 1 else rows.take(pa.array(order))
        ends = np.cumsum(np.bincount(inverse, minlength=len(present)))
        for code, begin, end in zip(present, [0, *ends[:-1]], ends, strict=True):
            yield self._partition(int(code), values), sorted_rows.slice(int(begin), int(end - begin))

    def _transformed(self, rows: pa.RecordBatch) -> Iterator[pa.Array]:
        schema = self._table.schema()
        for field in self._spec.fields:
            source = schema.find_field(field.source_id)
            column = _nested(rows, schema.find_column_name(field.source_id))
            made = field.transform.pyarrow_transform(source.field_type)(column)
            yield made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made

    def _partition(self, code: int, values: Sequence[Sequence[Any]]) -> str:
        picked: list[Any] = []
        for known in reversed(values):
            code, index = divmod(code, len(known))
            picked.append(known[index])
        partitioning = library("pyiceberg.partitioning")
        fields = [
            partitioning.PartitionFieldValue(field=f, value=v)
            for f, v in zip(self._spec.fields, reversed(picked), strict=True)
        ]
        key = partitioning.PartitionKey(field_values=fields, partition_spec=self._spec, schema=self._table.schema())
        text_of = json.dumps(partition_texts(key.partition, self._table, self._spec.spec_id))
        self._keys[text_of] = key
        return text_of

    def location(self, partition: str, name: str) -> str:
        """Where the data file `name` of a partition is to be."""
        made: str = self._provider.new_data_location(name, self._keys[partition] if partition else None)
        return made

    def describe(self, partition: str, location: str, size: int, metadata: pq.FileMetaData) -> dict[str, Any]:
        """A finished data file as manifests describe it."""
        arrow_io = library("pyiceberg.io.pyarrow")
        schema = self._table.schema()
        found = arrow_io.data_file_statistics_from_parquet_metadata(
            parquet_metadata=metadata,
            stats_columns=arrow_io.compute_statistics_plan(schema, self._table.properties),
            parquet_column_mapping=arrow_io.parquet_path_to_id_mapping(schema),
        ).to_serialized_dict()
        described: dict[str, Any] = {
            "path": location,
            "size": size,
            "rows": found["record_count"],
            "spec": self._spec.spec_id,
            "partition": json.loads(partition) if partition else [],
            "split_offsets": found["split_offsets"],
        }
        for name in _NUMBERS:
            described[name] = {str(k): v for k, v in (found[name] or {}).items()}
        for name in _BOUNDS:
            described[name] = {str(k): base64.b64encode(v).decode() for k, v in (found[name] or {}).items()}
        return described


def partition_texts(partition: Any, table: Any, spec_id: int) -> list[str | None]:
    """The values of a partition in Iceberg's binary form, in base64, so that they can be kept as JSON."""
    to_bytes = library("pyiceberg.conversions").to_bytes
    fields = table.specs()[spec_id].partition_type(table.schema()).fields
    values = [partition[i] for i in range(len(fields))]
    return [
        None if value is None else base64.b64encode(to_bytes(field.field_type, value)).decode()
        for field, value in zip(fields, values, strict=True)
    ]


def partition_record(texts: Sequence[str | None], table: Any, spec_id: int) -> Any:
    """The partition that `partition_texts` told.

    Raises:
        StateError: it is none of this table.
    """
    from_bytes = library("pyiceberg.conversions").from_bytes
    spec = table.specs().get(spec_id)
    fields = () if spec is None else spec.partition_type(table.schema()).fields
    if spec is None or len(fields) != len(texts):
        raise StateError(
            f"the state names a partition of an Iceberg table that has no such partitioning (spec {spec_id})"
        )
    values = [
        None if given is None else from_bytes(field.field_type, base64.b64decode(given))
        for field, given in zip(fields, texts, strict=True)
    ]
    return library("pyiceberg.typedef").Record(*values)


def data_file(described: Mapping[str, Any], table: Any) -> Any:
    """The client library's `DataFile` of a description.

    Raises:
        StateError: it is no description of a data file of this table.
    """
    try:
        DATA_FILE(described, "files")
    except (ValueError, StateError) as error:
        raise StateError(f"the state describes a data file of an Iceberg table wrongly: {error}") from error
    manifest = library("pyiceberg.manifest")
    numbers = {n: {int(k): v for k, v in (described[n] or {}).items()} for n in _NUMBERS}
    bounds = {n: {int(k): base64.b64decode(v) for k, v in (described[n] or {}).items()} for n in _BOUNDS}
    made = manifest.DataFile.from_args(
        content=manifest.DataFileContent.DATA,
        file_path=described["path"],
        file_format=manifest.FileFormat.PARQUET,
        partition=partition_record(cast("Sequence[str | None]", described["partition"]), table, described["spec"]),
        record_count=described["rows"],
        file_size_in_bytes=described["size"],
        split_offsets=described["split_offsets"],
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **numbers,
        **bounds,
    )
    made.spec_id = described["spec"]
    return made


def _nested(rows: pa.RecordBatch, path: str) -> pa.Array:
    """A column, or a part of a nested one, by its dotted path."""
    if rows.schema.get_field_index(path) >= 0:
        return rows.column(path)
    first, *rest = path.split(".")
    column = rows.column(first)
    for part in rest:
        column = column.field(part)
    return column
