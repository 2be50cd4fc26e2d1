"""Marks complete partitions with an empty file: options `sink.partition-commit.*`, which have Flink's names.

A partition is complete when the clock that the trigger names has passed the time of the partition by the delay. The mark (`_SUCCESS`) is
committed together with the files, by the next checkpoint. A partition that gets rows later is marked again. At the end of the input all
partitions are complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import unquote

from flowrun.core.elements import MIN_TIMESTAMP
from flowrun.core.options import Option, Options, OptionType
from flowrun.core.record import record
from flowrun.errors import OptionError

OPTIONS = (
    Option(
        "sink.partition-commit.trigger",
        OptionType.ENUM,
        "Which clock must pass a partition: processing time since its first file, or event time beyond the time that its folders name.",
        default="process-time",
        choices=("process-time", "partition-time"),
    ),
    Option(
        "sink.partition-commit.delay",
        OptionType.DURATION,
        "How long after its time a partition is complete.",
        default=0,
        minimum=0,
    ),
    Option(
        "sink.partition-commit.policy.kind",
        OptionType.ENUM,
        "What marks a complete partition: an empty file in its folder. Without this option nothing does.",
        choices=("success-file",),
    ),
    Option(
        "sink.partition-commit.success-file.name",
        OptionType.STRING,
        "Name of the file that marks a complete partition.",
        default="_SUCCESS",
    ),
    Option(
        "sink.partition-commit.watermark-time-zone",
        OptionType.STRING,
        "Known to Flink; event time is in UTC here.",
        default="UTC",
    ),
    Option(
        "partition.time-extractor.kind",
        OptionType.ENUM,
        "How the time of a partition is found: from the text of its folders.",
        default="default",
        choices=("default",),
    ),
    Option(
        "partition.time-extractor.timestamp-pattern",
        OptionType.STRING,
        "The time of a partition, with $column for the text of a partition column: '$dt $hm:00'. Default: the first column.",
    ),
    Option(
        "partition.time-extractor.timestamp-formatter",
        OptionType.STRING,
        "Known to Flink; yyyy-MM-dd HH:mm:ss and yyyy-MM-dd are understood.",
    ),
)

_FORMATS = ("yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd")


@record
class PartitionCommit:
    """When partitions are marked as complete, and with which file.

    Attributes:
        by_partition_time: whether event time must pass the time that the partition's values say; else processing time must pass the time
            at which the partition was first written.
        delay_ms: by how much it must pass.
        pattern: a text that says the partition's time, with `$column` for the values.
        file_name: the name of the mark.
    """

    by_partition_time: bool
    delay_ms: int
    pattern: str
    file_name: str

    def due_ms(self, folder: str, first_written_ms: int) -> int:
        """When a partition is complete, in ms since the epoch of event time or of processing time.

        Args:
            folder: the folder of the partition, relative to the sink's.
            first_written_ms: the processing time at which the partition was first written.

        Raises:
            ValueError: the values of the partition are no time in the pattern.

        >>> commit = PartitionCommit(True, 60_000, "$dt $hm:00", "_SUCCESS")
        >>> commit.due_ms("dt=1970-01-01/hm=00%3A01", 0)
        120000
        """
        if not self.by_partition_time:
            return first_written_ms + self.delay_ms
        return _time_ms(self.pattern, _values(folder)) + self.delay_ms


def _values(folder: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in folder.split("/"))
    return {unquote(key): unquote(value) for key, _, value in pairs}


def _time_ms(pattern: str, values: Mapping[str, str]) -> int:
    text = pattern
    for name in sorted(values, key=len, reverse=True):
        text = text.replace(f"${name}", values[name])
    moment = datetime.fromisoformat(text.strip())
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def partition_commit(options: Options, partition_keys: Sequence[str]) -> PartitionCommit | None:
    """The policy that a sink's options say; None: partitions are not marked.

    Raises:
        OptionError: the sink has no partitions, or the pattern names a column that is no partition column.
    """
    if options.get("sink.partition-commit.policy.kind") is None:
        return None
    if not partition_keys:
        raise OptionError(
            "sink.partition-commit.policy.kind",
            "partitions can be marked, but the table has none",
            hint="add PARTITIONED BY",
        )
    formatter = options.get("partition.time-extractor.timestamp-formatter")
    if formatter is not None and formatter not in _FORMATS:
        name = "partition.time-extractor.timestamp-formatter"
        raise OptionError(name, f"option '{name}' must be one of {', '.join(_FORMATS)}, got '{formatter}'")
    pattern = options.get("partition.time-extractor.timestamp-pattern")
    text = f"${partition_keys[0]}" if pattern is None else str(pattern)
    if not any(f"${key}" in text for key in partition_keys):
        raise OptionError(
            "partition.time-extractor.timestamp-pattern",
            f"'{text}' names no partition column",
            hint="write $ before a column: " + ", ".join(f"${k}" for k in partition_keys),
        )
    return PartitionCommit(
        by_partition_time=options.text("sink.partition-commit.trigger") == "partition-time",
        delay_ms=options.integer("sink.partition-commit.delay"),
        pattern=text,
        file_name=options.text("sink.partition-commit.success-file.name"),
    )


class OpenPartitions:
    """The partitions that a subtask has written but not marked yet."""

    def __init__(self, policy: PartitionCommit) -> None:
        self.policy = policy
        self._first: dict[str, int] = {}
        self.watermark = MIN_TIMESTAMP

    def written(self, folder: str, now_ms: int) -> None:
        """Note that rows were written to a partition."""
        self._first.setdefault(folder, now_ms)

    def take_complete(self, now_ms: int, *, all_of_them: bool) -> list[str]:
        """Give the partitions that are complete, and forget them.

        Args:
            now_ms: the time of the clock that counts.
            all_of_them: whether all are complete, as at the end of the input.
        """
        reached = self.watermark if self.policy.by_partition_time else now_ms
        complete = [f for f, first in self._first.items() if all_of_them or self._due(f, first) <= reached]
        for folder in complete:
            del self._first[folder]
        return complete

    def _due(self, folder: str, first: int) -> int:
        try:
            return self.policy.due_ms(folder, first)
        except ValueError:  # values that are no time, such as NULL: the partition is complete at the end of the input
            return 2**63 - 1
