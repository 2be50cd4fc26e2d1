"""`views.sql`: DuckDB sees exactly the rows that count, wherever the folder is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from flowrun.api.state import KeyGroupRange, OperatorSnapshot, OperatorState
from flowrun.core.clock import ManualClock
from flowrun.core.elements import CheckpointKind, RecordBatch
from flowrun.state.checkpoints import InFlight, OperatorMetadata
from flowrun.state.storage.folder import JobFolder, open_job_folder
from flowrun.state.storage.state_path import resolve
from flowrun.state.storage.writer import KeyedWriter
from tests.state.storage.jobs import BAG, bag, bag_segment, log, log_segment, metadata, take


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[JobFolder]:
    opened = open_job_folder(str(tmp_path / "it's here"), "my job", lineage="L", clock=ManualClock())
    yield opened
    opened.close()


def rows(path: Path | str, query: str, *before: str) -> list[tuple[object, ...]]:
    with duckdb.connect() as connection:
        for statement in before:
            connection.execute(statement)
        connection.execute(Path(path, "views.sql").read_text())
        return connection.execute(query).fetchall()


def writer(folder: JobFolder, operator_id: str = "a" * 32, name: str = "my op") -> KeyedWriter:
    return KeyedWriter(operator_id, name, 0, KeyGroupRange(0, 16), resolve(folder.job_folder))


def test_only_live_segments_of_a_bag_are_seen(folder: JobFolder) -> None:
    made = writer(folder)
    a, b, c = (bag_segment([(n, n), (n + 10, n)]) for n in range(3))
    take(folder, made, 1, bag(a, b))
    path, state = take(folder, made, 2, bag(b, c))
    assert len(state.keyed["bag"].files) == 2
    assert rows(path, 'SELECT k, v FROM "my op.bag" ORDER BY k') == [(1, 1), (2, 2), (11, 1), (12, 2)]


def test_the_newest_row_of_each_key_of_a_log_is_seen_unless_deleted(folder: JobFolder) -> None:
    made = writer(folder)
    a, b = log_segment({1: 1, 2: 2, 3: 3}), log_segment({2: None, 3: 30, 4: 4})
    take(folder, made, 1, log(a))
    path, _ = take(folder, made, 2, log(a, b))
    assert rows(path, 'SELECT * FROM "my op.log" ORDER BY k') == [(1, 1, 1), (3, 3, 30), (4, 4, 4)]


def test_savepoints_need_no_script(folder: JobFolder, tmp_path: Path) -> None:
    a, b = log_segment({1: 1, 2: 2}), log_segment({2: None})
    path, _ = take(folder, writer(folder), 1, log(a, b), kind=CheckpointKind.SAVEPOINT, directory=str(tmp_path / "sp"))
    assert duckdb.sql(f"SELECT k, v FROM '{path}/*-log-*.parquet'").fetchall() == [(1, 1)]
    assert rows(path, 'SELECT k, v FROM "my op.log"') == [(1, 1)]


def test_a_moved_folder_is_named_by_a_variable(folder: JobFolder, tmp_path: Path) -> None:
    made = writer(folder)
    a, b = bag_segment([(1, 1), (3, 3)]), bag_segment([(2, 2)])
    take(folder, made, 1, bag(a))
    take(folder, made, 2, bag(a, b))
    moved = tmp_path / "moved"
    shutil.copytree(folder.job_folder, moved)
    shutil.rmtree(folder.job_folder)
    os.makedirs(folder.job_folder)
    query = 'SELECT k FROM "my op.bag" ORDER BY k'
    assert rows(moved / "chk-2", query, f"SET VARIABLE flowrun_root = '{moved}'") == [(1,), (2,), (3,)]


def test_all_pieces_of_state_have_views_with_names_of_their_own(folder: JobFolder) -> None:
    target = folder.begin(1, CheckpointKind.CHECKPOINT, None)
    table = pa.Table.from_pylist([{"__key_group": 1, "k": 1, "v": 1}], schema=BAG)
    snapshot = OperatorSnapshot({"t": table, "empty": BAG.empty_table()}, {"s": OperatorState(pa.table({"x": [7]}))})
    operators = {}
    for operator_id, name in (("a" * 32, 'say "hi"'), ("b" * 32, 'Say "hi"')):
        made = writer(folder, operator_id, name)
        state = made.write(1, target, CheckpointKind.CHECKPOINT, snapshot)
        operators[operator_id] = OperatorMetadata(operator_id, None, name, "v", 2, 16, {0: state})
    batch = RecordBatch(pa.RecordBatch.from_pydict({"q": [1, 2]}), pa.array([10, 20]))
    flight = InFlight("exchange", 0, 0, True, (batch,))
    path = folder.finish(target, metadata(folder, 1, state, operators=operators, in_flight=(flight,)))
    names = {n for (n,) in rows(path, "SELECT view_name FROM duckdb_views() WHERE NOT internal")}
    assert names == {'say "hi".t', 'say "hi".s', 'Say "hi".t#bbbbbbbb', 'Say "hi".s#bbbbbbbb', "in_flight"}
    assert rows(path, 'SELECT * FROM "say ""hi"".s"') == [(0, 7)]
    assert rows(path, "SELECT __timestamp, row.q FROM in_flight") == [(10, 1), (20, 2)]
    assert '"hi".empty has no rows' in Path(path, "views.sql").read_text()
