"""Writing files: whole or not at all, rolled, partitioned, and read back equal."""

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flowrun.connectors.filesystem.sink import FileSink
from flowrun.core.clock import ManualClock
from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Field, Schema
from flowrun.core.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    STRING,
    array,
    decimal,
    map_of,
    row,
    time,
    timestamp,
    timestamp_ltz,
)
from flowrun.errors import ConnectorError, DataError, OptionError, UnsupportedPlanError
from flowrun.testing.connector_conformance import Rows, check_sink, rows_in, writer_context
from flowrun.testing.processing_time import ManualProcessingTime

from .tables import hidden_files, read, sink, source, visible_files

SCHEMA = Schema.of(id=BIGINT, name=STRING)


def batch(schema: Schema, *rows: tuple[Any, ...]) -> RecordBatch:
    columns = [dict(zip(schema.names, r, strict=True)) for r in rows]
    return RecordBatch(pa.RecordBatch.from_pylist(columns, schema=schema.arrow))


def numbered(start: int, stop: int) -> RecordBatch:
    return batch(SCHEMA, *((i, f"n{i}") for i in range(start, stop)))


def write(target: FileSink, *batches: RecordBatch, attempt: str = "a1") -> None:
    writer = target.create_writer(writer_context(attempt=attempt))
    writer.open()
    for b in batches:
        writer.write(b)
    target.create_committer().commit(writer.prepare_commit())
    writer.close()


@pytest.mark.parametrize(
    "format",
    ["json", "csv", "parquet", *(pytest.param(f, marks=pytest.mark.exhaustive) for f in ("avro", "orc", "arrow"))],
)
@pytest.mark.parametrize("keys", [(), ("name",)])
def test_the_sink_keeps_its_promises(tmp_path: Path, format: str, keys: tuple[str, ...]) -> None:
    out = tmp_path / "out"
    target = sink(out, format, SCHEMA, partition_keys=keys)

    def read_back() -> Rows:
        return read(source(out, format, SCHEMA, partition_keys=keys)) if visible_files(out) else []

    check_sink(target, [numbered(0, 10), numbered(10, 11), numbered(11, 30), numbered(30, 31)], read_back)
    assert hidden_files(out) == []


def test_raw_lines(tmp_path: Path) -> None:
    schema = Schema.of(line=STRING)
    write(sink(tmp_path / "out", "raw", schema), batch(schema, ("a",), (None,), ("b c",)).slice(0))
    assert [f.read_text() for f in visible_files(tmp_path / "out")] == ["a\n\nb c\n"]
    with pytest.raises(DataError, match="holds a line end"):
        write(sink(tmp_path / "out", "raw", schema), batch(schema, ("a\nb",)))


EVERY = Schema.of(
    b=BOOLEAN,
    i=BIGINT,
    x=DOUBLE,
    d=decimal(12, 8),
    s=STRING,
    raw=BYTES,
    day=DATE,
    t=time(3),
    ts=timestamp(3),
    at=timestamp_ltz(6),
    tags=array(STRING),
    attrs=map_of(STRING, BIGINT),
    dev=row(("os", STRING), ("v", array(BIGINT))),
)
FULL: tuple[Any, ...] = (
    True,
    -1,
    0.1,
    Decimal("0.00000001"),
    'q"\\ \n\t\x01☂,;',
    b"\x00\xff",
    dt.date(2024, 3, 1),
    dt.time(10, 0, 0, 5000),
    dt.datetime(2024, 3, 1, 10),
    dt.datetime(2024, 3, 1, 10, 0, 0, 123456, tzinfo=dt.UTC),
    ["a", None, '"'],
    [("k", 1), ("n", None)],
    {"os": "ios", "v": [1, None]},
)
NULLS = (None,) * len(FULL)


@pytest.mark.parametrize(
    "options", [{}, {"json.encode.ignore-null-fields": "true", "json.timestamp-format.standard": "ISO-8601"}]
)
def test_json_of_every_type_reads_back_equal(tmp_path: Path, options: dict[str, str]) -> None:
    write(sink(tmp_path, "json", EVERY, options), batch(EVERY, FULL, NULLS, FULL).slice(1), batch(EVERY, FULL))
    assert read(source(tmp_path, "json", EVERY)) == [NULLS, FULL, FULL]


def test_parquet_of_every_type_reads_back_equal(tmp_path: Path) -> None:
    write(sink(tmp_path, "parquet", EVERY, {"parquet.compression": "ZSTD"}), batch(EVERY, FULL, NULLS))
    assert read(source(tmp_path, "parquet", EVERY)) == [FULL, NULLS]
    metadata = pq.ParquetFile(visible_files(tmp_path)[0]).metadata
    assert metadata.row_group(0).column(0).compression == "ZSTD"


@pytest.mark.parametrize(
    "options", [{}, {"csv.field-delimiter": "\\t", "csv.header": "true"}, {"csv.field-delimiter": "-"}]
)
def test_csv_of_every_flat_type_reads_back_equal(tmp_path: Path, options: dict[str, str]) -> None:
    flat = EVERY.select(n for n in EVERY.names if n not in ("attrs", "dev", "tags"))
    options = {"csv.null-literal": "NULL", **options}
    full = tuple(v for n, v in zip(EVERY.names, FULL, strict=True) if n in flat)
    nulls = NULLS[: len(flat)]
    write(sink(tmp_path, "csv", flat, options), batch(flat, full, nulls))
    assert read(source(tmp_path, "csv", flat, options)) == [full, nulls]


def test_what_json_lines_look_like(tmp_path: Path) -> None:
    schema = Schema.of(id=BIGINT, x=DOUBLE, amount=decimal(10, 2), ts=timestamp(3), at=timestamp_ltz(3))
    moment = dt.datetime(2024, 3, 1, 10, 0, 0, 120000)
    rows = batch(
        schema, (1, 1.0, Decimal("5"), moment, moment), (2, float("nan"), None, moment.replace(microsecond=0), None)
    )
    write(sink(tmp_path, "json", schema), rows)
    assert visible_files(tmp_path)[0].read_text().splitlines() == [
        '{"id":1,"x":1.0,"amount":5.00,"ts":"2024-03-01 10:00:00.12","at":"2024-03-01 10:00:00.12Z"}',
        '{"id":2,"x":"NaN","amount":null,"ts":"2024-03-01 10:00:00","at":null}',
    ]


def test_partitions_become_folders_without_their_columns(tmp_path: Path) -> None:
    schema = Schema.of(id=BIGINT, country=STRING, day=DATE)
    day = dt.date(2024, 3, 1)
    rows = [(1, "DE", day), (2, "FR/x", day), (3, "DE", day), (4, None, day), (5, "", None)]
    target = sink(tmp_path, "json", schema, partition_keys=("day", "country"))
    write(target, batch(schema, *rows))
    found = {str(f.parent.relative_to(tmp_path)): f.read_text().split() for f in visible_files(tmp_path)}
    assert found == {
        "day=2024-03-01/country=DE": ['{"id":1}', '{"id":3}'],
        "day=2024-03-01/country=FR%2Fx": ['{"id":2}'],
        "day=2024-03-01/country=__HIVE_DEFAULT_PARTITION__": ['{"id":4}'],
        "day=__HIVE_DEFAULT_PARTITION__/country=__HIVE_DEFAULT_PARTITION__": ['{"id":5}'],
    }
    back = read(source(tmp_path, "json", schema, partition_keys=("day", "country")))
    assert sorted(back, key=lambda r: r[0]) == [(i, c or None, d) for i, c, d in rows]


def test_many_partitions_do_not_keep_all_files_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowrun.connectors.filesystem.writer.MAX_OPEN_PARTS", 3)
    target = sink(tmp_path, "json", SCHEMA, partition_keys=("id",))
    write(target, numbered(0, 10), numbered(0, 10))
    assert sorted(read(source(tmp_path, "json", SCHEMA, partition_keys=("id",)))) == sorted(
        2 * [(i, f"n{i}") for i in range(10)]
    )


def test_files_roll_by_size(tmp_path: Path) -> None:
    target = sink(tmp_path, "json", SCHEMA, {"sink.rolling-policy.file-size": "100b"})
    writer = target.create_writer(writer_context())
    writer.open()
    writer.write(numbered(0, 10))
    closed = writer.rolled()
    assert len(closed) == 1
    assert writer.rolled() == ()
    assert visible_files(tmp_path) == []
    target.create_committer().commit(closed)
    assert len(visible_files(tmp_path)) == 1
    writer.write(numbered(10, 11))
    target.create_committer().commit(writer.prepare_commit())
    writer.close()
    assert sorted(r[0] for r in read(source(tmp_path, "json", SCHEMA))) == list(range(11))
    assert [f.name for f in visible_files(tmp_path)] == ["part-attempt0-0-0.json", "part-attempt0-0-1.json"]


def test_files_roll_by_age_and_idleness(tmp_path: Path) -> None:
    options = {
        "sink.rolling-policy.rollover-interval": "10min",
        "sink.rolling-policy.inactivity-interval": "2min",
        "sink.rolling-policy.check-interval": "1min",
    }
    clock = ManualClock()
    context = writer_context(clock=clock)
    passing = context.processing_time
    assert isinstance(passing, ManualProcessingTime)
    writer = sink(tmp_path, "parquet", SCHEMA, options).create_writer(context)
    writer.open()
    writer.write(numbered(0, 1))
    passing.advance(60_000)
    assert writer.rolled() == ()
    passing.advance(60_000)
    assert len(writer.rolled()) == 1  # idle
    for _ in range(10):
        writer.write(numbered(0, 1))
        passing.advance(60_000)
    assert len(writer.rolled()) == 1  # old
    writer.close()
    assert passing.pending == ()


def test_no_rows_no_file(tmp_path: Path) -> None:
    write(sink(tmp_path / "out", "parquet", SCHEMA), numbered(0, 0))
    assert list((tmp_path / "out").iterdir()) == []


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("x")
    with pytest.raises(OptionError, match="is a file, but a sink writes a folder"):
        sink(tmp_path / "out", "json", SCHEMA)
    beneath = sink(tmp_path / "out" / "deeper", "json", SCHEMA)
    with pytest.raises(ConnectorError, match="cannot be written") as caught:
        beneath.create_writer(writer_context()).open()
    assert "Not a directory" in caught.value.message


def test_a_folder_that_turned_into_a_file_is_an_error_at_open(tmp_path: Path) -> None:
    target = sink(tmp_path / "out", "json", SCHEMA)
    (tmp_path / "out").write_text("x")
    with pytest.raises(ConnectorError, match="is a file, but a folder to write to is needed"):
        target.create_writer(writer_context()).open()


def test_a_full_disk_is_one_error(tmp_path: Path) -> None:
    target = sink(tmp_path / "out", "json", SCHEMA)
    writer = target.create_writer(writer_context())
    writer.open()
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("there is no /dev/full")
    (tmp_path / "out" / ".part-attempt0-0-0.owner0.inprogress").symlink_to(full)
    with pytest.raises(ConnectorError, match="No space left on device"):
        writer.write(numbered(0, 100_000))
    writer.close()


def test_updates_are_refused(tmp_path: Path) -> None:
    writer = sink(tmp_path, "json", SCHEMA).create_writer(writer_context())
    writer.open()
    updating = RecordBatch(numbered(0, 1).columns, None, pa.array([3], pa.int8()))
    with pytest.raises(UnsupportedPlanError, match="cannot update or delete"):
        writer.write(updating)
    writer.close()
    assert list(tmp_path.iterdir()) == []


def test_null_in_a_not_null_column_is_an_error_with_its_row(tmp_path: Path) -> None:
    schema = Schema((Field("id", BIGINT, nullable=False),))
    writer = sink(tmp_path, "json", schema).create_writer(writer_context())
    writer.open()
    with pytest.raises(DataError, match="column 'id' of the sink is NOT NULL") as caught:
        writer.write(batch(schema, (1,), (None,)))
    assert caught.value.row == 1
    writer.close()


def test_a_lost_part_is_an_error(tmp_path: Path) -> None:
    target = sink(tmp_path, "json", SCHEMA)
    writer = target.create_writer(writer_context())
    writer.open()
    writer.write(numbered(0, 1))
    prepared = writer.prepare_commit()
    hidden_files(tmp_path)[0].unlink()
    with pytest.raises(ConnectorError, match="somebody removed one of the two"):
        target.create_committer().commit(prepared)


def test_options_and_columns_are_checked_early(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="partition column 'nme'") as caught:
        sink(tmp_path, "json", SCHEMA, partition_keys=("nme",))
    assert "name" in str(caught.value)
    with pytest.raises(OptionError, match="nothing is left for the files"):
        sink(tmp_path, "json", SCHEMA, partition_keys=("id", "name"))
    nested = Schema.of(id=BIGINT, tags=array(STRING))
    with pytest.raises(OptionError, match="nested values name no folder"):
        sink(tmp_path, "json", nested, partition_keys=("tags",))


def test_json_lines_are_json(tmp_path: Path) -> None:
    awkward = [(i, "".join(map(chr, range(i * 16, i * 16 + 16)))) for i in range(8)]
    write(sink(tmp_path, "json", SCHEMA), batch(SCHEMA, *awkward))
    lines = visible_files(tmp_path)[0].read_bytes().splitlines()
    assert [(d["id"], d["name"]) for d in map(json.loads, lines)] == awkward
    assert rows_in([batch(SCHEMA, *awkward)]) == awkward
