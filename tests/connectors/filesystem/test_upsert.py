"""A folder of files that holds one row a key: updated, deleted, killed, restored at another parallelism."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flowrun.api.changelog import ChangesTaken
from flowrun.api.sink import OrphanDiscarding
from flowrun.connectors.filesystem.sink import FileSink
from flowrun.core.clock import ManualClock
from flowrun.core.elements import RecordBatch, RowKind
from flowrun.core.schema import Field, Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.errors import DataError
from flowrun.operators.factories import SinkOperatorFactory
from flowrun.state.redistribution import redistribute
from flowrun.testing import OperatorHarness

from .tables import hidden_files, read, sink, source, visible_files

SCHEMA = Schema.of(id=BIGINT, name=STRING, day=STRING)
GROUPS = 4
ADD, UB, UA, D = (int(k) for k in RowKind)
Change = tuple[int, int, str, str]


def table(folder: Path, format: str = "json", keys: tuple[str, ...] = (), **options: Any) -> FileSink:
    given = {"sink.upsert.buckets": GROUPS, **options}
    return sink(folder, format, SCHEMA, given, partition_keys=keys, primary_key=("id",), updating=True)


def changes(*rows: Change) -> RecordBatch:
    columns = pa.RecordBatch.from_pylist([{"id": i, "name": n, "day": d} for _, i, n, d in rows], schema=SCHEMA.arrow)
    return RecordBatch(columns, row_kinds=pa.array([k for k, *_ in rows], pa.int8()))


def rows_of(folder: Path, format: str, keys: tuple[str, ...]) -> list[tuple[Any, ...]]:
    return sorted(read(source(folder, format, SCHEMA, partition_keys=keys))) if visible_files(folder) else []


class Job:
    """The sink in several subtasks, with a job master that commits when a checkpoint is complete."""

    def __init__(
        self, target: FileSink, width: int, restored: list[Any] | None = None, owner: str = "job", **options: Any
    ) -> None:
        self.factory = SinkOperatorFactory(target)
        self.committer = target.create_committer()
        self.subtasks = []
        for i in range(width):
            state = redistribute(restored, i, width, GROUPS) if restored else None
            options = {"checkpointing": True, **options}
            harness = OperatorHarness(
                self.factory,
                subtask=i,
                parallelism=width,
                max_parallelism=GROUPS,
                state_keys=[[0]],
                restored=state,
                open=False,
                **options,
            )
            object.__setattr__(harness.context, "owner", owner)
            self.subtasks.append(harness)
        pending = [
            r for h in self.subtasks if h._restored for r in h._restored.operator["committables"].rows.to_pylist()
        ]
        assert isinstance(self.committer, OrphanDiscarding)
        self.committer.discard_orphans(owner, [r["commit_id"] for r in pending])
        for harness in self.subtasks:
            harness.start()
        self.commit()

    def push(self, *rows: Change) -> None:
        for harness in self.subtasks:
            harness.push(changes(*rows))

    def commit(self, some: int | None = None) -> None:
        handed = [c for h in self.subtasks for c in h.committables]
        self.committer.commit(handed if some is None else handed[:some])
        for harness in self.subtasks:
            harness.committables.clear()

    def checkpoint(self, number: int) -> list[Any]:
        taken = [h.snapshot(number) for h in self.subtasks]
        for harness in self.subtasks:
            harness.complete_checkpoint(number)
        self.commit()
        return taken

    def finish(self) -> None:
        for harness in self.subtasks:
            harness.end_input()
            harness.close()
        self.commit()


@pytest.mark.parametrize(
    "format",
    ["json", "csv", "parquet", *(pytest.param(f, marks=pytest.mark.exhaustive) for f in ("avro", "orc", "arrow"))],
)
@pytest.mark.parametrize("width", [1, 3])
def test_files_hold_the_newest_row_of_each_key(tmp_path: Path, format: str, width: int) -> None:
    target = table(tmp_path / "out", format)
    assert target.changes_taken is ChangesTaken.UPSERT
    job = Job(target, width)
    job.push((ADD, 1, "a", "x"), (ADD, 2, "b", "x"), (ADD, 3, "c", "x"))
    job.push((UB, 1, "a", "x"), (UA, 1, "A", "x"), (D, 2, "b", "x"))
    job.finish()
    assert rows_of(tmp_path / "out", format, ()) == [(1, "A", "x"), (3, "c", "x")]
    assert hidden_files(tmp_path / "out") == []


def test_only_the_buckets_that_changed_are_written_again(tmp_path: Path) -> None:
    job = Job(table(tmp_path), 1)
    job.push(*((ADD, i, "a", "x") for i in range(100)))
    job.checkpoint(1)
    before = {f: f.stat().st_ino for f in visible_files(tmp_path)}
    assert len(before) == GROUPS
    job.push((UB, 7, "a", "x"), (UA, 7, "b", "x"))
    job.checkpoint(2)
    after = {f: f.stat().st_ino for f in visible_files(tmp_path)}
    assert before.keys() == after.keys()
    assert sum(before[f] != after[f] for f in before) == 1
    assert rows_of(tmp_path, "json", ())[7] == (7, "b", "x")


def test_a_row_that_moves_to_another_partition_leaves_the_old_one(tmp_path: Path) -> None:
    job = Job(table(tmp_path, "csv", ("day",)), 2)
    job.push((ADD, 1, "a", "mon"), (ADD, 2, "b", "mon"))
    job.checkpoint(1)
    job.push((UB, 1, "a", "mon"), (UA, 1, "a", "tue"))
    job.checkpoint(2)
    assert rows_of(tmp_path, "csv", ("day",)) == [(1, "a", "tue"), (2, "b", "mon")]
    job.push((D, 1, "a", "tue"))
    job.finish()
    assert rows_of(tmp_path, "csv", ("day",)) == [(2, "b", "mon")]


def test_what_goes_on_with_the_state_goes_on_with_the_files(tmp_path: Path) -> None:
    first = Job(table(tmp_path), 2)
    first.push((ADD, 1, "a", "x"), (ADD, 2, "b", "x"))
    taken = first.checkpoint(1)
    before = visible_files(tmp_path)
    for owner in ("resumed elsewhere", "resumed elsewhere once more"):
        job = Job(table(tmp_path), 3, taken, owner)
        job.push((UB, 1, "a", "x"), (UA, 1, owner, "x"))
        job.finish()
        assert visible_files(tmp_path) == before
        assert rows_of(tmp_path, "json", ()) == [(1, owner, "x"), (2, "b", "x")]
    Job(table(tmp_path), 1, owner="another run").finish()
    assert visible_files(tmp_path) == before


def test_without_checkpoints_an_endless_job_shows_its_table_from_time_to_time(tmp_path: Path) -> None:
    clock = ManualClock()
    target = table(tmp_path, **{"sink.rolling-policy.check-interval": "5s"})
    job = Job(target, 1, unbounded=True, checkpointing=False, clock=clock)
    job.push((ADD, 1, "a", "x"))
    assert visible_files(tmp_path) == []
    job.subtasks[0].advance_processing_time(5_000)
    job.push((ADD, 2, "b", "x"))
    job.commit()
    assert rows_of(tmp_path, "json", ()) == [(1, "a", "x")]
    job.finish()
    assert rows_of(tmp_path, "json", ()) == [(1, "a", "x"), (2, "b", "x")]


def test_what_was_not_handed_over_is_removed(tmp_path: Path) -> None:
    job = Job(table(tmp_path), 1)
    job.push((ADD, 1, "a", "x"))
    job.subtasks[0].operator._open_writer._write_buckets()
    assert len(hidden_files(tmp_path)) == 1
    job.subtasks[0].close()
    assert hidden_files(tmp_path) == []


def test_null_in_a_not_null_column_is_refused(tmp_path: Path) -> None:
    schema = Schema((Field("id", BIGINT, nullable=False), Field("name", STRING)))
    target = sink(tmp_path, "json", schema, primary_key=("id",), updating=True)
    harness = OperatorHarness(SinkOperatorFactory(target, "t"), max_parallelism=16)
    with pytest.raises(DataError, match="NOT NULL"):
        harness.push(pa.RecordBatch.from_pylist([{"id": None}], schema=schema.arrow))


def test_without_updates_or_with_a_format_that_carries_them_rows_are_appended(tmp_path: Path) -> None:
    inserts = sink(tmp_path, "json", SCHEMA, primary_key=("id",))
    assert (inserts.primary_key, inserts.changes_taken) == ((), ChangesTaken.APPEND)
    all_changes = sink(tmp_path, "debezium-json", SCHEMA, primary_key=("id",), updating=True)
    assert (all_changes.primary_key, all_changes.changes_taken) == ((), ChangesTaken.ALL)


@pytest.mark.parametrize("keys", [(), ("day",)], ids=["flat", "partitioned"])
@pytest.mark.parametrize("seed", range(6))
def test_killed_at_any_point_and_restored_at_any_parallelism(tmp_path: Path, keys: tuple[str, ...], seed: int) -> None:
    """Files are those of the last complete checkpoint, or newer ones, which the first checkpoint of the next life corrects."""
    rng = random.Random(seed)
    target = table(tmp_path, "json", keys)
    model: dict[int, tuple[str, str]] = {}
    durable: tuple[dict[int, tuple[str, str]], list[Any] | None] = ({}, None)
    for _ in range(10):
        model = dict(durable[0])
        job = Job(target, rng.choice([1, 2, 3]), durable[1])
        for checkpoint in range(1, rng.randrange(2, 5)):
            for _ in range(rng.randrange(4)):
                job.push(*_random_changes(rng, model))
            if rng.random() < 0.15:
                break  # killed with changes that are in no checkpoint
            taken = [h.snapshot(checkpoint) for h in job.subtasks]
            fate = rng.random()
            if fate < 0.15:
                break  # killed before the checkpoint was complete
            if fate < 0.3:
                for harness in job.subtasks:
                    harness.abort_checkpoint(checkpoint)
                continue  # the next one covers it
            if fate > 0.4:  # else this checkpoint is not the one that the next life begins with, though it is committed
                durable = (dict(model), taken)
            for harness in job.subtasks:
                harness.complete_checkpoint(checkpoint)
            if fate > 0.8:
                job.commit(rng.randrange(3))
                break  # killed amid the commit
            job.commit()
            assert rows_of(tmp_path, "json", keys) == sorted((i, n, d) for i, (n, d) in model.items())
    model = dict(durable[0])
    last = Job(target, 2, durable[1])
    last.checkpoint(1)
    assert rows_of(tmp_path, "json", keys) == sorted((i, n, d) for i, (n, d) in model.items())
    last.finish()
    assert hidden_files(tmp_path) == []


def _random_changes(rng: random.Random, model: dict[int, tuple[str, str]]) -> list[Change]:
    made: list[Change] = []
    for _ in range(rng.randrange(1, 6)):
        key = rng.randrange(8)
        old, new = model.get(key), (rng.choice("abc"), rng.choice(["mon", "tue"]))
        if old is None:
            made.append((ADD, key, *new))
            model[key] = new
        elif rng.random() < 0.3:
            made.append((D, key, *old))
            del model[key]
        else:
            made += [(UB, key, *old), (UA, key, *new)]
            model[key] = new
    return made
