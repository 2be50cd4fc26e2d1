"""Rows found by key in a real PostgreSQL."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from flowrun.core.schema import Schema
from flowrun.core.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    INT,
    STRING,
    DataType,
    char,
    decimal,
    timestamp,
    timestamp_ltz,
)
from flowrun.errors import ConnectorError
from tests.connectors.jdbc.tables import ask, lookup, options_of
from tests.servers.postgres import PostgresDatabase, PostgresServer

pytestmark = pytest.mark.exhaustive

SCHEMA = Schema.of(id=BIGINT, name=STRING)


def test_rows_are_found_for_each_key_in_order(postgres: PostgresDatabase) -> None:
    postgres.execute(
        "CREATE TABLE t (id bigint, name text); INSERT INTO t VALUES (1, 'a'), (2, 'b'), (1, 'c'), (NULL, 'd')"
    )
    with lookup(options_of(postgres, "t"), SCHEMA, ("id",)) as table:
        found = ask(table, pa.array([2, 7, None, 1, 2], pa.int64()))
        assert sorted(found) == [(0, (2, "b")), (3, (1, "a")), (3, (1, "c")), (4, (2, "b"))]
        assert [p for p, _ in found] == [0, 3, 3, 4]
        assert ask(table, pa.array([], pa.int64())) == []
        assert ask(table, pa.array([None], pa.int64())) == []


def test_several_keys_and_only_the_wanted_columns(postgres: PostgresDatabase) -> None:
    postgres.execute("CREATE TABLE t (a int, b text, c text, d date)")
    postgres.execute(
        "INSERT INTO t VALUES (1, 'u', 'yes', '2020-01-01'), (1, 'v', 'no', NULL), (1, NULL, 'null', NULL)"
    )
    declared = Schema.of(a=INT, b=STRING, c=STRING, d=DATE)
    with lookup(options_of(postgres, "t"), declared.select(["d", "c"]), ("b", "a"), declared) as table:
        asked = pa.array(["u", "w", None, "u"]), pa.array([1, 1, 1, 1], pa.int32())
        assert ask(table, *asked) == [(0, (dt.date(2020, 1, 1), "yes")), (3, (dt.date(2020, 1, 1), "yes"))]
    with lookup(options_of(postgres, "t"), Schema(()), ("a",), declared) as table:
        found = table.find(pa.record_batch([pa.array([5, 1], pa.int32())], names=["a"]))
        assert found.probe.tolist() == [1, 1, 1]
        assert found.rows.num_rows == 3


KEYS: list[tuple[str, DataType, str, list[Any], list[int]]] = [
    ("text", STRING, "'it''s {\"x\"}, \\'", ['it\'s {"x"}, \\', "zero\0byte", ""], [0]),
    ("varchar(9)", STRING, "'a'", ["a", "A"], [0]),
    ("char(3)", char(3), "'a'", ["a  ", "a"], [0]),
    ("uuid", STRING, "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", ["no", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"], [1]),
    ("int", STRING, "12", ["x", "12", "012"], [1]),
    ("bytea", BYTES, r"'\x00ff'", [b"", b"\x00\xff"], [1]),
    ("boolean", BOOLEAN, "true", [False, True], [1]),
    ("date", DATE, "'2020-01-01'", [dt.date(2020, 1, 1), dt.date(2020, 1, 2)], [0]),
    ("numeric", decimal(10, 3), "1.5", [Decimal("1.500"), Decimal("1.501")], [0]),
    ("timestamp(3)", timestamp(3), "'2020-01-01 00:00:00.5'", [dt.datetime(2020, 1, 1, 0, 0, 0, 500000)], [0]),
    ("timestamptz(3)", timestamp_ltz(3), "'2020-01-01 02:00:00+02'", [dt.datetime(2020, 1, 1, tzinfo=dt.UTC)], [0]),
    ("citext_like", STRING, "'a'", ["a", "A"], [0]),
]


@pytest.mark.parametrize(("kind", "declared", "value", "asked", "found"), KEYS, ids=[k[0] for k in KEYS])
def test_keys_of_any_type(
    postgres: PostgresDatabase, kind: str, declared: DataType, value: str, asked: list[Any], found: list[int]
) -> None:
    postgres.execute("CREATE DOMAIN citext_like AS text")
    postgres.execute(f"CREATE TABLE t (k {kind}); INSERT INTO t VALUES ({value}), (NULL)")
    with lookup(options_of(postgres, "t"), Schema.of(k=declared), ("k",)) as table:
        assert [p for p, _ in ask(table, pa.array(asked, declared.arrow))] == found


def test_as_a_nested_loop_over_random_keys(postgres: PostgresDatabase) -> None:
    random = np.random.default_rng(0)
    stored = [(int(a), str(b), i) for i, (a, b) in enumerate(random.integers(0, 9, (300, 2)))]
    postgres.execute("CREATE TABLE t (a bigint, b text, n int)")
    with postgres.connect() as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO t VALUES (%s, %s, %s)", stored)
    asked = [(int(a), str(b)) for a, b in random.integers(0, 12, (100, 2))]
    declared = Schema.of(a=BIGINT, b=STRING, n=INT)
    with lookup(options_of(postgres, "t"), declared.select(["n"]), ("a", "b"), declared) as table:
        found = ask(table, pa.array([a for a, _ in asked], pa.int64()), pa.array([b for _, b in asked]))
    assert sorted(found) == sorted(
        (i, (n,)) for i, key in enumerate(asked) for *stored_key, n in stored if tuple(stored_key) == key
    )


def test_a_lookup_goes_on_after_the_server_was_restarted(
    postgres_server: PostgresServer, postgres: PostgresDatabase
) -> None:
    postgres.execute("CREATE TABLE t (id bigint, name text); INSERT INTO t VALUES (1, 'a')")
    with lookup(options_of(postgres, "t"), SCHEMA, ("id",)) as table:
        postgres_server.restart()
        with pytest.raises(ConnectorError) as raised:
            ask(table, pa.array([1], pa.int64()))
        assert raised.value.retryable
        assert ask(table, pa.array([1], pa.int64())) == [(0, (1, "a"))]


def test_a_server_that_hangs_is_given_up(postgres_server: PostgresServer, postgres: PostgresDatabase) -> None:
    postgres.execute("CREATE TABLE t (id bigint, name text); INSERT INTO t VALUES (1, 'a')")
    options = options_of(postgres, "t", connection__max_retry_timeout="3 s")
    with lookup(options, SCHEMA, ("id",)) as table:
        postgres_server.hang()
        with pytest.raises(ConnectorError, match="did not answer for 3 s") as raised:
            ask(table, pa.array([1], pa.int64()))
        assert raised.value.retryable
        postgres_server.go_on()
    patient = {**options, "connection.max-retry-timeout": "60 s"}
    with lookup(patient, SCHEMA, ("id",)) as table:
        assert ask(table, pa.array([1], pa.int64())) == [(0, (1, "a"))]


def test_an_unused_uuid_type_is_not_needed(postgres: PostgresDatabase) -> None:
    postgres.execute("CREATE TABLE t (k uuid)")
    keys = [str(uuid.UUID(int=i)) for i in range(3)]
    postgres.execute("INSERT INTO t SELECT unnest(%s::uuid[])", [keys])
    with lookup(options_of(postgres, "t"), Schema.of(k=STRING), ("k",)) as table:
        assert ask(table, pa.array(keys)) == [(i, (k,)) for i, k in enumerate(keys)]
