"""The Iceberg sink, read back with PyIceberg."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyiceberg")

from pyiceberg.transforms import BucketTransform, DayTransform

from flowrun.api.sink import Committable
from flowrun.connectors.iceberg.sink import IcebergSink
from flowrun.core.schema import Field
from flowrun.core.schema import Schema as Columns
from flowrun.core.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    INT,
    SMALLINT,
    STRING,
    array,
    decimal,
    map_of,
    row,
    time,
    timestamp,
    timestamp_ltz,
)
from flowrun.errors import ConnectorError, DataError, OptionError, SetupError, StateError
from flowrun.testing.connector_conformance import SourceDrive, check_sink, rows_in, writer_context
from tests.connectors.iceberg.tables import ORDERS, batch, catalog, create, rows, sink, source, table

BATCHES = [batch([(1, "a", 1.5), (2, "b", None)]), batch([(3, None, 0.0)]), batch([(4, "d", 2.5), (5, "ü", -1.0)])]

pytestmark = pytest.mark.exhaustive


def write(made: IcebergSink, *batches: Any, attempt: str = "a", subtask: int = 0) -> list[Committable]:
    writer = made.create_writer(writer_context(attempt=attempt, subtask=subtask))
    writer.open()
    for one in batches:
        writer.write(one)
    found = list(writer.prepare_commit())
    writer.close()
    return found


def data_files(folder: Path) -> list[Path]:
    return list((folder / "warehouse").rglob("*.parquet"))


def snapshots(folder: Path) -> int:
    return len(table(folder).snapshots())


@pytest.mark.parametrize("partitions", [(), ("item",)])
def test_rows_keep_to_the_contract_of_sinks(tmp_path: Path, partitions: tuple[str, ...]) -> None:
    check_sink(sink(tmp_path, partitions=partitions), BATCHES, lambda: rows(tmp_path))


def test_all_that_a_checkpoint_holds_is_one_snapshot_whoever_wrote_it(tmp_path: Path) -> None:
    made = sink(tmp_path)
    both = write(made, *BATCHES[:2], attempt="a") + write(made, BATCHES[2], attempt="b", subtask=1)
    assert len(both) == 2
    made.create_committer().commit(both)
    assert snapshots(tmp_path) == 1
    assert rows(tmp_path) == sorted(rows_in(BATCHES), key=repr)


@pytest.mark.parametrize("keys", [(), ("id",)])
def test_a_commit_whose_record_was_lost_is_not_repeated(tmp_path: Path, keys: tuple[str, ...]) -> None:
    made = sink(tmp_path, keys=keys)
    first = write(made, BATCHES[0], attempt="a")
    made.create_committer().commit(first)
    second = write(made, BATCHES[1], attempt="b")
    made.create_committer().commit([*first, *second])  # as after a kill between the commit and its record
    made.create_committer().commit([*first, *second])
    assert snapshots(tmp_path) == 2
    assert rows(tmp_path) == sorted(rows_in(BATCHES[:2]), key=repr)


def overtaken(committer: Any, by: Any) -> Any:
    """A committer that opens the table, and then is overtaken by somebody once."""
    inner, left = committer._open, [by]

    def open_late() -> Any:
        version = inner()
        if left:
            left.pop()()
        return version

    committer._open, committer._sleep = open_late, lambda _: None
    return committer


@pytest.mark.parametrize("keys", [(), ("id",)])
def test_a_zombie_that_commits_the_same_at_the_same_time_commits_nothing(tmp_path: Path, keys: tuple[str, ...]) -> None:
    made = sink(tmp_path, keys=keys)
    given = write(made, BATCHES[0])
    overtaken(made.create_committer(), lambda: made.create_committer().commit(given)).commit(given)
    assert rows(tmp_path) == sorted(rows_in(BATCHES[:1]), key=repr)
    assert snapshots(tmp_path) == 1


@pytest.mark.parametrize("keys", [(), ("id",)])
def test_others_write_the_table_meanwhile(tmp_path: Path, keys: tuple[str, ...]) -> None:
    made = sink(tmp_path, keys=keys)
    given = write(made, BATCHES[0])
    other = pa.table({"id": [9], "item": ["x"], "price": [9.0]})
    overtaken(made.create_committer(), lambda: table(tmp_path).append(other)).commit(given)
    assert rows(tmp_path) == [(1, "a", 1.5), (2, "b", None), (9, "x", 9.0)]
    assert len(data_files(tmp_path)) == 2  # what the try before had written anew is gone


def test_changes_are_applied_by_key_in_one_snapshot(tmp_path: Path) -> None:
    made = sink(tmp_path, keys=("id",))
    committer = made.create_committer()
    committer.commit(write(made, batch([(1, "a", 1.0), (2, "b", 2.0), (3, "c", 3.0)])))
    one = write(made, batch([(1, "a", 1.0), (1, "A", 10.0), (2, "b", 2.0)], kinds=[1, 2, 3]), attempt="b")
    two = write(made, batch([(4, "d", 4.0), (4, "d", 4.0), (4, "D", 5.0)], kinds=[0, 3, 0]), attempt="c", subtask=1)
    committer.commit(one + two)
    assert rows(tmp_path) == [(1, "A", 10.0), (3, "c", 3.0), (4, "D", 5.0)]
    assert snapshots(tmp_path) == 2
    assert not [p for p in data_files(tmp_path) if "_flowrun_changes" in p.parts]


@pytest.mark.parametrize("keys", [(), ("id",)])
def test_a_row_without_a_value_that_the_table_wants_is_an_error(tmp_path: Path, keys: tuple[str, ...]) -> None:
    columns = [pa.field("id", pa.int64(), False), pa.field("item", pa.string(), False), pa.field("price", pa.float64())]
    create(tmp_path, pa.schema(columns))
    made = sink(tmp_path, keys=keys)
    with pytest.raises(DataError, match="column 'item' of the table is NOT NULL") as caught:
        write(made, batch([(1, "a", None), (2, None, 1.0)]))
    assert caught.value.row == 1
    made.create_committer().commit(write(made, batch([(1, "a", None)])))
    if keys:
        made.create_committer().commit(write(made, batch([(1, None, None)], kinds=[3]), attempt="b"))
    assert rows(tmp_path) == ([] if keys else [(1, "a", None)])


def test_files_without_a_changed_key_stay_as_they_are(tmp_path: Path) -> None:
    made = sink(tmp_path, keys=("id",))
    committer = made.create_committer()
    for i in range(3):
        committer.commit(write(made, batch([(10 * i, "a", 1.0), (10 * i + 5, "b", 2.0)]), attempt=f"a{i}"))
    before = {t.file.file_path for t in table(tmp_path).scan().plan_files()}
    committer.commit(write(made, batch([(15, "B", 0.0)]), attempt="b"))
    after = {t.file.file_path for t in table(tmp_path).scan().plan_files()}
    assert (len(before), len(before & after)) == (3, 2)
    assert (15, "B", 0.0) in rows(tmp_path)


@pytest.mark.parametrize("partitions", [(), ("d",)])
def test_keys_of_several_columns_and_types(tmp_path: Path, partitions: tuple[str, ...]) -> None:
    schema = Columns.of(d=DATE, t=timestamp(3), z=timestamp_ltz(3), m=decimal(10, 2), s=STRING, v=INT)
    at = datetime.datetime(2024, 3, 1, 10, 0, 0, 123000)
    utc = at.replace(tzinfo=datetime.UTC)
    keys = [(at.date(), at, utc, Decimal("1.25"), s) for s in "xyz"]
    made = sink(tmp_path, schema, keys=("d", "t", "z", "m", "s"), partitions=partitions)
    committer = made.create_committer()
    committer.commit(write(made, batch([(*k, i) for i, k in enumerate(keys)], schema)))
    committer.commit(write(made, batch([(*keys[1], 7), (*keys[2], 2)], schema, kinds=[2, 3]), attempt="b"))
    assert [r[-1] for r in rows(tmp_path)] == [0, 7]


def test_every_type_is_read_back_by_others(tmp_path: Path) -> None:
    schema = Columns.of(
        s=STRING, i=INT, h=SMALLINT, b=BOOLEAN, y=BYTES, d=DATE, m=decimal(10, 2), t3=timestamp(3), t6=timestamp(6), z=timestamp_ltz(3),
        tm=time(3), a=array(INT), mp=map_of(STRING, BIGINT), r=row(("x", INT), ("y", STRING)),
    )  # fmt: skip
    at = datetime.datetime(2024, 3, 1, 10, 0, 0, 123000)
    utc = at.replace(tzinfo=datetime.UTC)
    given = (
        *("x", 1, 2, True, b"\0", at.date(), Decimal("1.25"), at, at, utc, at.time()),
        *([1, None], [("k", 2)], {"x": 1, "y": "z"}),
    )
    made = sink(tmp_path, schema)
    made.create_committer().commit(write(made, batch([given, (None,) * len(schema)], schema)))
    found = [tuple(r.values()) for r in table(tmp_path).scan().to_arrow().to_pylist()]
    assert found == [given, (None,) * len(schema)]


def test_partitions_of_odd_values_and_hidden_ones(tmp_path: Path) -> None:
    made = create(tmp_path, pa.schema([("id", pa.int64()), ("s", pa.string()), ("t", pa.timestamp("us"))]))
    with made.update_spec() as spec:
        spec.add_identity("s")
        spec.add_field("t", DayTransform())
        spec.add_field("id", BucketTransform(4))
    at = datetime.datetime(2024, 3, 1, 10, 0, 0, 120000)
    given = [(1, "a/b=c %20 ü", at), (2, None, None), (3, "..", at), (4, "a", at.replace(day=2))]
    written = sink(tmp_path, Columns.of(id=BIGINT, s=STRING, t=timestamp(3)))
    written.create_committer().commit(write(written, batch(given, written.schema)))
    assert rows(tmp_path) == sorted(given, key=repr)
    assert len(list(table(tmp_path).scan(row_filter="t < '2024-03-02T00:00:00'").plan_files())) == 2
    with pytest.raises(
        SetupError, match=r"is partitioned by s, day\(t\), bucket\[4\]\(id\), but PARTITIONED BY says s"
    ):
        sink(tmp_path, written.schema, partitions=("s",)).create_writer(writer_context()).open()


def test_a_table_that_is_partitioned_in_another_way_while_rows_wait(tmp_path: Path) -> None:
    made = sink(tmp_path)
    given = write(made, BATCHES[0])
    with table(tmp_path).update_spec() as spec:
        spec.add_identity("item")
    made.create_committer().commit(given)
    assert rows(tmp_path) == sorted(rows_in(BATCHES[:1]), key=repr)
    assert len(list(table(tmp_path).scan().plan_files())) == 2


def test_a_column_that_was_added_while_rows_wait_is_null(tmp_path: Path) -> None:
    made = sink(tmp_path)
    given = write(made, BATCHES[0])
    with table(tmp_path).update_schema() as update:
        update.add_column("n", update._schema.find_type("id"))
    made.create_committer().commit(given)
    assert rows(tmp_path) == [(1, "a", 1.5, None), (2, "b", None, None)]


def test_going_back_takes_the_rows_out_again(tmp_path: Path) -> None:
    made = sink(tmp_path)
    committer: Any = made.create_committer()
    first, second = write(made, BATCHES[0], attempt="a"), write(made, BATCHES[1], attempt="b")
    committer.commit(first)
    committer.commit(second)
    assert [p.is_there for p in committer.committed(second)] == [True]
    for _ in range(2):
        committer.revert(second)
    assert rows(tmp_path) == sorted(rows_in(BATCHES[:1]), key=repr)
    assert [p.is_there for p in committer.committed(second)] == [False]


def expire_all_but_the_newest(folder: Path) -> None:
    made = table(folder)
    newest = made.current_snapshot()
    assert newest is not None
    made.maintenance.expire_snapshots().by_ids(
        [s.snapshot_id for s in made.snapshots() if s.snapshot_id != newest.snapshot_id]
    ).commit()


def test_a_commit_whose_snapshot_was_removed_is_known_by_its_files(tmp_path: Path) -> None:
    made = sink(tmp_path)
    given = write(made, BATCHES[0])
    [old] = given
    old = Committable(old.commit_id, {**old.payload, "written": 0})
    made.create_committer().commit([old])
    table(tmp_path).append(pa.table({"id": [9], "item": ["x"], "price": [9.0]}))
    expire_all_but_the_newest(tmp_path)
    made.create_committer().commit([old])
    assert len(rows(tmp_path)) == 3
    unknown = write(made, BATCHES[1], attempt="b")[0]
    unknown = Committable(unknown.commit_id, {**unknown.payload, "written": 0})
    with pytest.raises(ConnectorError, match="is not known: the snapshots of that time have been removed"):
        made.create_committer().commit([unknown])


def test_what_a_killed_writer_left_goes_and_what_is_committed_stays(tmp_path: Path) -> None:
    made = sink(tmp_path)
    committer: Any = made.create_committer()
    committer.commit(write(made, BATCHES[0], attempt="a"))
    pending = write(made, BATCHES[1], attempt="b")
    write(made, BATCHES[2], attempt="c")
    assert committer.discard_orphans("owner0", {c.commit_id for c in pending}) == 1
    assert len(data_files(tmp_path)) == 2


def test_what_a_commit_that_was_killed_had_written_anew_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = sink(tmp_path, keys=("id",))
    committer: Any = made.create_committer()
    committer.commit(write(made, BATCHES[0], attempt="a"))
    given = write(made, batch([(1, "A", 2.0)]), attempt="b")

    class KilledError(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise KilledError

    monkeypatch.setattr("pyiceberg.table.Table._do_commit", die)
    with pytest.raises(KilledError):
        committer.commit(given)
    monkeypatch.undo()
    before = len(data_files(tmp_path))
    assert committer.discard_orphans("owner0", {c.commit_id for c in given}) == 1
    assert len(data_files(tmp_path)) == before - 1
    committer.commit(given)
    assert rows(tmp_path) == [(1, "A", 2.0), (2, "b", None)]
    assert committer.discard_orphans("owner0", ()) == 0


def test_a_table_that_does_not_fit_is_one_clear_error(tmp_path: Path) -> None:
    create(
        tmp_path,
        pa.schema([("id", pa.int64()), ("item", pa.int32()), pa.field("n", pa.string(), nullable=False)]),
    )
    with pytest.raises(SetupError, match=r"column 'item' of the Iceberg table db.t .* is int32, but STRING is written"):
        sink(tmp_path).create_writer(writer_context()).open()
    with pytest.raises(SetupError, match="has no column 'idd'") as error:
        sink(tmp_path, Columns.of(idd=BIGINT)).create_writer(writer_context()).open()
    assert error.value.hint == "did you mean 'id'?"
    with pytest.raises(SetupError, match="has a column 'n', which the sink does not write, but it is NOT NULL"):
        sink(tmp_path, Columns.of(id=BIGINT)).create_writer(writer_context()).open()


def test_types_and_options_that_are_wrong_are_refused_before_the_run(tmp_path: Path) -> None:
    for kind in (timestamp(9), time(9), array(timestamp(9))):
        with pytest.raises(OptionError, match="connector 'iceberg' cannot write column 'x'"):
            sink(tmp_path, Columns((Field("x", kind),)))
    with pytest.raises(OptionError, match="upsert-enabled needs a PRIMARY KEY"):
        sink(tmp_path, **{"upsert-enabled": True})
    with pytest.raises(OptionError, match="catalog-type = rest needs option 'uri'"):
        sink(tmp_path, **{"catalog-type": "rest", "uri": ""})


def test_a_catalog_that_cannot_be_reached_is_one_clear_error(tmp_path: Path) -> None:
    made = sink(tmp_path, **{"uri": f"sqlite:///{tmp_path}/none/catalog.db"})
    with pytest.raises(ConnectorError, match=r"Iceberg catalog 'test' \(sql\) cannot be reached"):
        made.create_writer(writer_context()).open()


def test_altered_state_reaches_no_other_file(tmp_path: Path) -> None:
    made = sink(tmp_path)
    [given] = write(made, BATCHES[0])
    outside = tmp_path / "part-0123456789ab-0123456789ab-0-1-1.parquet"
    outside.touch()
    file: Any = given.payload["files"][0]  # type: ignore[index,call-overload]
    for path in (f"file://{outside}", file["path"].rpartition("/")[0] + f"/../../../../../{outside.name}", "x.parquet"):
        altered = Committable(given.commit_id, {**given.payload, "files": [{**file, "path": path}]})
        for act in (made.create_committer().commit, made.create_committer().abort):
            with pytest.raises(StateError, match="which no writer of this sink wrote"):
                act([altered])
    damaged = Committable(given.commit_id, {**given.payload, "files": [{**file, "rows": "many"}]})
    with pytest.raises(StateError, match="describes a data file of an Iceberg table wrongly"):
        made.create_committer().commit([damaged])
    assert outside.exists()


def test_an_in_memory_catalog_is_one_for_the_whole_process(tmp_path: Path) -> None:
    options = {"catalog-type": "in-memory", "catalog-name": tmp_path.name, "uri": None}
    made = sink(tmp_path, **options)
    made.create_committer().commit(write(made, BATCHES[0]))
    found = SourceDrive(source(tmp_path, **options)).run()
    assert sorted(found) == [(1, "a", 1.5), (2, "b", None)]


@pytest.mark.parametrize("version", ["1", "2"])
def test_tables_of_each_format_with_tags_of_old_snapshots(tmp_path: Path, version: str) -> None:
    made = catalog(tmp_path)
    made.create_namespace("db")
    created = made.create_table("db.t", ORDERS.arrow, properties={"format-version": version})
    for i in range(2):
        created.append(pa.table({"id": [10 + i], "item": ["x"], "price": [1.0]}))
    first = created.snapshots()[0].snapshot_id
    created.manage_snapshots().create_tag(first, "old").create_branch(first, "side").commit()
    keyed = sink(tmp_path, keys=("id",))
    keyed.create_committer().commit(write(keyed, batch([(10, "y", 2.0), (1, "a", 1.5)]), attempt="a"))
    made_by_rows = sink(tmp_path)
    made_by_rows.create_committer().commit(write(made_by_rows, batch([(2, "b", None)]), attempt="b"))
    assert rows(tmp_path) == [(1, "a", 1.5), (10, "y", 2.0), (11, "x", 1.0), (2, "b", None)]
    assert sorted(table(tmp_path).refs()) == ["main", "old", "side"]
    assert snapshots(tmp_path) == 4


def test_a_table_whose_metadata_cannot_be_written_is_refused_before_anything_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(tmp_path, ORDERS.arrow)
    monkeypatch.setattr("pyiceberg.table.Table.format_version", property(lambda _: 3))
    with pytest.raises(
        SetupError, match="has format version 3, whose metadata PyIceberg cannot write to a sql catalog"
    ):
        sink(tmp_path).create_writer(writer_context()).open()
