"""Files exactly once: killed at any moment, committed again, aborted, and what nobody will commit is found."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flowrun.api.sink import Committable, OrphanDiscarding
from flowrun.connectors.filesystem.sink import FileSink
from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.errors import ConnectorError
from flowrun.operators.factories import SinkOperatorFactory
from flowrun.state.redistribution import redistribute
from flowrun.testing import OperatorHarness
from flowrun.testing.connector_conformance import writer_context
from tests.connectors.filesystem.tables import hidden_files, read, sink, source, visible_files

SCHEMA = Schema.of(id=BIGINT, day=STRING)


def batch(*ids: int) -> RecordBatch:
    return RecordBatch(pa.record_batch([pa.array(ids), pa.array([f"d{i % 3}" for i in ids])], names=["id", "day"]))


def visible_ids(folder: Path, format: str, keys: tuple[str, ...]) -> list[int]:
    files = source(folder, format, SCHEMA, partition_keys=keys)
    return sorted(r[0] for r in read(files)) if visible_files(folder) else []


class Job:
    """A sink in several subtasks with a job master that commits when a checkpoint is complete; may be killed at any point."""

    def __init__(self, target: FileSink, width: int, restored: Sequence[Any], owner: str = "job") -> None:
        self.factory = SinkOperatorFactory(target)
        self.committer = target.create_committer()
        self.subtasks = [
            OperatorHarness(self.factory, subtask=i, parallelism=width, checkpointing=True, open=False)
            for i in range(width)
        ]
        pending = [redistribute(restored, i, width, 128) if restored else None for i in range(width)]
        keep = [r["commit_id"] for p in pending if p for r in p.operator["committables"].rows.to_pylist()]
        assert isinstance(self.committer, OrphanDiscarding)
        self.committer.discard_orphans(owner, keep)
        for harness, state in zip(self.subtasks, pending, strict=True):
            harness._restored = state
            object.__setattr__(harness.context, "owner", owner)
            harness.start()
        self.commit()

    def commit(self, some: int | None = None) -> None:
        handed = [c for h in self.subtasks for c in h.committables]
        self.committer.commit(handed if some is None else handed[:some])
        for harness in self.subtasks:
            harness.committables.clear()


@pytest.mark.parametrize("format", ["json", "parquet", pytest.param("avro", marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("keys", [(), ("day",)], ids=["flat", "partitioned"])
@pytest.mark.parametrize("seed", range(4))
def test_killed_at_any_point_each_row_is_there_once(
    tmp_path: Path, format: str, keys: tuple[str, ...], seed: int
) -> None:
    rng = random.Random(seed)
    out = tmp_path / "out"
    target = sink(out, format, SCHEMA, {"sink.rolling-policy.file-size": "60 b"}, partition_keys=keys)
    durable: tuple[int, list[Any]] = (0, [])
    for _ in range(12):  # lives; a killed process closes nothing
        done, snapshots = durable
        job = Job(target, rng.choice([1, 2, 3]), snapshots)
        assert visible_ids(out, format, keys) == list(range(done)), "what a complete checkpoint holds is visible"
        for checkpoint in range(1, rng.randrange(1, 5)):
            for harness in job.subtasks:
                count = rng.randrange(4)
                if count:
                    harness.push(batch(*range(done, done + count)))
                done += count
            if rng.random() < 0.15:
                break  # killed with rows in open files
            taken = [h.snapshot(checkpoint) for h in job.subtasks]
            fate = rng.random()
            if fate < 0.15:
                break  # killed before the checkpoint was complete
            if fate < 0.35:
                for harness in job.subtasks:
                    harness.abort_checkpoint(checkpoint)
                continue  # aborted: the next one covers it
            durable = (done, taken)
            for harness in job.subtasks:
                harness.complete_checkpoint(checkpoint)
            if fate < 0.6:
                job.commit(rng.randrange(3))
                break  # killed amid the commit
            job.commit()
            assert visible_ids(out, format, keys) == list(range(done))
    Job(target, 1, durable[1])
    assert visible_ids(out, format, keys) == list(range(durable[0]))
    assert hidden_files(out) == [], "nothing is left of all those lives"


def prepared(target: FileSink, *ids: int, attempt: str = "a", owner: str = "job") -> list[Committable]:
    writer = target.create_writer(writer_context(attempt=attempt, owner=owner))
    writer.open()
    writer.write(batch(*ids))
    return list(writer.prepare_commit())


def test_orphans_are_looked_for_in_all_partitions_but_only_those_of_the_owner(tmp_path: Path) -> None:
    target = sink(tmp_path, "json", SCHEMA, partition_keys=("day",))
    pending = prepared(target, 0, 1, attempt="pending")
    prepared(target, 0, 1, 2, attempt="dead")
    prepared(target, 0, attempt="other", owner="another job")
    nobody = prepared(target, 1, attempt="nobody", owner="")
    (tmp_path / "day=d0" / ".mine.inprogress").write_text("of the user")
    committer = target.create_committer()
    assert isinstance(committer, OrphanDiscarding)
    assert committer.discard_orphans("job", [c.commit_id for c in pending]) == 3
    assert committer.discard_orphans("job", [c.commit_id for c in pending]) == 0
    committer.commit([*pending, *nobody])
    assert visible_ids(tmp_path, "json", ("day",)) == [0, 1, 1]
    assert sorted(f.name for f in hidden_files(tmp_path)) == [
        ".mine.inprogress",
        ".part-other-0-0.another job.inprogress",
    ]


def test_there_are_no_orphans_where_there_is_no_folder(tmp_path: Path) -> None:
    committer = sink(tmp_path / "missing", "json", SCHEMA).create_committer()
    assert isinstance(committer, OrphanDiscarding)
    assert committer.discard_orphans("job", []) == 0
    assert not (tmp_path / "missing").exists()


def test_a_committed_file_that_is_gone_with_its_temporary_one_is_a_loss_with_a_remedy(tmp_path: Path) -> None:
    target = sink(tmp_path, "json", SCHEMA)
    first, second = prepared(target, 1, attempt="a"), prepared(target, 2, attempt="b")
    target.create_committer().commit(first)
    visible_files(tmp_path)[0].unlink()
    with pytest.raises(ConnectorError, match="rows are lost") as caught:
        target.create_committer().commit([*first, *second])
    assert "resume from an older checkpoint" in str(caught.value)
    assert str(tmp_path / "part-a-0-0.json") in str(caught.value)


def test_under_checkpointing_a_part_that_is_full_waits_for_the_checkpoint(tmp_path: Path) -> None:
    target = sink(tmp_path, "json", SCHEMA, {"sink.rolling-policy.file-size": "30 b"})
    harness = OperatorHarness(SinkOperatorFactory(target), checkpointing=True, unbounded=True)
    for i in range(6):
        harness.push(batch(i))
    assert harness.committables == []
    assert visible_files(tmp_path) == []
    harness.snapshot()
    assert harness.committables == []
    harness.complete_checkpoint()
    assert len(harness.committables) == 3, "two rows a part"
    target.create_committer().commit(harness.committables)
    assert visible_ids(tmp_path, "json", ()) == list(range(6))


def test_a_parquet_file_is_whole_before_its_checkpoint_is(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    target = sink(tmp_path, "parquet", SCHEMA)
    (part,) = prepared(target, *range(50))
    assert pq.read_table(part.payload["from"]).num_rows == 50


def test_an_operator_tells_its_writers_who_owns_the_files(tmp_path: Path) -> None:
    target = sink(tmp_path, "json", SCHEMA)
    harness = OperatorHarness(SinkOperatorFactory(target), checkpointing=True, open=False)
    object.__setattr__(harness.context, "owner", "8f0e")
    harness.start()
    harness.push(batch(1))
    assert next(f.name for f in hidden_files(tmp_path)).endswith(".8f0e.inprogress")
