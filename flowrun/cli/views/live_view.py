"""The live view of a job: a table with one line for each vertex, and what became of checkpoints, refreshed in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from flowrun.cli.views.figures import count_text, duration_text, share_text, short_duration_text, state_text
from flowrun.cli.views.in_place import InPlaceView
from flowrun.cli.views.progress import Rates, rows_handled
from flowrun.core.clock import SystemClock
from flowrun.core.printable import printable
from flowrun.core.record import record
from flowrun.core.units import size_text
from flowrun.runtime.checkpoint.events import CheckpointsStatus
from flowrun.runtime.job_status import JobStatus, VertexStatus
from flowrun.runtime.lifecycle import ExecutionState

_RATE_EVERY_NS = 900_000_000
_DAY_MS = 86_400_000
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_000
"""The years 1 to 9999, which times for people can say."""
_LEAST_NAME = 20
"""Columns that the names of vertices have at least, as long as there are figures that can go."""
_MOST_NAME = 72
_ARROW = " -> "
STOPPING = "stopping… press Ctrl-C again to cancel"


class LiveView(InPlaceView):
    """Shows rows, rates, watermark lag and load of each vertex on standard error."""

    shows_stopping = True

    def __init__(self, console: Console | None = None) -> None:
        super().__init__(console)
        self._measure = Rates()
        self._clock = SystemClock()
        self.rates: dict[str, float] = {}
        """Vertex id → rows a second, as shown."""
        self._rated_ns = 0

    def update(self, status: JobStatus, *, stopping: bool = False) -> None:
        """Show the present status; `stopping` says that the user asked for the end.

        Rates change once a second, so that they can be read.
        """
        if status.at_ns - self._rated_ns > _RATE_EVERY_NS:
            self.rates = self._measure.update(status)
            self._rated_ns = status.at_ns
        shown = status_table(
            status, self.rates, stopping=stopping, now_ms=self._clock.now_ms(), width=self._console.width
        )
        self._live.update(shown)


@record(eq=False)
class _Figure:
    """A column of figures.

    Attributes:
        heading: over it.
        width: the least.
        cell: of a vertex.
        goes: the order in which columns go where the terminal is narrow; 0: it stays.
    """

    heading: str
    width: int
    cell: Callable[[VertexStatus], Text]
    goes: int = 0


def status_table(
    status: JobStatus, rates: dict[str, float], *, stopping: bool = False, now_ms: int | None = None, width: int = 80
) -> RenderableType:
    """A job's status.

    Args:
        status: of the job.
        rates: vertex id → rows a second.
        stopping: whether the user asked for the end.
        now_ms: epoch ms, for the age of the last checkpoint; None: it is not told.
        width: of the terminal.
    """
    state = STOPPING if stopping and not status.state.is_terminal else state_text(status.state)
    title = Text(no_wrap=True, overflow="ellipsis")
    title.append(printable(status.name), "bold").append(f"  {state}  {duration_text(status.running_ms)}")
    figures = _fitting(tuple(_figures(status, rates, width)), width)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("vertex", max_width=_MOST_NAME)
    for figure in figures:
        table.add_column(figure.heading, justify="right", no_wrap=True, min_width=figure.width)
    for vertex in status.vertices:
        table.add_row(_Name(printable(vertex.name)), *(figure.cell(vertex) for figure in figures))
    return Group(title, Text(), table, Text(), _notes(status, now_ms))


def _figures(status: JobStatus, rates: dict[str, float], width: int) -> Iterator[_Figure]:
    """The columns that have something to say. `lag` is now − watermark, or, for data of earlier days, the event time that was reached;
    `pressure` is the share of time in which the worst subtask waits for slower ones downstream; `late` are rows that came too late and were
    dropped, `left out` those that could not be processed.
    """
    yield _Figure("tasks", 5, _tasks, goes=3)
    yield _Figure("rows in", 7, lambda v: Text(count_text(rows_handled(v))), goes=2)
    yield _Figure("rows/s", 7, lambda v: Text(count_text(rates.get(v.vertex_id, 0.0))))
    yield _Figure("rows out", 8, lambda v: Text(count_text(v.records_out)), goes=1)
    yield _Figure("lag", 7, _event_time)
    yield _Figure("busy", 5, lambda v: _share(v.busy_ms_per_s, warn=90), goes=4)
    if width >= 120:
        yield _Figure("idle", 5, lambda v: Text(share_text(v.idle_ms_per_s), "dim"))
    yield _Figure("pressure", 8, lambda v: _share(v.max_back_pressured_ms_per_s, warn=10, bad=50))
    for heading, counters in (("late", _LATE), ("left out", _LEFT_OUT)):
        if any(_counted(v, counters) for v in status.vertices):
            yield _Figure(heading, len(heading), lambda v, c=counters: _if_any(_counted(v, c)))  # type: ignore[misc]


_LATE = ("numLateRecordsDropped",)
_LEFT_OUT = ("numRecordsSkipped", "numRecordsDeadLettered")


def _fitting(figures: tuple[_Figure, ...], width: int) -> tuple[_Figure, ...]:
    """Those for which there is room beside the names."""
    found = list(figures)
    while width - sum(f.width + 2 for f in found) < _LEAST_NAME:
        going = min((f for f in found if f.goes), key=lambda f: f.goes, default=None)
        if going is None:
            break
        found.remove(going)
    return tuple(found)


class _Name:
    """The name of a vertex on one line; where it is too long, operators in the middle of the chain are left out."""

    def __init__(self, name: str) -> None:
        self._name = " ".join(name.split())

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        longest = cell_len(self._name)
        return Measurement(min(longest, 8), longest).with_maximum(options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(short_chain(self._name, options.max_width), no_wrap=True)


def short_chain(name: str, width: int) -> str:
    """The name of a chain in so many columns: its beginning and its end, and as much between as there is room for.

    >>> short_chain("Source: orders -> paid.filter -> per_minute", 40)
    'Source: orders -> … -> per_minute'
    >>> short_chain("Source: orders -> paid.filter", 20)
    'Source: orders -> p…'
    """
    if cell_len(name) <= width:
        return name
    parts = name.split(_ARROW)
    for left_out in range(1, len(parts) - 1):
        kept = len(parts) - left_out
        head, tail = parts[: (kept + 1) // 2], parts[len(parts) - kept // 2 :]
        if cell_len(short := _ARROW.join((*head, "…", *tail))) <= width:
            return short
    return set_cell_size(name, max(width - 1, 0)).rstrip() + "…"


def _notes(status: JobStatus, now_ms: int | None) -> Table:
    """What is to be said of the whole job, a line each."""
    notes = Table.grid(padding=(0, 2, 0, 0))
    notes.add_column(style="dim", no_wrap=True)
    notes.add_column(overflow="fold")
    if status.waits_for is not None:
        notes.add_row("waits for", Text(printable(status.waits_for), "yellow"))
    reached = [v.watermark for v in status.vertices if v.watermark is not None]
    if reached:
        notes.add_row("watermark", Text(f"{_time(min(reached)):%Y-%m-%d %H:%M:%S} UTC in the slowest vertex"))
    if status.checkpoints is not None:
        notes.add_row("checkpoints", _checkpoints(status.checkpoints, now_ms))
        if status.checkpoints.failed:
            why = status.checkpoints.last_failure
            text = f"{status.checkpoints.failed} failed" + (f", the last because {why}" if why else "")
            notes.add_row("", Text(printable(text), "red"))
    if status.restarts:
        why = status.last_failure
        text = f"{status.restarts}" + (f", the last because {why}" if why else "")
        notes.add_row("restarts", Text(printable(text), "yellow"))
    return notes


def _checkpoints(checkpoints: CheckpointsStatus, now_ms: int | None) -> Text:
    parts = [count_text(checkpoints.completed)]
    if (last := checkpoints.last) is not None:
        if now_ms is not None:
            age = max(now_ms - last.triggered_ms - last.duration_ms, 0)
            parts.append(f"last {short_duration_text(age)} ago")
        parts += [f"took {duration_text(last.duration_ms)}", size_text(last.state_bytes)]
    if checkpoints.in_progress:
        parts.append(f"{checkpoints.in_progress} under way")
    return Text(" · ".join(parts))


def _event_time(vertex: VertexStatus) -> Text:
    """How far event time is behind; or the event time itself, if that is a day or more in the past."""
    lag = vertex.watermark_lag_ms
    if lag is None:
        return Text()
    if lag < _DAY_MS or vertex.watermark is None:
        return Text(short_duration_text(lag))
    reached = _time(vertex.watermark)
    return Text(f"{reached:%Y-%m-%d}\n{reached:%H:%M:%S}")


def _time(watermark_ms: int) -> datetime:
    """A watermark as a time; what no calendar knows is at the end of those that one does."""
    return datetime.fromtimestamp(min(max(watermark_ms, _FIRST_MS), _LAST_MS) / 1000, UTC)


def _tasks(vertex: VertexStatus) -> Text:
    """How many subtasks there are, and, unless all run, how many do."""
    running = vertex.states.get(ExecutionState.RUNNING, 0)
    if running == vertex.parallelism:
        return Text(str(running))
    ended = vertex.states.get(ExecutionState.FINISHED, 0)
    if ended == vertex.parallelism:
        return Text("done", "dim")
    return Text(f"{running + ended}/{vertex.parallelism}", "yellow")


def _share(ms_per_s: float, *, warn: float, bad: float | None = None) -> Text:
    share = ms_per_s / 10
    style = "red" if bad is not None and share > bad else "yellow" if share > warn else ""
    return Text(share_text(ms_per_s), style)


def _counted(vertex: VertexStatus, names: tuple[str, ...]) -> int:
    return sum(counters.get(name, 0) for counters in vertex.counters.values() for name in names)


def _if_any(count: int) -> Text:
    return Text(count_text(count) if count else "", "yellow")
