"""Worker processes: two against one process at the same parallelism, and what an exchange between two processes costs."""

from __future__ import annotations

import multiprocessing
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.measuring import Figure, run_pipeline
from flowrun.core.clock import SystemClock
from flowrun.core.elements import RecordBatch
from flowrun.graph.execution_graph import ExecutionVertex, build_execution_graph
from flowrun.runners.compile import compile_pipeline
from flowrun.runtime.cluster.worker_process import SWITCH_INTERVAL_S
from flowrun.runtime.messages import PartitionLocation
from flowrun.runtime.network.buffer_pool import GlobalBufferPool
from flowrun.runtime.network.gate import GateEvent
from flowrun.runtime.network.remote.data_server import DataServer
from flowrun.runtime.rpc.address import TcpAddress, UnixAddress
from flowrun.runtime.rpc.handshake import Introduction
from flowrun.runtime.rpc.link import Credentials
from flowrun.runtime.rpc.secret import SharedSecret
from flowrun.runtime.rpc.tls import read_identity
from flowrun.runtime.timers import TimerThread

ROUNDS = 3
WINDOW_ROWS = 60_000_000
FUNCTION_ROWS = 2_000_000
GIGABYTES = 4
HOW = ("Unix socket", "TCP", "TCP with TLS", "TCP with LZ4", "TCP with TLS and LZ4")
WINDOW = """
name: keyed-tumbling
settings: {{parallelism: 2}}
sources:
  rows:
    connector: datagen
    number-of-rows: {rows}
    rows-per-second: 1000000000
    schema: {{k: BIGINT, a: BIGINT, n: BIGINT}}
    fields:
      k: {{min: 0, max: 999}}
      a: {{min: 0, max: 1000000}}
      n: {{kind: sequence, start: 0, end: {last}}}
    watermark: {{time: "TO_TIMESTAMP_LTZ(n, 3)", delay: 1s}}
steps:
  windows: {{from: rows, key_by: [k], window: {{type: tumbling, size: 1m}}, aggregate: [SUM(a) AS s, COUNT(*) AS c]}}
sinks:
  out: {{from: windows, connector: blackhole}}
"""
FUNCTION = """
name: row-function
settings: {{parallelism: 2, functions: [functions]}}
sources:
  rows:
    connector: datagen
    number-of-rows: {rows}
    rows-per-second: 1000000000
    schema: {{k: BIGINT, n: BIGINT}}
    fields: {{k: {{min: 0, max: 999}}, n: {{kind: sequence, start: 0, end: {last}}}}}
steps:
  counted: {{from: rows, key_by: [k], process: {{function: "functions:Count", schema: {{k: BIGINT, c: BIGINT}}}}}}
sinks:
  out: {{from: counted, connector: blackhole}}
"""
FUNCTIONS = '''
from flowrun.api.process_function import KeyedProcessFunction, value_state


class Count(KeyedProcessFunction):
    """A count a key; a row at every thousandth."""

    count = value_state("BIGINT")

    def process_element(self, row, context):
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        if count % 1_000 == 0:
            return {"k": row["k"], "c": count}
'''
EXCHANGE = """
name: exchange
sources: {rows: {connector: datagen, schema: {k: BIGINT}, parallelism: 1}}
sinks: {out: {from: rows, connector: blackhole, parallelism: 2}}
"""


def run() -> list[Figure]:
    """Two processes against one, and the exchange between two."""
    window = WINDOW.format(rows=WINDOW_ROWS, last=WINDOW_ROWS - 1)
    function = FUNCTION.format(rows=FUNCTION_ROWS, last=FUNCTION_ROWS - 1)
    return [
        _compare(f"{WINDOW_ROWS // 1_000_000} M rows into a keyed window", window, 1.6),
        _compare(f"a Python function on {FUNCTION_ROWS // 1_000_000} M rows", function, 1.7),
        *_exchanges(),
    ]


def _compare(name: str, pipeline: str, bar: float) -> Figure:
    """The least engine seconds of several runs, with and without workers in turn."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "functions.py").write_text(textwrap.dedent(FUNCTIONS))
        seconds: dict[str, list[float]] = {"0": [], "2": []}
        for _ in range(ROUNDS):
            for workers, measured in seconds.items():
                measured.append(run_pipeline(pipeline, "--workers", workers, folder=Path(folder)).engine_seconds)
    one, two = min(seconds["0"]), min(seconds["2"])
    return Figure(
        f"{name}, parallelism 2: two worker processes, engine",
        f"{two:.2f} s",
        f"one process: {one:.2f} s",
        f"{one / two:.2f}",
        f"≥ {bar}",
        one / two >= bar,
    )


def _exchanges() -> list[Figure]:
    """The exchange over each kind of connection: of several rounds in turn the one that took the least processor time."""
    with tempfile.TemporaryDirectory() as folder:
        _make_certificates(Path(folder))
        rounds = [{how: _exchange(folder, how) for how in HOW} for _ in range(ROUNDS)]
    found = {how: min((each[how] for each in rounds), key=lambda figures: figures[1]) for how in HOW}
    rate, processor = found["Unix socket"]
    return [
        Figure("exchange between two processes, 64k rows", f"{rate:.2f} GB/s", bar="≥ 1.5 GB/s", cleared=rate >= 1.5),
        Figure("the same: processor time of both", f"{processor:.2f} s a GB", bar="≤ 0.2 s", cleared=processor <= 0.2),
        *(Figure(f"the same over {how}", f"{found[how][0]:.2f} GB/s, {found[how][1]:.2f} s a GB") for how in HOW[1:]),
    ]


def _make_certificates(folder: Path) -> None:
    """Of one authority, which both processes are, as `flowrun … --tls` takes them."""
    files = ("-keyout", folder / "key.pem", "-out", folder / "ca.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=b", *files],
        check=True, capture_output=True,
    )  # fmt: skip
    shutil.copy(folder / "ca.pem", folder / "cert.pem")
    (folder / "key.pem").chmod(0o600)


def _exchange(folder: str, how: str) -> tuple[float, float]:
    """Batches of 64k rows from one process to another, over one connection: (GB/s, processor seconds of both a GB)."""
    context = multiprocessing.get_context("spawn")
    (ours, theirs), (answers, answered) = context.Pipe(), context.Pipe()
    processes = [
        context.Process(target=_write, args=(folder, how, theirs)),
        context.Process(target=_read, args=(folder, how, answered)),
    ]
    for process in processes:
        process.start()
    answers.send(ours.recv())
    answers.recv()
    ours.send("begin")
    seconds, reading, gigabytes = answers.recv()
    ours.send("end")
    processor = (ours.recv() + reading) / gigabytes
    for process in processes:
        process.join()
    return gigabytes / seconds, processor


def _process(folder: str, name: str, how: str) -> tuple[DataServer, TimerThread]:
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    pa.set_cpu_count(1)
    timers = TimerThread(SystemClock())
    address = UnixAddress(str(Path(folder) / name)) if how == HOW[0] else TcpAddress("127.0.0.1", 0)
    credentials = Credentials(SharedSecret(b"of this benchmark"), read_identity(Path(folder)) if "TLS" in how else None)
    return DataServer(address, Introduction("taskmanager", name), credentials, timers, lz4="LZ4" in how), timers


def _ends(folder: str) -> list[ExecutionVertex]:
    file = Path(folder) / "exchange.yaml"
    file.write_text(EXCHANGE)
    return list(build_execution_graph(compile_pipeline(file).job_graph).all_vertices())


def _write(folder: str, how: str, pipe: Connection) -> None:
    rows = 65_536
    chance = np.random.default_rng(0)
    numbers = [pa.array(chance.integers(0, 1 << 40, rows)) for _ in range(4)]
    texts = [pa.array([f"name {i % 1000} of something" for i in range(rows)]) for _ in range(2)]
    batch = RecordBatch(pa.record_batch(numbers + texts, list("abcdef")), pa.array(np.arange(rows)))
    data, timers = _process(folder, "w1", how)
    network = data.environment("job", GlobalBufferPool(), timers.clock)
    partition = network.create_partition(_ends(folder)[0].partitions[0], "first")
    pipe.send(str(data.address))
    pipe.recv()
    before = time.process_time()
    for _ in range(int(GIGABYTES * 1e9) // batch.nbytes):
        partition.write([(0, batch)])
    partition.finish()
    pipe.recv()
    pipe.send(time.process_time() - before)
    network.release()
    data.close()
    timers.close()


def _read(folder: str, how: str, pipe: Connection) -> None:
    address = pipe.recv()
    data, timers = _process(folder, "w2", how)
    network = data.environment("job", GlobalBufferPool(), timers.clock)
    source, consumer, *_ = _ends(folder)
    location = PartitionLocation(source.partitions[0].id, "first", "w1", address)
    (gate,) = network.create_gates(consumer, 131_072, {location.partition: location})
    woken = threading.Event()
    gate.set_listener(woken.set)
    gate.request_partitions()
    pipe.send("ready")
    before, began, nbytes = time.process_time(), 0.0, 0
    while not gate.is_finished:
        element = gate.poll()
        if element is None:
            woken.wait()
            woken.clear()
        elif not isinstance(element, GateEvent):
            began = began or time.perf_counter()
            nbytes += (element if isinstance(element, RecordBatch) else element.rows).nbytes
    pipe.send((time.perf_counter() - began, time.process_time() - before, nbytes / 1e9))
    network.release()
    data.close()
    timers.close()
