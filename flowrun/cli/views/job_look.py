"""A job in short, as `flowrun top` shows it."""

from __future__ import annotations

from dataclasses import replace

from flowrun.core.record import record
from flowrun.runtime.job_details import JobDetails
from flowrun.runtime.job_status import VertexStatus

SILENT = "does not answer"
ASKED = "asked"
"""Of a job that has not answered yet."""


@record
class JobLook:
    """A job at one moment. What is not known, or not there, is None. Times are ms, shares parts of one.

    Attributes:
        job_id: of it.
        name: of the pipeline.
        state: `running` and the like; `asked`: it has not answered yet; `does not answer`: the rest is what it said last, if anything.
        running_ms: for how long.
        rows_read: by all sources.
        rows_per_s: of those, since the look before; None: there was none.
        lag_ms: of the vertex whose event time is furthest behind the time of day.
        busiest: name of the vertex that works most.
        busy: its share.
        pressure: of the subtask that waits most for those behind it.
        late_rows: that were dropped.
        state_bytes: of the last checkpoint.
        checkpoint_age_ms: since it was completed.
        failed_checkpoints: how many.
        restarts: how many.
        waits_for: before it can run.
    """

    job_id: str
    name: str
    state: str
    running_ms: int | None = None
    rows_read: int | None = None
    rows_per_s: float | None = None
    lag_ms: int | None = None
    busiest: str | None = None
    busy: float | None = None
    pressure: float | None = None
    late_rows: int | None = None
    state_bytes: int | None = None
    checkpoint_age_ms: float | None = None
    failed_checkpoints: int | None = None
    restarts: int | None = None
    waits_for: str | None = None


def job_look(details: JobDetails, now_ms: int, before: tuple[int, int] | None, name: str) -> JobLook:
    """A job in short.

    Args:
        details: of it.
        now_ms: epoch ms.
        before: rows that its sources had read, and monotonic ns, at the look before; None: there was none.
        name: of the pipeline.
    """
    status, targets = details.status, {e.target for e in details.exchanges}
    vertices = status.vertices
    rows = sum(v.records_in for v in vertices if v.vertex_id not in targets)
    checkpoints = status.checkpoints
    last = None if checkpoints is None else checkpoints.last
    busiest = max(vertices, key=lambda v: v.busy_ms_per_s, default=None)
    return JobLook(
        status.job_id,
        name,
        status.state.value,
        status.running_ms,
        rows,
        None if before is None else _rate(rows - before[0], status.at_ns - before[1]),
        max((v.watermark_lag_ms for v in vertices if v.watermark_lag_ms is not None), default=None),
        None if busiest is None else busiest.name,
        None if busiest is None else round(busiest.busy_ms_per_s / 1000, 3),
        round(max((v.max_back_pressured_ms_per_s for v in vertices), default=0.0) / 1000, 3),
        sum(map(_late, vertices)),
        None if last is None else last.state_bytes,
        None if last is None else max(now_ms - last.triggered_ms - last.duration_ms, 0),
        None if checkpoints is None else checkpoints.failed,
        status.restarts,
        status.waits_for,
    )


def _late(vertex: VertexStatus) -> int:
    return sum(counters.get("numLateRecordsDropped", 0) for counters in vertex.counters.values())


def _rate(rows: int, ns: int) -> float | None:
    return round(max(rows, 0) * 1e9 / ns, 1) if ns > 0 else None


def silent(last: JobLook) -> JobLook:
    """A job that does not answer any more."""
    return replace(last, state=SILENT, rows_per_s=None)
