"""Worker processes as a cluster: the age of rows behind a remote exchange, how soon they flow again after a death, how soon a job of a
running cluster begins, and many workers."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import tempfile
import textwrap
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.latency import REPORT, SECONDS
from benchmarks.measuring import ENVIRONMENT, FLOWRUN, Figure, run_pipeline
from flowrun.api.process_function import KeyedProcessFunction, value_state
from flowrun.errors import ClusterError
from flowrun.runners.compile import compile_file
from flowrun.runners.job_text import sent_job
from flowrun.runners.session.client import ClusterClient, RpcCluster, job_submission
from flowrun.runners.session.messages import JobSubmission
from flowrun.runtime.cluster.job_files import JobFiles
from flowrun.runtime.job_progress import JobProgress
from flowrun.runtime.lifecycle import ExecutionState
from flowrun.runtime.rpc.address import parse_address
from flowrun.runtime.rpc.link import Credentials
from flowrun.runtime.rpc.secret import read_secret

RATE = 100_000
REMOTE = f"""
name: remote-latency
settings: {{parallelism: 1, buffer_timeout: 10ms, functions: [benchmarks]}}
sources:
  rows:
    connector: datagen
    number-of-rows: {SECONDS * RATE}
    rows-per-second: {RATE}
    schema: {{n: BIGINT}}
    fields: {{n: {{kind: sequence, start: 0, end: {SECONDS * RATE - 1}}}}}
steps:
  due: {{from: rows, map: {{function: "benchmarks.cluster:Due", schema: {{n: BIGINT, due: TIMESTAMP(3)}}}}}}
  there: {{from: due, map: {{function: "benchmarks.latency:Recorder"}}, slot_sharing_group: there}}
sinks:
  out: {{from: there, connector: blackhole}}
"""
DEATHS = 5
LIFE = """
name: life
settings:
  functions: [benchmarks]
  parallelism: 2
  checkpoint: {interval: 200ms, dir: state}
  restart: {strategy: fixed_delay, attempts: 100, delay: 0s}
sources:
  rows: {connector: datagen, rows-per-second: 100000, schema: {k: BIGINT, n: BIGINT}, fields: {k: {min: 0, max: 99}}}
steps:
  seen: {from: rows, key_by: [k], process: {function: "benchmarks.cluster:FirstRows", schema: {k: BIGINT}}}
sinks:
  out: {from: seen, connector: blackhole}
"""
STARTS = 5
STARTED = """
name: started
settings: {parallelism: 2}
sources:
  rows: {connector: datagen, rows-per-second: 1000, schema: {k: BIGINT}}
steps:
  counted: {from: rows, key_by: [k], aggregate: ["COUNT(*) AS n"]}
sinks:
  out: {from: counted, connector: blackhole}
"""
WORKERS = 32
MANY = f"""
name: many
settings: {{parallelism: {WORKERS}}}
sources:
  rows:
    connector: datagen
    number-of-rows: 2000000
    rows-per-second: 1000000000
    schema: {{a: BIGINT, b: BIGINT, c: BIGINT}}
    fields: {{a: {{min: 0, max: 9999}}, b: {{min: 0, max: 99}}, c: {{min: 0, max: 9}}}}
steps:
  by_a: {{from: rows, key_by: [a, b, c], aggregate: ["COUNT(*) AS n"]}}
  by_b: {{from: by_a, key_by: [b, c], aggregate: ["SUM(n) AS n"]}}
  by_c: {{from: by_b, key_by: [c], aggregate: ["SUM(n) AS n"]}}
sinks:
  out: {{from: by_c, connector: blackhole}}
"""


class Due:
    """A map step beside the source that says when each row was due, by the pace at which the source began."""

    def __init__(self) -> None:
        self._began_ms = math.inf

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        after_ms = rows.column("n").to_numpy() * (1_000 / RATE)
        # No row comes before it is due: the batch that came soonest after its last row shows best when the source began.
        self._began_ms = min(self._began_ms, time.time_ns() / 1e6 - after_ms[-1])
        due = pa.array((self._began_ms + after_ms).astype(np.int64)).cast(pa.timestamp("ms"))
        return pa.record_batch({"n": rows.column("n"), "due": due})


class FirstRows(KeyedProcessFunction):
    """Notes when its first rows come, and in which process."""

    count = value_state("BIGINT")

    def open(self, context: object) -> None:
        self._seen = False

    def process_batch(self, batch: pa.RecordBatch, context: object) -> None:
        if not self._seen and len(batch):
            self._seen = True
            now = time.time_ns()
            part = Path(os.environ[REPORT]) / f".{id(self)}-{now}"
            part.write_text(json.dumps([os.getpid(), now]))
            part.rename(part.with_name(f"{os.getpid()}-{now}.json"))


def run() -> list[Figure]:
    return [_remote_latency(), _deaths(), _starts(), _many()]


def _remote_latency() -> Figure:
    with tempfile.TemporaryDirectory() as folder:
        ENVIRONMENT[REPORT] = folder
        run_pipeline(REMOTE, "--workers", "2")
        ages = np.concatenate([np.array(json.loads(f.read_text())) for f in Path(folder).iterdir()])
    p50, p99 = np.quantile(ages, [0.5, 0.99])
    return Figure(
        "100,000 rows/s through an exchange between two processes: p50 / p99 of every row's age there",
        f"{p50:.0f} / {p99:.0f} ms",
        bar="p99 ≤ 20 ms",
        cleared=bool(p99 <= 20),
    )


def _deaths() -> Figure:
    """From the death of a worker until rows have come to every subtask of the last step again."""
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        seen = Path(folder) / "seen"
        seen.mkdir()
        (Path(folder) / "life.yaml").write_text(textwrap.dedent(LIFE))
        command = [*FLOWRUN, "run", "life.yaml", "--workers", "2", "--quiet", "--no-live"]
        environment = {**ENVIRONMENT, REPORT: str(seen), "PYTHONPATH": str(Path(__file__).parents[1])}
        run = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            after_ns = 0
            for _ in range(DEATHS):
                first = _first_rows(seen, after_ns, run)
                _wait_for_checkpoint(Path(folder), run)
                after_ns = time.time_ns()
                os.kill(first[0][0], signal.SIGKILL)
                again = _first_rows(seen, after_ns, run)
                seconds.append((max(at for _, at in again) - after_ns) / 1e9)
        finally:
            run.send_signal(signal.SIGINT)
            run.communicate(timeout=30)
    worst = max(seconds)
    return Figure(
        f"a worker process of two is killed: until rows flow in all subtasks again, median / worst of {DEATHS}",
        f"{sorted(seconds)[DEATHS // 2]:.2f} / {worst:.2f} s",
        bar="≤ 2 s",
        cleared=worst <= 2,
    )


def _first_rows(seen: Path, after_ns: int, run: subprocess.Popen[bytes]) -> list[tuple[int, int]]:
    """(process, time in ns) of the first rows of both subtasks after a time; waits for them."""
    deadline = time.monotonic() + 60
    while True:
        notes = [json.loads(f.read_text()) for f in seen.glob("*.json")]
        found = [(pid, at) for pid, at in notes if at > after_ns]
        if len(found) >= 2:
            return found
        if run.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"no rows came: {run.communicate()[1].decode()[-2000:]}")
        time.sleep(0.005)


def _wait_for_checkpoint(folder: Path, run: subprocess.Popen[bytes]) -> None:
    known = set(folder.glob("state/*/chk-*/_metadata.json"))
    while not set(folder.glob("state/*/chk-*/_metadata.json")) - known:
        if run.poll() is not None:
            raise RuntimeError(run.communicate()[1].decode()[-2000:])
        time.sleep(0.01)


def _starts() -> Figure:
    """From the submission of a compiled job, by a client that is connected, until all of its subtasks run."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        place, secret = f"127.0.0.1:{probe.getsockname()[1]}", Path(folder) / "secret"
        probe.close()
        file = Path(folder) / "started.yaml"
        file.write_text(STARTED)
        compiled = compile_file(file, {}, {})
        sent = sent_job(compiled.text, {}, {})
        submission = job_submission(
            compiled.job_graph, sent.text, restore_from=None, allow_non_restored=False, committed_after="refuse"
        )
        command = [*FLOWRUN, "cluster", "up", "--slots", "2", "--listen", place, "--secret-file", str(secret), "-q"]
        with subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, stderr=subprocess.DEVNULL) as up:
            try:
                with _client(place, secret, up) as client:
                    _start(client, submission, sent.files)  # the task manager joins meanwhile
                    seconds = [_start(client, submission, sent.files) for _ in range(STARTS)]
            finally:
                up.send_signal(signal.SIGINT)
    middle = sorted(seconds)[STARTS // 2]
    return Figure(
        f"a job of two slots on a running cluster: from its submission until all subtasks run, median / worst of {STARTS}",
        f"{middle:.2f} / {max(seconds):.2f} s",
        bar="median ≤ 0.5 s",
        cleared=middle <= 0.5,
    )


def _client(place: str, secret: Path, up: subprocess.Popen[bytes]) -> ClusterClient:
    """Waits until the cluster is there."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return RpcCluster([parse_address(place)], Credentials(read_secret(secret)))
        except ClusterError:
            if up.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _start(client: ClusterClient, submission: JobSubmission, files: JobFiles) -> float:
    """Seconds until all subtasks of a job run, which is ended then."""
    began = time.perf_counter()
    job_id = client.submit(submission, files)
    job = client.job(job_id)
    while not _runs(job.watch()):
        time.sleep(0.005)
    seconds = time.perf_counter() - began
    job.place("cancel")
    while not job.watch().is_over:
        time.sleep(0.01)
    time.sleep(0.3)  # its workers end
    return seconds


def _runs(progress: JobProgress) -> bool:
    if progress.is_over:
        raise RuntimeError(f"the job ended: {progress}")
    vertices = progress.status.vertices
    return bool(vertices) and all(v.states.get(ExecutionState.RUNNING) == v.parallelism for v in vertices)


def _many() -> Figure:
    measured = run_pipeline(MANY, "--workers", str(WORKERS), "--set", f"settings.parallelism={WORKERS}")
    return Figure(
        f"{WORKERS} worker processes of one slot, {WORKERS} × 4 subtasks, 2 M rows through three exchanges: whole process",
        f"{measured.seconds:.1f} s (engine {measured.engine_seconds:.1f} s)",
        bar="it runs",
        cleared=True,
    )
