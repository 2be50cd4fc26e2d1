"""Formats of whole files other than Parquet: as sources with positions, as sinks that commit, with partitions and pruned columns."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from flowrun.connectors.formats.arrow_fit import MisfitError, fit_column
from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Field, Schema
from flowrun.core.types import BIGINT, INTERVAL_DAY_TIME, STRING, array, decimal, row, time, timestamp
from flowrun.errors import DataError, FlowrunError, OptionError
from flowrun.testing.connector_conformance import check_source, writer_context

from .tables import read, sink, source, visible_files

FORMATS = ["arrow", "avro", "orc"]
SCHEMA = Schema.of(
    id=BIGINT, name=STRING, price=decimal(10, 2), at=timestamp(3), tags=array(STRING), place=row(("city", STRING))
)


def batch(first: int, rows: int) -> pa.RecordBatch:
    values = [
        {
            "id": i,
            "name": None if i % 7 == 0 else f"n{i % 3}",
            "price": None,
            "at": 1_700_000_000_000 + i,
            "tags": None if i % 5 == 0 else [f"t{i}", None],
            "place": {"city": "c"},
        }
        for i in range(first, first + rows)
    ]
    return pa.RecordBatch.from_pylist(values, schema=SCHEMA.arrow)


def write(path: Path, format: str, *batches: pa.RecordBatch, keys: tuple[str, ...] = (), **options: str) -> None:
    target = sink(path, format, SCHEMA, options, partition_keys=keys)
    writer = target.create_writer(writer_context())
    writer.open()
    for columns in batches:
        writer.write(RecordBatch(columns))
    target.create_committer().commit(writer.prepare_commit())
    writer.close()


def tuples(*batches: pa.RecordBatch) -> list[tuple[object, ...]]:
    return [tuple(r.values()) for b in batches for r in b.to_pylist()]


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_written_is_read_and_resumed_anywhere(tmp_path: Path, format: str) -> None:
    write(tmp_path, format, batch(0, 40), batch(40, 9))
    rows = tuples(batch(0, 49))
    assert read(source(tmp_path, format, SCHEMA)) == rows
    check_source(source(tmp_path, format, SCHEMA), rows)
    check_source(source(tmp_path, format, SCHEMA, {"source.split-size": "4kb"}), rows)


@pytest.mark.parametrize("format", FORMATS)
def test_only_some_columns_are_read_beside_those_of_folders(tmp_path: Path, format: str) -> None:
    write(tmp_path, format, batch(0, 21), keys=("name",))
    wanted = Schema((Field("name", STRING), Field("id", BIGINT)))
    found = read(source(tmp_path, format, wanted, partition_keys=("name",), declared=SCHEMA))
    assert sorted(found, key=str) == sorted(((r[1], r[0]) for r in tuples(batch(0, 21))), key=str)


@pytest.mark.parametrize("format", FORMATS)
def test_damaged_files_are_told_by_name(tmp_path: Path, format: str) -> None:
    write(tmp_path, format, batch(0, 50))
    (file,) = visible_files(tmp_path)
    whole = file.read_bytes()
    for size in (0, 2, 30, len(whole) // 2, len(whole) - 3):
        file.write_bytes(whole[:size])
        with pytest.raises(FlowrunError, match=file.name):
            read(source(tmp_path, format, SCHEMA))
    file.write_bytes(whole)
    with pytest.raises(DataError, match=r"name.*expected BIGINT"):
        read(source(tmp_path, format, Schema.of(name=BIGINT)))
    with pytest.raises(DataError, match="column 'name' is NOT NULL, but the file holds a NULL"):
        read(source(tmp_path, format, Schema((Field("name", STRING, nullable=False),))))


@pytest.mark.parametrize("format", ["arrow", "avro"])
def test_changed_bytes_never_crash(tmp_path: Path, format: str) -> None:
    write(tmp_path, format, batch(0, 30))
    (file,) = visible_files(tmp_path)
    whole = file.read_bytes()
    source_ = random.Random(7)
    for _ in range(60):
        changed = bytearray(whole)
        changed[source_.randrange(len(changed))] = source_.randrange(256)
        file.write_bytes(changed)
        with suppress(FlowrunError, OverflowError):  # Python has no datetime for every number
            read(source(tmp_path, format, SCHEMA))


def test_types_that_a_format_cannot_hold_are_refused() -> None:
    with pytest.raises(OptionError, match=r"orc: column 'v' is TIME\(3\), which ORC cannot hold"):
        sink("out", "orc", Schema.of(v=time(3)))
    with pytest.raises(OptionError, match="which Avro cannot hold"):
        sink("out", "avro", Schema.of(v=INTERVAL_DAY_TIME))


def test_decimals_of_an_impossible_scale_do_not_fit() -> None:
    with pytest.raises(MisfitError):
        fit_column(pa.decimal128(20, -385_875_964), decimal(10, 2))
