"""The PostgreSQL server of the tests does what tests expect of it."""

from __future__ import annotations

import select

import psycopg
import pytest

from tests.servers.postgres import PostgresDatabase, PostgresServer

pytestmark = pytest.mark.exhaustive


def test_a_database_takes_passwords_only_and_decodes_logically(postgres: PostgresDatabase) -> None:
    assert postgres.execute("SHOW wal_level; SHOW max_prepared_transactions") == [("32",)]
    assert postgres.execute("SELECT current_database() = %s", [postgres.name]) == [(True,)]
    postgres.execute("SELECT pg_create_logical_replication_slot('left_behind', 'pgoutput')")
    with pytest.raises(psycopg.OperationalError, match="authentication failed"):
        postgres.connect(password="wrong")


def test_committed_rows_survive_kills_and_restarts(
    postgres_server: PostgresServer,
    postgres: PostgresDatabase,
) -> None:
    postgres.execute("CREATE TABLE t (id INT)")
    with postgres.connect() as open_connection:
        for row, end in enumerate([postgres_server.kill, postgres_server.stop]):
            postgres.execute("INSERT INTO t VALUES (%s)", [row])
            end()
            with pytest.raises(psycopg.OperationalError):
                postgres.connect(connect_timeout=1)
            postgres_server.start()
        with pytest.raises(psycopg.OperationalError):
            open_connection.execute("SELECT 1")
    assert postgres.execute("SELECT id FROM t ORDER BY id") == [(0,), (1,)]


def test_a_server_that_hangs_goes_on(postgres_server: PostgresServer, postgres: PostgresDatabase) -> None:
    with postgres.connect() as connection:
        postgres_server.hang()
        connection.pgconn.send_query(b"SELECT 1")
        connection.pgconn.flush()
        assert not select.select([connection], [], [], 0.1)[0]
        postgres_server.go_on()
        assert select.select([connection], [], [], 30)[0]
        connection.pgconn.consume_input()
        assert connection.pgconn.get_result().get_value(0, 0) == b"1"
        assert connection.pgconn.get_result() is None
