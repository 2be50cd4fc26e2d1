"""Marks of complete partitions: by event time, by processing time, at the end, and after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flowrun.connectors.filesystem.sink import FileSink
from flowrun.core.clock import ManualClock
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.errors import OptionError
from flowrun.operators.factories import SinkOperatorFactory
from flowrun.testing import OperatorHarness

from .tables import sink

SCHEMA = Schema.of(id=BIGINT, dt=STRING, hm=STRING)
BY_TIME = {
    "sink.partition-commit.trigger": "partition-time",
    "sink.partition-commit.delay": "1 min",
    "sink.partition-commit.policy.kind": "success-file",
    "partition.time-extractor.timestamp-pattern": "$dt $hm:00",
}


def table(folder: Path, **options: Any) -> FileSink:
    return sink(folder, "csv", SCHEMA, {**BY_TIME, **options}, partition_keys=("dt", "hm"))


def opened(target: FileSink, **options: Any) -> OperatorHarness:
    return OperatorHarness(SinkOperatorFactory(target), checkpointing=True, **options)


def push(harness: OperatorHarness, *minutes: str | None) -> None:
    rows = [{"id": i, "dt": "1970-01-01", "hm": m} for i, m in enumerate(minutes)]
    harness.push(pa.RecordBatch.from_pylist(rows, schema=SCHEMA.arrow))


def checkpoint(target: FileSink, harness: OperatorHarness, number: int) -> None:
    harness.snapshot(number)
    harness.complete_checkpoint(number)
    target.create_committer().commit(harness.committables)
    harness.committables.clear()


def marked(folder: Path, name: str = "_SUCCESS") -> list[str]:
    return sorted(p.parent.name.removeprefix("hm=").replace("%3A", ":") for p in folder.rglob(name))


def test_a_partition_is_marked_once_event_time_has_passed_it(tmp_path: Path) -> None:
    target = table(tmp_path)
    harness = opened(target)
    push(harness, "00:01", "00:02", None)
    harness.watermark(119_999)
    checkpoint(target, harness, 1)
    assert marked(tmp_path) == []
    harness.watermark(120_000)
    checkpoint(target, harness, 2)
    assert marked(tmp_path) == ["00:01"]
    harness.end_input()
    target.create_committer().commit(harness.committables)
    assert marked(tmp_path) == ["00:01", "00:02", "__HIVE_DEFAULT_PARTITION__"]


def test_processing_time_counts_from_the_first_file(tmp_path: Path) -> None:
    clock = ManualClock()
    options = {"sink.partition-commit.trigger": "process-time", "sink.partition-commit.success-file.name": "_DONE"}
    target = table(tmp_path, **options)
    harness = opened(target, clock=clock)
    push(harness, "00:01")
    clock.advance(60_000)
    push(harness, "00:01", "00:02")
    checkpoint(target, harness, 1)
    assert marked(tmp_path, "_DONE") == ["00:01"]


def test_a_restarted_job_marks_what_was_written_before(tmp_path: Path) -> None:
    target = table(tmp_path)
    first = opened(target)
    push(first, "00:01")
    checkpoint(target, first, 1)
    second = opened(target)
    second.watermark(120_000)
    checkpoint(target, second, 1)
    assert marked(tmp_path) == ["00:01"]


def test_what_cannot_be_marked_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="the table has none"):
        sink(tmp_path, "csv", SCHEMA, BY_TIME)
    with pytest.raises(OptionError, match="names no partition column"):
        table(tmp_path, **{"partition.time-extractor.timestamp-pattern": "$day"})
    with pytest.raises(OptionError, match="must be one of"):
        table(tmp_path, **{"partition.time-extractor.timestamp-formatter": "dd.MM.yyyy"})
    with pytest.raises(OptionError, match="never complete"):
        sink(tmp_path, "csv", SCHEMA, BY_TIME, partition_keys=("dt", "hm"), primary_key=("id",), updating=True)


def test_who_takes_back_a_part_by_its_name_takes_the_mark_of_its_partition_too(tmp_path: Path) -> None:
    target = table(tmp_path)
    harness = opened(target, open=False)
    object.__setattr__(harness.context, "owner", "0123456789abcdef")
    object.__setattr__(harness.context, "first_checkpoint_id", 4)
    harness.start()
    push(harness, "00:01")
    harness.watermark(180_000)
    checkpoint(target, harness, 5)
    push(harness, "00:07")
    harness.watermark(1_000_000)
    checkpoint(target, harness, 6)
    (tmp_path / "part-0123456789ab-9.csv").write_text("of the user")
    committer = target.create_committer()
    told = committer.told()
    assert [(t.owner, t.checkpoint_id, len(t.committables)) for t in told] == [
        ("0123456789ab", 4, 2),
        ("0123456789ab", 6, 2),
    ]
    committer.revert(told[1].committables)
    committer.revert(told[1].committables)
    assert marked(tmp_path) == ["00:01"]
    assert [p.parent.name for p in tmp_path.rglob("hm=*/part-*")] == ["hm=00%3A01"]


def test_notes_are_hidden_from_readers_and_found_again(tmp_path: Path) -> None:
    committer = table(tmp_path / "out").create_committer()
    assert list(committer.notes()) == []
    committer.leave_note(b"one")
    committer.leave_note(b"two")
    assert sorted(n.content for n in committer.notes()) == [b"one", b"two"]
    assert all(p.name.startswith(".") for p in (tmp_path / "out").iterdir())
