"""Shows the progress of a run on Spark, as one line in place on a terminal and as plain lines elsewhere, and a summary at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rich.console import Console
from rich.spinner import Spinner
from rich.text import Text

from flowrun.cli.console import say
from flowrun.cli.views.figures import counted_text, duration_text
from flowrun.cli.views.in_place import InPlaceView
from flowrun.runners.spark import BatchStatus, StageProgress

_EVERY_MS = 5_000


class BatchView(InPlaceView):
    """A line on standard error that is kept up to date. `update` may be called by any thread."""

    def __init__(self, console: Console | None = None) -> None:
        self._spinner = Spinner("dots", text=Text("starting"))
        super().__init__(console, self._spinner)

    def update(self, status: BatchStatus) -> None:
        """Show the present status."""
        self._spinner.update(text=Text(status_text(status)))


class BatchLines:
    """Prints the status every five seconds."""

    def __init__(self) -> None:
        self._next_ms = float(_EVERY_MS)

    def update(self, status: BatchStatus) -> None:
        """Print a line if it is time for one."""
        if status.running_ms >= self._next_ms:
            self._next_ms += _EVERY_MS
            say(status_text(status))


def status_text(status: BatchStatus) -> str:
    """A status in one line.

    >>> status_text(BatchStatus("sink 'out'", 6200, (StageProgress(3, 8, 5),)))
    "6.2 s  sink 'out': stage 3: 5 of 8 tasks"
    """
    stages = "; ".join(_stage_text(s) for s in status.stages)
    return f"{duration_text(status.running_ms)}  {status.doing}" + (f": {stages}" if stages else "")


def _stage_text(stage: StageProgress) -> str:
    failed = f", {stage.failed} failed" if stage.failed else ""
    return f"stage {stage.stage_id}: {stage.done} of {stage.tasks} tasks{failed}"


class RunReport(Protocol):
    """What became of a run on Spark."""

    @property
    def name(self) -> str:
        """The name of the pipeline."""
        ...

    @property
    def rows(self) -> Mapping[str, int]:
        """Sink → how many rows it got, in the pipeline's order."""
        ...

    @property
    def start_ms(self) -> float:
        """How long Spark took to start."""
        ...

    @property
    def running_ms(self) -> float:
        """How long the run took from then on."""
        ...


def run_summary(report: RunReport, done: str = "finished on Spark") -> list[str]:
    r"""The lines that are printed when a run is over; `done` says what it did.

    >>> from flowrun.runners.spark import BatchReport
    >>> print("\n".join(run_summary(BatchReport("orders", {"out": 12}, 3100, 2400))))
    orders: finished on Spark in 5.5 s (Spark started in 3.1 s, ran for 2.4 s)
      out: 12 rows
    """
    total, start, ran = (
        duration_text(ms) for ms in (report.start_ms + report.running_ms, report.start_ms, report.running_ms)
    )
    return [
        f"{report.name}: {done} in {total} (Spark started in {start}, ran for {ran})",
        *(f"  {sink}: {counted_text(rows, 'row')}" for sink, rows in report.rows.items()),
    ]
