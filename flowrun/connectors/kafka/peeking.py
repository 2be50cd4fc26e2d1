"""A look at a topic: some of the first and of the last messages of each partition, as they are.

It leaves no trace in the cluster: no group is joined, and no offset is committed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from flowrun.connectors.kafka.cluster import ClientErrors, KafkaCluster, library
from flowrun.connectors.kafka.messages import Messages
from flowrun.connectors.kafka.partitions import ClusterMetadata, Partition
from flowrun.core.record import record
from flowrun.errors import ConnectorError

_WAIT_S = 0.1
_AT_A_TIME = 500
_MOST_BYTES = 64 << 20
"""Of the messages that are looked at."""
_PATIENCE_OF_A_QUESTION_S = 8.0
_GROUP = "flowrun-looks"
"""librdkafka wants a name where there is no group."""


@record
class _Stretch:
    """The messages of a partition from an offset on: `most` of them, or those before `stop`."""

    start: int
    stop: int
    most: int


def look_at_topic(cluster: KafkaCluster, topic: str, most: int, patience_s: float) -> list[Messages]:
    """The first and last messages of each partition that has any, in the order of their offsets.

    It blocks until it has them, or the time is over: then what has come by then counts.

    Args:
        cluster: that has the topic.
        topic: its name.
        most: how many messages in all, about.
        patience_s: seconds that reading may take.

    Raises:
        ConnectorError: the cluster does not answer or refuses, there is no such topic, or no message came in time.
        OptionError: a property of the client is wrong.
    """
    metadata = ClusterMetadata(cluster, patience_s=_PATIENCE_OF_A_QUESTION_S, logs=False)
    partitions = metadata.partitions([topic], None)
    beginnings, ends = metadata.beginnings(partitions), metadata.ends(partitions)
    filled = {p: (beginnings[p], ends[p]) for p in partitions if ends[p] > beginnings[p]}
    if not filled:
        return []
    each = max(2, most // len(filled))
    reader = _Reader(cluster, topic, time.monotonic() + patience_s)
    with closing(reader):
        first = {p: _Stretch(a, b, each if b - a <= each else each // 2) for p, (a, b) in filled.items()}
        found = reader.read(first)
        last = {}
        for p, (a, b) in filled.items():
            after = int(found[p][-1].offset()) + 1 if found[p] else a
            start = max(after, b - (each - each // 2))
            if b - a > each and start < b:
                last[p] = _Stretch(start, b, each)
        for p, messages in (reader.read(last) if last else {}).items():
            found[p] += messages
        if not any(found.values()):
            raise reader.nothing_came(patience_s)
    return [Messages.of(p, messages) for p, messages in found.items() if messages]


class _Reader:
    """A client that reads stretches of partitions of one topic, until a point in time."""

    def __init__(self, cluster: KafkaCluster, topic: str, deadline: float) -> None:
        settings: dict[str, Any] = {
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "allow.auto.create.topics": False,
            "auto.offset.reset": "earliest",
            "group.id": _GROUP,
            "queued.max.messages.kbytes": 16 << 10,
        }
        if "isolation.level" not in cluster.properties:
            settings["isolation.level"] = "read_committed"
        self._topic = topic
        self._cluster = cluster
        self._errors = ClientErrors(cluster.bootstrap, logs=False)
        self._consumer = cluster.client(library().Consumer, self._errors, settings)
        self._deadline = deadline
        self._bytes = 0
        self.close = self._consumer.close

    def nothing_came(self, patience_s: float) -> ConnectorError:
        """The error of a topic that has messages of which none came in time."""
        if self._errors.last is not None:
            return self._errors.unreachable("")
        return ConnectorError(
            f"no message of topic '{self._topic}' came from Kafka at {self._cluster.bootstrap} within {patience_s:g} s",
            retryable=True,
            hint="messages of a transaction that is open are not read: --with properties.isolation.level=read_uncommitted reads them",
        )

    def read(self, stretches: Mapping[Partition, _Stretch]) -> dict[Partition, list[Any]]:
        """The messages of stretches. Raises ConnectorError."""
        kafka = library()
        found: dict[Partition, list[Any]] = {p: [] for p in stretches}
        left = dict(stretches)
        self._consumer.assign([kafka.TopicPartition(p.topic, p.number, s.start) for p, s in stretches.items()])
        while left and time.monotonic() < self._deadline and self._bytes < _MOST_BYTES:
            for message in self._consumer.consume(_AT_A_TIME, _WAIT_S):
                partition = Partition(message.topic() or self._topic, message.partition())
                stretch = left.get(partition)
                if message.error() is not None:
                    if self._ends(message.error()):
                        left.pop(partition, None)
                elif stretch is not None and message.offset() >= stretch.stop:
                    del left[partition]
                elif stretch is not None:
                    found[partition].append(message)
                    self._bytes += len(message)
                    if len(found[partition]) == stretch.most or message.offset() == stretch.stop - 1:
                        del left[partition]
            self._errors.check()
            done = [p for p in stretches if p not in left]
            if done and left:
                self._consumer.incremental_unassign(self._assigned(done))
        self._consumer.unassign()
        return found

    def _assigned(self, partitions: list[Partition]) -> list[Any]:
        here = {(a.topic, a.partition) for a in self._consumer.assignment()}
        return [library().TopicPartition(p.topic, p.number) for p in partitions if (p.topic, p.number) in here]

    def _ends(self, error: Any) -> bool:
        """Whether an error says that there is no further message. Raises ConnectorError: the topic cannot be read."""
        kinds = library().KafkaError
        if error.code() == kinds._PARTITION_EOF:
            return True
        self._errors.take(error)
        passing = (
            kinds._TRANSPORT,
            kinds._ALL_BROKERS_DOWN,
            kinds._TIMED_OUT,
            kinds._RESOLVE,
            kinds._AUTO_OFFSET_RESET,
        )
        if error.retriable() or error.code() in passing:
            return False
        self._errors.check()
        raise ConnectorError(f"topic '{self._topic}' cannot be read: {error.str()}")
