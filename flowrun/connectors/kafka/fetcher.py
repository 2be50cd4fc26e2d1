"""Fetches and decodes the messages of a subtask's partitions, in a thread beside the subtask's."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, cast

from flowrun.api.source import Split
from flowrun.connectors.kafka.cluster import ClientErrors, KafkaCluster, is_refused, library
from flowrun.connectors.kafka.decoding import DecodedMessages, MessageDecoder
from flowrun.connectors.kafka.enumerator import partition_of
from flowrun.connectors.kafka.messages import by_partition
from flowrun.connectors.kafka.partitions import Offsets, Partition
from flowrun.core.record import record
from flowrun.errors import ConnectorError

_log = logging.getLogger(__name__)
_FETCHED_MESSAGES = 16_384
"""How many messages are taken and decoded at a time, at most."""
_CAPACITY = 4
"""How many decoded batches wait for the subtask, about."""
_WAIT_S = 0.1
"""How long the thread waits for a message before it looks whether there is something else to do."""
_LOOK_EVERY_S = 0.5
_NO_GROUP = "flowrun"
_NO_COMMITTED = "no previously committed offset"
_AHEAD = {"queued.max.messages.kbytes": 1 << 15, "fetch.queue.backoff.ms": 10}
"""How many kilobytes of messages the client keeps ahead, and how long it waits when it has enough, where the user says nothing. It would
wait a second by itself, while small messages are processed faster than it fetches them.
"""


@record(eq=False)
class Fetched:
    """Decoded messages of a partition."""

    partition: Partition
    messages: DecodedMessages


@record
class Ended:
    """A partition was read up to where it is to end."""

    partition: Partition


def consumer_settings(cluster: KafkaCluster, *, bounded: bool) -> dict[str, Any]:
    """How the client of a source is set, beside the user's properties.

    Args:
        cluster: with these properties.
        bounded: whether partitions have ends.
    """
    settings: dict[str, Any] = {
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": bounded,
        "allow.auto.create.topics": False,
    }
    defaults = {"group.id": _NO_GROUP, "isolation.level": "read_committed", "auto.offset.reset": "error", **_AHEAD}
    return settings | {name: value for name, value in defaults.items() if name not in cluster.properties}


class PartitionFetcher:
    """Reads partitions, and hands their messages over through a queue that holds little.

    `start`, `add`, `take`, `commit`, `lag` and `stop` are called by the subtask (`lag` by any thread); all but `stop` return at once. The
    client is used in the thread only: calls of its methods from several threads wait for each other, without end if one of them fetches.

    Args:
        cluster: where the partitions are.
        bounded: whether partitions have ends.
        decoder: used in the thread only.
        notify: called from the thread when `take` may give something.
        committed: called from the thread with the error of a commit, or None.
    """

    def __init__(
        self,
        cluster: KafkaCluster,
        decoder: MessageDecoder,
        notify: Callable[[], None],
        committed: Callable[[Any], None],
        *,
        bounded: bool,
    ) -> None:
        self._cluster = cluster
        self._decoder = decoder
        self._notify = notify
        self._committed = committed
        self._bounded = bounded
        self._changed = threading.Condition()  # held to change what follows
        self._items: deque[Fetched | Ended] = deque()
        self._new: list[Split] = []
        self._commits: list[Offsets] = []
        self._failure: BaseException | None = None
        self._stopped = False
        self._errors = ClientErrors(cluster.bootstrap)
        self._reading: set[Partition] = set()  # this and the next two are used in the thread only
        self._next: dict[Partition, int] = {}
        self._stops: dict[Partition, int] = {}
        self._next_look = 0.0
        self._ends: dict[Partition, int] = {}  # replaced, never changed
        self._consumer: Any = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Open the client and begin.

        Raises:
            OptionError: a property of the client is wrong.
            SetupError: the client library is not installed.
        """
        settings = {
            **consumer_settings(self._cluster, bounded=self._bounded),
            "on_commit": lambda error, _: self._committed(error),
        }
        self._consumer = self._cluster.client(library().Consumer, self._errors, settings)
        self._thread = threading.Thread(target=self._run, name="kafka-fetcher", daemon=True)
        self._thread.start()

    def add(self, splits: Iterable[Split]) -> None:
        """Read more partitions."""
        with self._changed:
            self._new.extend(splits)
            self._changed.notify_all()

    def take(self) -> Fetched | Ended | None:
        """What comes next; None: nothing is there now.

        Raises:
            ConnectorError: a partition cannot be read. What was fetched before it comes first.
        """
        with self._changed:
            if self._items:
                item = self._items.popleft()
                self._changed.notify_all()
                return item
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        return None

    def commit(self, offsets: Offsets) -> None:
        """Tell the group how far partitions were read; does not wait for it."""
        with self._changed:
            self._commits.append(offsets)
            self._changed.notify_all()

    def lag(self, positions: Offsets) -> int | None:
        """How many messages are behind these positions, as far as the client knows; None: it does not know."""
        ends = self._ends
        known = [max(ends[p] - offset, 0) for p, offset in positions.items() if p in ends]
        return sum(known) if known else None

    def stop(self) -> None:
        """End the thread and close the client; idempotent."""
        with self._changed:
            self._stopped = True
            self._items.clear()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    # -- in the thread

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                self._commit()
                self._assign()
                if self._reading and len(self._items) < _CAPACITY:
                    self._fetch()
                    self._look_at_ends()
        except BaseException as error:  # it is handed to the subtask's thread, which raises it
            with self._changed:
                self._failure = error
        self._notify()

    def _wait_for_work(self) -> bool:
        """Whether to go on, once there is something to do and room for what it brings."""
        with self._changed:
            while not (self._stopped or self._new or self._commits or (self._reading and len(self._items) < _CAPACITY)):
                self._changed.wait()
            return not self._stopped

    def _commit(self) -> None:
        kafka = library()
        with self._changed:
            commits, self._commits = self._commits, []
        for offsets in commits:
            places = [kafka.TopicPartition(p.topic, p.number, offset) for p, offset in offsets.items()]
            try:
                self._consumer.commit(offsets=places, asynchronous=True)
            except kafka.KafkaException as error:
                self._committed(error)

    def _look_at_ends(self) -> None:
        """Note where partitions end now, as far as the client has heard."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_EVERY_S
        kafka = library()
        ends = {}
        for partition in self._reading:
            with suppress(kafka.KafkaException):  # not heard of yet
                place = kafka.TopicPartition(partition.topic, partition.number)
                _, high = self._consumer.get_watermark_offsets(place, cached=True)
                if high >= 0:
                    ends[partition] = high
        self._ends = ends

    def _assign(self) -> None:
        with self._changed:
            new, self._new = self._new, []
        if not new:
            return
        kafka = library()
        places = []
        for split in new:
            partition, position = partition_of(split), split.position
            offset, stop = cast(int, position["offset"]), cast("int | None", position["stop"])
            if stop is not None and offset >= stop:
                self._hand_over(Ended(partition))
                continue
            if stop is not None:
                self._stops[partition] = stop
            self._reading.add(partition)
            self._next[partition] = offset
            places.append(kafka.TopicPartition(partition.topic, partition.number, offset))
        if places:
            self._consumer.incremental_assign(places)

    def _fetch(self) -> None:
        consumer = self._consumer
        first = consumer.consume(1, _WAIT_S)
        self._errors.check()
        if not first:
            return
        messages = [*first, *consumer.consume(_FETCHED_MESSAGES - 1, 0)]
        if any(map(library().Message.error, messages)):
            self._take_with_errors(messages)
        else:
            self._decode(messages)

    def _take_with_errors(self, messages: Sequence[Any]) -> None:
        good: list[Any] = []
        for message in messages:
            if message.error() is None:
                good.append(message)
                continue
            self._decode(good)
            good = []
            self._take_error(message)
        self._decode(good)

    def _decode(self, messages: Sequence[Any]) -> None:
        if not messages:
            return
        self._errors.works()
        for group in by_partition(messages):
            partition = group.partition
            if partition not in self._reading:
                continue  # fetched behind its end
            stop = self._stops.get(partition)
            self._next[partition] = int(group.offsets[-1]) + 1
            inside = group if stop is None or group.offsets[-1] < stop else group.before(stop)
            if len(inside):
                self._hand_over(Fetched(partition, self._decoder.decode(inside)))
            if stop is not None and group.offsets[-1] >= stop - 1:
                self._end(partition)

    def _take_error(self, message: Any) -> None:
        error = message.error()
        kinds = library().KafkaError
        code = error.code()
        if code == kinds._PARTITION_EOF:
            partition = Partition(message.topic(), message.partition())
            stop = self._stops.get(partition)
            if stop is not None and message.offset() >= stop:  # the last offsets are marks of transactions
                self._end(partition)
            return
        if code == kinds._AUTO_OFFSET_RESET and _NO_COMMITTED in error.str():
            self._assign_again(Partition(message.topic(), message.partition()))
            return
        place = ""
        if message.topic() is not None:
            place = f"topic '{message.topic()}'" + (
                f", partition {message.partition()}" if message.partition() >= 0 else ""
            )
        if code in (kinds._AUTO_OFFSET_RESET, kinds.OFFSET_OUT_OF_RANGE):
            raise ConnectorError(
                f"{place}: the position to read on at is not there any more: {error.str()}",
                retryable=False,
                hint="messages were deleted before they were read, or the topic was made anew; to go on without them, set "
                "'properties.auto.offset.reset' = 'earliest' or 'latest'",
            )
        if error.retriable() or code in (kinds._TRANSPORT, kinds._ALL_BROKERS_DOWN, kinds._TIMED_OUT, kinds._RESOLVE):
            self._errors.take(error)
            return
        self._errors.take(error)
        self._errors.check()
        raise ConnectorError(f"{place or 'Kafka'}: {error.str()}", retryable=not is_refused(error))

    def _assign_again(self, partition: Partition) -> None:
        """Tell the client once more where to read on: it lost that, and asked the group instead, which has no part in it."""
        if partition in self._reading:
            place = library().TopicPartition(partition.topic, partition.number, self._next[partition])
            self._consumer.incremental_unassign([place])
            self._consumer.incremental_assign([place])

    def _end(self, partition: Partition) -> None:
        kafka = library()
        del self._stops[partition]
        self._reading.remove(partition)
        self._consumer.incremental_unassign([kafka.TopicPartition(partition.topic, partition.number)])
        self._hand_over(Ended(partition))

    def _hand_over(self, item: Fetched | Ended) -> None:
        with self._changed:
            if not self._stopped:
                self._items.append(item)
        self._notify()
