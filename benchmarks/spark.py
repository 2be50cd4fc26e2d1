"""flowrun on Spark, `local[2]`: Nexmark over 10 M events as Parquet against Spark SQL written by hand (both write JSON), hosted stages,
and the savepoint that a backfill leaves.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.hand_written_spark import QUERIES
from benchmarks.measuring import DATA, ENVIRONMENT, FLOWRUN, Figure
from benchmarks.nexmark import GENERATOR, ROOT

EVENTS = 10_000_000
RUNS = 1
MOST = 1.2
"""How much longer than the query written by hand it may take."""
SPARK = ["--spark-master", "local[2]", "--conf", "spark.driver.memory=4g"]


HOSTED = """
name: hosted
sources:
  events:
    connector: filesystem
    format: parquet
    path: {events}
    schema: {{event_type: INT, bid: "ROW<auction BIGINT, price BIGINT, dateTime TIMESTAMP(3)>"}}
steps:
  bids: {{from: events, filter: "event_type = 2", select: ["bid.auction AS auction", "bid.price AS price"]}}
  out: {{from: bids, {step}}}
sinks:
  nowhere: {{from: out, connector: blackhole}}
"""
FUNCTIONS = """
import pyarrow.compute as pc
from flowrun.api.process_function import KeyedProcessFunction, value_state


def doubled(batch):
    return batch.set_column(1, "price", pc.multiply(batch.column("price"), 2))


class Count(KeyedProcessFunction):
    n = value_state("BIGINT")

    def process_element(self, row, context):
        self.n.update((self.n.value() or 0) + 1)
        if False:
            yield row
"""
STEPS = {
    "a vectorised Python map": "map: functions:doubled",
    "a process function with state, row by row": "key_by: [auction], process: functions:Count",
}
LEAST_ROWS_PER_S = 1e6
BIDS = EVENTS * 46 // 50
"""Of 50 events of Nexmark 46 are bids."""

KEYS = 1_000_000
HAND_OVER = """
CREATE TABLE orders (k BIGINT, v BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
  WITH ('connector' = 'filesystem', 'format' = 'parquet', 'path' = '{path}');
CREATE TABLE sums (k BIGINT, n BIGINT, s BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'blackhole');
INSERT INTO sums SELECT k, COUNT(*), SUM(v) FROM orders GROUP BY k;
"""


def run() -> list[Figure]:
    """Stages that run the stream's operators, and the savepoint of a backfill."""
    return [*_hosted(), _hand_over()]


def run_nexmark() -> list[Figure]:
    """Seconds without Spark's start, which is shown beside."""
    events = _events()
    figures = []
    for query in QUERIES:
        ours = [_flowrun(query, events) for _ in range(RUNS)]
        theirs = [_by_hand(query, events) for _ in range(RUNS)]
        own, peer = (statistics.median(r["run"] for r in runs) for runs in (ours, theirs))
        figures.append(
            Figure(
                f"Nexmark {query} on Spark, 10 M events",
                f"{own:.1f} s (+ {statistics.median(r['start'] for r in ours):.1f} s start)",
                f"by hand: {peer:.1f} s (+ {statistics.median(r['start'] for r in theirs):.1f} s start)",
                f"{own / peer:.2f}",
                f"≤ {MOST}",
                own <= MOST * peer,
            )
        )
    return figures


def _flowrun(query: str, events: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        variables = {"EVENTS": events, "FORMAT": "parquet", "OUT": Path(folder) / "out"}
        given = [part for name, value in variables.items() for part in ("--var", f"{name}={value}")]
        script = ROOT / "pipelines" / "nexmark" / f"{query}.sql"
        return _batch(script, report, *given)


def _batch(pipeline: Path, report: Path, *given: str) -> dict[str, float]:
    """Run a pipeline as a batch; its seconds."""
    _succeed([*FLOWRUN, "run", str(pipeline), "--mode", "batch", "--quiet", "--report", str(report), *SPARK, *given])
    written = json.loads(report.read_text())
    return {
        "start": written["spark_start_ms"] / 1000,
        "run": (written["duration_ms"] - written["spark_start_ms"]) / 1000,
    }


def _hosted() -> list[Figure]:
    figures = []
    for name, step in STEPS.items():
        with tempfile.TemporaryDirectory() as folder:
            pipeline = Path(folder) / "pipeline.yaml"
            pipeline.write_text(HOSTED.format(events=_events(), step=step))
            (Path(folder) / "functions.py").write_text(FUNCTIONS)
            seconds = _batch(pipeline, Path(folder) / "report.json")["run"]
        vectorised = "vectorised" in name
        figures.append(
            Figure(
                f"hosted on Spark: {name}, 9.2 M rows from Parquet",
                f"{BIDS / seconds / 1e6:.2f} M rows/s",
                bar="≥ 1.0 M rows/s" if vectorised else "",
                cleared=BIDS / seconds >= LEAST_ROWS_PER_S if vectorised else None,
            )
        )
    return figures


def _hand_over() -> Figure:
    """A group a key, each with a count and a sum."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        keys = np.arange(2 * KEYS, dtype=np.int64) % KEYS
        times = pa.array(np.arange(2 * KEYS), pa.timestamp("ms"))
        pq.write_table(pa.table({"k": keys, "v": keys, "ts": times}), place / "orders.parquet")
        script = place / "sums.sql"
        script.write_text(HAND_OVER.format(path=place / "orders.parquet"))
        command = [
            *FLOWRUN,
            "backfill",
            str(script),
            "--to",
            str(2 * KEYS),
            "--savepoint",
            str(place / "saved"),
            *SPARK,
        ]
        began = time.perf_counter()
        _succeed([*command, "--quiet"])
        seconds = time.perf_counter() - began
        size = sum(f.stat().st_size for f in (place / "saved").rglob("*") if f.is_file())
    return Figure(
        "backfill of 2 M rows that leaves a savepoint of 1 M keys, Spark's start included",
        f"{seconds:.1f} s, savepoint {size / 1e6:.0f} MB",
    )


def _by_hand(query: str, events: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.hand_written_spark", query, str(events), f"{folder}/out"]
        measured: dict[str, float] = json.loads(_succeed(command).splitlines()[-1])
        return measured


def _succeed(command: list[str]) -> str:
    process = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, cwd=ROOT, check=False)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{process.stderr[-2000:]}")
    return process.stdout


def _events() -> Path:
    folder = DATA / "nexmark-10m"
    if not (folder / "events.parquet").exists():
        subprocess.run([sys.executable, str(GENERATOR), str(folder), str(EVENTS), "--parquet-only"], check=True)
    return folder / "events.parquet"
