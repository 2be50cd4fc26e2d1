"""The pipelines of the recovery matrix, their input, and runs of them that are killed and go on elsewhere."""

from __future__ import annotations

import datetime
import json
import random
import textwrap
from pathlib import Path

ROWS = 3_000
KEYS = 20

HEAD = """
name: {name}
settings:
  batch_rows: 64
  parallelism: {parallelism}
  max_parallelism: 12
  checkpoint: {{interval: 1h, dir: "{folder}/state", unaligned: {unaligned}}}
sources:
  rows:
    connector: filesystem
    path: {folder}/input/rows.json
    format: json
    schema: {{id: BIGINT, k: STRING, v: BIGINT, ts: TIMESTAMP(3)}}
    watermark: {{column: ts, delay: 2s}}
    parallelism: 1
"""
HELD = """
steps:
  held: {from: rows, map: "tests.recovery.gates:source_gate", parallelism: 1}
"""


def _windowed(
    window: str, aggregate: str = "[COUNT(*) AS n, SUM(v) AS s, MIN(v) AS lo, COUNT(DISTINCT v) AS d]"
) -> str:
    return (
        HELD
        + f"""
  results: {{from: held, key_by: [k], window: {window}, aggregate: {aggregate}, uid: results}}
  shown: {{from: results, map: "tests.recovery.gates:results_gate"}}
sinks:
  out: {{from: shown, connector: filesystem, path: "FOLDER/out", format: json}}
"""
    )


CASES = {
    "tumbling": _windowed("{type: tumbling, size: 5s}"),
    "sliding": _windowed("{type: sliding, size: 9s, slide: 3s}"),
    "session": _windowed("{type: session, gap: 700ms}"),
    "count": _windowed("{type: count, size: 7, slide: 3}", "[COUNT(*) AS n, SUM(v) AS s, LAST_VALUE(id) AS last]"),
    "lateness": _windowed(
        "{type: tumbling, size: 4s, allowed_lateness: 3s, late_output: late}", "[COUNT(*) AS n, SUM(v) AS s]"
    )
    + '  late: {from: late, connector: filesystem, path: "FOLDER/late", format: json}\n',
    "process": HELD
    + """
  results: {from: held, key_by: [k], process: PROCESS, uid: results}
  shown: {from: results, map: "tests.recovery.gates:results_gate"}
sinks:
  out: {from: shown, connector: filesystem, path: "FOLDER/out", format: json}
""",
    "union": HELD
    + """
  even: {from: held, filter: "id % 2 = 0"}
  odd: {from: held, filter: "id % 2 = 1", select: [id, k, "v * 10 AS v", ts]}
  both: {union: [even, odd]}
  results: {from: both, key_by: [k], window: {type: tumbling, size: 5s}, aggregate: ["COUNT(*) AS n", "SUM(v) AS s"]}
  shown: {from: results, map: "tests.recovery.gates:results_gate"}
sinks:
  out: {from: shown, connector: filesystem, path: "FOLDER/out", format: json}
""",
    "split": HELD
    + """
  parts: {from: held, split: {small: "v < 300", large: "v >= 700"}}
  results: {from: small, key_by: [k], window: {type: tumbling, size: 5s}, aggregate: ["COUNT(*) AS n", "MAX(v) AS hi"]}
  shown: {from: results, map: "tests.recovery.gates:results_gate"}
sinks:
  out: {from: shown, connector: filesystem, path: "FOLDER/out", format: json}
  large: {from: large, connector: filesystem, path: "FOLDER/large", format: json}
  rest: {from: parts, connector: filesystem, path: "FOLDER/rest", format: json}
""",
}
PROCESS = '{function: "tests.recovery.functions:Alerts", schema: {k: STRING, n: BIGINT, total: BIGINT, at: BIGINT}}'


def write_rows(folder: Path, seed: int, late: bool) -> None:
    """Rows in nearly ascending event time; with `late`, some that are older than the watermark by up to ten seconds."""
    rng = random.Random(seed)
    (folder / "input").mkdir(parents=True)
    now = 1_700_000_000_000
    with (folder / "input" / "rows.json").open("w") as file:
        for number in range(ROWS):
            now += rng.choice((0, 5, 10, 20, 40))
            back = rng.randrange(2_000)
            if late and rng.random() < 0.03:
                back = rng.randrange(10_000)
            at = now - back
            seconds, ms = divmod(at, 1000)
            stamp = f"{_stamp(seconds)}.{ms:03d}"
            row = {"id": number, "k": f"k{rng.randrange(KEYS)}", "v": rng.randrange(1000), "ts": stamp}
            file.write(json.dumps(row) + "\n")


def _stamp(seconds: int) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")


def write_pipeline(folder: Path, case: str, parallelism: int, unaligned: bool) -> Path:
    """The pipeline file of a case below `folder`, which also holds its input, state and output."""
    head = HEAD.format(
        name=f"case-{case}", parallelism=parallelism, folder=folder, unaligned="true" if unaligned else "false"
    )
    text = head + CASES[case].replace("FOLDER", str(folder)).replace("PROCESS", PROCESS)
    path = folder / f"{case}-{parallelism}.yaml"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path
