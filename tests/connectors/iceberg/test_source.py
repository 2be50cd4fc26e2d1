"""The Iceberg source, of tables that PyIceberg wrote."""

from __future__ import annotations

import datetime
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyiceberg")

from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import LongType

from flowrun.api.connector import Comparison, PushedFilter
from flowrun.api.source import Split
from flowrun.connectors.iceberg.source import IcebergSource
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, DATE, INT, STRING, DataType, decimal, timestamp, timestamp_ltz
from flowrun.errors import ConnectorError, OptionError, SetupError
from flowrun.testing.connector_conformance import SourceDrive, check_source
from tests.connectors.iceberg.tables import create, source, table

COLUMNS = Schema.of(id=BIGINT, item=STRING)
pytestmark = pytest.mark.exhaustive
ARROW = pa.schema([("id", pa.int64()), ("item", pa.string())])


def add(folder: Path, *given: tuple[int, str]) -> int:
    made = table(folder)
    made.append(pa.table({"id": [r[0] for r in given], "item": [r[1] for r in given]}))
    snapshot = made.current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def read(made: IcebergSource) -> list[tuple[Any, ...]]:
    return sorted(SourceDrive(made).run(), key=repr)


def follow(folder: Path, strategy: str = "table_scan_then_incremental", **more: object) -> IcebergSource:
    return source(folder, COLUMNS, streaming=True, **{"starting-strategy": strategy, **more})


def test_a_table_keeps_to_the_contract_of_sources(tmp_path: Path) -> None:
    made = create(tmp_path, ARROW)
    with made.update_spec() as spec:
        spec.add_field("item", IdentityTransform())
    rows = [(i, f"item {i % 3}") for i in range(50)]
    add(tmp_path, *rows[:20])
    add(tmp_path, *rows[20:])
    check_source(source(tmp_path, COLUMNS), rows)


def test_rows_that_position_deletes_delete_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyIceberg reads position deletes, but cannot write them: what Spark would write is put in where it reads them."""
    create(tmp_path, ARROW)
    add(tmp_path, *((i, "x") for i in range(10)))
    from pyiceberg.io import pyarrow as arrow_io
    from pyiceberg.table import DataScan

    plan = DataScan.plan_files

    def with_deletes(scan: Any) -> Any:
        tasks = list(plan(scan))
        for task in tasks:
            task.delete_files = {task.file}
        return tasks

    monkeypatch.setattr(DataScan, "plan_files", with_deletes)
    monkeypatch.setattr(
        arrow_io,
        "_read_all_delete_files",
        lambda _io, tasks: {
            t.file.file_path: [pa.chunked_array([[2, 5]], pa.int64())] for t in tasks if t.delete_files
        },
    )
    check_source(source(tmp_path, COLUMNS), [(i, "x") for i in range(10) if i not in (2, 5)], restarts=4)


def test_time_travel_branches_and_tags(tmp_path: Path) -> None:
    create(tmp_path, ARROW)
    assert read(source(tmp_path, COLUMNS)) == []
    first = add(tmp_path, (1, "a"))
    between = table(tmp_path).snapshots()[-1].timestamp_ms
    while time.time() * 1000 < between + 2:
        pass
    add(tmp_path, (2, "b"))
    table(tmp_path).manage_snapshots().create_tag(first, "old").create_branch(first, "side").commit()
    assert read(source(tmp_path, COLUMNS)) == [(1, "a"), (2, "b")]
    iso = datetime.datetime.fromtimestamp(between / 1000, datetime.UTC).isoformat()
    for travel in (
        {"snapshot-id": first},
        {"as-of-timestamp": between},
        {"as-of-timestamp": iso},
        {"tag": "old"},
        {"branch": "side"},
    ):
        assert read(source(tmp_path, COLUMNS, **travel)) == [(1, "a")], travel
    with pytest.raises(SetupError, match="has no snapshot of snapshot-id = 7, or it was removed") as error:
        read(source(tmp_path, COLUMNS, **{"snapshot-id": 7}))
    assert str(first) in str(error.value.hint)
    with pytest.raises(SetupError, match="has no snapshot of as-of-timestamp"):
        read(source(tmp_path, COLUMNS, **{"as-of-timestamp": "2001-01-01"}))
    with pytest.raises(SetupError, match="tag = side") as error:
        read(source(tmp_path, COLUMNS, tag="side"))
    assert error.value.hint == "it has: old"


def test_an_old_snapshot_has_the_columns_that_the_table_had_then(tmp_path: Path) -> None:
    create(tmp_path, ARROW)
    first = add(tmp_path, (1, "a"))
    with table(tmp_path).update_schema() as update:
        update.rename_column("item", "thing")
        update.add_column("n", LongType())
    renamed = Schema.of(n=BIGINT, thing=STRING, id=BIGINT)
    assert read(source(tmp_path, renamed)) == [(None, "a", 1)]
    assert read(source(tmp_path, COLUMNS, **{"snapshot-id": first})) == [(1, "a")]
    with pytest.raises(SetupError, match="has no column 'item'; its columns are id, thing, n"):
        read(source(tmp_path, COLUMNS))


def test_a_table_is_followed_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    create(tmp_path, ARROW)
    add(tmp_path, (1, "a"))
    made = follow(tmp_path)
    drive = SourceDrive(made)
    assert drive.run() == [(1, "a")]
    add(tmp_path, (2, "b"))
    add(tmp_path, (3, "c"))
    state, splits = drive.snapshot()
    again = SourceDrive(made, enumerator_state=state, restored=splits)
    again.enumerator.discover()
    assert again.run() == [(2, "b"), (3, "c")]
    again.enumerator.discover()
    assert len(again.run()) == 2
    add(tmp_path, (4, "d"))
    again.enumerator.discover()
    assert len(again.run()) == 3


def test_where_to_begin_to_follow(tmp_path: Path) -> None:
    create(tmp_path, ARROW)
    empty = SourceDrive(follow(tmp_path, "incremental_from_latest_snapshot"))
    ids = [add(tmp_path, (i, "x")) for i in range(3)]
    third = next(s for s in table(tmp_path).snapshots() if s.snapshot_id == ids[2]).timestamp_ms
    for strategy, more, begin in (
        ("incremental_from_latest_snapshot", {}, 2),
        ("INCREMENTAL_FROM_EARLIEST_SNAPSHOT", {}, 0),
        ("incremental_from_snapshot_id", {"start-snapshot-id": ids[1]}, 1),
        ("incremental_from_snapshot_timestamp", {"start-snapshot-timestamp": third}, 2),
        ("incremental_from_snapshot_timestamp", {"start-snapshot-timestamp": "2100-01-01"}, 3),
    ):
        assert SourceDrive(follow(tmp_path, strategy, **more)).run() == [(i, "x") for i in range(begin, 3)], strategy
    empty.enumerator.discover()
    assert len(empty.run()) == 3
    with pytest.raises(SetupError, match="snapshot 7 is none of those of"):
        SourceDrive(follow(tmp_path, "incremental_from_snapshot_id", **{"start-snapshot-id": 7}))


def test_snapshots_that_delete_or_overwrite_must_be_allowed(tmp_path: Path) -> None:
    create(tmp_path, ARROW)
    add(tmp_path, (1, "a"), (2, "b"))
    drive = SourceDrive(follow(tmp_path))
    table(tmp_path).delete("id = 1")
    with pytest.raises(ConnectorError, match="updated or overwrote rows") as error:
        drive.enumerator.discover()
    assert error.value.hint == "streaming-skip-overwrite-snapshots = true passes over such snapshots"
    table(tmp_path).delete("id = 2")
    with pytest.raises(ConnectorError, match="deleted rows"):
        SourceDrive(follow(tmp_path, "incremental_from_latest_snapshot"))
    add(tmp_path, (3, "c"))
    skipping = {"streaming-skip-overwrite-snapshots": True, "streaming-skip-delete-snapshots": True}
    assert SourceDrive(follow(tmp_path, "incremental_from_earliest_snapshot", **skipping)).run() == [
        (1, "a"),
        (2, "b"),
        (3, "c"),
    ]


def test_a_snapshot_that_was_removed_before_it_was_read_is_an_error(tmp_path: Path) -> None:
    create(tmp_path, ARROW)
    first = add(tmp_path, (1, "a"))
    drive = SourceDrive(follow(tmp_path))
    second = add(tmp_path, (2, "b"))
    add(tmp_path, (3, "c"))
    table(tmp_path).maintenance.expire_snapshots().by_ids([first, second]).commit()
    with pytest.raises(ConnectorError, match="is not among those that led to the newest one"):
        drive.enumerator.discover()


AT = datetime.datetime(2024, 3, 1, 10, 0, 0, 123456)


@pytest.mark.parametrize(
    ("kind", "values", "comparison", "value", "kept"),
    [
        (BIGINT, [1, 5, 9], Comparison.GE, 5, 2),
        (BIGINT, [1, 5, 9], Comparison.EQ, 2**62, 0),
        (INT, [1, 5, 9], Comparison.LT, 5, 1),
        (STRING, ["a", "b", "c"], Comparison.EQ, "b", 1),
        (DATE, [AT.date(), None, AT.date().replace(day=2)], Comparison.GT, 19783, 1),
        (decimal(10, 2), [Decimal("1.25"), Decimal("2.5"), None], Comparison.EQ, "2.5", 1),
        (decimal(10, 2), [Decimal("1.25"), Decimal("2.5"), None], Comparison.EQ, "2.555", 3),
        (timestamp(3), [AT, AT.replace(day=2), None], Comparison.EQ, 1709287200123, 1),
        (timestamp(3), [AT, AT.replace(day=2), None], Comparison.LE, 1709287200123, 1),
        (timestamp_ltz(3), [AT, AT.replace(day=2), None], Comparison.GT, 1709287200123, 2),
        (STRING, ["a", None, "c"], Comparison.IS_NULL, None, 1),
        (STRING, ["a", None, "c"], Comparison.IS_NOT_NULL, None, 2),
        (BIGINT, [1, 5, 9], Comparison.NE, 5, 3),
    ],
)
@pytest.mark.parametrize("partitioned", [False, True])
def test_files_that_filters_exclude_are_not_read(
    tmp_path: Path,
    kind: DataType,
    values: list[Any],
    comparison: Comparison,
    value: Any,
    kept: int,
    partitioned: bool,
) -> None:
    arrow = pa.schema([("v", kind.arrow if not kind.is_timestamp else pa.timestamp("us", kind.arrow.tz))])
    made = create(tmp_path, arrow)
    if partitioned:
        with made.update_spec() as spec:
            spec.add_field("v", DayTransform() if kind.is_timestamp else IdentityTransform())
        made = table(tmp_path)
    for one in values:
        made.append(pa.table({"v": pa.array([one], arrow.field("v").type)}))
    pushed = (PushedFilter("v", comparison, value),)
    plan = source(tmp_path, Schema.of(v=kind), filters=pushed).create_enumerator(
        1, SourceDrive(source(tmp_path, Schema.of(v=kind))).clock
    )
    plan.start()
    count = 0
    while plan.next_split(0) is not None:
        count += 1
    assert count == kept or (partitioned and kept <= count)


def test_nothing_but_the_number_of_rows_is_read_if_nothing_else_matters(tmp_path: Path) -> None:
    create(tmp_path, ARROW)
    add(tmp_path, (1, "a"), (2, "b"))
    drive = SourceDrive(source(tmp_path, Schema(())))
    drive.run()
    assert sum(b.num_rows for b in drive.emitted) == 2


def test_a_table_that_does_not_fit_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"there is no Iceberg table db.t in catalog 'test'"):
        read(source(tmp_path, COLUMNS))
    create(tmp_path, ARROW)
    with pytest.raises(SetupError, match=r"column 'item' of the Iceberg table db.t .*: expected BIGINT, got"):
        read(source(tmp_path, Schema.of(item=BIGINT)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"snapshot-id": 1, "tag": "x"}, "exclude each other"),
        ({"streaming": True, "snapshot-id": 1}, "streaming = true follows the table"),
        ({"start-snapshot-id": 1}, "needs streaming = true and starting-strategy = incremental_from_snapshot_id"),
        ({"streaming": True, "starting-strategy": "incremental_from_snapshot_id"}, "needs option 'start-snapshot-id'"),
        ({"as-of-timestamp": "yesterday"}, "expects a point in time"),
    ],
)
def test_options_that_contradict_each_other(tmp_path: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        source(tmp_path, COLUMNS, **options)


def test_files_outside_of_the_table_are_read_if_a_snapshot_names_them(tmp_path: Path) -> None:
    made = create(tmp_path, ARROW)
    for name in ("added", "other"):
        pq.write_table(pa.table({"id": [1], "item": [name]}), tmp_path / f"{name}.parquet")
    made.add_files([f"file://{tmp_path}/added.parquet"])
    assert read(source(tmp_path, COLUMNS)) == [(1, "added")]
    drive = SourceDrive(source(tmp_path, COLUMNS))
    drive.answer_requests()
    _, [split] = drive.snapshot()
    altered = Split(split.split_id, {**split.position, "path": f"file://{tmp_path}/other.parquet"})
    with pytest.raises(ConnectorError, match=r"other.parquet is no file of snapshot"):
        SourceDrive(source(tmp_path, COLUMNS), restored=[altered]).run()


def test_a_damaged_file_is_told_once_and_for_all(tmp_path: Path) -> None:
    create(tmp_path, ARROW)
    add(tmp_path, (1, "a"))
    (file,) = (p for p in tmp_path.rglob("*.parquet"))
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(ConnectorError, match=rf"{file.name} cannot be read") as raised:
        read(source(tmp_path, COLUMNS))
    assert raised.value.retryable is False
    assert "earlier snapshot" in str(raised.value)
