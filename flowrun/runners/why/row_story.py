"""Where one row of a source ends: it goes through the job's own operators, and what they count tells its story."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from flowrun.api.format import lines_chunk
from flowrun.connectors.formats.json_decoder import JsonDecoder
from flowrun.core.clock import Clock
from flowrun.core.elements import MIN_TIMESTAMP, RecordBatch, timestamps_from_column
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import FlowrunError, PipelineError, did_you_mean
from flowrun.graph.job_graph import ChainedOperator, JobGraph
from flowrun.operators.factories import SourceOperatorFactory
from flowrun.operators.joins.factories import LEFT, RIGHT
from flowrun.operators.joins.unmatched import NUM_RECORDS_UNMATCHED, NUM_RECORDS_UNMATCHED_ON_ARRIVAL
from flowrun.operators.row_failures import FAULTS, ROWS_DEAD_LETTERED, ROWS_SKIPPED
from flowrun.operators.sink_constraints import NULL_ROWS_DROPPED
from flowrun.operators.timed.event_rows import (
    LATE_RECORDS_DROPPED,
    LATE_RECORDS_SIDE_OUTPUT,
    NULL_KEY_RECORDS_DROPPED,
)
from flowrun.runners.why.finding import Thresholds, count_text, time_text
from flowrun.runners.why.isolated import Outcome, ReachedRow, run_isolated, sources_of
from flowrun.runners.why.job_view import JobView, OperatorView
from flowrun.state.storage.locate import SnapshotPath

_USER_CODE = frozenset({"AsyncFunction", "CoProcessFunction", "ProcessFunction", "PythonFunction"})

PASSES, ENDS, WAITS, ARRIVES = "passes", "ends", "waits", "arrives"
_SHOWN_ROWS = 5
"""Of a sink that gets more rows so many are shown."""


@record
class Step:
    """What became of the row at one operator.

    Attributes:
        operator: its name.
        kind: what it is, such as `Calc`.
        place: of it in the pipeline's text, as `file:line`; None: it has none.
        verdict: `passes`, `ends`, `waits` or `arrives` (at a sink).
        text: a sentence.
    """

    operator: str
    kind: str
    place: str | None
    verdict: str
    text: str


@record
class Story:
    """The way of one row.

    Attributes:
        source: that it is of.
        row: as the source gave it.
        event_time: of it, ms; None: it has none, or the clock says it.
        steps: in the order of the operators.
        unknown: what the story cannot know.
    """

    source: str
    row: Mapping[str, Any]
    event_time: int | None
    steps: tuple[Step, ...]
    unknown: tuple[str, ...] = ()

    @property
    def end(self) -> str:
        """In a sentence, where the row ends."""
        last = [s for s in self.steps if s.verdict != PASSES]
        return " ".join(dict.fromkeys(s.text for s in last)) if last else "It has not come out, and nobody says why."


def row_source(
    job_graph: JobGraph, row: Mapping[str, Any], wanted: str | None, declared: Mapping[str, Sequence[str]]
) -> tuple[ChainedOperator, dict[str, Any]]:
    """(the source that a row is of: the wanted one, or the only one that has all its columns; those columns of the row that it reads).

    Args:
        job_graph: of the job.
        row: values by column.
        wanted: name of the source; None: the row says it.
        declared: by name of a source, all its columns, if it does not read all of them.

    Raises:
        PipelineError: there is none, or several.
    """
    sources = {_name(o): o for _, o in sources_of(job_graph)}
    columns = {name: tuple(declared.get(name, _schema(o).names)) for name, o in sources.items()}
    if wanted is not None and wanted not in sources:
        known = ", ".join(f"'{name}'" for name in sources)
        raise PipelineError.of(f"there is no source '{wanted}'", did_you_mean(wanted, sources) or f"sources: {known}")
    fitting = [wanted] if wanted is not None else [n for n, known in columns.items() if set(row) <= set(known)]
    if len(fitting) != 1:
        raise _unclear(row, fitting, columns)
    name = fitting[0]
    if unknown := [column for column in row if column not in columns[name]]:
        hint = did_you_mean(unknown[0], columns[name]) or f"its columns: {', '.join(columns[name])}"
        raise PipelineError.of(f"source '{name}' has no column '{unknown[0]}'", hint)
    read = set(_schema(sources[name]).names)
    return sources[name], {column: value for column, value in row.items() if column in read}


def _unclear(row: Mapping[str, Any], fitting: Sequence[str], columns: Mapping[str, Sequence[str]]) -> PipelineError:
    if fitting:
        names = ", ".join(map(repr, fitting))
        return PipelineError.of(f"the row may be of several sources: {names}", "say which: --source NAME")
    listed = "; ".join(f"'{name}': {', '.join(known)}" for name, known in columns.items())
    return PipelineError.of(f"no source has the columns {', '.join(map(repr, row))}", f"columns: {listed}")


def parse_row(text: str) -> Mapping[str, Any]:
    """A row as the user gives it. Raises PipelineError: it is no JSON object."""
    try:
        row = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise PipelineError.of(f"--row is no JSON: {error}", """write an object: --row '{"user_id": 7}'""") from None
    if not isinstance(row, dict) or not row:
        raise PipelineError.of("--row is no JSON object with columns", """write an object: --row '{"user_id": 7}'""")
    return row


def tell_row(
    job_graph: JobGraph,
    row: Mapping[str, Any],
    source: ChainedOperator,
    snapshot: SnapshotPath | None,
    clock: Clock,
) -> Story:
    """Send one row through a job that is cut off from the outside, and tell what became of it.

    Args:
        job_graph: of the job, streaming.
        row: columns that the source reads, by name; others are NULL.
        source: as `row_source` gives it, as it does the row.
        snapshot: whose state the operators have; None: none. It fits.
        clock: processing time.

    Raises:
        PipelineError: the row is none of the source, or its event time is not given.
        StateError: the state cannot be read, or the run takes too long.
    """
    batch = _batch(_schema(source), row, _name(source))
    _check_event_time(source, row)
    event_time = _event_time(source, batch)
    outcome = run_isolated(job_graph, {source.operator_id: batch}, snapshot, clock)
    view = JobView(outcome.details, Thresholds())
    steps = tuple(_steps(view, source.operator_id, event_time, outcome))
    return Story(_name(source), batch.columns.to_pylist()[0], event_time, steps, tuple(_unknown(view, snapshot)))


def _name(operator: ChainedOperator) -> str:
    return operator.name.removeprefix("Source: ")


def _schema(operator: ChainedOperator) -> Schema:
    assert isinstance(operator.factory, SourceOperatorFactory)
    return operator.factory.source.schema


def _batch(schema: Schema, row: Mapping[str, Any], source: str) -> RecordBatch:
    decoded = JsonDecoder(schema, compiled=False).decode(lines_chunk([orjson.dumps(row)]))
    if decoded.bad:
        raise PipelineError.of(f"the row is none of source '{source}': {decoded.bad[0].reason}")
    return RecordBatch(decoded.columns)


def _check_event_time(source: ChainedOperator, row: Mapping[str, Any]) -> None:
    """Raises PipelineError if the column from which the source takes event time is not given, which no row of it could be."""
    assert isinstance(source.factory, SourceOperatorFactory)
    strategy = source.factory.strategy
    if strategy is None or strategy.time is None or strategy.column in row:
        return
    if strategy.column in _schema(source).names:
        raise PipelineError.of(
            f"the row has no event time: column '{strategy.column}' of source '{_name(source)}' is not given",
            f'give it as well: what waits and what is late goes by it, e.g. "{strategy.column}": "2024-03-01 08:00:30"',
        )


def _event_time(source: ChainedOperator, batch: RecordBatch) -> int | None:
    assert isinstance(source.factory, SourceOperatorFactory)
    strategy = source.factory.strategy
    if strategy is None or strategy.time is None:
        return None
    try:
        column = strategy.time.compile()(batch.columns)
    except FlowrunError:  # which the run will tell
        return None
    found = (column if column.type == pa.int64() else timestamps_from_column(column)).to_pylist()[0]
    return None if found is None else int(found)


def _steps(view: JobView, source_id: str, event_time: int | None, outcome: Outcome) -> Iterator[Step]:
    reached: dict[str, list[ReachedRow]] = {}
    for row in outcome.reached:
        reached.setdefault(row.sink, []).append(row)
    for operator in view.operators:
        is_source = operator.operator_id == source_id
        if not is_source and (operator.records_in == 0 or operator.description.is_source):
            continue
        if operator.description.is_sink and operator.name in reached:
            yield from _arrivals(operator, reached[operator.name])
            continue
        yield from _at(operator, event_time, is_source=is_source, failed=outcome.failure is not None)
    if outcome.failure is not None:
        cause = outcome.failure.__cause__ or outcome.failure
        message = cause.message if isinstance(cause, FlowrunError) else f"{type(cause).__name__}: {cause}"
        yield Step("job", "", None, ENDS, f"The job fails with it: {message}.")


def _arrivals(operator: OperatorView, rows: Sequence[ReachedRow]) -> Iterator[Step]:
    for row in rows[:_SHOWN_ROWS]:
        yield _step(operator, ARRIVES, f"It reaches sink '{operator.name}' as {row.change}[{_values(row.values)}].")
    if len(rows) > _SHOWN_ROWS:
        yield _step(
            operator, ARRIVES, f"It reaches sink '{operator.name}' as {count_text(len(rows) - _SHOWN_ROWS)} more."
        )


def _step(operator: OperatorView, verdict: str, text: str) -> Step:
    described = operator.description
    place = None if described.file is None else f"{Path(described.file).name}:{described.line}"
    return Step(operator.name, described.kind, place, verdict, text)


def _at(operator: OperatorView, event_time: int | None, *, is_source: bool, failed: bool) -> Iterator[Step]:
    """What one operator did with the row; if the job has `failed`, what has sent nothing may not have come to it."""
    name, came = operator.name, max(operator.records_in, 1)
    ended = list(_endings(operator, event_time, failed=failed))
    for text in ended:
        yield _step(operator, ENDS, text)
    if operator.is_local and operator.records_out:
        return  # the operator of the same name behind it tells what becomes of the row
    if operator.records_out:
        more = f" as {operator.records_out} rows" if operator.records_out > came else ""
        yield _step(operator, PASSES, f"{'It is read by' if is_source else 'It passes'} '{name}'{more}.")
    elif not ended and not failed:
        yield _waiting(operator, event_time)


def _endings(operator: OperatorView, event_time: int | None, *, failed: bool) -> Iterator[str]:
    name = operator.name
    if operator.count(LATE_RECORDS_DROPPED) or operator.count(LATE_RECORDS_SIDE_OUTPUT):
        reached = _reached(operator)
        text = f"It is late for '{name}': "
        text += f"its event time is {time_text(event_time)}" if event_time is not None else "its time has passed"
        text += f", and event time is at {time_text(reached)} there." if reached is not None else "."
        yield text
    if operator.count(NULL_KEY_RECORDS_DROPPED):
        keys = ", ".join(dict.fromkeys(k for side in operator.keys for k in side))
        yield f"'{name}' leaves it out, as its key is NULL{f' ({keys})' if keys else ''}."
    if operator.count(NULL_ROWS_DROPPED):
        yield f"Sink '{name}' leaves it out, as a column is NULL that must not be."
    faults = [
        n.removeprefix(FAULTS).replace("_", " ") for n, c in operator.counters.items() if n.startswith(FAULTS) and c
    ]
    if operator.count(ROWS_SKIPPED):
        yield f"'{name}' skips it: {', '.join(faults) or 'it fails'}."
    if operator.count(ROWS_DEAD_LETTERED):
        yield f"At '{name}' it becomes a dead letter: {', '.join(faults) or 'it fails'}."
    unmatched = [
        side
        for side in (LEFT, RIGHT)
        if operator.count(NUM_RECORDS_UNMATCHED[side]) or operator.count(NUM_RECORDS_UNMATCHED_ON_ARRIVAL[side])
    ]
    if unmatched and not operator.records_out:
        other = (
            "table"
            if operator.description.kind == "LookupJoin"
            else ("right" if LEFT in unmatched else "left") + " side"
        )
        later = any(operator.count(NUM_RECORDS_UNMATCHED_ON_ARRIVAL[side]) for side in unmatched)
        yield f"In join '{name}' the {other} has no row for it" + (
            "; it is kept, and later ones may match." if later else "."
        )
    condition = operator.fact("condition")
    if operator.description.kind == "Calc" and not operator.records_out and not faults and not failed:
        yield f"Filter '{name}' drops it: {condition} is not true." if condition else f"'{name}' leaves it out."


def _waiting(operator: OperatorView, event_time: int | None) -> Step:
    """An operator that has it and has sent nothing."""
    name, next_ = operator.name, operator.next_firing()
    if next_ is not None:
        due = next_[1]
        window = _window_of(operator, event_time)
        if window is not None:
            due = window[1] - 1
        reached = _reached(operator)
        text = f"It waits in '{name}'"
        text += f" in window [{time_text(window[0])}, {time_text(window[1])})" if window is not None else ""
        text += f" until event time has reached {time_text(due)}"
        text += f"; it is at {time_text(reached)}." if reached is not None else "."
        return _step(operator, WAITS, text)
    if (clock := operator.next_firing(processing_time=True)) is not None:
        return _step(operator, WAITS, f"It waits in '{name}' until the clock shows {time_text(clock[1])} UTC.")
    if operator.description.kind == "RegularJoin":
        return _step(operator, WAITS, f"'{name}' keeps it until a row of the other side matches.")
    return _step(operator, ENDS, f"'{name}' takes it and sends nothing for it now.")


def _reached(operator: OperatorView) -> int | None:
    """Event time at an operator, ms, where it has got furthest; None: there is none."""
    known = [w for s in operator.vertex.subtasks if (w := operator.watermark(s)) is not None and w > MIN_TIMESTAMP]
    return max(known, default=None)


def _window_of(operator: OperatorView, event_time: int | None) -> tuple[int, int] | None:
    """The aligned window that ends first of those of a time, (start, end) in ms; None: there is none, or a zone's clocks say it."""
    size, offset = operator.fact("window.size_ms"), operator.fact("window.offset_ms") or 0
    zone = operator.fact("time_zone")
    if event_time is None or not isinstance(size, int) or not isinstance(offset, int) or zone not in (None, "UTC"):
        return None
    step = operator.fact("window.slide_ms") or operator.fact("window.step_ms") or size
    assert isinstance(step, int)
    if operator.fact("window.step_ms"):
        start = (event_time - offset) // size * size + offset
        return start, start + ((event_time - start) // step + 1) * step
    first_end = (event_time - offset - size) // step * step + size + offset + step
    return first_end - size, first_end


def _values(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {'NULL' if value is None else value}" for name, value in values.items())


def _unknown(view: JobView, snapshot: SnapshotPath | None) -> Iterator[str]:
    if snapshot is None:
        yield "the operators had no state: rows that came before, and how far event time has come, are not known"
    else:
        taken = snapshot.metadata.triggered_ms
        yield f"the state is that of checkpoint {snapshot.metadata.checkpoint_id}, of {time_text(taken)} UTC: later rows are not in it"
    if any(o.description.kind == "LookupJoin" for o in view.operators):
        yield "tables that joins ask were asked now, not when the row came"
    if any(o.description.kind in _USER_CODE for o in view.operators):
        yield "functions of the pipeline were called with the row; what they do outside has been done"
