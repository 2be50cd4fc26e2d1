"""Which partition a message goes to, where the client does not choose: Apache Flink's `fixed` and `round-robin`."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa

from flowrun.connectors.kafka.encoding import MESSAGES

DEFAULT, FIXED, ROUND_ROBIN = "default", "fixed", "round-robin"
_PARTITION = MESSAGES.get_field_index("partition")


class KnowsPartitions(Protocol):
    """Knows topics."""

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has. It blocks on I/O."""
        ...


class PartitionChooser:
    """Chooses the partitions of one subtask's messages.

    Args:
        kind: DEFAULT leaves the choice to the client, which takes the hash of the key as Java's does, and any partition without a key;
            FIXED: all messages of a subtask go to one partition; ROUND_ROBIN: one after the other.
        topics: that messages go to.
        subtask: number of the subtask.
    """

    def __init__(self, kind: str, topics: tuple[str, ...], subtask: int) -> None:
        self._kind = kind
        self._topics = topics
        self._subtask = subtask
        self._count = 0
        self._next = subtask

    def open(self, cluster: KnowsPartitions) -> None:
        """Look at the topics. It blocks on I/O. Raises ConnectorError if one is not there."""
        counts = [cluster.partitions(topic) for topic in self._topics]
        self._count = min(counts, default=1)

    def chosen(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        """The messages with their partitions."""
        if self._kind == DEFAULT:
            return messages
        rows = messages.num_rows
        if self._kind == FIXED:
            numbers = np.full(rows, self._subtask % self._count, np.int32)
        else:
            numbers = ((self._next + np.arange(rows)) % self._count).astype(np.int32)
            self._next = (self._next + rows) % self._count
        return messages.set_column(_PARTITION, MESSAGES.field(_PARTITION), pa.array(numbers))
