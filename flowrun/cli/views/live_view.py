"""The live view of a job: a table with one row for each vertex, refreshed in place."""

from __future__ import annotations

from datetime import UTC, datetime

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flowrun.cli.views.checkpoint_text import recovery_text
from flowrun.cli.views.figures import count_text, duration_text, state_text
from flowrun.cli.views.in_place import InPlaceView
from flowrun.cli.views.progress import Rates, rows_handled
from flowrun.core.printable import printable
from flowrun.runtime.job_status import JobStatus, VertexStatus
from flowrun.runtime.lifecycle import ExecutionState

_RATE_EVERY_NS = 900_000_000
_DAY_MS = 86_400_000
_FIGURES = {"rows in": 7, "rows/s": 7, "rows out": 8, "lag": 7, "busy": 5, "pressure": 8}
"""Heading → least width. `lag` is now − watermark, or, for data of earlier days, the event time that was reached; `pressure` is the share
of time in which a task waits for slower tasks downstream.
"""
STOPPING = "stopping… press Ctrl-C again to cancel"


class LiveView(InPlaceView):
    """Shows rows, rates, watermark lag and load of each vertex on standard error."""

    shows_stopping = True

    def __init__(self, console: Console | None = None) -> None:
        super().__init__(console)
        self._measure = Rates()
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
        self._live.update(status_table(status, self.rates, stopping=stopping))


def status_table(status: JobStatus, rates: dict[str, float], *, stopping: bool = False) -> Table:
    """A job's status as a table; `rates` is vertex id → rows a second."""
    state = STOPPING if stopping and not status.state.is_terminal else state_text(status.state)
    title = f"{printable(status.name)}  {state}  {duration_text(status.running_ms)}"
    table = Table(
        title=Text(title, style="table.title"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    caption = recovery_text(status.checkpoints, status.restarts, status.last_failure)
    if status.waits_for is not None:
        caption = "; ".join(filter(None, (f"waits for {status.waits_for}", caption)))
    table.caption = Text(printable(caption), style="table.caption") if caption else None  # a message is no markup
    table.caption_justify = "left"
    table.add_column("vertex", overflow="fold", max_width=48)
    table.add_column("tasks", justify="right", overflow="fold", min_width=5)
    for heading, width in _FIGURES.items():  # a narrow terminal wraps the names, not the figures
        table.add_column(heading, justify="right", no_wrap=True, min_width=width)
    for vertex in status.vertices:
        table.add_row(
            Text(printable(vertex.name)),
            _tasks(vertex),
            count_text(rows_handled(vertex)),
            count_text(rates.get(vertex.vertex_id, 0.0)),
            count_text(vertex.records_out),
            _event_time(vertex),
            f"{vertex.busy_ms_per_s / 10:.0f} %",
            _pressure(vertex),
        )
    return table


def _event_time(vertex: VertexStatus) -> str:
    """How far event time is behind; or the event time itself, if that is a day or more in the past."""
    lag = vertex.watermark_lag_ms
    if lag is None:
        return ""
    if lag < _DAY_MS or vertex.watermark is None:
        return duration_text(lag)
    reached = datetime.fromtimestamp(vertex.watermark / 1000, UTC)
    return f"{reached:%Y-%m-%d}\n{reached:%H:%M:%S}"


def _tasks(vertex: VertexStatus) -> str:
    """How many subtasks there are, and, unless all run, in which states they are."""
    if vertex.states.get(ExecutionState.RUNNING) == vertex.parallelism:
        return str(vertex.parallelism)
    return ", ".join(f"{count} {state_text(state)}" for state, count in vertex.states.items() if count)


def _pressure(vertex: VertexStatus) -> str:
    share = vertex.max_back_pressured_ms_per_s / 10
    color = "red" if share > 50 else "yellow" if share > 10 else "green"
    return f"[{color}]{share:.0f} %[/{color}]"
