"""Compares the rows that two engines give for a sink, as multisets, in DuckDB: tables may be bigger than memory.

Rows come as Arrow streams in files. Changes fold to weights: +1 for a row that came, −1 for one that was taken back. Rows that are not
equal to the last bit are compared once more with their floating numbers taken as equal up to `TOLERANCE`: numbers of otherwise equal
rows are sorted, and neighbours that close are one. Those inside of an array, map or row are compared together.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.types import DataType, TypeRoot
from flowrun.runners.inspection.tables import import_duckdb
from flowrun.runners.nested_numbers import holds, numbers, shape, sorted_entries, without_maps

TOLERANCE = 1e-9
"""Relative; of FLOAT columns `_SINGLE_TOLERANCE`."""
_SINGLE_TOLERANCE = 1e-6
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
    items = [f"{sorted_entries(f'c{i}', type)} AS c{i}" for i, type in enumerate(schema.types)]
    counted = ", ".join([*items, f"sum({WEIGHT}) AS n"])
    return f"SELECT {counted} FROM given GROUP BY ALL HAVING sum({WEIGHT}) <> 0"


def _different(schema: Schema) -> str:
    """Rows that one side has more often, with by how much; negative: Spark."""
    columns = {f"c{i}": without_maps(type) for i, type in enumerate(schema.types)}
    exact = [name for name, type in columns.items() if not holds(type)]
    floating = {name: type for name, type in columns.items() if name not in exact}
    select = ", ".join([*columns, "sum(n) AS n"])
    both = "(SELECT * FROM stream UNION ALL SELECT * REPLACE (-n AS n) FROM spark)"
    query = f"SELECT {select} FROM {both} GROUP BY {', '.join(columns) or '()'} HAVING sum(n) <> 0"
    if not floating:
        return query
    parts = ", ".join(f"{shape(n, t)} AS shape_{n}, {numbers(n, t)} AS numbers_{n}" for n, t in floating.items())
    query = f"SELECT *, {parts} FROM ({query})"
    groups = [*exact, *(f"shape_{name}" for name in floating)]
    for name, type in floating.items():
        tolerance = _SINGLE_TOLERANCE if holds(type, frozenset({TypeRoot.FLOAT})) else TOLERANCE
        query = _with_runs(query, name, groups, tolerance)
        groups.append(f"run_{name}")
    kept = ", ".join(n if n in exact else f"arg_max({n}, abs(n)) AS {n}" for n in columns)
    return f"SELECT {kept}, sum(n) AS n FROM ({query}) GROUP BY {', '.join(groups)} HAVING sum(n) <> 0"


def _with_runs(query: str, name: str, groups: Sequence[str], tolerance: float) -> str:
    """The rows with a number for each run of values of a column whose numbers differ by no more than the tolerance from those before.

    Values are sorted by their numbers in single precision first: else those that are close in one number are apart for its last digits.
    """
    window = f"PARTITION BY {', '.join(groups)} ORDER BY rough_{name}, numbers_{name}"
    rough = f"SELECT *, list_transform(numbers_{name}, lambda x: TRY_CAST(x AS FLOAT)) AS rough_{name} FROM ({query})"
    before = f"SELECT *, lag(numbers_{name}) OVER ({window}) AS before_{name} FROM ({rough})"
    close = f"x[1] IS NOT DISTINCT FROM x[2] OR abs(x[1] - x[2]) <= {tolerance} * least(abs(x[1]), abs(x[2]))"
    pairs = f"list_transform(list_zip(numbers_{name}, before_{name}), lambda x: {close})"
    near = f"before_{name} IS NOT NULL AND coalesce(list_bool_and({pairs}), true)"
    begins = f"SELECT *, CASE WHEN {near} THEN 0 ELSE 1 END AS begins_{name} FROM ({before})"
    return f"SELECT *, sum(begins_{name}) OVER ({window} ROWS UNBOUNDED PRECEDING) AS run_{name} FROM ({begins})"


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
    return column if column.type == target else column.cast(target)
