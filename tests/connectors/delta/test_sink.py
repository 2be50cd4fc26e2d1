"""The Delta sink, read back with deltalake and DuckDB."""

from __future__ import annotations

import datetime
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("deltalake")

from deltalake import DeltaTable, Schema, write_deltalake

from flowrun.api.connector import TableDefinition
from flowrun.api.sink import Committable
from flowrun.connectors.delta import CONNECTOR
from flowrun.connectors.delta.sink import DeltaSink
from flowrun.connectors.delta.table import DeltaLocation
from flowrun.connectors.lake.committables import file_origin
from flowrun.core.elements import RecordBatch
from flowrun.core.options import parse_options
from flowrun.core.schema import Field
from flowrun.core.schema import Schema as Columns
from flowrun.core.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INT,
    SMALLINT,
    STRING,
    array,
    decimal,
    map_of,
    time,
    timestamp,
    timestamp_ltz,
)
from flowrun.core.types import row as row_of
from flowrun.errors import ConnectorError, DataError, OptionError, SetupError, StateError
from flowrun.testing.connector_conformance import check_sink, rows_in, writer_context

ORDERS = Columns.of(id=BIGINT, item=STRING, price=DOUBLE)


def sink(
    folder: Path, schema: Columns = ORDERS, keys: tuple[str, ...] = (), partitions: tuple[str, ...] = ()
) -> DeltaSink:
    options, problems = parse_options(CONNECTOR.sink_options, {"table-path": str(folder)}, "delta")
    assert not problems
    assert CONNECTOR.create_sink is not None
    made = CONNECTOR.create_sink(
        TableDefinition("out", schema, options, primary_key=keys, partition_keys=partitions, updating=bool(keys))
    )
    assert isinstance(made, DeltaSink)
    return made


def batch(rows: list[tuple[Any, ...]], schema: Columns = ORDERS, kinds: list[int] | None = None) -> RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(list(c), f.type.arrow) for c, f in zip(columns, schema, strict=True)]
    return RecordBatch(
        pa.RecordBatch.from_arrays(arrays, schema=schema.arrow),
        row_kinds=None if kinds is None else pa.array(kinds, pa.int8()),
    )


def write(made: DeltaSink, *batches: RecordBatch, attempt: str = "a", subtask: int = 0) -> list[Committable]:
    writer = made.create_writer(writer_context(attempt=attempt, subtask=subtask))
    writer.open()
    for one in batches:
        writer.write(one)
    found = list(writer.prepare_commit())
    writer.close()
    return found


def rows(folder: Path) -> list[tuple[Any, ...]]:
    if not (folder / "_delta_log").exists():
        return []
    return sorted((tuple(r.values()) for r in DeltaTable(str(folder)).to_pyarrow_table().to_pylist()), key=repr)


def data_files(folder: Path) -> list[Path]:
    return [p for p in folder.rglob("*.parquet") if "_delta_log" not in p.parts]


BATCHES = [batch([(1, "a", 1.5), (2, "b", None)]), batch([(3, None, 0.0)]), batch([(4, "d", 2.5), (5, "ü", -1.0)])]


@pytest.mark.parametrize("partitions", [(), ("item",)])
def test_rows_keep_to_the_contract_of_sinks(tmp_path: Path, partitions: tuple[str, ...]) -> None:
    check_sink(sink(tmp_path / "t", partitions=partitions), BATCHES, lambda: rows(tmp_path / "t"))


def test_all_that_a_checkpoint_holds_is_one_version_whoever_wrote_it(tmp_path: Path) -> None:
    made = sink(tmp_path / "t")
    both = write(made, *BATCHES[:2], attempt="a") + write(made, BATCHES[2], attempt="b", subtask=1)
    assert len(both) == 2
    before = DeltaTable(str(tmp_path / "t")).version()
    made.create_committer().commit(both)
    assert DeltaTable(str(tmp_path / "t")).version() == before + 1
    assert rows(tmp_path / "t") == sorted(rows_in(BATCHES), key=repr)


@pytest.mark.parametrize("keys", [(), ("id",)])
def test_a_commit_whose_record_was_lost_is_not_repeated(tmp_path: Path, keys: tuple[str, ...]) -> None:
    made = sink(tmp_path / "t", keys=keys)
    first = write(made, BATCHES[0], attempt="a")
    made.create_committer().commit(first)
    second = write(made, BATCHES[1], attempt="b")
    version = DeltaTable(str(tmp_path / "t")).version()
    made.create_committer().commit([*first, *second])  # as after a kill between the commit and its record
    made.create_committer().commit([*first, *second])
    assert DeltaTable(str(tmp_path / "t")).version() == version + 1
    assert rows(tmp_path / "t") == sorted(rows_in(BATCHES[:2]), key=repr)


@pytest.mark.parametrize("keys", [(), ("id",)])
def test_a_zombie_that_commits_the_same_at_the_same_time_commits_nothing(tmp_path: Path, keys: tuple[str, ...]) -> None:
    made = sink(tmp_path / "t", keys=keys)
    given = write(made, BATCHES[0])
    zombie, committer = made.create_committer(), made.create_committer()
    opened: Any = zombie
    inner, first = opened._open, [True]

    def open_and_be_overtaken() -> Any:
        version = inner()
        if first.pop() if first else False:
            committer.commit(given)
        return version

    opened._open, opened._sleep = open_and_be_overtaken, lambda _: None
    zombie.commit(given)
    assert rows(tmp_path / "t") == sorted(rows_in(BATCHES[:1]), key=repr)


def test_others_write_the_table_meanwhile(tmp_path: Path) -> None:
    made = sink(tmp_path / "t")
    given = write(made, BATCHES[0])
    write_deltalake(str(tmp_path / "t"), pa.table({"id": [9], "item": ["x"], "price": [9.0]}), mode="append")
    made.create_committer().commit(given)
    assert len(rows(tmp_path / "t")) == 3


def test_changes_are_applied_by_key_in_one_version(tmp_path: Path) -> None:
    made = sink(tmp_path / "t", keys=("id",))
    committer = made.create_committer()
    committer.commit(write(made, batch([(1, "a", 1.0), (2, "b", 2.0), (3, "c", 3.0)])))
    version = DeltaTable(str(tmp_path / "t")).version()
    one = write(made, batch([(1, "a", 1.0), (1, "A", 10.0), (2, "b", 2.0)], kinds=[1, 2, 3]), attempt="b")
    two = write(made, batch([(4, "d", 4.0), (4, "d", 4.0), (4, "D", 5.0)], kinds=[0, 3, 0]), attempt="c", subtask=1)
    committer.commit(one + two)
    assert rows(tmp_path / "t") == [(1, "A", 10.0), (3, "c", 3.0), (4, "D", 5.0)]
    assert DeltaTable(str(tmp_path / "t")).version() == version + 1
    assert not list((tmp_path / "t" / "_flowrun_changes").glob("*"))


def test_keys_of_several_columns_with_odd_names(tmp_path: Path) -> None:
    schema = Columns.of(**{"Key 1": BIGINT, "k`2": STRING, 'v"': DOUBLE})
    made = sink(tmp_path / "t", schema, keys=("Key 1", "k`2"))
    committer = made.create_committer()
    committer.commit(write(made, batch([(1, "x", 1.0), (1, "y", 2.0)], schema)))
    committer.commit(write(made, batch([(1, "y", 3.0), (1, "x", 1.0)], schema, kinds=[2, 3]), attempt="b"))
    assert rows(tmp_path / "t") == [(1, "y", 3.0)]


def test_every_type_is_read_back_by_others(tmp_path: Path) -> None:
    schema = Columns.of(
        s=STRING, i=INT, h=SMALLINT, b=BOOLEAN, y=BYTES, d=DATE, m=decimal(10, 2), t3=timestamp(3), t6=timestamp(6), z=timestamp_ltz(3),
        a=array(INT), mp=map_of(STRING, BIGINT), r=row_of(("x", INT), ("y", STRING)),
    )  # fmt: skip
    at = datetime.datetime(2024, 3, 1, 10, 0, 0, 123000)
    utc = at.replace(tzinfo=datetime.UTC)
    row = ("x", 1, 2, True, b"\0", at.date(), Decimal("1.25"), at, at, utc, [1, None], [("k", 2)], {"x": 1, "y": "z"})
    made = sink(tmp_path / "t", schema)
    made.create_committer().commit(write(made, batch([row, (None,) * len(schema)], schema)))
    found = DeltaTable(str(tmp_path / "t")).to_pyarrow_table().to_pylist()
    assert [tuple(r.values()) for r in found] == [row, (None,) * len(schema)]


def test_partitions_of_odd_values(tmp_path: Path) -> None:
    schema = Columns.of(id=BIGINT, s=STRING, d=DATE, t=timestamp(3))
    at = datetime.datetime(2024, 3, 1, 10, 0, 0, 120000)
    given = [(1, "a/b=c %20 ü", at.date(), at), (2, None, None, None), (3, "..", at.date(), at)]
    made = sink(tmp_path / "t", schema, partitions=("s", "d", "t"))
    made.create_committer().commit(write(made, batch(given, schema)))
    table = DeltaTable(str(tmp_path / "t")).to_pyarrow_table().select(["id", "s", "d", "t"])
    assert sorted(tuple(r.values()) for r in table.to_pylist()) == given


@pytest.mark.parametrize("keys", [(), ("id",)])
def test_a_row_without_a_value_that_the_table_wants_is_an_error(tmp_path: Path, keys: tuple[str, ...]) -> None:
    columns = [pa.field("id", pa.int64(), False), pa.field("item", pa.string(), False), pa.field("price", pa.float64())]
    DeltaTable.create(str(tmp_path / "t"), Schema.from_arrow(pa.schema(columns)))
    made = sink(tmp_path / "t", keys=keys)
    with pytest.raises(DataError, match="column 'item' of the table is NOT NULL") as caught:
        write(made, batch([(1, "a", None), (2, None, 1.0)]))
    assert caught.value.row == 1
    made.create_committer().commit(write(made, batch([(1, "a", None)])))
    if keys:
        made.create_committer().commit(write(made, batch([(1, None, None)], kinds=[3]), attempt="b"))
    assert rows(tmp_path / "t") == ([] if keys else [(1, "a", None)])


def test_statistics_let_others_skip_files(tmp_path: Path) -> None:
    made = sink(tmp_path / "t")
    made.create_committer().commit(write(made, BATCHES[0]))
    [about] = pa.table(DeltaTable(str(tmp_path / "t")).get_add_actions(flatten=True)).to_pylist()
    assert (about["num_records"], about["min.id"], about["max.id"], about["null_count.price"]) == (2, 1, 2, 1)


def test_going_back_takes_the_rows_out_again(tmp_path: Path) -> None:
    made = sink(tmp_path / "t")
    committer: Any = made.create_committer()
    first, second = write(made, BATCHES[0], attempt="a"), write(made, BATCHES[1], attempt="b")
    committer.commit(first)
    committer.commit(second)
    assert [p.is_there for p in committer.committed(second)] == [True]
    for _ in range(2):
        committer.revert(second)
    assert rows(tmp_path / "t") == sorted(rows_in(BATCHES[:1]), key=repr)
    assert [p.is_there for p in committer.committed(second)] == [False]


def test_a_table_that_does_not_fit_is_one_clear_error(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    DeltaTable.create(
        path,
        Schema.from_arrow(
            pa.schema(
                [pa.field("id", pa.int64()), pa.field("item", pa.int32()), pa.field("n", pa.string(), nullable=False)]
            )
        ),
    )
    with pytest.raises(SetupError, match=r"column 'item' of the Delta table at .* is int32, but STRING is written"):
        sink(tmp_path / "t").create_writer(writer_context()).open()
    with pytest.raises(SetupError, match="has no column 'idd'") as error:
        sink(tmp_path / "t", Columns.of(idd=BIGINT)).create_writer(writer_context()).open()
    assert error.value.hint == "did you mean 'id'?"
    with pytest.raises(SetupError, match="has a column 'n', which the sink does not write, but it is NOT NULL"):
        sink(tmp_path / "t", Columns.of(id=BIGINT)).create_writer(writer_context()).open()


def test_types_that_delta_does_not_have_are_refused_before_the_run(tmp_path: Path) -> None:
    for kind in (time(3), timestamp(9), array(timestamp(9))):
        with pytest.raises(OptionError, match="connector 'delta' cannot write column 'x'"):
            sink(tmp_path / "t", Columns((Field("x", kind),)))


def test_a_constraint_of_the_table_is_not_passed_over(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    table = DeltaTable.create(path, Schema.from_arrow(ORDERS.arrow))
    table.alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(SetupError, match="has the constraint 'positive'"):
        sink(tmp_path / "t").create_writer(writer_context()).open()
    made = sink(tmp_path / "t", keys=("id",))
    with pytest.raises(ConnectorError, match="cannot be committed to"):
        made.create_committer().commit(write(made, batch([(-1, "a", 1.0)])))


def test_altered_state_reaches_no_other_file(tmp_path: Path) -> None:
    made = sink(tmp_path / "t")
    [given] = write(made, BATCHES[0])
    outside = tmp_path / "part-0123456789ab-0123456789ab-0-1-1.parquet"
    outside.touch()
    for path in (f"../{outside.name}", "_delta_log/00000000000000000000.json", "x.parquet"):
        file = {**given.payload["files"][0], "path": path}  # type: ignore[index,dict-item]
        altered = Committable(given.commit_id, {**given.payload, "files": [file]})
        for act in (made.create_committer().commit, made.create_committer().abort):
            with pytest.raises(StateError, match="which no writer of this sink wrote"):
                act([altered])
    assert outside.exists()


def test_what_a_killed_writer_left_goes_and_what_is_committed_stays_even_if_it_was_rewritten(tmp_path: Path) -> None:
    made = sink(tmp_path / "t")
    committer: Any = made.create_committer()
    committer.commit(write(made, BATCHES[0], attempt="a"))
    DeltaTable(str(tmp_path / "t")).optimize.compact()
    pending = write(made, BATCHES[1], attempt="b")
    write(made, BATCHES[2], attempt="c")
    before = len(data_files(tmp_path / "t"))
    assert committer.discard_orphans("owner0", {c.commit_id for c in pending}) == 1
    assert len(data_files(tmp_path / "t")) == before - 1
    assert len(DeltaTable(str(tmp_path / "t"), version=1).to_pyarrow_table()) == 2  # time travel still works


def test_a_file_is_closed_when_it_is_large(tmp_path: Path) -> None:
    options, _ = parse_options(
        CONNECTOR.sink_options, {"table-path": str(tmp_path / "t"), "sink.rolling-policy.file-size": "1kb"}, "delta"
    )
    assert CONNECTOR.create_sink is not None
    made: Any = CONNECTOR.create_sink(TableDefinition("out", ORDERS, options))
    many = [batch([(i, "x" * 50, 1.0) for i in range(100)]) for _ in range(3)]
    [given] = write(made, *many)
    assert len(given.payload["files"]) == 3  # type: ignore[arg-type]
    made.create_committer().commit([given])
    assert len(rows(tmp_path / "t")) == 300
    assert all(file_origin(str(p)) for p in data_files(tmp_path / "t"))
    assert pq.ParquetFile(data_files(tmp_path / "t")[0]).metadata.num_rows == 100


@pytest.mark.parametrize("keys", [(), ("id",)])
def test_a_job_without_checkpoints_and_without_end_commits_at_intervals(tmp_path: Path, keys: tuple[str, ...]) -> None:
    made = sink(tmp_path / "t", keys=keys)
    context = replace(writer_context(), publishes_early=True)
    writer, committer = made.create_writer(context), made.create_committer()
    time_of: Any = context.processing_time
    writer.open()
    shown = []
    for number in range(6):
        writer.write(batch([(number, "a", 1.0)]))
        committer.commit(writer.rolled())
        shown.append(len(rows(tmp_path / "t")))
        time_of.advance(25_000)
    writer.close()
    assert shown == [0, 0, 0, 4, 4, 4]


def test_writers_that_create_a_table_at_once_create_it_once(tmp_path: Path) -> None:
    """Each slower one would have added a version with another identity of the table."""
    for number in range(20):
        location = sink(tmp_path / str(number)).location
        together = Barrier(3)

        def create(location: DeltaLocation = location, together: Barrier = together) -> None:
            together.wait()
            location.create(ORDERS, ())

        with ThreadPoolExecutor(3) as pool:
            for done in [pool.submit(create) for _ in range(3)]:
                done.result()
        assert DeltaTable(str(tmp_path / str(number))).version() == 0
