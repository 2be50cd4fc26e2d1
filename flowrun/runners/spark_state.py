"""The state of a checkpoint or savepoint as DataFrames: the rows that would be restored, read by Spark from the state's own files.

from flowrun.runners.spark_state import read_state
partials = read_state(spark, ".flowrun/state/orders-per-minute", "per_minute.partials")
partials.show()
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa

from flowrun.api.state import DELETED_COLUMN
from flowrun.errors import PipelineError, StateError, did_you_mean
from flowrun.functions.spark_text import quoted
from flowrun.runners.inspection.tables import StateTable, state_tables
from flowrun.spark.failures import is_of_spark, job_failure
from flowrun.spark.session import SparkOptions, spark_session
from flowrun.state.checkpoints import KeyedTableState
from flowrun.state.storage.folding import SEGMENT_COLUMN
from flowrun.state.storage.locate import SnapshotPath, locate
from flowrun.state.storage.parquet_read import StateFileReader
from flowrun.state.storage.state_path import StatePath, resolve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STATE_CONF = {
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",  # table names as DuckDB and the standard quote them
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    "spark.sql.runSQLOnFiles": "false",
}
_READING = re.compile(r"\s*(SHOW|DESCRIBE|DESC|EXPLAIN)\b", re.IGNORECASE)
_SUBTASK, _NEWEST = "flowrun$subtask", "flowrun$newest"


def read_state(session: SparkSession, path: str, table: str) -> DataFrame:
    """The rows of one state table.

    Args:
        session: any.
        path: a savepoint, a checkpoint, or a pipeline's folder of checkpoints, whose newest one counts.
        table: `operator.table`, or what `flowrun state query` calls it.

    Raises:
        StateError: there is no such state or table, or a file of it is missing or damaged.
    """
    snapshot = locate(path)
    tables = state_tables(snapshot.metadata)
    found = next((t for t in tables if table.lower() in map(str.lower, t.aliases)), None)
    if found is None:
        known = [t.title for t in tables]
        hint = did_you_mean(table, [a for t in tables for a in t.aliases]) or "tables: " + ", ".join(known)
        raise StateError(f"{snapshot.folder} has no state table '{table}'", hint=hint)
    return frame_of(session, found, resolve(snapshot.root))


def query_state_on_spark(snapshot: SnapshotPath, sql: str, options: SparkOptions) -> pa.Table:
    """The result of a query as `query_on_spark` gives it, in memory; Spark is started for it. Raises as that, or JobFailedError."""
    with spark_session(options, "flowrun state query") as session:
        try:
            return query_on_spark(session, snapshot, sql).toArrow()
        except Exception as error:
            if not is_of_spark(error):
                raise
            raise job_failure(error, f"the state in {snapshot.folder}") from error


def query_on_spark(session: SparkSession, snapshot: SnapshotPath, sql: str) -> DataFrame:
    """The result of one SELECT (or SHOW, DESCRIBE, EXPLAIN) over the tables of a snapshot, which become views of the session.

    Raises:
        PipelineError: the SQL is wrong, or wants to do more than read.
        StateError: a file of a table that it reads is missing or damaged.
    """
    from pyspark.errors import AnalysisException, ParseException

    for key, value in _STATE_CONF.items():
        session.conf.set(key, value)
    tables = state_tables(snapshot.metadata)
    statement = sql.strip().removesuffix(";")
    everything = _READING.match(statement) is not None
    for table in tables:
        if everything or any(alias.lower() in statement.lower() for alias in (*table.aliases, table.name)):
            rows = frame_of(session, table, resolve(snapshot.root))
            for alias in table.aliases:
                rows.createOrReplaceTempView(quoted(alias))
    try:
        if not everything:
            session.sql(
                f"SELECT * FROM (\n{statement}\n)"
            )  # a statement that does more than read is none in parentheses
        return session.sql(statement)
    except ParseException as error:
        raise _wrong(error, "write one SELECT", tables) from error
    except AnalysisException as error:
        raise _wrong(error, None, tables) from error


def frame_of(session: SparkSession, table: StateTable, root: StatePath) -> DataFrame:
    """The rows of a table that count.

    Raises:
        StateError: a file of it is missing, truncated or altered.
    """
    if table.rows is not None:
        return session.createDataFrame(table.rows)
    columns = [quoted(name) for name in table.columns.names]
    parts = [p for i, s in enumerate(table.keyed) for p in _live_rows(session, s, root, i)]
    if not parts:
        return session.createDataFrame(table.columns.empty_table())
    rows = _union(parts)
    key = next((state.key for state in table.keyed if state.key is not None), None)
    return (rows if key is None else _newest(rows, key)).selectExpr(*columns)


def _live_rows(session: SparkSession, state: KeyedTableState, root: StatePath, subtask: int) -> list[DataFrame]:
    """The rows of each file of one subtask's table whose segment counts; a savepoint's files are read at once."""
    whole: list[str] = []
    parts: list[DataFrame] = []
    for reference in state.files:
        location = root.below(reference.file.path)
        with StateFileReader(location, reference.file) as file:  # its size and footer are those that were written
            file.check_signed()
        if reference.live is None:
            whole.append(_uri(location))
        else:
            numbers = ", ".join(map(str, reference.live)) or "NULL"
            parts.append(session.read.parquet(_uri(location)).where(f"{quoted(SEGMENT_COLUMN)} IN ({numbers})"))
    if whole:
        parts.append(session.read.parquet(*whole))
    return [p.selectExpr("*", f"{subtask} AS {quoted(_SUBTASK)}") for p in parts]


def _newest(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """Of the rows of a log the newest of each key of each old subtask, unless it says that the key is gone."""
    if SEGMENT_COLUMN not in rows.columns:  # of a savepoint: it holds just those
        return rows
    keys = ", ".join(quoted(k) for k in (_SUBTASK, *key))
    newest = f"row_number() OVER (PARTITION BY {keys} ORDER BY {quoted(SEGMENT_COLUMN)} DESC) AS {quoted(_NEWEST)}"
    return rows.selectExpr("*", newest).where(f"{quoted(_NEWEST)} = 1 AND NOT {quoted(DELETED_COLUMN)}")


def _union(parts: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)


def _uri(location: StatePath) -> str:
    return f"file://{location.path}" if location.is_local else re.sub(r"^s3://", "s3a://", location.uri)


def _wrong(error: Exception, hint: str | None, tables: Iterable[StateTable]) -> PipelineError:
    """Spark's message, with its caret; for an unknown table with the tables that there are."""
    from pyspark.errors import PySparkException

    assert isinstance(error, PySparkException)
    message = (error.getMessage() or str(error)).partition("\n\nJVM stacktrace:")[0].strip()
    if (error.getCondition() or "").startswith("TABLE_OR_VIEW_NOT_FOUND"):
        name = str((error.getMessageParameters() or {}).get("relationName", "")).replace("`", "")
        aliases = [alias for table in tables for alias in table.aliases]
        hint = did_you_mean(name, aliases) or "tables: " + ", ".join(sorted(aliases))
        message = f"there is no table '{name}'"
    return PipelineError.of(message, hint=hint)
