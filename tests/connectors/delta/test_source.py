"""The Delta source, of tables that deltalake and others wrote."""

from __future__ import annotations

import datetime
import json
import struct
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("deltalake")

from deltalake import DeltaTable, write_deltalake

from flowrun.api.connector import Comparison, PushedFilter, TableDefinition
from flowrun.connectors.delta import CONNECTOR
from flowrun.connectors.delta.source import DeltaSource
from flowrun.core.options import parse_options
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, DATE, INT, STRING, timestamp
from flowrun.errors import ConnectorError, OptionError, SetupError
from flowrun.testing.connector_conformance import SourceDrive, check_source

COLUMNS = Schema.of(id=BIGINT, item=STRING)


def source(
    folder: Path, schema: Schema = COLUMNS, filters: tuple[PushedFilter, ...] = (), **options: object
) -> DeltaSource:
    parsed, problems = parse_options(CONNECTOR.source_options, {"table-path": str(folder), **options}, "delta")
    if problems:
        raise problems[0]
    assert CONNECTOR.create_source is not None
    made = CONNECTOR.create_source(TableDefinition("t", schema, parsed, filters=filters))
    assert isinstance(made, DeltaSource)
    return made


def add(folder: Path, *rows: tuple[int, str], **how: Any) -> None:
    table = pa.table({"id": [r[0] for r in rows], "item": [r[1] for r in rows]})
    write_deltalake(str(folder), table, mode="append", **how)


def read(made: DeltaSource) -> list[tuple[Any, ...]]:
    return sorted(SourceDrive(made).run(), key=repr)


def test_a_table_keeps_to_the_contract_of_sources(tmp_path: Path) -> None:
    rows = [(i, f"item {i % 7}") for i in range(50)]
    add(tmp_path / "t", *rows[:20], partition_by=["item"])
    add(tmp_path / "t", *rows[20:])
    check_source(source(tmp_path / "t"), rows)


def test_time_travel(tmp_path: Path) -> None:
    path = tmp_path / "t"
    add(path, (1, "a"))
    between = datetime.datetime.now(datetime.UTC) + datetime.timedelta(milliseconds=5)
    while datetime.datetime.now(datetime.UTC) < between:
        pass
    add(path, (2, "b"))
    assert read(source(path)) == [(1, "a"), (2, "b")]
    assert read(source(path, versionAsOf=0)) == [(1, "a")]
    assert read(source(path, timestampAsOf=between.isoformat())) == [(1, "a")]
    with pytest.raises(SetupError, match="has no version of that time"):
        SourceDrive(source(path, timestampAsOf="2001-01-01"))
    with pytest.raises(SetupError, match=r"version 7 of the Delta table at .* does not exist, or is gone"):
        SourceDrive(source(path, versionAsOf=7))


def test_a_table_is_followed_by_version_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "t"
    add(path, (1, "a"))
    made = source(path, mode="streaming")
    drive = SourceDrive(made)
    drive.run()
    add(path, (2, "b"))
    add(path, (3, "c"))
    state, splits = drive.snapshot()
    again = SourceDrive(made, enumerator_state=state, restored=splits)
    again.enumerator.discover()
    assert sorted(again.run()) == [(2, "b"), (3, "c")]
    again.enumerator.discover()
    assert len(again.run()) == 2
    add(path, (4, "d"))
    again.enumerator.discover()
    assert len(again.run()) == 3


def test_where_to_begin_to_follow(tmp_path: Path) -> None:
    path = tmp_path / "t"
    for i in range(3):
        add(path, (i, "x"))
    assert SourceDrive(source(path, mode="streaming", startingVersion=1)).run() == [(1, "x"), (2, "x")]
    latest = SourceDrive(source(path, mode="streaming", startingVersion="latest"))
    assert latest.run() == []
    add(path, (9, "y"))
    latest.enumerator.discover()
    assert latest.run() == [(9, "y")]
    first = DeltaTable(str(path)).history()[-1]["timestamp"]
    assert len(SourceDrive(source(path, mode="streaming", startingTimestamp=first)).run()) == 4


def test_compaction_adds_no_rows_but_deletes_and_updates_must_be_allowed(tmp_path: Path) -> None:
    path = tmp_path / "t"
    add(path, (1, "a"))
    drive = SourceDrive(source(path, mode="streaming"))
    drive.run()
    add(path, (2, "b"))
    DeltaTable(str(path)).optimize.compact()
    drive.enumerator.discover()
    assert drive.run() == [(1, "a"), (2, "b")]
    DeltaTable(str(path)).delete("id = 1")
    with pytest.raises(ConnectorError, match="updated or removed rows") as error:
        drive.enumerator.discover()
    assert error.value.hint is not None
    assert error.value.hint.startswith("ignoreChanges = true")
    changed = SourceDrive(source(path, mode="streaming", ignoreChanges=True, startingVersion=3))
    assert changed.run() == [(2, "b")]
    DeltaTable(str(path)).delete()
    with pytest.raises(ConnectorError, match="removed rows"):
        SourceDrive(source(path, mode="streaming", startingVersion=4))
    assert SourceDrive(source(path, mode="streaming", startingVersion=4, ignoreDeletes=True)).run() == []


def test_a_version_that_left_the_log_before_it_was_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "t"
    add(path, (1, "a"))
    drive = SourceDrive(source(path, mode="streaming"))
    add(path, (2, "b"))
    add(path, (3, "c"))
    DeltaTable(str(path)).create_checkpoint()
    (path / "_delta_log" / f"{1:020d}.json").unlink()
    with pytest.raises(ConnectorError, match="version 1 is not in the log"):
        drive.enumerator.discover()


def test_files_that_filters_exclude_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "t"
    for i in range(4):
        add(path, (10 * i, f"p{i % 2}"), (10 * i + 5, f"p{i % 2}"), partition_by=["item"])
    by_id = PushedFilter("id", Comparison.GE, 20)
    by_partition = PushedFilter("item", Comparison.EQ, "p1")
    assert [r[0] for r in read(source(path, filters=(by_id,)))] == [20, 25, 30, 35]
    assert [r[0] for r in read(source(path, filters=(by_id, by_partition)))] == [30, 35]


def test_columns_are_read_by_name_and_new_ones_are_null_in_old_files(tmp_path: Path) -> None:
    path = tmp_path / "t"
    add(path, (1, "a"))
    write_deltalake(
        str(path),
        pa.table({"id": [2], "item": ["b"], "n": pa.array([7], pa.int32())}),
        mode="append",
        schema_mode="merge",
    )
    assert read(source(path, Schema.of(n=INT, id=BIGINT))) == [(7, 2), (None, 1)]


def test_partition_values_have_their_types(tmp_path: Path) -> None:
    path = tmp_path / "t"
    at = datetime.datetime(2024, 3, 1, 10, 0, 0, 120000)
    table = pa.table(
        {
            "id": [1, 2],
            "d": pa.array([at.date(), None]),
            "t": pa.array([at, None], pa.timestamp("us")),
            "s": ["a/b %=", None],
        }
    )
    write_deltalake(str(path), table, partition_by=["d", "t", "s"])
    made = source(path, Schema.of(id=BIGINT, d=DATE, t=timestamp(3), s=STRING))
    assert read(made) == [(1, at.date(), at, "a/b %="), (2, None, None, None)]


def test_rows_that_a_deletion_vector_deletes_are_not_read(tmp_path: Path) -> None:
    """Deletion vectors are written by Spark; this one is made by hand, after Delta's protocol (inline, Roaring bitmap array)."""
    path = tmp_path / "t"
    add(path, *((i, "x") for i in range(10)))
    log = path / "_delta_log"
    actions = [json.loads(line) for line in (log / f"{0:020d}.json").read_text().splitlines()]
    given = next(a["add"] for a in actions if "add" in a)
    container = struct.pack("<IIHHI", 12346, 1, 0, 1, 16) + struct.pack("<HH", 2, 5)
    raw = struct.pack("<iqI", 1681511377, 1, 0) + container
    vector = {"storageType": "i", "pathOrInlineDv": _z85(raw), "sizeInBytes": len(raw), "cardinality": 2}
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors"],
    }
    remove = {"path": given["path"], "dataChange": True, "deletionTimestamp": int(time.time() * 1000)}
    changed = [{"protocol": protocol}, {"remove": remove}, {"add": {**given, "deletionVector": vector}}]
    (log / f"{1:020d}.json").write_text("\n".join(map(json.dumps, changed)))
    check_source(source(path), [(i, "x") for i in range(10) if i not in (2, 5)], restarts=4)


_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def _z85(raw: bytes) -> str:
    raw += b"\0" * (-len(raw) % 4)
    text = ""
    for i in range(0, len(raw), 4):
        number = int.from_bytes(raw[i : i + 4], "big")
        text += "".join(_Z85[number // 85**p % 85] for p in (4, 3, 2, 1, 0))
    return text


def test_a_table_that_does_not_fit_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "t"
    with pytest.raises(SetupError, match="there is no Delta table at"):
        SourceDrive(source(path))
    add(path, (1, "a"))
    with pytest.raises(SetupError, match="has no column 'idd'; its columns are id, item") as error:
        SourceDrive(source(path, Schema.of(idd=BIGINT)))
    assert error.value.hint == "did you mean 'id'?"
    with pytest.raises(SetupError, match=r"column 'item' of the Delta table at .*: expected BIGINT, got string"):
        SourceDrive(source(path, Schema.of(item=BIGINT)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"versionAsOf": 1, "timestampAsOf": "2024-01-01"}, "exclude each other"),
        ({"mode": "streaming", "versionAsOf": 1}, "mode = streaming follows it"),
        ({"startingVersion": 1}, "needs mode = streaming"),
        ({"mode": "streaming", "startingVersion": "new"}, "must be a version or latest"),
        ({"timestampAsOf": "yesterday"}, "expects a point in time"),
    ],
)
def test_options_that_contradict_each_other(tmp_path: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        source(tmp_path, **options)


def test_a_damaged_file_is_told_once_and_for_all(tmp_path: Path) -> None:
    add(tmp_path / "t", (1, "a"))
    (file,) = (tmp_path / "t").glob("*.parquet")
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(ConnectorError, match=rf"{file.name} is no Parquet file or is truncated") as raised:
        read(source(tmp_path / "t"))
    assert raised.value.retryable is False
    assert "earlier version" in str(raised.value)
