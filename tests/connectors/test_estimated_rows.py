"""How many rows sources say that they have, before anything is read."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flowrun.api.connector import TableDefinition
from flowrun.api.source import KnowsRows
from flowrun.connectors import memory
from flowrun.connectors.memory import MemorySource
from flowrun.connectors.nexmark import SCHEMA
from flowrun.connectors.registry import connector_named
from flowrun.core.options import parse_options
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING
from tests.connectors.filesystem.tables import source

COLUMNS = Schema.of(id=BIGINT, name=STRING)
ROWS = 20_000
CSV = "".join(f"{i},name of it {i}\n" for i in range(ROWS))
JSON = "".join(f'{{"id": {i}, "name": "name of it {i}"}}\n' for i in range(ROWS))


def generated(connector: str, schema: Schema, given: dict[str, object]) -> int | None:
    used = connector_named(connector)
    assert used.create_source is not None
    options, errors = parse_options(used.source_options, given, connector)
    assert not errors
    made = used.create_source(TableDefinition("t", schema, options))
    assert isinstance(made, KnowsRows)
    return made.estimated_rows()


def test_generated_rows_are_counted_exactly() -> None:
    assert generated("datagen", COLUMNS, {"number-of-rows": 7}) == 7
    assert generated("datagen", COLUMNS, {}) is None
    assert generated("nexmark", SCHEMA, {"events.num": 500}) == 500


def test_rows_in_memory_are_counted_exactly() -> None:
    batch = pa.record_batch({"id": pa.array([1, 2, 3], pa.int64())})
    memory.put("counted", [batch, batch], [batch])
    assert MemorySource("counted", Schema.of(id=BIGINT)).estimated_rows() == 9
    assert MemorySource("nowhere", Schema.of(id=BIGINT)).estimated_rows() == 0


@pytest.mark.parametrize("form", ["csv", "json", "csv.gz", "parquet"])
def test_rows_of_files_are_estimated_within_a_factor_of_three(form: str, tmp_path: Path) -> None:
    file = tmp_path / f"rows.{form}"
    match form:
        case "csv" | "json":
            file.write_text(CSV if form == "csv" else JSON)
        case "csv.gz":
            file.write_bytes(gzip.compress(CSV.encode()))
        case _:
            pq.write_table(pa.table({"id": range(ROWS), "name": [f"name of it {i}" for i in range(ROWS)]}), file)
    rows = source(tmp_path, form.partition(".")[0], COLUMNS).estimated_rows()
    assert rows is not None
    assert ROWS / 3 < rows < ROWS * 3


def test_files_elsewhere_and_files_that_are_gone_are_not_looked_for(tmp_path: Path) -> None:
    assert source("s3://bucket/rows", "json", COLUMNS).estimated_rows() is None
    (tmp_path / "in").mkdir()
    gone = source(tmp_path / "in", "json", COLUMNS)
    assert gone.estimated_rows() == 0
    (tmp_path / "in").rmdir()
    assert gone.estimated_rows() == 0
