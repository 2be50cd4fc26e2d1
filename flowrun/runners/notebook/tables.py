"""Tables that Python has, as sources of SQL: data frames of pandas and polars, relations of DuckDB, Arrow tables, streams and data sets."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from flowrun.api.table_catalog import StoredColumn, StoredTable
from flowrun.connectors import memory
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.units import interval_text, parse_duration_ms
from flowrun.errors import PipelineError, did_you_mean
from flowrun.frontend.sql.script.stored_tables import stored_text

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
        return Table(rows, time, parse_duration_ms(delay), names)
    except ValueError as error:
        raise PipelineError.of(f"'{delay}' is no duration: {error}", "write 5s, 2m, 1h") from None


def _arrow(data: Any) -> pa.Table:
    match data:
        case pa.Table():
            return data
        case pa.RecordBatch():
            return pa.Table.from_batches([data])
        case pa.RecordBatchReader():
            return data.read_all()
        case ds.Dataset():
            return data.to_table()
    if type(data).__module__.partition(".")[0] == "pandas":
        return pa.Table.from_pandas(data, preserve_index=False)
    if hasattr(data, "__arrow_c_stream__") or isinstance(data, dict):
        return pa.table(data)
    kind = f"{type(data).__module__}.{type(data).__qualname__}"
    raise PipelineError.of(f"a {kind} is no table", "give a data frame, an Arrow table, or a relation of DuckDB")


class HeldTables:
    """The tables of one call: under names of their own in the connector `memory`, until they are released."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def declare(self, name: str, given: Any) -> str:
        """Keep a table; gives the statement that declares it as `name`.

        Raises:
            PipelineError: it is no table, or a column has a type that flowrun does not know.
        """
        held = given if isinstance(given, Table) else table(given)
        try:
            schema = Schema.from_arrow(held.rows.schema)
        except ValueError as error:
            raise PipelineError.of(f"table '{name}': {error}", "convert the column, or leave it out") from None
        own = f"python {next(_numbers)}"
        memory.put(own, held.rows.to_batches())
        self._names.append(own)
        columns = tuple(StoredColumn(f.name, f.type, str(f.type)) for f in schema)
        stored = StoredTable(columns, held.key, options={"connector": "memory", "table": own})
        return _with_watermark(stored_text(name, stored), held)

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
