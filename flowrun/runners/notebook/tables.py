"""Tables that Python has, as sources of SQL: data frames of pandas and polars, relations of DuckDB, Arrow tables, streams and data sets."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from flowrun.api.table_catalog import StoredColumn, StoredTable
from flowrun.connectors import memory
from flowrun.core.arrays import decoded
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.units import interval_text, parse_duration_ms
from flowrun.errors import PipelineError, did_you_mean
from flowrun.frontend.sql.script.stored_tables import stored_text
from flowrun.plan.nodes import Plan

_CONVERT = "convert the column, or leave it out"
_numbers = itertools.count(1)


@record(eq=False)
class Table:
    """A table of Python, and how its event time runs; see `table`."""

    rows: pa.Table
    time: str | None = None
    delay_ms: int = 0
    key: tuple[str, ...] = ()


def table(data: Any, *, time: str | None = None, delay: str = "0s", key: str | tuple[str, ...] = ()) -> Table:
    """A table that Python has, with event time or a key, for `flowrun.sql`.

    Args:
        data: what `pyarrow.table` takes, or whatever gives an Arrow stream (pandas, polars, DuckDB, a data set).
        time: the column that holds the event time.
        delay: how late rows may be, such as `5s`.
        key: columns whose values together differ in all rows.

    Raises:
        PipelineError: it is no table, or has no such column.
    """
    rows = _arrow(data)
    names = (key,) if isinstance(key, str) else tuple(key)
    for name in (*names, *((time,) if time is not None else ())):
        if name not in rows.schema.names:
            raise PipelineError.of(f"the table has no column '{name}'", did_you_mean(name, rows.schema.names))
    try:
        return Table(rows, time, parse_duration_ms(str(delay)), names)
    except ValueError as error:
        raise PipelineError.of(f"'{delay}' is no duration: {error}", "write 5s, 2m, 1h") from None


def _arrow(data: Any) -> pa.Table:
    try:
        rows = _table(data)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        reason = "; ".join(map(str, error.args))
        raise PipelineError.of(f"{_named(data)} cannot be read as a table: {reason}", _CONVERT) from None
    _refuse_doubles(rows.schema.names)
    for position, column in enumerate(rows.schema):
        kept = _plain(rows.column(position))
        if kept is not rows.column(position):
            rows = rows.set_column(position, column.with_type(kept.type), kept)
    return rows


def _table(data: Any) -> pa.Table:
    match data:
        case pa.Table():
            return data
        case pa.RecordBatch():
            return pa.Table.from_batches([data])
        case pa.RecordBatchReader():
            return data.read_all()
        case ds.Dataset():
            return data.to_table()
        case dict():
            return pa.table(data)
    library = type(data).__module__.partition(".")[0]
    if library == "pandas" and hasattr(data, "columns"):
        _refuse_doubles(map(str, data.columns))
        return pa.Table.from_pandas(data, preserve_index=False)
    if library == "polars" and hasattr(data, "__arrow_c_stream__") and hasattr(data, "columns"):
        for name, kind in data.schema.items():
            if str(kind) == "Object":  # polars gives away the places of the objects in memory
                raise TypeError(f"column '{name}' holds Python objects")
        return pa.table(data)
    if library not in ("pandas", "polars") and hasattr(data, "__arrow_c_stream__"):
        return pa.table(data)
    raise PipelineError.of(f"{_named(data)} is no table", "give a data frame, an Arrow table, or a relation of DuckDB")


def _refuse_doubles(names: Iterable[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise PipelineError.of(f"it has {count} columns '{name}'", "rename them")


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column, as one of values that jobs take: of texts if it has no value of any type."""
    kind = column.type
    if pa.types.is_null(kind):
        return column.cast(pa.string())
    if pa.types.is_dictionary(kind) and (
        pa.types.is_string_view(kind.value_type) or pa.types.is_binary_view(kind.value_type)
    ):
        values = pa.string() if pa.types.is_string_view(kind.value_type) else pa.binary()
        return pa.chunked_array([decoded(chunk).cast(values) for chunk in column.chunks], values)
    return column


def _named(data: Any) -> str:
    return f"a {type(data).__module__}.{type(data).__qualname__}"


class HeldTables:
    """The tables of one call: under names of their own in the connector `memory`, until they are released."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def declare(self, name: str, given: Any) -> str:
        """Keep a table; gives the statement that declares it as `name`.

        Raises:
            PipelineError: it is no table, or a column has a type that flowrun does not know.
        """
        try:
            held = given if isinstance(given, Table) else table(given)
        except PipelineError as error:
            found = error.diagnostics[0]
            raise PipelineError.of(f"table '{name}': {found.message}", found.hint) from None
        if not held.rows.num_columns:
            raise PipelineError.of(f"table '{name}': it has no columns")
        try:
            schema = Schema.from_arrow(held.rows.schema)
        except ValueError as error:
            raise PipelineError.of(f"table '{name}': {error}", _CONVERT) from None
        own = f"python {next(_numbers)}"
        memory.put(own, held.rows.to_batches())
        self._names.append(own)
        columns = tuple(StoredColumn(f.name, f.type, str(f.type)) for f in schema)
        stored = StoredTable(columns, held.key, options={"connector": "memory", "table": own})
        return _with_watermark(stored_text(name, stored), held)

    def refuse_writing(self, plan: Plan) -> None:
        """Raise PipelineError for a statement that writes into one of the tables: nobody would see its rows."""
        for sink in plan.sinks:
            if sink.table.connector == "memory" and sink.table.options.get("table") in self._names:
                raise PipelineError.of(
                    f"'{sink.table.name}' is a table that Python has, which is only read",
                    "SELECT the rows, which then are the result, or write them to a table that CREATE TABLE makes",
                )

    def release(self) -> None:
        """Forget the tables."""
        for name in self._names:
            memory.remove(name)


def _with_watermark(text: str, held: Table) -> str:
    if held.time is None:
        return text
    column = "`" + held.time.replace("`", "``") + "`"
    delay = f" - {interval_text(held.delay_ms)}" if held.delay_ms else ""
    head, separator, options = text.rpartition(") WITH (")
    return f"{head}, WATERMARK FOR {column} AS {column}{delay}{separator}{options}"
