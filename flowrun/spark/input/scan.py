"""Translates scans: chooses the reader of a table, and computes the rows of the plan's node from those of the reader."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from flowrun.api.changelog import ChangelogMode
from flowrun.api.connector import Comparison, PushedFilter
from flowrun.api.source import DividedByTime, Source
from flowrun.connectors.filesystem.source import FileSource
from flowrun.core.elements import RowKind
from flowrun.core.record import record
from flowrun.core.schema import Field
from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import Diagnostic, OptionError, PipelineError
from flowrun.functions.spark_text import is_counted, quote_text, quoted
from flowrun.plan.changelog import node_mode
from flowrun.plan.expressions import ColumnRef
from flowrun.plan.nodes import Scan, TableReference
from flowrun.plan.tables import create_source
from flowrun.spark.context import Context, TimeRange
from flowrun.spark.expressions import spark_text
from flowrun.spark.frame import ARRIVAL, EVENT_TIME, KIND, SparkFrame
from flowrun.spark.input.csv_lines import read_csv
from flowrun.spark.input.data_source import read_source
from flowrun.spark.input.exactness import NotExactError
from flowrun.spark.input.json_lines import read_json
from flowrun.spark.input.parquet import read_parquet
from flowrun.spark.input.physical import Physical
from flowrun.spark.literals import literal_text
from flowrun.spark.times import millis_of
from flowrun.spark.translated import Inputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)
_NATIVE = {"parquet": read_parquet, "json": read_json, "csv": read_csv}
"""Format → the function that reads its files with Spark's own readers."""
_WATCHING = "source.monitor-interval"


def read_scan(node: Scan, _inputs: Inputs, context: Context) -> SparkFrame:
    """The rows of a scan; for a table of changes its final rows.

    Raises:
        PipelineError: the table's options are wrong.
        UnsupportedPlanError: its source never ends.
        ConnectorError: what it reads does not exist.
    """
    physical = _read(node, context, ordered=context.needs_arrival(node))
    if physical.changes:
        return final_table(_rows(node, physical, context, ordered=True), context.needs_arrival(node))
    return _rows(node, physical, context, ordered=context.needs_arrival(node))


def read_changes(node: Scan, context: Context) -> SparkFrame:
    """The changes of a scan, in the order in which they come: a frame with `ARRIVAL` and, behind all other columns, `KIND`.

    The rows of an append-only table are inserts. It raises the errors of `read_scan`.
    """
    frame = _rows(node, _read(node, context, ordered=True), context, ordered=True)
    if KIND in frame.data.columns:
        return frame
    return replace(frame, data=frame.data.selectExpr("*", f"CAST(0 AS TINYINT) AS {quoted(KIND)}"))


def make_source(node: Scan, until_ms: int | None = None) -> Source:
    """The source of a scan, as a batch reads it (see `as_it_is`).

    Args:
        node: the scan.
        until_ms: event time from which on no row is needed, ms: of a source that is divided by time the parts from there on are left out.
    """
    table = as_it_is(node.table)
    try:
        source: object = create_source(table, node.physical, node.declared, node.filters)
        if until_ms is not None and isinstance(source, DividedByTime):
            source = source.before(until_ms)
        return cast("Source", source)
    except OptionError as error:
        problem = Diagnostic(f"source '{table.name}': {error.message}", location=node.hints.location, hint=error.hint)
        raise PipelineError([problem]) from error


def as_it_is(table: TableReference) -> TableReference:
    """The table as it is now: one that watches a folder has the files that are there, and ends."""
    if table.connector != "filesystem" or _WATCHING not in table.options:
        return table
    return replace(table, options={k: v for k, v in table.options.items() if k != _WATCHING})


def _read(node: Scan, context: Context, *, ordered: bool) -> Physical:
    source = make_source(node, context.range_of(node).stop)
    native = _NATIVE.get(source.format_name) if isinstance(source, FileSource) else None
    if native is not None and isinstance(source, FileSource) and not context.exact:
        try:
            physical = native(context.session, source, ordered=ordered)
        except NotExactError as reason:
            _log.info("%s is read by flowrun's own reader, not Spark's: %s", place(node.table), reason)
        else:
            context.optimistic.append(place(node.table))
            return physical
    data = read_source(context.session, source, place(node.table))
    return Physical.delivered(data, source.schema, changes=KIND in data.columns)


def place(table: TableReference) -> str:
    """The name of a source in messages."""
    return f"source '{table.name}'"


def _rows(node: Scan, physical: Physical, context: Context, *, ordered: bool) -> SparkFrame:
    """The node's columns, computed from physical rows, with event time, and with `ARRIVAL` if `ordered`."""
    data = physical.data
    fields = {f.name: (f, text) for f, text in zip(node.physical, physical.texts, strict=True)}
    filters = (
        [] if physical.changes else _conditions(node, fields)
    )  # filters might separate an update from the row that it replaces
    conditions = [*filters, *_in_range(node, fields, context.range_of(node))]
    for condition in conditions:
        if condition.holds_below(physical):
            data = data.where(condition.text)
    columns = [_checked(node, field, text, physical) for field, text in fields.values()]
    late = [condition.text for condition in conditions if not condition.holds_below(physical)]
    if any(text != quoted(name) for name, text in zip(fields, columns, strict=True)) or late:
        hidden = [quoted(KIND)] if physical.changes else []
        data = data.selectExpr(*(f"{t} AS {quoted(n)}" for n, t in zip(fields, columns, strict=True)), *hidden)
        columns = [quoted(name) for name in fields]
        for text in late:
            data = data.where(text)
    pinned = {} if physical.changes else _pinned(node, fields)
    texts = [pinned.get(name, text) for name, text in zip(fields, columns, strict=True)]
    return _projected(node, data, texts, ordered=ordered, changes=physical.changes)


def _projected(node: Scan, data: DataFrame, columns: list[str], *, ordered: bool, changes: bool) -> SparkFrame:
    texts = [
        f"{spark_text(p, columns)} AS {quoted(n)}" for p, n in zip(node.projections, node.schema.names, strict=True)
    ]
    if node.watermark is not None:
        texts.append(f"{_event_time(node, columns, upserts=changes and _upserts(node))} AS {quoted(EVENT_TIME)}")
    if ordered:
        texts.append(f"monotonically_increasing_id() AS {quoted(ARRIVAL)}")
    if changes:
        texts.append(quoted(KIND))
    return SparkFrame(data.selectExpr(*texts), node.schema, node.event_time, ordered)


def _upserts(node: Scan) -> bool:
    return node_mode(node, ()) is ChangelogMode.UPSERT


def _event_time(node: Scan, columns: list[str], *, upserts: bool) -> str:
    assert node.watermark is not None
    time = node.watermark.time
    name = node.watermark.column or str(time)
    message = (
        f"{place(node.table)}: event time '{name}' must not be NULL; drop such rows before event time is read, compute a column "
        f"that is never NULL (COALESCE({name}, …)) and use it for the watermark, or declare no watermark"
    )
    otherwise = f"raise_error({quote_text(message)})"
    if upserts:  # a deletion by key may have only the key
        otherwise = f"CASE WHEN {quoted(KIND)} = {int(RowKind.DELETE)} THEN 0L ELSE {otherwise} END"
    return f"coalesce({millis_of(spark_text(time, columns), time.type)}, {otherwise})"


def _checked(node: Scan, field: Field, text: str, physical: Physical) -> str:
    if field.nullable or physical.checked:
        return text
    message = f"{place(node.table)}: column '{field.name}' is NOT NULL, but a row has no value"
    return f"coalesce({text}, raise_error({quote_text(message)}))"


@record
class _Condition:
    """A condition on one column as Spark SQL; `from_ms_on` says that it asks whether a time is before a ms, or not before it."""

    column: str
    text: str
    from_ms_on: bool = False

    def holds_below(self, physical: Physical) -> bool:
        """Whether it has the same result for the column as the reader gives it, so that it can be pushed into the reader."""
        return self.column in physical.plain or (self.from_ms_on and self.column in physical.floored)


def _conditions(node: Scan, fields: dict[str, tuple[Field, str]]) -> Iterable[_Condition]:
    """The node's filters, which are hints: one that cannot be written exactly in Spark SQL is left out."""
    for pushed in node.filters:
        if pushed.column in fields:
            text = _condition(pushed, fields[pushed.column][0].type)
            if text is not None:
                yield _Condition(pushed.column, text, pushed.comparison in (Comparison.GE, Comparison.LT))


def _pinned(node: Scan, fields: dict[str, tuple[Field, str]]) -> dict[str, str]:
    """Column → the only value that the filters leave. With it Spark removes branches of computed columns, and does not read the columns
    that only these need.
    """
    pinned = {}
    for pushed in node.filters:
        type = fields[pushed.column][0].type if pushed.column in fields else None
        if (
            type is not None
            and pushed.comparison is Comparison.EQ
            and (type.is_integer or type.root is TypeRoot.VARCHAR)
        ):
            value = _value(pushed, type)
            if value is not None:
                pinned[pushed.column] = literal_text(value, type)
    return pinned


def _condition(pushed: PushedFilter, type: DataType) -> str | None:
    column = quoted(pushed.column)
    if pushed.comparison in (Comparison.IS_NULL, Comparison.IS_NOT_NULL):
        return f"{column} {pushed.comparison.value}"
    value = _value(pushed, type)
    return None if value is None else f"{column} {pushed.comparison.value} {literal_text(value, type)}"


def _value(pushed: PushedFilter, type: DataType) -> Any:
    """The constant of a filter in the form that `literal_text` takes; None: the column's type cannot hold it."""
    value: Any = pushed.value
    if is_counted(type) or type.is_nested or value is None:
        return None
    try:
        if type.is_timestamp:
            value = pa.scalar(value, pa.timestamp("ms")).as_py()
        elif type.root is TypeRoot.DATE:
            value = datetime.date(1970, 1, 1) + datetime.timedelta(value)
        elif type.root is TypeRoot.DECIMAL:
            value = Decimal(value)
        pa.scalar(value, type.arrow)
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError):
        return None
    return value


def _in_range(node: Scan, fields: dict[str, tuple[Field, str]], wanted: TimeRange) -> Iterable[_Condition]:
    """Conditions on event time; if the event time is a column, they are conditions on that column."""
    if node.watermark is None or (wanted.start is None and wanted.stop is None):
        return
    time = node.watermark.time
    names = list(fields)
    text = spark_text(time, [quoted(n) for n in names])
    column = names[time.index] if isinstance(time, ColumnRef) else ""
    for bound, sign in ((wanted.start, ">="), (wanted.stop, "<")):
        if bound is None:
            continue
        literal = _bound(bound, time.type) if column else None
        condition = f"{millis_of(text, time.type)} {sign} {bound}L" if literal is None else f"{text} {sign} {literal}"
        yield _Condition(column, f"({condition} OR {text} IS NULL)", from_ms_on=True)


def _bound(millis: int, type: DataType) -> str | None:
    try:
        return literal_text(pa.scalar(millis, pa.timestamp("ms")).as_py(), type)
    except (ArithmeticError, ValueError):
        return None


_LEFT = "flowrun$left"
_AGE = "flowrun$age"
_ADDS = f"{quoted(KIND)} IN (0, 2)"
_SIGN = f"CASE WHEN {_ADDS} THEN 1L ELSE -1L END"


def final_table(frame: SparkFrame, keep_arrival: bool) -> SparkFrame:
    """The rows that were added and not removed, with their multiplicity; `frame` has `KIND` and `ARRIVAL`.

    A removal takes away the oldest of equal rows, as in the stream's operators.
    """
    contents = [*frame.columns, *((quoted(EVENT_TIME),) if frame.event_time else ())]
    same = ", ".join(contents) or "0"
    if keep_arrival:
        age = f"row_number() OVER (PARTITION BY {same}, {_ADDS} ORDER BY {quoted(ARRIVAL)} DESC) AS {quoted(_AGE)}"
        left = f"sum({_SIGN}) OVER (PARTITION BY {same}) AS {quoted(_LEFT)}"
        counted = frame.data.selectExpr("*", left, age)
        alive = counted.where(f"{_ADDS} AND {quoted(_AGE)} <= {quoted(_LEFT)}")
        return replace(frame, data=alive.selectExpr(*contents, quoted(ARRIVAL)))
    from pyspark.sql.functions import expr

    counted = frame.data.groupBy(*map(expr, contents)).agg(expr(f"sum({_SIGN}) AS {quoted(_LEFT)}"))
    alive = counted.where(f"{quoted(_LEFT)} > 0")
    repeated = alive.selectExpr(*contents, f"explode(array_repeat(0, CAST({quoted(_LEFT)} AS INT)))")
    return replace(frame, data=repeated.selectExpr(*contents), arrival=False)
