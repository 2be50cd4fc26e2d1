"""Jobs whose subtasks run in worker processes, and what can be done to these from outside."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import textwrap
from collections import Counter
from pathlib import Path

from tests.end_to_end.processes import wait_for
from tests.end_to_end.running import json_rows

ROWS = 60_000
PIPELINE = """
name: counted
settings:
  functions: [tests]
  parallelism: 2
  batch_rows: 128
  {settings}
sources:
  rows:
    connector: datagen
    schema: {{id: BIGINT, k: BIGINT, ts: TIMESTAMP(3)}}
    number-of-rows: {rows}
    rows-per-second: {rate}
    fields.id.kind: sequence
    fields.id.start: 0
    fields.id.end: {last}
    fields.k.min: 0
    fields.k.max: 20
    watermark: {{column: ts, delay: 1s}}
steps:
  counted: {{from: rows, key_by: [k], aggregate: ["COUNT(*) AS n", "SUM(id) AS s"]}}
sinks:
  out: {{from: counted, connector: filesystem, path: out, format: debezium-json}}
"""
CHECKPOINTS = "checkpoint: {interval: 100ms, dir: state, unaligned: %s}\n  restart: {strategy: fixed_delay, attempts: 20, delay: 0s}"


def write_pipeline(folder: Path, settings: str = "", rows: int = ROWS, rate: int = 20_000) -> Path:
    """Counts rows by key; it takes about `rows / rate` seconds."""
    file = folder / "counted.yaml"
    file.write_text(textwrap.dedent(PIPELINE).format(settings=settings, rows=rows, rate=rate, last=rows - 1))
    return file


def check_counts(folder: Path, rows: int = ROWS) -> None:
    """Every row was counted once."""
    left: Counter[tuple[int, int, int]] = Counter()
    for change in json_rows(folder / "out"):
        for side, sign in (("before", -1), ("after", 1)):
            row = change[side]
            if isinstance(row, dict):
                left[row["k"], row["n"], row["s"]] += sign
    counts = [key for key, number in left.items() if number]
    assert set(left.values()) <= {0, 1}
    assert (len(counts), sum(c[1] for c in counts)) == (21, rows)
    assert sum(c[2] for c in counts) == rows * (rows - 1) // 2


def children(pid: int) -> list[int]:
    """Processes that a process has started and that live."""
    found = subprocess.run(["ps", "-o", "pid=,stat=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    lines = [line.split() for line in found.stdout.splitlines()]
    return [int(number) for number, state in lines if not state.startswith("Z")]


def workers_of(command: subprocess.Popen[str], number: int = 2) -> list[int]:
    """The workers of a command once there are so many: children of its fork server."""
    found: list[int] = []

    def are_there() -> bool:
        found[:] = [worker for child in children(command.pid) for worker in children(child)]
        return len(found) == number

    wait_for(are_there, command)
    return found


def is_alive(pid: int) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to a process that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
