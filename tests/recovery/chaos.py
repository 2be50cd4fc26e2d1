"""Real processes, killed at random times and resumed: datagen into two exactly-once file sinks, one raw, one windowed."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.end_to_end.running import json_rows

FLOWRUN = (sys.executable, "-m", "flowrun")
KEYS = 10
ROWS_PER_WINDOW = 1_000
PIPELINE = """
name: chaos
settings:
  parallelism: 2
  checkpoint: {{interval: {interval}, dir: "{folder}/state", retain: 2, unaligned: {unaligned}}}
sources:
  rows:
    connector: datagen
    number-of-rows: {rows}
    rows-per-second: {rate}
    fields: {{id: {{kind: sequence, start: 0, end: {last}}}}}
    schema: {{id: BIGINT}}
    computed: {{k: "id % 10", ts: "TO_TIMESTAMP_LTZ(id, 3)"}}
    watermark: {{column: ts, delay: 1s}}
steps:
  windows:
    from: rows
    key_by: [k]
    window: {{type: tumbling, size: 1s}}
    aggregate: ["COUNT(*) AS n", "SUM(id) AS total"]
    uid: windows
sinks:
  raw: {{from: rows, connector: filesystem, path: "{folder}/raw", format: json, schema: {{id: BIGINT}}}}
  windowed: {{from: windows, connector: filesystem, path: "{folder}/windowed", format: json}}
"""


def write_pipeline(folder: Path, *, rows: int, rate: int, unaligned: bool, interval: str = "100ms") -> Path:
    """The pipeline file; `rows` is a multiple of `ROWS_PER_WINDOW`."""
    path = folder / "chaos.yaml"
    path.write_text(
        PIPELINE.format(
            folder=folder,
            rows=rows,
            last=rows - 1,
            rate=rate,
            interval=interval,
            unaligned="true" if unaligned else "false",
        )
    )
    return path


def command(folder: Path, file: Path, parallelism: int) -> Sequence[str]:
    """Resume if there is a checkpoint, else begin."""
    words = [*FLOWRUN]
    if any(folder.glob("state/chaos/chk-*/_metadata.json")):
        words += ["resume", "--from-savepoint", str(folder / "state")]
    else:
        words += ["run"]
    return [*words, str(file), "--parallelism", str(parallelism), "--no-live"]


def kill_rounds(folder: Path, file: Path, rng: random.Random, rounds: int, longest_s: float) -> None:
    """Start and kill so many times; each life lasts a random time."""
    for number in range(rounds):
        words = command(folder, file, rng.choice((1, 2, 3)))
        log = folder / f"life-{number}.log"
        with log.open("w") as output:
            process = subprocess.Popen(words, stdout=output, stderr=output)
            try:
                process.wait(rng.uniform(0.2, longest_s))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            else:
                assert process.returncode == 0, f"life {number} failed by itself:\n{log.read_text()}"
                return


def live_to_phase(
    folder: Path, file: Path, module: str, *words: object, parallelism: int = 2, limit_s: float = 240
) -> subprocess.CompletedProcess[str]:
    """A life as `python -m MODULE WORD… ARGUMENT…`, a module that kills the process in a phase; over when the process is."""
    arguments = command(folder, file, parallelism)[len(FLOWRUN) :]
    begun = [sys.executable, "-m", module, *map(str, words), *arguments]
    return subprocess.run(begun, capture_output=True, text=True, timeout=limit_s, check=False)


def run_to_end(folder: Path, file: Path) -> None:
    """The last life."""
    done = subprocess.run(command(folder, file, 2), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def check(folder: Path, rows: int) -> None:
    """Every id exactly once; every window right, exactly once."""
    ids = sorted(int(str(row["id"])) for row in json_rows(folder / "raw"))
    twice = sorted({a for a, b in itertools.pairwise(ids) if a == b})
    missing = sorted(set(range(rows)) - set(ids))
    assert not twice, f"{len(twice)} ids came twice, the first {twice[:5]}"
    assert not missing, f"{len(missing)} ids are missing, the first {missing[:5]}"
    windows = sorted((int(str(r["total"])), int(str(r["n"])), int(str(r["k"]))) for r in json_rows(folder / "windowed"))
    expected = []
    for first in range(0, rows, ROWS_PER_WINDOW):
        for key in range(KEYS):
            members = range(first + key, first + ROWS_PER_WINDOW, KEYS)
            expected.append((sum(members), len(members), key))
    assert windows == sorted(expected)
