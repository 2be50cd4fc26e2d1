"""Messages of one partition as columns: values and keys as bytes, and what else a message knows of itself.

Apart from the methods of the client library's messages, which `map` calls, no Python runs for each message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from flowrun.connectors.kafka.cluster import library
from flowrun.connectors.kafka.partitions import Partition
from flowrun.core.arrays import Integers
from flowrun.core.record import record
from flowrun.core.types import BIGINT, BYTES, INT, STRING, DataType, map_of, timestamp_ltz

TOPIC, PARTITION, OFFSET, TIMESTAMP = "topic", "partition", "offset", "timestamp"
TIMESTAMP_TYPE, HEADERS, LEADER_EPOCH = "timestamp-type", "headers", "leader-epoch"
METADATA: tuple[tuple[str, DataType], ...] = (
    (TOPIC, STRING),
    (PARTITION, INT),
    (OFFSET, BIGINT),
    (TIMESTAMP, timestamp_ltz(3)),
    (TIMESTAMP_TYPE, STRING),
    (HEADERS, map_of(STRING, BYTES)),
    (LEADER_EPOCH, INT),
)
"""What can be read of a message beside key and value, with the keys and types of Apache Flink."""

_TYPES = dict(METADATA)
_TIMESTAMP_TYPES = ("NoTimestampType", "CreateTime", "LogAppendTime")


@record(eq=False)
class Messages:
    """Messages of one partition, in the order of their offsets."""

    partition: Partition
    messages: Sequence[Any]
    offsets: Integers

    @classmethod
    def of(cls, partition: Partition, messages: Sequence[Any]) -> Messages:
        """Messages as the client library gives them; none of them is an error."""
        offsets = map(library().Message.offset, messages)
        return cls(partition, messages, np.fromiter(offsets, np.int64, len(messages)))

    def __len__(self) -> int:
        return len(self.messages)

    def before(self, offset: int) -> Messages:
        """Those whose offsets are less."""
        count = int(np.searchsorted(self.offsets, offset))
        return Messages(self.partition, self.messages[:count], self.offsets[:count])

    def values(self) -> list[bytes | None]:
        """Their values; None is a tombstone."""
        return list(map(library().Message.value, self.messages))

    def keys(self) -> list[bytes | None]:
        """Their keys; a message may have none."""
        return list(map(library().Message.key, self.messages))

    def metadata(self, key: str) -> pa.Array:
        """One of `METADATA`, for each message."""
        arrow = _TYPES[key].arrow
        message = library().Message
        match key:
            case "topic":
                return pa.repeat(pa.scalar(self.partition.topic, arrow), len(self))
            case "partition":
                return pa.repeat(pa.scalar(self.partition.number, arrow), len(self))
            case "offset":
                return pa.array(self.offsets, arrow)
            case "timestamp":
                times = [None if kind == 0 else time for kind, time in map(message.timestamp, self.messages)]
                return pa.array(times, pa.int64()).cast(arrow)
            case "timestamp-type":
                return pa.array([_TIMESTAMP_TYPES[kind] for kind, _ in map(message.timestamp, self.messages)], arrow)
            case "leader-epoch":
                return pa.array(list(map(message.leader_epoch, self.messages)), arrow)
            case _:
                return pa.array([_last_of_each(h) for h in map(message.headers, self.messages)], arrow)


def _last_of_each(headers: Sequence[tuple[str, bytes | None]] | None) -> list[tuple[str, bytes | None]]:
    """Headers as a map has them: of those with one name the last."""
    found: Mapping[str, bytes | None] = dict(headers or ())
    return list(found.items())


def by_partition(messages: Sequence[Any]) -> list[Messages]:
    """Messages of several partitions, apart."""
    message = library().Message
    numbers = np.fromiter(map(message.partition, messages), np.int64, len(messages))
    topics = list(map(message.topic, messages))
    names = set(topics)
    if len(names) == 1 and (numbers == numbers[0]).all():
        return [Messages.of(Partition(topics[0], int(numbers[0])), messages)]
    found = []
    for topic in sorted(names):
        of_topic = np.fromiter((t == topic for t in topics), np.bool_, len(topics)) if len(names) > 1 else True
        for number in np.unique(numbers[of_topic] if len(names) > 1 else numbers).tolist():
            places = np.flatnonzero((numbers == number) & of_topic).tolist()
            found.append(Messages.of(Partition(topic, number), [messages[i] for i in places]))
    return found
