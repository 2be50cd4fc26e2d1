"""Rows of files found by key."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, BOOLEAN, BYTES, DATE, DOUBLE, INT, STRING, DataType, decimal, timestamp
from flowrun.errors import ConnectorError
from tests.connectors.jdbc.files import FileDatabase
from tests.connectors.jdbc.tables import ask, lookup, options_of

pytestmark = pytest.mark.exhaustive

SCHEMA = Schema.of(id=BIGINT, name=STRING)


def test_rows_are_found_for_each_key_in_order(file: FileDatabase) -> None:
    file.execute(
        "CREATE TABLE t (id bigint, name text); INSERT INTO t VALUES (1, 'a'), (2, 'b'), (1, 'c'), (NULL, 'd')"
    )
    with lookup(options_of(file, "t"), SCHEMA, ("id",)) as table:
        found = ask(table, pa.array([2, 7, None, 1, 2], pa.int64()))
        assert sorted(found) == [(0, (2, "b")), (3, (1, "a")), (3, (1, "c")), (4, (2, "b"))]
        assert [p for p, _ in found] == [0, 3, 3, 4]
        assert ask(table, pa.array([], pa.int64())) == []
        assert ask(table, pa.array([None], pa.int64())) == []
        file.execute("UPDATE t SET name = 'changed' WHERE id = 2")
        assert ask(table, pa.array([2], pa.int64())) == [(0, (2, "changed"))]


def test_several_keys_and_only_the_wanted_columns(file: FileDatabase) -> None:
    file.execute("CREATE TABLE t (a int, b text, c text, d date)")
    file.execute("INSERT INTO t VALUES (1, 'u', 'yes', '2020-01-01'), (1, 'v', 'no', NULL), (1, NULL, 'null', NULL)")
    declared = Schema.of(a=INT, b=STRING, c=STRING, d=DATE)
    with lookup(options_of(file, "t"), declared.select(["d", "c"]), ("b", "a"), declared) as table:
        asked = pa.array(["u", "w", None, "u"]), pa.array([1, 1, 1, 1], pa.int32())
        assert ask(table, *asked) == [(0, (dt.date(2020, 1, 1), "yes")), (3, (dt.date(2020, 1, 1), "yes"))]
    with lookup(options_of(file, "t"), Schema(()), ("a",), declared) as table:
        found = table.find(pa.record_batch([pa.array([5, 1], pa.int32())], names=["a"]))
        assert found.probe.tolist() == [1, 1, 1]
        assert found.rows.num_rows == 3


UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
KEYS: list[tuple[str, str, DataType, str, list[Any], list[int]]] = [
    ("varchar", "text", STRING, "'it''s {\"x\"}, \\'", ['it\'s {"x"}, \\', "zero\0byte", ""], [0]),
    ("varchar collate nocase", "text collate nocase", STRING, "'a'", ["A", "a"], [1]),
    ("uuid", "text", STRING, f"'{UUID}'", ["no", UUID], [1]),
    ("int", "int", STRING, "12", ["x", "12", "012"], [1]),
    ("boolean", "boolean", BOOLEAN, "true", [False, True], [1]),
    (
        "decimal(38,3)",
        "numeric",
        decimal(10, 3),
        "1.5",
        [Decimal("1.500"), Decimal("1.501"), Decimal("9999999.999")],
        [0],
    ),
    ("decimal(4,1)", "numeric", decimal(10, 3), "1.5", [Decimal("1.500"), Decimal("1.46"), Decimal("9999999")], [0]),
    ("double", "real", DOUBLE, "1.5", [1.5, float("nan"), -0.0], [0]),
    ("bigint", "bigint", INT, "7", [7, -7], [0]),
]


@pytest.mark.parametrize(("in_duckdb", "in_sqlite", "declared", "value", "asked", "found"), KEYS)
def test_keys_of_each_type(
    file: FileDatabase,
    in_duckdb: str,
    in_sqlite: str,
    declared: DataType,
    value: str,
    asked: list[Any],
    found: list[int],
) -> None:
    file.execute(f"CREATE TABLE t (k {in_duckdb if file.scheme == 'duckdb' else in_sqlite}, n int)")
    file.execute(f"INSERT INTO t VALUES ({value}, 1), (NULL, 2)")
    with lookup(options_of(file, "t"), Schema.of(n=INT), ("k",), Schema.of(k=declared, n=INT)) as table:
        assert ask(table, pa.array(asked, declared.arrow)) == [(i, (1,)) for i in found]


def test_blobs_and_moments_as_keys(duckdb_file: FileDatabase, sqlite_file: FileDatabase) -> None:
    duckdb_file.execute(
        "CREATE TABLE t (b blob, m timestamp); INSERT INTO t VALUES ('\\x00\\xff', '2020-01-01 00:00:00.5')"
    )
    sqlite_file.execute(
        "CREATE TABLE t (b blob, m text, n text); INSERT INTO t VALUES (x'00ff', '2020-01-01 00:00:00.5', '1.5')"
    )
    declared = Schema.of(b=BYTES, m=timestamp(3))
    for file in (duckdb_file, sqlite_file):
        with lookup(options_of(file, "t"), Schema(()), ("b",), declared) as table:
            assert table.find(pa.record_batch([pa.array([b"", b"\x00\xff"])], names=["b"])).probe.tolist() == [1]
    with lookup(options_of(duckdb_file, "t"), Schema(()), ("m",), declared) as table:
        keys = pa.array([dt.datetime(2020, 1, 1, 0, 0, 0, 500000)], pa.timestamp("ms"))
        assert table.find(pa.record_batch([keys], names=["m"])).probe.tolist() == [0]
    for name, kind in (("m", timestamp(3)), ("n", decimal(5, 1))):
        other = Schema.from_pairs([("b", BYTES), (name, kind)])
        with (
            pytest.raises(ConnectorError, match=f"'{name}' of .* cannot be looked up"),
            lookup(options_of(sqlite_file, "t"), Schema(()), (name,), other),
        ):
            pass


def test_many_keys_at_once_find_what_a_dictionary_finds(file: FileDatabase) -> None:
    file.execute("CREATE TABLE t (id bigint, name text); CREATE INDEX i ON t (id)")
    file.execute(f"INSERT INTO t SELECT i % 15000, 'n' || i FROM ({file.numbers(20_000)})")
    names: dict[int, list[str]] = {}
    for i in range(1, 20001):
        names.setdefault(i % 15000, []).append(f"n{i}")
    rng = np.random.default_rng(5)
    with lookup(options_of(file, "t"), SCHEMA, ("id",)) as table:
        for size in (1, 100, 20_000):
            keys = rng.integers(-100, 16_000, size)
            found = ask(table, pa.array(keys))
            expected = [(p, (int(k), n)) for p, k in enumerate(keys) for n in names.get(int(k), [])]
            assert sorted(found) == sorted(expected)
