"""Finds the partitions of a source's topics, where to begin and to end in each, and hands them out: each belongs to one subtask."""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Sequence
from typing import cast

from flowrun.api.source import JsonValue, Split
from flowrun.connectors.kafka.cluster import KafkaCluster
from flowrun.connectors.kafka.offsets import ScanMode, ScanPlace
from flowrun.connectors.kafka.partitions import ClusterMetadata, Partition
from flowrun.core.record import record
from flowrun.errors import ConnectorError

_log = logging.getLogger(__name__)


@record
class PartitionScan:
    """Which partitions are read, from where, and up to where.

    Attributes:
        cluster: where they are.
        topics: the topics, by name.
        topic_pattern: instead of names: a pattern for whole names.
        startup: where to begin.
        end: where to end; None: never.
        discovery_interval_ms: how often to look for new partitions; None: never.
    """

    cluster: KafkaCluster
    topics: tuple[str, ...]
    topic_pattern: str | None
    startup: ScanPlace
    end: ScanPlace | None
    discovery_interval_ms: int | None


class PartitionEnumerator:
    """Hands out partitions.

    Which subtask reads a partition follows from its topic and number, so that the partitions of a topic are spread evenly, and stay where
    they are when others come. Partitions that are found later are read from their beginning, whatever the startup mode: their first
    messages came after the job had begun.
    """

    def __init__(self, scan: PartitionScan, parallelism: int, restored: JsonValue) -> None:
        self._scan = scan
        self._parallelism = parallelism
        self._cluster = ClusterMetadata(scan.cluster)
        self._pending: deque[Split] = deque()
        self._known: set[Partition] = set()
        self._is_restored = restored is not None
        if restored is not None:
            state = cast(dict[str, list[dict[str, JsonValue]]], restored)
            self._pending.extend(
                Split(cast(str, s["id"]), cast(dict[str, JsonValue], s["position"])) for s in state["pending"]
            )
            self._known.update(Partition(cast(str, p["topic"]), cast(int, p["partition"])) for p in state["known"])

    def start(self) -> None:
        """Find the partitions, with the offsets to begin and end at.

        Raises:
            ConnectorError: the cluster does not answer, a topic does not exist, or an offset cannot be found.
        """
        if self._is_restored and self._scan.end is not None:
            return  # what a bounded source reads was settled when it began
        found = self._cluster.partitions(self._scan.topics, self._scan.topic_pattern)
        new = [p for p in found if p not in self._known]
        self._add(new, ScanPlace(ScanMode.EARLIEST) if self._is_restored else self._scan.startup)

    def _add(self, partitions: Sequence[Partition], begin: ScanPlace) -> None:
        if not partitions:
            return
        end = self._scan.end
        starts = begin.offsets(partitions, self._cluster)
        stops = None if end is None else end.offsets(partitions, self._cluster)
        for partition in partitions:
            stop = None if stops is None else stops[partition]
            self._known.add(partition)
            self._pending.append(split_of(partition, starts[partition], stop))

    def next_split(self, subtask: int) -> Split | None:
        """A partition of this subtask; None: there is none left."""
        for position, split in enumerate(self._pending):
            if owner(partition_of(split), self._parallelism) == subtask:
                del self._pending[position]
                return split
        return None

    @property
    def exhausted(self) -> bool:
        """Whether a bounded source has handed out all partitions."""
        return self._scan.end is not None and not self._pending

    @property
    def discovery_interval_ms(self) -> int | None:
        """How often to look for new partitions; None: never."""
        return None if self._scan.end is not None else self._scan.discovery_interval_ms

    def discover(self) -> None:
        """Look for new partitions. Topics that are gone are left to their readers, who find out themselves."""
        try:
            found = self._cluster.partitions(self._scan.topics, self._scan.topic_pattern)
            self._add([p for p in found if p not in self._known], ScanPlace(ScanMode.EARLIEST))
        except ConnectorError as error:
            _log.warning("no look for new partitions this time: %s", error.message)

    def add_splits_back(self, splits: Sequence[Split]) -> None:
        """Take partitions that are to be handed out first."""
        self._pending.extendleft(reversed(splits))

    def snapshot(self) -> JsonValue:
        """The partitions that were not handed out, and all that were found."""
        known = sorted(self._known, key=lambda p: (p.topic, p.number))
        return {
            "pending": [{"id": s.split_id, "position": dict(s.position)} for s in self._pending],
            "known": [{"topic": p.topic, "partition": p.number} for p in known],
        }

    def close(self) -> None:
        """Nothing to release."""


def split_of(partition: Partition, offset: int, stop: int | None) -> Split:
    """A partition from an offset on, up to another one (None: without end)."""
    position: dict[str, JsonValue] = {
        "topic": partition.topic, "partition": partition.number, "offset": offset, "stop": stop,
    }  # fmt: skip
    return Split(partition.split_id, position)


def partition_of(split: Split) -> Partition:
    """The partition of a split."""
    return Partition(cast(str, split.position["topic"]), cast(int, split.position["partition"]))


def owner(partition: Partition, parallelism: int) -> int:
    """The subtask that reads a partition. Those of a topic go around, beginning at a subtask that depends on its name.

    >>> sorted(owner(Partition("orders", n), 3) for n in range(3))
    [0, 1, 2]
    """
    first = int.from_bytes(hashlib.sha256(partition.topic.encode()).digest()[:4], "big")
    return (first + partition.number) % parallelism
