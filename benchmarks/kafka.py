"""Kafka to Kafka against a bare loop of the client library and Apache Flink on the same broker, and small messages into a window."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import flink
from benchmarks.measuring import FLOWRUN, Figure
from tests.servers.kafka import KafkaBroker, why_not

MESSAGES = 5_000_000
ROUNDS = 3
COPY_BAR = 0.5
FLINK_BAR = 1.0
WINDOW_BAR = 300_000
EXACTLY_ONCE_BAR = 0.85

_SOURCE = """
CREATE TABLE bids (id BIGINT, auction BIGINT, price BIGINT, ts BIGINT{more}) WITH (
  'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{broker}', 'format' = 'json',
  'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset');
"""
_COPY = """
SET 'execution.checkpointing.interval' = '1 s';
CREATE TABLE many (id BIGINT, auction BIGINT, price BIGINT, ts BIGINT) WITH (
  'connector' = 'kafka', 'topic' = '{target}', 'properties.bootstrap.servers' = '{broker}', 'format' = 'json',
  'sink.delivery-guarantee' = '{guarantee}', 'sink.transactional-id-prefix' = '{target}');
INSERT INTO many SELECT id, auction, price, ts FROM bids WHERE price > 500;
"""
_WINDOW = """
CREATE TABLE counts (window_start TIMESTAMP(3), auction BIGINT, n BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO counts SELECT window_start, auction, COUNT(*) FROM TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND)
GROUP BY window_start, window_end, auction;
"""
_BARE = """
import sys
import time
from confluent_kafka import Consumer, Message, Producer, TopicPartition

broker, source, target, partitions, messages = sys.argv[1:4] + [int(a) for a in sys.argv[4:]]
began = time.perf_counter()
consumer = Consumer({"bootstrap.servers": broker, "group.id": "bare", "enable.auto.commit": False, "fetch.queue.backoff.ms": 10})
producer = Producer({"bootstrap.servers": broker, "acks": "all", "queue.buffering.max.messages": 200_000, "linger.ms": 5})
consumer.assign([TopicPartition(source, p, 0) for p in range(partitions)])
read = 0
while read < messages:
    for message in consumer.consume(10_000, 0.1):
        read += 1
        while True:
            try:
                producer.produce(target, message.value())
                break
            except BufferError:
                producer.poll(0.01)
    producer.poll(0)
producer.flush()
consumer.close()
print(time.perf_counter() - began)
"""


def run() -> list[Figure]:
    reason = why_not()
    if reason is not None:
        return [Figure(f"Kafka: not measured, {reason}", "")]
    with tempfile.TemporaryDirectory() as folder, running(Path(folder) / "broker") as broker:
        figures = []
        for partitions in (1, 4):
            topic = filled(broker, partitions)
            figures += copies(broker, topic, partitions, Path(folder))
        figures.append(window(broker, topic, Path(folder)))
        return figures


@contextmanager
def running(folder: Path) -> Iterator[KafkaBroker]:
    broker = KafkaBroker(folder, heap="1g", fast_start=False)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


def filled(broker: KafkaBroker, partitions: int) -> str:
    """A topic with bids of about 65 bytes, spread evenly."""
    from confluent_kafka import Producer

    topic = broker.create_topic(partitions)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "queue.buffering.max.messages": 2_000_000, "linger.ms": 50}
    )
    prices = np.random.default_rng(1).integers(0, 1000, MESSAGES).tolist()
    for start in range(0, MESSAGES, 10_000):
        bids = [
            {
                "value": json.dumps(
                    {"id": i, "auction": i % 1000, "price": prices[i], "ts": 1_700_000_000_000 + i // 100}
                ).encode()
            }
            for i in range(start, start + 10_000)
        ]
        producer.produce_batch(topic, bids, partition=start // 10_000 % partitions)
        producer.poll(0)
    assert producer.flush(120) == 0
    return topic


def copies(broker: KafkaBroker, topic: str, partitions: int, folder: Path) -> list[Figure]:
    """The ways take turns: what else the machine does meets all of them."""
    times: dict[str, list[float]] = {"bare": [], "at-least-once": [], "exactly-once": []}
    if flink.is_installed():
        times["Flink"] = []
    for _ in range(ROUNDS):
        for way, seconds in times.items():
            target = broker.create_topic(partitions)
            if way == "bare":
                arguments = [broker.bootstrap, topic, target, str(partitions), str(MESSAGES)]
                seconds.append(float(said([sys.executable, "-c", _BARE, *arguments])))
                continue
            script = _SOURCE.format(topic=topic, broker=broker.bootstrap, more="") + _COPY.format(
                target=target, broker=broker.bootstrap, guarantee="at-least-once" if way == "Flink" else way
            )
            run_by = flink.job_seconds if way == "Flink" else partial(job_seconds, folder=folder)
            seconds.append(run_by(script, parallelism=min(partitions, 2)))
    bare, ours, exactly, *flinks = (MESSAGES / statistics.median(seconds) for seconds in times.values())
    name = f"Kafka JSON → filter → Kafka, {partitions} partition{'s'[: partitions > 1]}"
    return [
        figure(f"{name}, at least once, against a bare loop", ours, bare, COPY_BAR),
        *(
            figure(f"{name}, at least once, against Flink {flink.VERSION}", ours, theirs, FLINK_BAR)
            for theirs in flinks
        ),
        figure(f"{name}, exactly once, against at least once", exactly, ours, EXACTLY_ONCE_BAR),
    ]


def window(broker: KafkaBroker, topic: str, folder: Path) -> Figure:
    more = ", at AS TO_TIMESTAMP_LTZ(ts, 3), WATERMARK FOR at AS at - INTERVAL '1' SECOND"
    script = _SOURCE.format(topic=topic, broker=broker.bootstrap, more=more) + _WINDOW
    rate = MESSAGES / statistics.median(job_seconds(script, folder, 2) for _ in range(ROUNDS))
    name, bar = "small messages of Kafka into a window, parallelism 2", f"≥ {WINDOW_BAR // 1000} k/s"
    return Figure(name, f"{rate / 1e3:.0f} k/s", "", "", bar, rate >= WINDOW_BAR)


def figure(name: str, ours: float, peer: float, bar: float) -> Figure:
    ratio = ours / peer
    return Figure(name, f"{ours / 1e3:.0f} k/s", f"{peer / 1e3:.0f} k/s", f"{ratio:.2f}", f"≥ {bar}", ratio >= bar)


def job_seconds(script: str, folder: Path, parallelism: int) -> float:
    """From deployment to the end of the last task."""
    file, report = folder / "job.sql", folder / "report.json"
    file.write_text(script)
    state = folder / f"state-{time.monotonic_ns()}"
    words = [*FLOWRUN, "run", str(file), "-p", str(parallelism), "--quiet", "--report", str(report)]
    said([*words, "--set", f"settings.checkpoint.dir={state}"])
    return float(json.loads(report.read_text())["duration_ms"]) / 1000


def said(command: list[str]) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:4])} failed:\n{done.stderr[-2000:]}")
    return done.stdout
