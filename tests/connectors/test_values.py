"""Constant rows as a source."""

from __future__ import annotations

import pyarrow as pa
import pytest

from flowrun.connectors.values import ValuesSource
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.testing.connector_conformance import SourceDrive

SCHEMA = Schema.of(id=BIGINT, name=STRING)
ROWS = [(1, "a"), (2, None)]


def values() -> ValuesSource:
    columns = [pa.array(c, t.arrow) for c, t in zip(zip(*ROWS, strict=True), SCHEMA.types, strict=True)]
    return ValuesSource(SCHEMA, pa.RecordBatch.from_arrays(columns, schema=SCHEMA.arrow))


@pytest.mark.parametrize("parallelism", [1, 3])
def test_one_subtask_gives_the_rows_once(parallelism: int) -> None:
    drive = SourceDrive(values(), parallelism=parallelism)
    assert drive.run() == ROWS
    state, splits = drive.snapshot()
    drive.close()
    resumed = SourceDrive(values(), parallelism=parallelism, enumerator_state=state, restored=splits)
    assert resumed.run() == []
    resumed.close()
