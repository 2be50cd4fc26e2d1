"""Where a source begins to read each partition, and where it ends: the scan modes of Apache Flink's Kafka connector."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import cast

from flowrun.connectors.kafka.partitions import ClusterMetadata, Offsets, Partition
from flowrun.core.options import Options
from flowrun.core.record import record
from flowrun.core.shapes import MAX_INTEGER
from flowrun.errors import ConnectorError, OptionError

_PAIR = re.compile(r"\s*partition\s*:\s*([0-9]+)\s*,\s*offset\s*:\s*([0-9]+)\s*")
_MOST_PARTITION = 2**31 - 1


class ScanMode(Enum):
    """A place in a partition."""

    EARLIEST = "earliest-offset"
    LATEST = "latest-offset"
    GROUP = "group-offsets"
    TIMESTAMP = "timestamp"
    SPECIFIC = "specific-offsets"
    UNBOUNDED = "unbounded"


@record
class ScanPlace:
    """Where to begin, or to end.

    Attributes:
        mode: what kind of place.
        timestamp_ms: of TIMESTAMP.
        specific: offsets of SPECIFIC, by the numbers of partitions.
        group: of GROUP.
        is_end: whether a source ends there.
        fallback: of GROUP, for partitions for which nothing is committed: `earliest`, `latest` or `none`, which is an error.
    """

    mode: ScanMode
    timestamp_ms: int = 0
    specific: tuple[tuple[int, int], ...] = ()
    group: str = ""
    fallback: str = "none"
    is_end: bool = False

    def offsets(self, partitions: Sequence[Partition], cluster: ClusterMetadata) -> Offsets:
        """The offset of each partition. It blocks on I/O.

        Raises:
            ConnectorError: the cluster does not answer, or nothing is committed for a partition.
        """
        match self.mode:
            case ScanMode.EARLIEST:
                return cluster.beginnings(partitions)
            case ScanMode.LATEST:
                return cluster.ends(partitions)
            case ScanMode.TIMESTAMP:
                return cluster.at_time(partitions, self.timestamp_ms)
            case ScanMode.SPECIFIC:
                given = dict(self.specific)
                found = {p: given[p.number] for p in partitions if p.number in given}
                missing = [p for p in partitions if p not in found]
                if missing and self.is_end:
                    raise ConnectorError(
                        f"'scan.bounded.specific-offsets' names no offset for partition {missing[0].number} of topic '{missing[0].topic}'",
                        retryable=False,
                        hint="name the offset to end at for each partition; 0: nothing of it is read",
                    )
                return {**found, **self._committed(missing, cluster, "earliest")}
            case _:
                return self._committed(partitions, cluster, self.fallback)

    def _committed(self, partitions: Sequence[Partition], cluster: ClusterMetadata, fallback: str) -> Offsets:
        found = cluster.committed(partitions, self.group) if self.group and partitions else {}
        missing = [p for p in partitions if p not in found]
        if missing and fallback == "none":
            raise ConnectorError(
                f"group '{self.group}' has committed no offset for partition {missing[0].number} of topic '{missing[0].topic}'",
                retryable=False,
                hint="say otherwise where to end: 'scan.bounded.mode' = 'latest-offset'"
                if self.is_end
                else "say where to begin: 'scan.startup.mode' = 'earliest-offset', or 'properties.auto.offset.reset' = 'earliest'",
            )
        other = cluster.ends(missing) if fallback == "latest" else cluster.beginnings(missing)
        return {**found, **other}


def startup_of(options: Options) -> ScanPlace:
    """Where a table's source begins.

    Raises:
        OptionError: an option is missing that the mode needs.
    """
    mode = ScanMode(options.text("scan.startup.mode"))
    reset = str(options.get("properties.auto.offset.reset") or "none")
    return _place(options, "scan.startup", mode, reset)


def end_of(options: Options) -> ScanPlace | None:
    """Where a table's source ends; None: never.

    Raises:
        OptionError: an option is missing that the mode needs.
    """
    mode = ScanMode(options.text("scan.bounded.mode"))
    return None if mode is ScanMode.UNBOUNDED else replace(_place(options, "scan.bounded", mode, "none"), is_end=True)


def _place(options: Options, prefix: str, mode: ScanMode, fallback: str) -> ScanPlace:
    timestamp = options.get(f"{prefix}.timestamp-millis")
    specific = options.get(f"{prefix}.specific-offsets")
    group = str(options.get("properties.group.id") or "")
    if mode is ScanMode.TIMESTAMP and timestamp is None:
        raise OptionError(
            f"{prefix}.timestamp-millis", f"'{prefix}.mode' = 'timestamp' needs '{prefix}.timestamp-millis'"
        )
    if mode is ScanMode.SPECIFIC and specific is None:
        raise OptionError(
            f"{prefix}.specific-offsets", f"'{prefix}.mode' = 'specific-offsets' needs '{prefix}.specific-offsets'"
        )
    if mode is ScanMode.GROUP and not group:
        raise OptionError(
            "properties.group.id",
            f"'{prefix}.mode' = 'group-offsets' needs a group: 'properties.group.id'",
            hint="or begin elsewhere: 'scan.startup.mode' = 'earliest-offset'" if prefix == "scan.startup" else None,
        )
    if timestamp is not None and int(cast(int, timestamp)) > MAX_INTEGER:
        raise OptionError(
            f"{prefix}.timestamp-millis", f"'{prefix}.timestamp-millis' is at most {MAX_INTEGER}, got {timestamp}"
        )
    known = ("earliest", "latest", "none")
    if fallback not in known:
        raise OptionError(
            "properties.auto.offset.reset",
            f"'properties.auto.offset.reset' is one of {', '.join(known)}, got '{fallback}'",
        )
    pairs = () if specific is None else specific_offsets(str(specific), f"{prefix}.specific-offsets")
    return ScanPlace(mode, int(timestamp or 0), pairs, group, fallback)


def specific_offsets(text: str, option: str) -> tuple[tuple[int, int], ...]:
    """Offsets as Flink writes them.

    >>> specific_offsets("partition:0,offset:42;partition:1,offset:300", "scan.startup.specific-offsets")
    ((0, 42), (1, 300))

    Raises:
        OptionError: the text is not of this form.
    """
    pairs: dict[int, int] = {}
    for part in filter(None, (p.strip() for p in text.split(";"))):
        found = _PAIR.fullmatch(part)
        if found is None:
            raise OptionError(option, f"'{option}' expects partition:0,offset:42;partition:1,offset:300, got '{part}'")
        partition, offset = int(found[1]), int(found[2])
        for number, most in ((partition, _MOST_PARTITION), (offset, MAX_INTEGER)):
            if number > most:
                raise OptionError(option, f"'{option}': {number} in '{part}' is too large: it is at most {most}")
        if partition in pairs:
            raise OptionError(option, f"'{option}' names partition {partition} twice", hint="leave one of them out")
        pairs[partition] = offset
    if not pairs:
        raise OptionError(option, f"'{option}' expects partition:0,offset:42;partition:1,offset:300, got '{text}'")
    return tuple(pairs.items())
