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
  functions: [tests]
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


def _updating(steps: str) -> str:
    """Steps whose results may change, written as changes; what is compared is what is left of them."""
    return (
        HELD
        + steps
        + """
  shown: {from: results, map: "tests.recovery.gates:results_gate"}
sinks:
  out: {from: shown, connector: filesystem, path: "FOLDER/out", format: debezium-json}
"""
    )


# Both sides of joins come from one source by way of one task, so that rows of equal time have an order.
SIDES = """
  l: {from: held, filter: "id % 2 = 0", parallelism: 1}
  r: {from: held, filter: "id % 2 = 1", parallelism: 1}
"""
DIGITS = """
  digits: {from: held, select: ["*", "v % 10 AS g"], parallelism: 1}
"""
RELATIONAL = {
    "group aggregate": """
  results:
    from: held
    key_by: [k, "v % 10 AS g"]
    aggregate: ["COUNT(*) AS n", "SUM(v) AS s", "MIN(v) AS lo", "COUNT(DISTINCT v) AS d", "MAX(id) AS last"]
""",
    "aggregate of an aggregate": """
  totals: {from: held, key_by: [k, "v % 10 AS g"], aggregate: ["SUM(v) AS s", "MAX(v) AS hi"]}
  results: {from: totals, key_by: s, aggregate: ["COUNT(*) AS n", "MIN(hi) AS lo", "MAX(hi) AS hi"]}
""",
    "regular join": SIDES
    + """
  results: {from: l, join: {with: r, type: full, on: l.k = r.k AND l.v = r.v, kind: regular}, select: [l.id, l.k, r.id AS other]}
""",
    "semi join of aggregates": """
  often: {from: held, key_by: [k, "v % 50 AS g"], aggregate: COUNT(*) AS n, having: n % 2 = 0}
  results: {from: held, join: {with: often, type: semi, on: held.k = often.k AND v % 50 = g}}
""",
    "interval join": SIDES
    + """
  results:
    from: l
    join:
      with: r
      type: left
      kind: interval
      on: l.k = r.k AND r.ts BETWEEN l.ts - INTERVAL '1' SECOND AND l.ts + INTERVAL '1' SECOND AND l.v > r.v
    select: [l.id, r.id AS other, l.ts]
""",
    "window join": SIDES
    + """
  lw: {from: l, window: {type: tumbling, size: 2s}}
  rw: {from: r, window: {type: tumbling, size: 2s}}
  results:
    from: lw
    join: {with: rw, type: full, kind: window, on: lw.k = rw.k AND lw.window_start = rw.window_start AND lw.window_end = rw.window_end}
    select: [lw.id, rw.id AS other]
""",
    "temporal join": SIDES
    + """
  versions: {from: r, key_by: k, deduplicate: {keep: last, order_by: ts}}
  results:
    from: l
    join: {with: versions, type: left, kind: temporal, as_of: l.ts, on: l.k = versions.k}
    select: [l.id, versions.id AS version]
""",
    "top_n": """
  results: {from: held, select: [k, id, v], top_n: {partition_by: k, order_by: [v DESC, id], n: 10, rank: place}}
""",
    "top_n of an aggregate": """
  totals: {from: held, key_by: [k, "v % 20 AS g"], aggregate: SUM(v) AS s}
  results: {from: totals, top_n: {partition_by: k, order_by: [s DESC, g], n: 8}}
""",
    "top_n of windows": """
  windowed: {from: held, window: {type: tumbling, size: 3s}}
  results: {from: windowed, top_n: {partition_by: [k, window_start, window_end], order_by: [v DESC, id], n: 2, rank: place}}
""",
    "deduplicate": DIGITS
    + """
  results: {from: digits, key_by: [k, g], deduplicate: {keep: last, order_by: ts}}
""",
    "deduplicate, the first": DIGITS
    + """
  results: {from: digits, key_by: [k, g], deduplicate: {keep: first, order_by: ts}}
""",
    "over": """
  results:
    from: held
    over:
      - SUM(v) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '2' SECOND PRECEDING AND CURRENT ROW) AS s
      - COUNT(*) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '2' SECOND PRECEDING AND CURRENT ROW) AS n
""",
    "over an aggregate": """
  totals: {from: held, key_by: [k, "v % 10 AS g"], aggregate: SUM(v) AS s}
  results: {from: totals, over: "SUM(s) OVER (PARTITION BY k ORDER BY g) AS running"}
""",
    "match": """
  results:
    from: held
    match_recognize: |
      PARTITION BY k
      ORDER BY ts, id
      MEASURES A.id AS a, LAST(B.id) AS b, COUNT(B.id) AS n
      AFTER MATCH SKIP PAST LAST ROW
      PATTERN (A B+ C) WITHIN INTERVAL '5' SECOND
      DEFINE B AS B.v > A.v, C AS C.v < A.v
""",
    "distinct": """
  results: {from: held, select: [k, "v % 40 AS g"], distinct: true}
""",
}

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
# Orders and rates of functions of two streams: their result waits for event time, so it does not depend on how rows are mixed.
PRICED = """
  orders: {from: held, filter: "id % 3 <> 0", select: [k, id, ts]}
  rates: {from: held, filter: "id % 3 = 0", select: [k, v AS rate, ts]}
  results:
    from: orders
    key_by: k
    SECOND: {with: rates}
    process:
      function: tests.end_to_end.co_functions:FUNCTION
      schema: &priced {k: STRING, id: BIGINT, rate: BIGINT}
      side_outputs: {unpriced: *priced}
    uid: results
  shown: {from: results, map: "tests.recovery.gates:results_gate"}
sinks:
  out: {from: shown, connector: filesystem, path: "FOLDER/out", format: json}
  rest: {from: unpriced, connector: filesystem, path: "FOLDER/rest", format: json}
"""
CASES["connect"] = HELD + PRICED.replace("SECOND", "connect").replace("FUNCTION", "Priced")
CASES["broadcast"] = HELD + PRICED.replace("SECOND", "broadcast").replace("FUNCTION", "PricedByAll")
CASES["broadcast without keys"] = (
    HELD
    + """
  rates: {from: held, filter: "id % 3 = 0", select: [k AS name, v AS rate, ts]}
  results:
    from: held
    broadcast: rates
    process: {function: "tests.end_to_end.co_functions:Told", schema: &told {k: STRING, id: BIGINT}, side_outputs: {told: *told}}
  shown: {from: results, map: "tests.recovery.gates:results_gate"}
sinks:
  out: {from: shown, connector: filesystem, path: "FOLDER/out", format: json}
"""
)
CASES.update({name: _updating(steps) for name, steps in RELATIONAL.items()})
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
