"""What a cluster knows of topics: their partitions, where these begin and end, and how far a group has come. All of it blocks on I/O."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from flowrun.connectors.kafka.cluster import (
    NEW_TOPIC_S,
    REQUEST_TIMEOUT_S,
    ClientErrors,
    KafkaCluster,
    admin_library,
    is_refused,
    library,
    may_pass,
)
from flowrun.core.record import record
from flowrun.errors import ConnectorError, did_you_mean

_ATTEMPT_S = 2.0
_Answer = TypeVar("_Answer")


@record
class Partition:
    """A partition of a topic."""

    topic: str
    number: int

    @property
    def split_id(self) -> str:
        """Its name as a split.

        >>> Partition("orders", 3).split_id
        'orders-3'
        """
        return f"{self.topic}-{self.number}"


Offsets = Mapping[Partition, int]


class ClusterMetadata:
    """Asks one cluster. Each question opens a client and closes it, so that no thread of it lives on in the process.

    Every method raises ConnectorError if the cluster does not answer, or refuses.

    Args:
        cluster: to ask.
        patience_s: how long a question may take, over all attempts; None: `REQUEST_TIMEOUT_S`.
        logs: whether the log tells of attempts that fail.
    """

    def __init__(self, cluster: KafkaCluster, *, patience_s: float | None = None, logs: bool = True) -> None:
        self._cluster = cluster
        self._patience_s = REQUEST_TIMEOUT_S if patience_s is None else patience_s
        self._logs = logs

    def partitions(self, topics: Sequence[str], pattern: str | None) -> list[Partition]:
        """The partitions of some topics, or of all whose whole name matches a pattern, by topic and number.

        Raises:
            ConnectorError: a topic that is named does not exist.
        """
        deadline = time.monotonic() + min(NEW_TOPIC_S, self._patience_s)
        while True:
            found = self._ask(lambda admin: admin.list_topics(timeout=_ATTEMPT_S)).topics
            if pattern is not None:
                topics = sorted(n for n in found if re.fullmatch(pattern, n) and not n.startswith("__"))
            missing = [n for n in topics if n not in found or (found[n].error is not None and not found[n].partitions)]
            if not missing:
                return [Partition(name, number) for name in topics for number in sorted(found[name].partitions)]
            if time.monotonic() > deadline:
                topic = found.get(missing[0])
                raise self._missing(missing[0], found, None if topic is None else topic.error)
            time.sleep(0.1)

    def _missing(self, name: str, found: Iterable[str], error: Any) -> ConnectorError:
        if error is not None and error.code() != library().KafkaError.UNKNOWN_TOPIC_OR_PART:
            return ConnectorError(
                f"topic '{name}' cannot be read: {error.str()}", retryable=False if is_refused(error) else None
            )
        return ConnectorError(
            f"topic '{name}' does not exist in Kafka at {self._cluster.bootstrap}",
            retryable=False,
            hint=did_you_mean(name, [n for n in found if not n.startswith("__")]) or "create it first",
        )

    def beginnings(self, partitions: Iterable[Partition]) -> Offsets:
        """The first offset that is there, of each."""
        return self._offsets(partitions, lambda spec: spec.earliest())

    def ends(self, partitions: Iterable[Partition]) -> Offsets:
        """The offset behind the last message that can be read now, of each."""
        return self._offsets(partitions, lambda spec: spec.latest())

    def at_time(self, partitions: Iterable[Partition], timestamp_ms: int) -> Offsets:
        """The offset of the first message with this timestamp or a later one, of each; where there is none, the end."""
        wanted = list(partitions)
        found = dict(self._offsets(wanted, lambda spec: spec.for_timestamp(timestamp_ms)))
        none = [p for p in wanted if found[p] < 0]
        return {**found, **self.ends(none)}

    def committed(self, partitions: Iterable[Partition], group: str) -> Offsets:
        """The offsets that a group has committed; partitions without are not in it."""
        kafka = library()
        wanted = [kafka.TopicPartition(p.topic, p.number) for p in partitions]
        if not wanted:
            return {}
        request = kafka.ConsumerGroupTopicPartitions(group, wanted)

        def ask(admin: Any) -> Any:
            asked = admin.list_consumer_group_offsets([request], request_timeout=_ATTEMPT_S)
            return asked[group].result(REQUEST_TIMEOUT_S)

        answers = self._ask(ask).topic_partitions
        return {Partition(a.topic, a.partition): a.offset for a in answers if a.offset >= 0}

    def _offsets(self, partitions: Iterable[Partition], spec: Callable[[Any], Any]) -> Offsets:
        kafka = library()
        wanted = {kafka.TopicPartition(p.topic, p.number): spec(admin_library().OffsetSpec) for p in partitions}
        if not wanted:
            return {}
        level = kafka.IsolationLevel
        isolation = level.READ_UNCOMMITTED if self._cluster.reads_uncommitted else level.READ_COMMITTED

        def ask(admin: Any) -> dict[Any, Any]:
            asked = admin.list_offsets(wanted, isolation_level=isolation, request_timeout=_ATTEMPT_S)
            return {partition: answer.result(REQUEST_TIMEOUT_S) for partition, answer in asked.items()}

        return {Partition(p.topic, p.partition): a.offset for p, a in self._ask(ask).items()}

    def _ask(self, question: Callable[[Any], _Answer]) -> _Answer:
        errors = ClientErrors(self._cluster.bootstrap, logs=self._logs)
        admin = self._cluster.client(admin_library().AdminClient, errors, {})
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                return question(admin)
            except library().KafkaException as error:
                admin.poll(0)
                errors.check()
                problem = error.args[0]
                if not may_pass(problem):
                    retryable = False if is_refused(problem) else None
                    raise ConnectorError(
                        f"Kafka at {self._cluster.bootstrap}: {problem.str()}", retryable=retryable
                    ) from error
                if time.monotonic() > deadline:
                    raise errors.unreachable(problem.str()) from error
