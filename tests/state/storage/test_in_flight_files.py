"""Each subtask writes the rows that were in flight to and from it; the metadata only says where they are."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from flowrun.core.clock import ManualClock
from flowrun.core.elements import IDLE, CheckpointKind, RecordBatch, Watermark
from flowrun.errors import StateError
from flowrun.state.checkpoints import InFlight, OperatorSubtaskState, StoredRows, SubtaskSnapshot, rows_of
from flowrun.state.storage.folder import JobFolder, open_job_folder
from flowrun.state.storage.metadata_file import metadata_in
from flowrun.state.storage.state_path import resolve
from tests.state.storage.jobs import metadata


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[JobFolder]:
    opened = open_job_folder(str(tmp_path / "state"), "my job", lineage="L", clock=ManualClock())
    yield opened
    opened.close()


def batch(chance: random.Random, count: int) -> RecordBatch:
    columns = pa.record_batch({"q": pa.array([chance.randrange(99) for _ in range(count)], pa.int64())})
    times = pa.array(range(count)) if chance.random() < 0.7 else None
    kinds = pa.array([chance.randrange(4) for _ in range(count)], pa.int8()) if chance.random() < 0.5 else None
    return RecordBatch(columns, times, kinds)


def held(chance: random.Random, subtask: int) -> list[InFlight]:
    """What was in flight to and from one subtask, on two exchanges."""
    found = []
    for data_set in ("one", "two"):
        for channel in range(chance.randint(0, 3)):
            elements: list[RecordBatch | Watermark] = []
            for _ in range(chance.randint(1, 5)):
                elements += [batch(chance, chance.randint(1, 4)), Watermark(chance.randrange(9))]
            found.append(InFlight(data_set, channel, subtask, chance.random() < 0.5, (*elements, IDLE)))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_what_subtasks_wrote_is_read_again_by_tasks_and_from_the_metadata(folder: JobFolder, seed: int) -> None:
    chance = random.Random(seed)
    target = folder.begin(1, CheckpointKind.CHECKPOINT, None)
    whole = [held(chance, subtask) for subtask in range(3)]
    stored = [folder.write_in_flight(target, mine) for mine in whole]
    assert not any(isinstance(e, RecordBatch) for mine in stored for i in mine for e in i.elements)
    for mine, kept in zip(whole, stored, strict=True):
        read = folder.read_in_flight([i.elements for i in kept], folder.job_folder)
        assert read == [i.elements for i in mine]
    everything = tuple(i for kept in stored for i in kept)
    path = folder.finish(target, metadata(folder, 1, OperatorSubtaskState("a" * 32), in_flight=everything))
    assert metadata_in(resolve(path)).in_flight == tuple(i for mine in whole for i in mine)
    with duckdb.connect() as connection:
        connection.execute(Path(path, "views.sql").read_text())
        views = connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
        seen = sum(connection.execute(f'SELECT count(*) FROM "{name}"').fetchall()[0][0] for (name,) in views)
    assert len(views) == len({i.data_set_id for i in everything})
    assert seen == sum(rows.num_rows for i in everything for rows in rows_of(i.elements))


def stored(folder: JobFolder, target: str) -> SubtaskSnapshot:
    rows = RecordBatch(pa.record_batch({"q": [1, 2]}))
    return SubtaskSnapshot(
        (), folder.write_in_flight(target, [InFlight("one", 0, 0, True, (rows, Watermark(1), rows))])
    )


def test_files_of_rows_in_flight_are_among_those_of_the_snapshot_and_go_with_it(folder: JobFolder) -> None:
    target = folder.begin(1, CheckpointKind.CHECKPOINT, None)
    snapshot = stored(folder, target)
    (file,) = snapshot.files
    assert snapshot.state_files == ()
    assert os.path.exists(os.path.join(folder.job_folder, file.path))
    folder.discard(target, snapshot.files)
    assert not os.path.exists(os.path.join(folder.job_folder, file.path))


def test_they_stay_as_long_as_their_checkpoint_is_retained(folder: JobFolder) -> None:
    for number in (1, 2):
        target = folder.begin(number, CheckpointKind.CHECKPOINT, None)
        snapshot = stored(folder, target)
        folder.finish(target, metadata(folder, number, OperatorSubtaskState("a" * 32), in_flight=snapshot.in_flight))
    folder.retain([2])
    assert not os.path.exists(os.path.join(folder.job_folder, "chk-1"))
    (kept,) = snapshot.in_flight
    assert [type(e) for e in kept.elements] == [StoredRows, Watermark, StoredRows]
    read = folder.read_in_flight([kept.elements], folder.job_folder)
    assert [e.num_rows for e in read[0] if isinstance(e, RecordBatch)] == [2, 2]


def test_a_damaged_file_is_an_error_of_the_task_that_reads_it(folder: JobFolder) -> None:
    target = folder.begin(1, CheckpointKind.CHECKPOINT, None)
    (kept,) = stored(folder, target).in_flight
    rows = kept.elements[0]
    assert isinstance(rows, StoredRows)
    Path(folder.job_folder, rows.source.file.path).write_bytes(b"PAR1")
    with pytest.raises(StateError, match="in-flight"):
        folder.read_in_flight([kept.elements], folder.job_folder)
