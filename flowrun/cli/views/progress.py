"""The progress of a job: rows per second of each vertex, from its last two statuses, and plain lines for logs and pipes."""

from __future__ import annotations

from flowrun.cli.console import say
from flowrun.cli.views.checkpoint_text import recovery_text
from flowrun.cli.views.figures import count_text, counted_text, duration_text
from flowrun.runtime.job_status import JobStatus, VertexStatus


def rows_handled(vertex: VertexStatus) -> int:
    """The rows that measure a vertex's progress: those that it received, or, for a source, those that it read."""
    return vertex.records_in


class Rates:
    """Computes rates; it remembers the last status of the job."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._at_ns = 0

    def update(self, status: JobStatus) -> dict[str, float]:
        """Vertex id → rows per second since the last call; 0 at the first call."""
        seconds = (status.at_ns - self._at_ns) / 1e9
        rates = {
            v.vertex_id: (rows_handled(v) - self._rows.get(v.vertex_id, 0)) / seconds
            if self._rows and seconds > 0
            else 0.0
            for v in status.vertices
        }
        self._rows = {v.vertex_id: rows_handled(v) for v in status.vertices}
        self._at_ns = status.at_ns
        return rates


_EVERY_NS = 5_000_000_000


class ProgressLines:
    """Prints a line every five seconds: rows and rate of each vertex, checkpoints and restarts."""

    shows_stopping = False

    def __init__(self) -> None:
        self._rates = Rates()
        self._next_ns: int | None = None
        self._restarts = 0
        self._waited_for: str | None = None

    def update(self, status: JobStatus, *, stopping: bool = False) -> None:
        """Print a line if it is time for one, and one for each restart, and for what the job waits for, as soon as it is known."""
        waits_for = None if status.slots else status.waits_for  # that a stage waits for another one is nothing special
        if waits_for is not None and waits_for != self._waited_for:
            say(f"{duration_text(status.running_ms)}  waits for {waits_for}")
        self._waited_for = waits_for
        if status.restarts > self._restarts:
            self._restarts = status.restarts
            say(f"{duration_text(status.running_ms)}  restart {status.restarts}, because {status.last_failure}")
        if self._next_ns is None:
            self._next_ns = status.at_ns + _EVERY_NS
            self._rates.update(status)
            return
        if status.at_ns < self._next_ns:
            return
        self._next_ns += _EVERY_NS
        rates = self._rates.update(status)
        parts = [
            f"{v.name}: {counted_text(rows_handled(v), 'row')}, {count_text(rates[v.vertex_id])}/s"
            for v in status.vertices
        ]
        recovery = recovery_text(status.checkpoints, status.restarts)
        say(f"{duration_text(status.running_ms)}  " + "; ".join([*parts, recovery] if recovery else parts))
