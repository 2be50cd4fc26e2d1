"""A source as fast as it can be before a sink of 1,000 rows/s, for a minute: memory must stay flat."""

from __future__ import annotations

import signal
import subprocess
import tempfile
import textwrap
import time
from pathlib import Path

from benchmarks.measuring import FLOWRUN, Figure

SECONDS = 60
PIPELINE = """
name: slow-sink
settings: {parallelism: 1}
sources:
  rows: {connector: datagen, rows-per-second: 1000000000, schema: {k: BIGINT, s: STRING}}
sinks:
  out: {from: rows, connector: blackhole, rows-per-second: 1000, parallelism: 2}
"""


def run() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pipeline.yaml"
        file.write_text(textwrap.dedent(PIPELINE))
        process = subprocess.Popen(
            [*FLOWRUN, "run", str(file), "--quiet"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        samples = []
        for _ in range(SECONDS):
            time.sleep(1)
            samples.append(_resident_mb(process.pid))
        for _ in range(2):  # stop, then cancel: what is on its way would take minutes at this pace
            process.send_signal(signal.SIGINT)
            time.sleep(1)
        process.wait(30)
    early, late = max(samples[5:15]), max(samples)
    return [
        Figure(
            "fast source, sink of 1,000 rows/s, 60 s: resident memory",
            f"{late:.0f} MB (after 15 s: {early:.0f} MB)",
            bar="flat, < 400 MB",
            cleared=late < 400 and late < early * 1.1,
        )
    ]


def _resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("the process has ended")
