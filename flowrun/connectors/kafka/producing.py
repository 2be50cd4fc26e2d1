"""Hands encoded messages to a producer of the client library, which sends them in the background."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.connectors.kafka.cluster import (
    NEW_TOPIC_S,
    REQUEST_TIMEOUT_S,
    ClientErrors,
    KafkaCluster,
    is_refused,
    library,
)
from flowrun.errors import ConnectorError, DataError

_CHUNK_ROWS = 8_192
_MOST_WAITING = 65_536
"""Messages that wait in the client; more are not handed to it before some were sent."""
_MOST_BYTES = 128 << 20
"""The same in bytes; where they are reached, all are waited for."""
_POLL_S = 0.005
_NOT_TOGETHER = ("headers", "timestamp")
"""Columns that the client library takes of single messages only."""
_IN_FLIGHT = ("1", "2", "3", "4", "5")
"""Requests that an idempotent producer may have on their way."""
FLUSH_S = 120.0
"""How long messages may take to be acknowledged, where the user says nothing (`properties.delivery.timeout.ms`)."""


def flush_timeout_s(properties: Mapping[str, str]) -> float:
    """How long messages may take to be acknowledged, which is a little more than the client tries.

    Args:
        properties: of the cluster; 0 as a time-out is none, as librdkafka has it.
    """
    names = ("delivery.timeout.ms", "message.timeout.ms")
    said = next((float(properties[name]) for name in names if name in properties), FLUSH_S * 1000)
    return said / 1000 + 5 if said else math.inf


def excludes_idempotence(properties: Mapping[str, str]) -> str | None:
    """The property that keeps a producer from being idempotent; None: none does. Java's clients then do without it, too.

    >>> excludes_idempotence({"acks": "1"}), excludes_idempotence({"acks": "all", "retries": "5"})
    ('acks', None)
    """
    for name, value in properties.items():
        said = value.strip().lower()
        match name:
            case "acks" | "request.required.acks":
                fits = said in ("all", "-1")
            case "retries" | "message.send.max.retries":
                fits = said != "0"
            case "max.in.flight.requests.per.connection" | "max.in.flight":
                fits = said in _IN_FLIGHT
            case _:
                fits = True
        if not fits:
            return name
    return None


def producer_settings(cluster: KafkaCluster, settings: Mapping[str, Any]) -> dict[str, Any]:
    """How the client of a sink is set, beside the user's properties.

    Args:
        cluster: with these properties, which go before all but the name of transactions.
        settings: beside those of every sink.
    """
    own: dict[str, Any] = {
        "partitioner": "murmur2_random",  # as Java's
        "enable.idempotence": True,
        "linger.ms": 5,
        "queue.buffering.max.messages": 4 * _MOST_WAITING,
        "queue.buffering.max.kbytes": 1 << 20,
        **{k: v for k, v in settings.items() if k != "transactional.id"},
    }
    given = {k: v for k, v in own.items() if k not in cluster.properties}
    required = {
        "delivery.report.only.error": True,
        **{k: v for k, v in settings.items() if k == "transactional.id"},
    }
    if "enable.idempotence" in given and excludes_idempotence(cluster.properties):
        given["enable.idempotence"] = False
    return {**given, **required}


class MessageProducer:
    """A producer of one cluster. It is used by one thread.

    Args:
        cluster: where the topics are.
        topic: of messages that name none.
        settings: of the client, beside those of every sink.
    """

    def __init__(self, cluster: KafkaCluster, topic: str, settings: Mapping[str, Any]) -> None:
        self._cluster = cluster
        self._topic = topic
        self._errors = ClientErrors(cluster.bootstrap)
        self._refused: Any = None
        own = {**producer_settings(cluster, settings), "on_delivery": self._take_report}
        self.client = cluster.client(library().Producer, self._errors, own)
        self._bytes = 0

    def _take_report(self, error: Any, message: Any) -> None:
        if error is not None and self._refused is None:
            self._refused = (error, message.topic(), message.partition())

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has. It blocks on I/O.

        Raises:
            ConnectorError: the cluster does not answer, or has no such topic.
        """
        started = time.monotonic()
        while True:
            try:
                found = self.client.list_topics(topic, 2).topics[topic]
                if found.error is None:
                    return len(found.partitions)
                problem = found.error
            except library().KafkaException as error:
                self.client.poll(0)
                self._errors.check()
                problem = error.args[0]
            waited_s = time.monotonic() - started
            if problem.code() != library().KafkaError.UNKNOWN_TOPIC_OR_PART:
                if waited_s > REQUEST_TIMEOUT_S:
                    raise self._errors.unreachable(problem.str())
            elif waited_s > NEW_TOPIC_S:
                raise ConnectorError(
                    f"topic '{topic}' does not exist in Kafka at {self._cluster.bootstrap}",
                    retryable=False,
                    hint="create it first",
                )
            else:
                time.sleep(0.1)

    def send(self, messages: pa.RecordBatch) -> None:
        """Hand over messages, with the columns of `encoding.MESSAGES`; waits while too many are on their way.

        Raises:
            ConnectorError: an earlier message could not be delivered.
            DataError: a message is larger than the cluster takes.
        """
        for start in range(0, messages.num_rows, _CHUNK_ROWS):
            chunk = messages.slice(start, _CHUNK_ROWS)
            self._wait_for_room(chunk.nbytes)
            if all(chunk.column(name).null_count == chunk.num_rows for name in _NOT_TOGETHER):
                for topic, dicts in _by_topic(chunk, self._topic):
                    self._send_together(topic, dicts)
            else:
                self._send_one_by_one(chunk)
            self.client.poll(0)
            self.check()

    def _wait_for_room(self, size: int) -> None:
        self._bytes += size
        if self._bytes > _MOST_BYTES:
            self.flush()
            self._bytes = size
        while len(self.client) > _MOST_WAITING:
            self.client.poll(_POLL_S)
            self.check()

    def _send_together(self, topic: str, messages: list[dict[str, Any]]) -> None:
        full = library().KafkaError._QUEUE_FULL
        while self.client.produce_batch(topic, messages) < len(messages):
            messages = [m for m in messages if "_error" in m]  # where the queue is full, all that follow
            refused = next((m for m in messages if m["_error"].code() != full), None)
            if refused is not None:
                raise self._failure(refused["_error"], topic, refused.get("partition"))
            self._wait_for_queue(messages[0].pop("_error"), topic)
            for message in messages[1:]:
                del message["_error"]

    def _send_one_by_one(self, chunk: pa.RecordBatch) -> None:
        columns = [chunk.column(n).to_pylist() for n in ("topic", "partition", "key", "value", "timestamp", "headers")]
        for topic, partition, key, value, timestamp, headers in zip(*columns, strict=True):
            self._send_one(
                topic or self._topic,
                value,
                key,
                -1 if partition is None else partition,
                timestamp=timestamp or 0,
                headers=headers,
            )

    def _send_one(self, topic: str, *parts: Any, **more: Any) -> None:
        kafka = library()
        while True:
            try:
                self.client.produce(topic, *parts, **more)
            except BufferError:
                self._wait_for_queue(kafka.KafkaError(kafka.KafkaError._QUEUE_FULL), topic)
            except kafka.KafkaException as error:
                raise self._failure(error.args[0], topic, None) from error
            else:
                return

    def _wait_for_queue(self, error: Any, topic: str) -> None:
        """Wait for room in the queue of the client, which the user may have made small. Raises as `send`, also if the queue is empty."""
        if not len(self.client):
            raise self._failure(error, topic, None)
        self.client.poll(_POLL_S)
        self.check()

    def flush(self) -> None:
        """Wait until all messages are acknowledged.

        Raises:
            ConnectorError: one could not be delivered.
        """
        deadline = time.monotonic() + flush_timeout_s(self._cluster.properties)
        while self.client.flush(0.2):
            self.check()
            if time.monotonic() > deadline:
                raise self._errors.unreachable("messages are not acknowledged")
        self._bytes = 0
        self.check()

    def check(self) -> None:
        """Raise ConnectorError if a message could not be delivered, or nothing can be any more."""
        self._errors.check()
        if self._refused is not None:
            raise self._failure(*self._refused)

    def check_messages(self) -> None:
        """Raise DataError if a message was refused for what it is."""
        with suppress(library().KafkaException):  # of a client that is fenced
            self.client.poll(0)
        failure = None if self._refused is None else self._failure(*self._refused)
        if isinstance(failure, DataError):
            raise failure

    def check_login(self) -> None:
        """Raise ConnectorError if the login or a certificate was refused."""
        with suppress(library().KafkaException):
            self.client.poll(0)
        self._errors.check()

    def _failure(self, error: Any, topic: str, partition: int | None) -> ConnectorError | DataError:
        kinds = library().KafkaError
        place = f"topic '{topic}'" + (f", partition {partition}" if partition is not None and partition >= 0 else "")
        if error.code() in (kinds.MSG_SIZE_TOO_LARGE, kinds.RECORD_LIST_TOO_LARGE):
            return DataError(
                f"{place}: a message is larger than is allowed: {error.str()}",
                hint="raise 'properties.max.request.size', and max.message.bytes of the topic",
            )
        if error.code() in (kinds.UNKNOWN_TOPIC_OR_PART, kinds._UNKNOWN_TOPIC, kinds._UNKNOWN_PARTITION):
            return ConnectorError(f"{place} does not exist: {error.str()}", hint="create it first")
        if error.code() == kinds._QUEUE_FULL:
            return DataError(
                f"{place}: a message is larger than the queue of the client",
                hint="raise 'properties.queue.buffering.max.kbytes'",
            )
        passing = error.retriable() or error.code() in (kinds._MSG_TIMED_OUT, kinds._TIMED_OUT, kinds._TRANSPORT)
        retryable = True if passing else False if is_refused(error) else None
        return ConnectorError(f"{place}: a message could not be delivered: {error.str()}", retryable=retryable)

    def abort(self) -> None:
        """End the transaction that is open, if there is one; an error of the client library says that there is none."""
        self.client.abort_transaction(1)

    def close(self) -> None:
        """Forget what was not sent, and release the client; idempotent."""
        client, self.client = self.client, None  # which releases it
        if client is not None:
            client.purge()


def _by_topic(chunk: pa.RecordBatch, default: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Messages as `produce_batch` takes them, topic by topic."""
    topics = chunk.column("topic")
    if topics.null_count == chunk.num_rows:
        yield default, _dicts(chunk)
        return
    filled = topics.fill_null(default)
    for topic in filled.unique().to_pylist():
        yield topic, _dicts(chunk.filter(pc.equal(filled, topic)))


def _dicts(chunk: pa.RecordBatch) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"value": v} for v in byte_strings(chunk.column("value"))]
    if chunk.column("key").null_count < chunk.num_rows:
        for message, key in zip(messages, byte_strings(chunk.column("key")), strict=True):
            if key is not None:
                message["key"] = key
    partitions = chunk.column("partition")
    if partitions.null_count < chunk.num_rows:
        for message, partition in zip(messages, partitions.to_pylist(), strict=True):
            if partition is not None:
                message["partition"] = partition
    return messages


def byte_strings(column: pa.BinaryArray) -> list[bytes | None]:
    """The values of a binary array, cut from its buffer: faster than `to_pylist`.

    >>> byte_strings(pa.array([b"ab", None, b"", b"c"], pa.binary()))
    [b'ab', None, b'', b'c']
    """
    _, offsets, data = column.buffers()
    if data is None:
        return (
            [None if v is None else b"" for v in column.is_valid().to_pylist()]
            if column.null_count
            else [b""] * len(column)
        )
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].tolist()
    first = ends[0] if ends else 0
    text = data.slice(first, ends[-1] - first).to_pybytes()
    values: list[bytes | None] = [text[a - first : b - first] for a, b in pairwise(ends)]
    if column.null_count:
        for i in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
            values[i] = None
    return values
