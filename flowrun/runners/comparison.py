"""Compares the rows that two engines give for a sink, as multisets, in DuckDB: tables may be bigger than memory.

Rows come as Arrow streams in files. Changes fold to weights: +1 for a row that came, −1 for one that was taken back. Rows that are not
equal to the last bit are compared once more with their floating numbers taken as equal up to `TOLERANCE`: numbers of otherwise equal
rows are sorted, and neighbours that close are one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.types import DataType, TypeRoot
from flowrun.runners.inspection_tables import import_duckdb

TOLERANCE = 1e-9
"""Relative; of FLOAT columns `_SINGLE_TOLERANCE`."""
_SINGLE_TOLERANCE = 1e-6
_DIGITS = 9
"""To which numbers inside of arrays, maps and rows are rounded."""
WEIGHT = "w"


@record(slots=False)
class SinkComparison:
    """What two engines gave for one sink.

    Attributes:
        name: of the sink.
        columns: its names.
        stream_rows: in the final table of the stream.
        spark_rows: in that of Spark.
        only_stream: rows that only the stream gives, each as often as it does.
        only_spark: and only Spark.
        sample: some of those as text, first the stream's: (whether it is the stream's, values; None is NULL).
    """

    name: str
    columns: tuple[str, ...]
    stream_rows: int
    spark_rows: int
    only_stream: int
    only_spark: int
    sample: tuple[tuple[bool, tuple[str | None, ...]], ...] = ()

    @property
    def equal(self) -> bool:
        """Whether both gave the same rows."""
        return not self.only_stream and not self.only_spark


def comparable_schema(schema: Schema) -> pa.Schema:
    """Columns of the files that are compared: `c0`, `c1`, … in types that DuckDB knows, and the weight."""
    fields = [pa.field(f"c{i}", _plain_type(type)) for i, type in enumerate(schema.types)]
    return pa.schema([*fields, pa.field(WEIGHT, pa.int8())])


def comparable(columns: Sequence[pa.Array], schema: Schema, weights: pa.Array) -> pa.RecordBatch:
    """Rows as they are compared. `columns` have the Arrow types of the schema."""
    plain = [_plain(c, t) for c, t in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays([*plain, weights], schema=comparable_schema(schema))


def compare(name: str, schema: Schema, stream: Path, spark: Path, scratch: Path, most: int) -> SinkComparison:
    """Compare two files of comparable rows; `scratch`: where DuckDB may put what does not fit into memory.

    `most`: rows of each side in the sample.
    """
    with import_duckdb().connect(str(scratch / "compared.duckdb")) as database:
        database.execute("SET TimeZone = 'UTC'")
        for table, file in (("stream", stream), ("spark", spark)):
            with pa.OSFile(str(file)) as opened:
                rows = pa.ipc.open_stream(opened)
                database.register("given", rows)
                database.execute(f"CREATE OR REPLACE TABLE {table} AS {_folded(schema)}")
                database.unregister("given")
        stream_rows, spark_rows = (
            database.execute(f"SELECT coalesce(sum(n), 0) FROM {t}").fetchall()[0][0] for t in ("stream", "spark")
        )
        database.execute(f"CREATE OR REPLACE TABLE different AS {_different(schema)}")
        only_stream, only_spark = database.execute(
            "SELECT coalesce(sum(n) FILTER (n > 0), 0), coalesce(-sum(n) FILTER (n < 0), 0) FROM different"
        ).fetchall()[0]
        sample = _sample(database, schema, most)
    numbers = (int(stream_rows), int(spark_rows), int(only_stream), int(only_spark))
    return SinkComparison(name, tuple(schema.names), *numbers, sample)


def _folded(schema: Schema) -> str:
    """Each row once, with how often it is there."""
    items = ", ".join(
        f"list_sort(map_entries(c{i})) AS c{i}" if type.root is TypeRoot.MAP else f"c{i}"
        for i, type in enumerate(schema.types)
    )
    return f"SELECT {items}{', ' if items else ''}sum({WEIGHT}) AS n FROM given GROUP BY ALL HAVING sum({WEIGHT}) <> 0"


def _different(schema: Schema) -> str:
    """Rows that one side has more often, with by how much; negative: Spark."""
    names = [f"c{i}" for i in range(len(schema))]
    exact = [n for n, t in zip(names, schema.types, strict=True) if not _is_floating(t)]
    floating = [(n, t) for n, t in zip(names, schema.types, strict=True) if _is_floating(t)]
    select = ", ".join([*names, "sum(n) AS n"])
    both = "(SELECT * FROM stream UNION ALL SELECT * REPLACE (-n AS n) FROM spark)"
    query = f"SELECT {select} FROM {both} GROUP BY {', '.join(names) or '()'} HAVING sum(n) <> 0"
    groups = list(exact)
    for name, type in floating:
        query = _with_runs(query, name, groups, _SINGLE_TOLERANCE if type.root is TypeRoot.FLOAT else TOLERANCE)
        groups.append(f"run_{name}")
    if floating:
        kept = ", ".join(n if n in exact else f"arg_max({n}, abs(n)) AS {n}" for n in names)
        query = f"SELECT {kept}, sum(n) AS n FROM ({query}) GROUP BY {', '.join(groups)} HAVING sum(n) <> 0"
    return query


def _with_runs(query: str, name: str, groups: Sequence[str], tolerance: float) -> str:
    """The rows with a number for each run of values of a column that differ by no more than the tolerance from the one before."""
    partition = f"PARTITION BY {', '.join(groups)} " if groups else ""
    window = f"OVER ({partition}ORDER BY {name})"
    before = f"lag({name}) {window}"
    near = f"{name} IS NOT DISTINCT FROM {before} OR abs({name} - {before}) <= {tolerance} * greatest(abs({name}), abs({before}))"
    begins = (
        f"SELECT *, CASE WHEN row_number() {window} > 1 AND ({near}) THEN 0 ELSE 1 END AS begins_{name} FROM ({query})"
    )
    order = f"OVER ({partition}ORDER BY {name} ROWS UNBOUNDED PRECEDING)"
    return f"SELECT *, sum(begins_{name}) {order} AS run_{name} FROM ({begins})"


def _sample(database: Any, schema: Schema, most: int) -> tuple[tuple[bool, tuple[str | None, ...]], ...]:
    names = ", ".join(f"c{i}" for i in range(len(schema)))
    found: list[tuple[bool, tuple[str | None, ...]]] = []
    for is_stream, which in ((True, "n > 0"), (False, "n < 0")):
        query = f"SELECT {names} FROM different WHERE {which} ORDER BY ALL LIMIT {most}"
        texts = [_texts(database.sql(query).to_arrow_table().column(i), t) for i, t in enumerate(schema.types)]
        found += [(is_stream, row) for row in zip(*texts, strict=True)]
    return tuple(found)


def _texts(column: pa.ChunkedArray, type: DataType) -> list[str | None]:
    """Values as `print` shows them."""
    from flowrun.connectors.row_text import column_text

    values = column.combine_chunks()
    if type.root is not TypeRoot.NULL and not pa.types.is_nested(values.type):
        plain = values.cast(_plain_type(type))
        values = (plain.cast(pa.int32()) if pa.types.is_time32(type.arrow) else plain).cast(type.arrow)
    texts: list[str | None] = column_text(values).to_pylist()
    return texts


# ---- columns as DuckDB compares them


def _plain_type(type: DataType) -> pa.DataType:
    arrow = type.arrow
    if pa.types.is_null(arrow):
        return pa.int32()
    if pa.types.is_time(arrow) or pa.types.is_duration(arrow):
        return pa.int64()
    if pa.types.is_timestamp(arrow) and arrow.unit == "ns":
        return pa.int64()
    return arrow


def _plain(column: pa.Array, type: DataType) -> pa.Array:
    target = _plain_type(type)
    if pa.types.is_time32(column.type):
        column = column.cast(pa.int32())
    if pa.types.is_nested(column.type):
        return _rounded(column.take(pa.array(np.arange(len(column))))) if _holds_floating(type) else column
    return column if column.type == target else column.cast(target)


def _is_floating(type: DataType) -> bool:
    return type.root in (TypeRoot.FLOAT, TypeRoot.DOUBLE)


def _holds_floating(type: DataType) -> bool:
    return _is_floating(type) or any(_holds_floating(child) for child in type.children)


def _rounded(column: pa.Array) -> pa.Array:
    """Nested values with their floating numbers rounded to `_DIGITS` digits."""
    kind = column.type
    if pa.types.is_floating(kind):
        return _rounded_numbers(column)
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(column.offsets, _rounded(column.values), kind, mask=column.is_null())
    if pa.types.is_map(kind):
        keys, items = _rounded(column.keys), _rounded(column.items)
        return pa.MapArray.from_arrays(column.offsets, keys, items, kind, mask=column.is_null())
    if pa.types.is_struct(kind):
        fields = [_rounded(column.field(i)) for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=column.is_null())
    return column


def _rounded_numbers(column: pa.Array) -> pa.Array:
    values = column.to_numpy(zero_copy_only=False).astype(np.float64)
    with np.errstate(all="ignore"):
        scale = 10.0 ** (_DIGITS - 1 - np.floor(np.log10(np.abs(values))))
        rounded = np.round(values * scale) / scale
    usable = np.isfinite(rounded)
    return pc.if_else(column.is_valid(), pa.array(np.where(usable, rounded, values)), None).cast(column.type)
