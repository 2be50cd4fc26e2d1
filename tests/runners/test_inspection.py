"""Looking into folders of checkpoints and savepoints: what is there, what it consists of, SQL over it, and what differs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from flowrun.core.elements import MAX_TIMESTAMP, CheckpointKind, RecordBatch, Watermark
from flowrun.errors import PipelineError, StateError
from flowrun.runners.inspection.description import describe
from flowrun.runners.inspection.diff import TableDifference, diff_states
from flowrun.runners.inspection.query import query_state
from flowrun.runners.inspection.snapshots import list_snapshots
from flowrun.runners.inspection.tables import state_tables
from flowrun.runners.inspection.verification import damaged_files
from flowrun.state.checkpoints import ChannelProgress, InFlight
from flowrun.state.storage.locate import SnapshotPath, locate
from tests import savepoint_builders as b
from tests.state_folders import LINEAGE, Names, ShopFolder, shop

MANY = {f"user-{i}": i for i in range(1000)}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[ShopFolder]:
    with ShopFolder(tmp_path / "state") as shop_folder:
        yield shop_folder


def rows(snapshot: SnapshotPath, sql: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = query_state(snapshot, sql).to_pylist()
    return found


def keyed_file(snapshot: Path) -> Path:
    return next(snapshot.glob("*totals*.parquet"))


# ---- listing


def test_a_job_folder_lists_its_checkpoints_and_says_which_would_be_resumed(folder: ShopFolder) -> None:
    folder.take({"ann": 1})
    folder.take({"ann": 2}, unaligned=True)
    (folder.directory / "shop" / "chk-9").mkdir()
    (listed,) = list_snapshots(str(folder.directory / "shop"))
    assert listed.job_name == "shop"
    assert [(s.number, s.state, s.resumed) for s in listed.snapshots] == [
        (1, "complete", False),
        (2, "complete", True),
        (9, "incomplete", False),
    ]
    assert listed.snapshots[0].metadata is not None
    assert listed.snapshots[0].metadata.lineage == LINEAGE


def test_a_checkpoint_that_is_gone_but_for_files_that_others_use_is_told_apart(folder: ShopFolder) -> None:
    names = Names()
    names.add({"ann": "Ann"})
    folder.take({}, names)
    two = folder.take({}, names)
    folder.folder.retain([2])
    (listed,) = list_snapshots(str(two.parent))
    assert [(s.number, s.state) for s in listed.snapshots] == [(1, "used"), (2, "complete")]


def test_a_root_lists_every_job_and_the_savepoints_beside_them(folder: ShopFolder, tmp_path: Path) -> None:
    folder.take({"ann": 1})
    folder.take({"ann": 1}, kind=CheckpointKind.SAVEPOINT, directory=tmp_path / "state")
    found = list_snapshots(str(tmp_path / "state"))
    assert [(Path(f.path).name, [Path(s.path).name for s in f.snapshots]) for f in found] == [
        ("state", ["savepoint-shop-2"]),
        ("shop", ["chk-1"]),
    ]


def test_one_checkpoint_lists_itself_by_folder_or_metadata_file(folder: ShopFolder) -> None:
    one = folder.take({"ann": 1})
    for path in (one, one / "_metadata.json"):
        (listed,) = list_snapshots(str(path))
        assert [s.number for s in listed.snapshots] == [1]


def test_a_damaged_checkpoint_is_listed_with_the_reason_and_hides_no_other(folder: ShopFolder) -> None:
    folder.take({"ann": 1})
    two = folder.take({"ann": 2})
    (two / "_metadata.json").write_text('{"format_version": 1, "che')
    (listed,) = list_snapshots(str(folder.directory / "shop"))
    assert [s.state for s in listed.snapshots] == ["complete", "unreadable"]
    assert listed.snapshots[1].problem is not None
    assert listed.snapshots[1].number == 2


@pytest.mark.parametrize(
    ("name", "said"), [("nowhere", "there is no folder"), ("empty", "no checkpoint or savepoint in")]
)
def test_folders_without_checkpoints_are_refused(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(StateError, match=said):
        list_snapshots(str(tmp_path / name))


def test_a_misspelt_folder_is_suggested(folder: ShopFolder) -> None:
    folder.take({"ann": 1})
    with pytest.raises(StateError) as failed:
        list_snapshots(str(folder.directory / "shopp"))
    assert failed.value.hint is not None
    assert failed.value.hint.endswith("shop'?")


# ---- describing


def test_a_description_has_tables_positions_and_pending_commits(folder: ShopFolder) -> None:
    path = folder.take(MANY, read_to=512, pending=["a", "b"])
    about = {o.saved.name: o for o in describe(locate(str(path)).metadata).operators}
    (table,) = about["per_user"].tables
    assert (table.name, table.rows, table.exact, table.files, table.subtasks) == ("totals", 1000, True, 2, 2)
    assert [(c.name, c.is_key) for c in table.columns] == [
        ("__key_group", False),
        ("user_id", True),
        ("n", False),
        ("total", False),
    ]
    assert table.spread is not None
    assert (table.spread.groups, table.spread.filled) == (128, 128)
    (position,) = about["orders"].positions
    assert (position.split_id, position.position, position.watermark) == (
        "orders.json",
        {"offset": 512},
        1_700_000_000_000,
    )
    assert [(c.commit_id, c.payload) for c in about["out"].commits] == [
        ("a", {"path": "part-0"}),
        ("b", {"path": "part-0"}),
    ]


def test_files_of_earlier_checkpoints_are_told_apart(folder: ShopFolder) -> None:
    names = Names()
    names.add({f"user-{i}": "x" for i in range(100)})
    folder.take({}, names)
    names.add({"user-3": "y"})
    two = folder.take({}, names)
    (table,) = (t for o in describe(locate(str(two)).metadata).operators for t in o.tables if t.name == "names")
    assert (table.incremental, table.exact, table.rows, table.files, table.shared) == ("log", False, 101, 3, 2)


def test_rows_in_flight_are_described_by_exchange() -> None:
    graph = shop()
    exchange = graph.vertices[0].results[0].data_set_id
    batch = RecordBatch(pa.RecordBatch.from_pylist([{"user_id": "a", "amount": 1}] * 3, b.ROWS.arrow))
    metadata = b.savepoint(
        graph,
        in_flight=[InFlight(exchange, 0, 1, False, (batch, Watermark(5), batch))],
        progress=(ChannelProgress(exchange, 0, 1, 4, False), ChannelProgress(exchange, 1, 1, MAX_TIMESTAMP, False)),
    )
    (held,) = describe(metadata).in_flight
    assert held.exchange is not None
    assert (held.exchange.producer, held.exchange.consumer, held.exchange.kind) == ("orders", "per_user", "HASH")
    assert (held.rows, held.events, held.channels, held.watermarks) == (6, 1, 1, (4, MAX_TIMESTAMP))


# ---- querying


def test_every_table_is_a_view_under_several_names(folder: ShopFolder) -> None:
    names = Names()
    names.add({"ann": "Ann"})
    snapshot = locate(str(folder.take({"ann": 3, "bob": 4}, names)))
    for view in ('"per_user.totals"', "per_user.totals", "per_user_totals", "PER_USER.Totals"):
        assert rows(snapshot, f"SELECT user_id, n, total FROM {view} ORDER BY 1") == [
            {"user_id": "ann", "n": 3, "total": pa.scalar("1.50").cast(pa.decimal128(10, 2)).as_py()},
            {"user_id": "bob", "n": 4, "total": pa.scalar("2.00").cast(pa.decimal128(10, 2)).as_py()},
        ]
    # the only table of an operator goes by the operator's name too
    assert rows(snapshot, "SELECT split_id, __subtask FROM orders") == [{"split_id": "orders.json", "__subtask": 0}]


def test_rows_come_as_they_would_be_restored(folder: ShopFolder) -> None:
    names = Names()
    names.add({"ann": "Ann", "bob": "Bob", "cid": "Cid"})
    folder.take({}, names)
    names.add({"ann": "Anna", "bob": None})
    snapshot = locate(str(folder.take({}, names)))
    assert rows(snapshot, "SELECT * EXCLUDE (__key_group) FROM per_user_names ORDER BY user_id") == [
        {"user_id": "ann", "name": "Anna"},
        {"user_id": "cid", "name": "Cid"},
    ]


def test_dead_segments_of_a_bag_do_not_count(folder: ShopFolder) -> None:
    names = Names()
    names.add({"ann": "Ann"})
    names.add({"bob": "Bob"})
    found = locate(str(folder.take({}, names)))
    saved = next(o for o in found.metadata.operators.values() if o.name == "per_user")
    subtasks = {}
    for i, subtask in saved.subtasks.items():
        table = subtask.keyed["names"]
        bag = replace(table, key=None, files=tuple(replace(r, live=(1,)) for r in table.files))
        subtasks[i] = replace(subtask, keyed={"names": bag})
    operators = {**found.metadata.operators, saved.operator_id: replace(saved, subtasks=subtasks)}
    snapshot = SnapshotPath(found.root, found.folder, replace(found.metadata, operators=operators))
    assert rows(snapshot, "SELECT user_id FROM per_user") == [{"user_id": "bob"}]


def test_joins_and_descriptions_work(folder: ShopFolder) -> None:
    names = Names()
    names.add({"ann": "Ann"})
    snapshot = locate(str(folder.take({"ann": 3, "bob": 4}, names)))
    joined = "SELECT name, n FROM per_user_totals LEFT JOIN per_user_names USING (user_id) ORDER BY n"
    assert rows(snapshot, joined) == [{"name": "Ann", "n": 3}, {"name": None, "n": 4}]
    assert {r["column_name"] for r in rows(snapshot, "DESCRIBE per_user_totals")} >= {"user_id", "n", "total"}
    assert len(rows(snapshot, "SHOW TABLES")) > 3
    assert rows(snapshot, "PIVOT per_user_totals ON user_id USING sum(n)")
    assert rows(snapshot, "WITH big AS (FROM per_user_totals WHERE n > 3) SELECT count(*) AS c FROM big") == [{"c": 1}]


def test_operators_of_one_name_are_told_apart_by_their_ids() -> None:
    orders = b.source(uid="orders")
    graph = b.job(b.sink(b.counted(orders, uid="a"), uid="x"), b.sink(b.counted(orders, "Per_User", uid="b"), "y"))
    tables = state_tables(b.savepoint(graph, {n: {"counts": b.COUNTS} for n in ("per_user", "Per_User")}))
    assert tables[0].title == "per_user.counts"
    assert tables[1].title.startswith("Per_User#")
    assert len({a.lower() for t in tables for a in t.aliases}) == sum(len(t.aliases) for t in tables)


@pytest.mark.parametrize(
    ("sql", "message", "hint"),
    [
        ("SELCT 1", "LINE 1: SELCT 1", None),
        ("SELECT nope FROM orders", "^", None),
        (
            "SELECT * FROM per_user_total",
            "Table with name per_user_total does not exist",
            "did you mean 'per_user_totals'",
        ),
        ("SELECT * FROM zzz", "Table with name zzz does not exist", "tables: orders, per_user"),
        ("SELECT 1; SELECT 2", "only one statement that reads", None),
        ("CREATE TABLE t (a INT)", "only one statement that reads", None),
        ("COPY orders TO '/tmp/x.csv'", "only one statement that reads", None),
        ("SELECT * FROM read_csv('/etc/passwd')", "disabled by configuration", None),
        ("SELECT * FROM '/etc/passwd.csv'", "disabled by configuration", None),
        ("SET enable_external_access = true", "only one statement that reads", None),
        ("", "only one statement that reads", None),
    ],
)
def test_wrong_sql_is_explained(folder: ShopFolder, sql: str, message: str, hint: str | None) -> None:
    snapshot = locate(str(folder.take({"ann": 1})))
    with pytest.raises(PipelineError) as failed:
        query_state(snapshot, sql)
    (diagnostic,) = failed.value.diagnostics
    assert message in diagnostic.message
    assert hint is None or (diagnostic.hint is not None and hint in diagnostic.hint)
    assert "pg_" not in diagnostic.message


def test_only_the_files_of_tables_that_are_read_are_opened(folder: ShopFolder) -> None:
    path = folder.take({"ann": 1})
    for file in path.glob("*totals*.parquet"):
        file.unlink()
    snapshot = locate(str(path))
    assert rows(snapshot, "SELECT count(*) AS c FROM orders") == [{"c": 1}]
    with pytest.raises(StateError, match="is missing"):
        query_state(snapshot, "SELECT * FROM per_user")


def test_truncated_and_altered_files_are_noticed(folder: ShopFolder) -> None:
    path = folder.take(MANY)
    file = keyed_file(path)
    whole = file.read_bytes()
    file.write_bytes(whole[:-10])
    with pytest.raises(StateError, match="truncated"):
        query_state(locate(str(path)), "FROM per_user")
    middle = len(whole) // 4
    file.write_bytes(whole[:middle] + bytes([whole[middle] ^ 0xFF]) + whole[middle + 1 :])
    with pytest.raises(StateError, match="is altered between bytes"):
        query_state(locate(str(path)), "SELECT * FROM per_user")
    assert len(damaged_files(locate(str(path)))) == 1


def test_a_folder_that_was_moved_is_read_where_it_is(folder: ShopFolder, tmp_path: Path) -> None:
    folder.take({"ann": 1}, kind=CheckpointKind.SAVEPOINT, directory=tmp_path)
    shutil.move(tmp_path / "savepoint-shop-1", tmp_path / "elsewhere")
    assert rows(locate(str(tmp_path / "elsewhere")), "SELECT n FROM per_user") == [{"n": 1}]


# ---- differences


def difference(first: Path, second: Path, title: str = "per_user.totals") -> TableDifference:
    return next(d for d in diff_states(locate(str(first)), locate(str(second))) if d.title == title)


def test_equal_states_have_no_differences(folder: ShopFolder) -> None:
    one, two = folder.take(MANY), folder.take(MANY)
    assert all(d.is_equal for d in diff_states(locate(str(one)), locate(str(two))))


def test_keys_are_added_removed_and_changed(folder: ShopFolder) -> None:
    one = folder.take({**MANY, "gone": 1})
    two = folder.take({**MANY, "user-5": 77, "new": 3})
    found = difference(one, two)
    assert found.rows == (1001, 1001)
    assert (found.keys_added, found.keys_removed, found.keys_changed) == (1, 1, 1)
    assert (found.rows_added, found.rows_removed) == (2, 2)
    assert found.sample is not None
    assert [(r["__change"], r["user_id"], r["n"]) for r in found.sample.to_pylist()] == [
        ("-", "gone", 1),
        ("+", "new", 3),
        ("-", "user-5", 5),
        ("+", "user-5", 77),
    ]


def test_large_tables_are_compared_piece_by_piece(folder: ShopFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    from flowrun.runners.inspection import diff

    one, two = folder.take({**MANY, "gone": 1}), folder.take({**MANY, "user-5": 77, "new": 3})
    whole = difference(one, two)
    monkeypatch.setattr(diff, "_ROWS_AT_A_TIME", 100)
    assert difference(one, two) == whole


def test_the_parallelism_makes_no_difference(tmp_path: Path) -> None:
    with ShopFolder(tmp_path / "a") as one, ShopFolder(tmp_path / "b", shop(3)) as two:
        assert difference(one.take(MANY), two.take(MANY)).is_equal


def test_a_table_in_only_one_of_them_is_all_added_or_removed(folder: ShopFolder) -> None:
    names = Names()
    names.add({"ann": "Ann", "bob": "Bob"})
    one, two = folder.take({"ann": 1}), folder.take({"ann": 1}, names)
    added = difference(one, two, "per_user.names")
    assert (added.rows, added.rows_added) == ((None, 2), 2)
    removed = difference(two, one, "per_user.names")
    assert (removed.rows, removed.rows_removed) == ((2, None), 2)


def test_source_positions_are_compared_by_split(folder: ShopFolder) -> None:
    one, two = folder.take({}, read_to=1), folder.take({}, read_to=2)
    found = difference(one, two, "orders.splits")
    assert (found.keys, found.keys_changed, found.keys_added) == (("split_id",), 1, 0)


def test_columns_that_differ_are_named_and_the_others_compared(folder: ShopFolder) -> None:
    path = folder.take({"ann": 1})
    found = locate(str(path))
    saved = next(o for o in found.metadata.operators.values() if o.name == "per_user")
    narrow = {
        i: replace(s, keyed={"totals": replace(s.keyed["totals"], schema=s.keyed["totals"].schema.remove(3))})
        for i, s in saved.subtasks.items()
    }
    operators = {**found.metadata.operators, saved.operator_id: replace(saved, subtasks=narrow)}
    before = SnapshotPath(found.root, found.folder, replace(found.metadata, operators=operators))
    (totals,) = (d for d in diff_states(before, found) if d.title == "per_user.totals")
    assert totals.columns == ("column 'total' decimal128(10, 2) was added",)
    assert (totals.rows_added, totals.rows_removed, totals.is_equal) == (0, 0, False)


# ---- DuckDB without us


def test_duckdb_reads_the_same_rows_with_the_script_in_the_folder(folder: ShopFolder) -> None:
    import duckdb

    names = Names()
    names.add({"ann": "Ann", "bob": "Bob"})
    folder.take({}, names)
    names.add({"ann": "Anna", "bob": None})
    path = folder.take(MANY, names, pending=["a"])
    snapshot = locate(str(path))
    with duckdb.connect(":memory:") as connection:
        for statement in connection.extract_statements((path / "views.sql").read_text()):
            connection.execute(statement).fetchall()
        for table in state_tables(snapshot.metadata):
            sql = f'SELECT * FROM "{table.title}" ORDER BY ALL'
            assert connection.sql(sql).to_arrow_table().to_pylist() == rows(snapshot, sql), table.title
