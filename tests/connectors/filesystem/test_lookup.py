"""Rows of files found by key."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.api.lookup import Lookup, LookupContext, LookupSource
from flowrun.core.clock import ManualClock
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.errors import ConnectorError, DataError, OptionError
from flowrun.testing.metrics import RecordedMetrics

from .tables import lookup

SCHEMA = Schema.of(key=BIGINT, value=STRING)


def opened(source: LookupSource, clock: ManualClock | None = None) -> Lookup:
    context = LookupContext(0, 1, clock or ManualClock(), RecordedMetrics())
    found = pickle.loads(pickle.dumps(source)).create_lookup(context)
    found.open()
    return found


def ask(table: Lookup, *keys: int | None) -> list[tuple[int, tuple[object, ...]]]:
    found = table.find(pa.record_batch([pa.array(keys, pa.int64())], names=["key"]))
    return [(int(p), tuple(r.values())) for p, r in zip(found.probe, found.rows.to_pylist(), strict=True)]


def test_rows_are_found_in_order_of_the_keys_and_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "side.csv").write_text("1,a\n2,b\n1,c\n,d\n")
    table = opened(lookup(tmp_path, "csv", SCHEMA, ("key",)))
    assert ask(table, 2, 7, None, 1, 2) == [(0, (2, "b")), (3, (1, "a")), (3, (1, "c")), (4, (2, "b"))]
    assert ask(table) == []
    table.close()
    table.close()


def test_only_the_wanted_columns_come_back_and_several_keys_may_ask(tmp_path: Path) -> None:
    declared = Schema.of(a=BIGINT, b=STRING, c=STRING, d=STRING)
    (tmp_path / "d=x").mkdir()
    (tmp_path / "d=x" / "t.json").write_text(
        '{"a":1,"b":"u","c":"yes"}\n{"a":1,"b":"v","c":"no"}\n{"a":1,"c":"null"}\n'
    )
    source = lookup(tmp_path, "json", declared.select(["c", "d"]), ("b", "a"), partition_keys=("d",), declared=declared)
    assert source.keys.names == ("b", "a")
    asked = pa.record_batch([pa.array(["u", "w", None]), pa.array([1, 1, 1])], names=["b", "a"])
    found = opened(source).find(asked)
    assert found.rows.to_pylist() == [{"c": "yes", "d": "x"}]
    assert found.probe.tolist() == [0]


def test_files_are_read_anew_when_they_are_old(tmp_path: Path) -> None:
    file = tmp_path / "side.csv"
    file.write_text("1,a\n")
    clock = ManualClock()
    once = opened(lookup(tmp_path, "csv", SCHEMA, ("key",)), clock)
    option = {"lookup.full-cache.periodic-reload.interval": "10s"}
    often = opened(lookup(tmp_path, "csv", SCHEMA, ("key",), option), clock)
    file.write_text("1,b\n")
    clock.advance(9_999)
    assert ask(often, 1) == [(0, (1, "a"))]
    clock.advance(1)
    assert ask(often, 1) == [(0, (1, "b"))]
    assert ask(once, 1) == [(0, (1, "a"))]


def test_bad_records_fail_or_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "side.csv").write_text("1,a\nx,b\n")
    with pytest.raises(DataError, match=r"side.csv:2: column 'key'"):
        opened(lookup(tmp_path, "csv", SCHEMA, ("key",)))
    assert ask(opened(lookup(tmp_path, "csv", SCHEMA, ("key",), {"format.on-error": "skip"})), 1) == [(0, (1, "a"))]
    options = {"format.on-error": "dead-letter", "format.dead-letter.path": str(tmp_path / "dead")}
    assert ask(opened(lookup(tmp_path / "side.csv", "csv", SCHEMA, ("key",), options)), 1) == [(0, (1, "a"))]
    assert len(list((tmp_path / "dead").glob("*.json"))) == 1


def test_what_cannot_be_looked_up_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="carries changes"):
        lookup(tmp_path, "debezium-json", SCHEMA, ("key",))
    with pytest.raises(OptionError, match="does not exist"):
        lookup(tmp_path / "none", "csv", SCHEMA, ("key",))
    source = lookup(tmp_path, "csv", SCHEMA, ("key",))
    assert ask(opened(source), 1) == []
    tmp_path.rmdir()
    with pytest.raises(ConnectorError):
        opened(source)


@given(
    stored=st.lists(st.sampled_from([None, 0, 1, 2, 3, -1])), asked=st.lists(st.sampled_from([None, 0, 1, 2, 5, -1]))
)
def test_as_a_nested_loop(
    tmp_path_factory: pytest.TempPathFactory, stored: list[int | None], asked: list[int | None]
) -> None:
    folder = tmp_path_factory.mktemp("side")
    rows = [(k, f"v{i}") for i, k in enumerate(stored)]
    pq.write_table(pa.Table.from_pylist([{"key": k, "value": v} for k, v in rows], SCHEMA.arrow), folder / "t.parquet")
    expected = [(i, row) for i, key in enumerate(asked) for row in rows if key is not None and row[0] == key]
    assert ask(opened(lookup(folder, "parquet", SCHEMA, ("key",))), *asked) == expected
