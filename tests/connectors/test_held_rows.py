"""Rows that the process holds, as sources: constant rows and tables in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from flowrun.connectors.memory import MemorySource, clear, put
from flowrun.connectors.values import ValuesSource
from flowrun.core.elements import RecordBatch, RowKind
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.testing.connector_conformance import SourceDrive, check_source

SCHEMA = Schema.of(id=BIGINT, name=STRING)
ROWS = [(1, "a"), (2, None), (3, "c"), (4, "d"), (5, "e")]


def columns(rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    arrays = [pa.array(c, t.arrow) for c, t in zip(zip(*rows, strict=True), SCHEMA.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA.arrow)


@pytest.fixture(autouse=True)
def _no_tables() -> Iterator[None]:
    yield
    clear()


def test_constant_rows_come_once_however_they_are_read_stopped_and_resumed() -> None:
    check_source(ValuesSource(SCHEMA, columns(ROWS)), ROWS)


def test_partitions_in_memory_come_once_however_they_are_read_stopped_and_resumed() -> None:
    put("t", [columns(ROWS), columns(ROWS)[:0], columns(ROWS[:1])], [columns(ROWS[2:])])
    check_source(MemorySource("t", SCHEMA), [*ROWS, *ROWS[:1], *ROWS[2:]])


def test_columns_in_memory_are_chosen_by_name_and_cast() -> None:
    narrow = pa.RecordBatch.from_pydict({"more": [0.5], "name": ["a"], "id": pa.array([7], pa.int8())})
    put("t", [narrow])
    assert SourceDrive(MemorySource("t", SCHEMA)).run() == [(7, "a")]


def test_an_update_is_not_cut_in_two() -> None:
    kinds = [RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER]
    put("t", [RecordBatch(columns(ROWS), row_kinds=pa.array(kinds, pa.int8()))])
    for batch_rows, sizes in ((1, [1, 2, 2]), (2, [3, 2]), (4, [5])):
        drive = SourceDrive(MemorySource("t", SCHEMA), batch_rows=batch_rows)
        assert drive.run() == ROWS
        assert [b.num_rows for b in drive.emitted] == sizes
