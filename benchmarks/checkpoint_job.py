"""One job with a gigabyte of keyed window state, run in a process of its own: `python -m benchmarks.checkpoint_job MODE FOLDER`.

The first `KEYS` rows of datagen bring one key each; the rows after them go to `HOT` of those keys. All are in one window that does not
fire before the end. Modes: `fast` and `plain` (as fast as it can, with and without checkpoints every second), `grow` (one
checkpoint when all keys are there, another after 1 % more rows), `restore` (from the second one, at another parallelism). Prints JSON.
"""

from __future__ import annotations

import json
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import JobStateOptions, LocalJob, start_embedded
from flowrun.runtime.job_status import JobStatus
from flowrun.runtime.lifecycle import ExecutionState
from flowrun.runtime.process import tune_process

KEYS = 25_000_000
HOT = 10_000
FAST_SECONDS = 10
STATE_BYTES = 40 * KEYS
"""A key, its window's end and three partial results, 8 bytes each."""
SMALL = ", batch_rows: 8192"
CHECKPOINTS = ", checkpoint: {{interval: {}}}"
PIPELINE = """
name: big-state
settings: {{parallelism: {parallelism}{checkpoint}}}
sources:
  rows:
    connector: datagen
    number-of-rows: {rows}
    rows-per-second: 1000000000
    schema: {{n: BIGINT}}
    fields: {{n: {{kind: sequence, start: 0, end: {last}}}}}
    computed: {{k: "CASE WHEN n < {keys} THEN n ELSE n % {spread} END"}}
    watermark: {{time: "TO_TIMESTAMP_LTZ(n / 1000, 3)", delay: 1s}}
steps:
  gated: {{from: rows, map: "benchmarks.checkpoint_job:gate"}}
  windows:
    from: gated
    key_by: [k]
    window: {{type: tumbling, size: 30d}}
    aggregate: [SUM(n) AS s, MAX(n) AS m, COUNT(*) AS c]
    uid: windows
sinks:
  out: {{from: windows, connector: blackhole}}
"""


class Gate:
    """A map step: lets rows pass until `limit` have, then a batch every half second."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.limit = 1 << 62
        self.seen = 0

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        with self._lock:
            self.seen += rows.num_rows
            drips = self.seen > self.limit
        if drips:
            time.sleep(0.5)
        return rows


GATE = Gate()


def gate(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The map step of the pipeline."""
    return GATE(rows)


def start(
    folder: Path, *, rows: int, parallelism: int = 2, spread: int, settings: str = "", resume: bool = False
) -> LocalJob:
    """Start the pipeline with state in `folder`."""
    file = folder / "pipeline.yaml"
    text = PIPELINE.format(
        parallelism=parallelism, checkpoint=settings, rows=rows, last=rows - 1, keys=KEYS, spread=spread
    )
    file.write_text(textwrap.dedent(text))
    state = str(folder / "state")
    options = JobStateOptions(directory=state, restore_from=state if resume else None)
    return start_embedded(compile_pipeline(file).job_graph, state=options)


def watch(job: LocalJob, done: Callable[[JobStatus], bool]) -> JobStatus:
    """Wait until a status is as wanted, or the job is over."""
    while True:
        over = job.wait(5) is not None
        status = job.status()
        if over or done(status):
            return status


def as_fast_as_it_can(folder: Path, settings: str) -> dict[str, object]:
    """Rows a second once all keys are there, and in a checkpoint if any are taken; and what checkpoints took meanwhile."""
    with start(folder, rows=1 << 40, spread=HOT, settings=settings) as job:
        watch(job, lambda _: GATE.seen >= KEYS)
        then_ms, then = time.time_ns() // 1_000_000, time.perf_counter()
        if settings:
            watch(job, lambda s: _last(s) > then_ms)
        watch(job, lambda _: time.perf_counter() > then + 3)
        began, first, before = time.perf_counter(), GATE.seen, job.status().checkpoints
        watch(job, lambda _: time.perf_counter() > began + FAST_SECONDS)
        seconds, rows = time.perf_counter() - began, GATE.seen - first
        job.cancel()
        job.wait()
        taken = job.status().checkpoints
    history = () if taken is None else taken.history
    return {
        "rows_per_second": rows / seconds,
        "checkpoints": 0 if taken is None or before is None else taken.completed - before.completed,
        "synchronous_ms": max((c.max_synchronous_ms for c in history), default=0),
        "state_bytes": max((c.state_bytes for c in history), default=0),
    }


def _last(status: JobStatus) -> int:
    """When the last completed checkpoint was triggered, epoch ms."""
    taken = status.checkpoints
    return 0 if taken is None or taken.last is None else taken.last.triggered_ms


def grow(folder: Path) -> dict[str, object]:
    """Two checkpoints with 1 % more rows between them."""
    GATE.limit = KEYS
    with start(folder, rows=1 << 40, spread=KEYS, settings=SMALL + CHECKPOINTS.format("1h")) as job:
        watch(job, lambda _: GATE.seen > KEYS)
        seen = GATE.seen
        job.take_snapshot(savepoint=False).wait()
        GATE.limit = seen + KEYS // 100
        watch(job, lambda _: GATE.seen > GATE.limit)
        changed = GATE.seen - seen
        job.take_snapshot(savepoint=False).wait()
        status = job.status().checkpoints
        job.cancel()
        job.wait()
    assert status is not None
    whole, increment = status.history[-2:]
    return {
        "synchronous_ms": max(whole.max_synchronous_ms, increment.max_synchronous_ms),
        "whole_bytes": whole.written_bytes,
        "whole_ms": whole.duration_ms,
        "increment_bytes": increment.written_bytes,
        "increment_ms": increment.duration_ms,
        "changed": changed / KEYS,
    }


def restore(folder: Path) -> dict[str, object]:
    """From the start of the tasks until all of them run, at parallelism 3."""
    GATE.limit = 0
    with start(folder, rows=1 << 40, parallelism=3, spread=KEYS, settings=CHECKPOINTS.format("1h"), resume=True) as job:
        began = time.perf_counter()
        running = {ExecutionState.RUNNING}
        watch(job, lambda s: all(set(v.states) == running for v in s.vertices))
        seconds = time.perf_counter() - began
        job.cancel()
        job.wait()
    return {"seconds": seconds, "bytes_per_second": STATE_BYTES / seconds}


def main() -> None:
    mode, folder = sys.argv[1], Path(sys.argv[2])
    modes: dict[str, Callable[[], dict[str, object]]] = {
        "fast": lambda: as_fast_as_it_can(folder, CHECKPOINTS.format("1s")),
        "plain": lambda: as_fast_as_it_can(folder, ""),
        "grow": lambda: grow(folder),
        "restore": lambda: restore(folder),
    }
    tune_process()
    print(json.dumps(modes[mode]()))


if __name__ == "__main__":
    sys.modules["benchmarks.checkpoint_job"] = sys.modules["__main__"]  # the pipeline names the gate by its module
    main()
