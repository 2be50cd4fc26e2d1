"""Rows per second of each vertex, computed from the last two statuses of a job."""

from __future__ import annotations

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
