"""Lookups in tables of the connector `memory`: by keys that occur twice, that find nothing, and that are NULL."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from flowrun.api.lookup import Lookup, LookupContext
from flowrun.connectors import memory
from flowrun.core.clock import ManualClock
from flowrun.core.schema import Schema
from flowrun.core.types import INT, STRING
from flowrun.plan.nodes import TableReference
from flowrun.plan.tables import create_lookup
from flowrun.testing.metrics import RecordedMetrics

TABLE = TableReference("people", "memory", {"table": "looked-up"})
PEOPLE = Schema.of(id=INT, name=STRING)


@pytest.fixture
def lookup() -> Iterator[Lookup]:
    source = create_lookup(TABLE, Schema.of(name=STRING), ("id",), PEOPLE)
    lookup = source.create_lookup(LookupContext(0, 1, ManualClock(), RecordedMetrics()))
    lookup.open()
    yield lookup
    lookup.close()
    memory.clear()


def find(lookup: Lookup, *keys: int | None) -> list[tuple[int, str]]:
    found = lookup.find(pa.record_batch({"id": pa.array(keys, pa.int32())}))
    return list(zip(found.probe.tolist(), found.rows["name"].to_pylist(), strict=True))


def test_rows_are_found_by_their_keys_as_they_are_at_the_moment(lookup: Lookup) -> None:
    assert find(lookup, 1) == []
    memory.put("looked-up", [pa.record_batch({"id": pa.array([1, 2, 2, None], pa.int32()), "name": list("abcd")})])
    assert find(lookup, 2, None, 1, 2, 7) == [(0, "b"), (0, "c"), (2, "a"), (3, "b"), (3, "c")]
    memory.put("looked-up", [pa.record_batch({"id": pa.array([7], pa.int32()), "name": ["z"]})])
    assert find(lookup, 2, 7) == [(1, "z")]
