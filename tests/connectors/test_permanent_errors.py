"""Errors that stay until somebody changes something end a job at once, however often its restart strategy would try again."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flowrun.errors import JobFailedError, SetupError
from tests.end_to_end.running import run_file
from tests.servers.http import HttpServer, Reply
from tests.servers.kafka import PASSWORD as KAFKA_PASSWORD
from tests.servers.kafka import USER as KAFKA_USER
from tests.servers.kafka import KafkaBroker
from tests.servers.postgres import PostgresDatabase
from tests.servers.redis import PASSWORD as REDIS_PASSWORD
from tests.servers.redis import RedisServerProcess
from tests.servers.s3 import S3Server

pytestmark = pytest.mark.exhaustive

Options = Mapping[str, str]
ROWS: Options = {"connector": "datagen", "number-of-rows": "5", "fields.id.kind": "sequence", "fields.id.start": "1"}
NOWHERE: Options = {"connector": "blackhole"}


def failure(folder: Path, source: Options, sink: Options, *, columns: str = "id BIGINT", key: str = "") -> str:
    """The error of a job with checkpoints that copies a table; it may be restarted twice."""
    state = folder / "state"
    settings = {
        "execution.checkpointing.interval": "100 ms",
        "state.checkpoints.dir": str(state),
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "2",
        "restart-strategy.fixed-delay.delay": "10 ms",
    }
    text = "".join(f"SET '{k}' = '{v}';\n" for k, v in settings.items())
    for name, options in (("a", source), ("b", sink)):
        listed = ", ".join(f"'{k}' = '{v}'" for k, v in options.items())
        text += f"CREATE TABLE {name} ({columns}{key}) WITH ({listed});\n"
    script = folder / "script.sql"
    script.write_text(text + "INSERT INTO b SELECT * FROM a;\n")
    with pytest.raises((JobFailedError, SetupError)) as raised:
        run_file(script)
    return "\n".join([str(raised.value), *getattr(raised.value, "__notes__", ())])


def check_at_once(message: str, pattern: str) -> None:
    """An error at the first start; of a source that finds no splits there is no note on restarts, as the job has not begun."""
    assert re.search(pattern, message), message
    assert "restarted before" not in message, message
    assert "gave up" not in message, message


def jdbc(database: PostgresDatabase, table: str, **more: str) -> Options:
    return {
        "connector": "jdbc",
        "url": database.jdbc_url,
        "table-name": table,
        "username": database.user,
        "password": database.password,
        **more,
    }


def test_postgres_lets_nobody_in(postgres: PostgresDatabase, tmp_path: Path) -> None:
    message = failure(tmp_path, jdbc(postgres, "t", password="wrong"), NOWHERE)
    check_at_once(message, "password authentication failed")


def test_postgres_has_no_such_database(postgres: PostgresDatabase, tmp_path: Path) -> None:
    message = failure(tmp_path, {**jdbc(postgres, "t"), "url": postgres.jdbc_url + "x"}, NOWHERE)
    check_at_once(message, "does not exist")


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_postgres_has_no_such_table(postgres: PostgresDatabase, tmp_path: Path, guarantee: str) -> None:
    check_at_once(failure(tmp_path, jdbc(postgres, "nowhere"), NOWHERE), "no table 'nowhere'")
    sink = jdbc(postgres, "nowhere", **{"sink.delivery-guarantee": guarantee})
    check_at_once(failure(tmp_path, ROWS, sink), "no table 'nowhere'")


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_postgres_denies_a_permission(postgres: PostgresDatabase, tmp_path: Path, guarantee: str) -> None:
    role = f"guest_{postgres.name}"
    postgres.execute(f"CREATE TABLE t (id bigint); CREATE ROLE {role} LOGIN PASSWORD 'guest-word'")
    try:
        sink = jdbc(postgres, "t", **{"username": role, "password": "guest-word", "sink.delivery-guarantee": guarantee})
        check_at_once(failure(tmp_path, ROWS, sink), "permission denied")
    finally:
        postgres.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_postgres_refuses_a_value(postgres: PostgresDatabase, tmp_path: Path, guarantee: str) -> None:
    postgres.execute("CREATE TABLE t (id bigint CHECK (id < 3))")
    message = failure(tmp_path, ROWS, jdbc(postgres, "t", **{"sink.delivery-guarantee": guarantee}))
    assert re.search("refuses a value.*violates check constraint", message), message
    assert "not restarted: this happened 3 times at the same place" in message, "another table may hold the row by then"


def cdc(database: PostgresDatabase, table: str, **more: str) -> Options:
    return {
        "connector": "postgres-cdc",
        "hostname": database.host,
        "port": str(database.port),
        "username": database.user,
        "password": database.password,
        "database-name": database.name,
        "schema-name": "public",
        "table-name": table,
        "slot.name": f"slot_{database.name}",
        **more,
    }


def test_postgres_cdc_has_no_such_table(postgres: PostgresDatabase, tmp_path: Path) -> None:
    key = ", PRIMARY KEY (id) NOT ENFORCED"
    check_at_once(failure(tmp_path, cdc(postgres, "nowhere"), NOWHERE, key=key), "no table")
    check_at_once(failure(tmp_path, cdc(postgres, "t", password="wrong"), NOWHERE, key=key), "authentication failed")


def topic(broker: KafkaBroker, name: str, **more: str) -> Options:
    return {
        "connector": "kafka",
        "topic": name,
        "properties.bootstrap.servers": broker.bootstrap,
        "scan.startup.mode": "earliest-offset",
        "format": "json",
        **more,
    }


def test_kafka_has_no_such_topic(kafka: KafkaBroker, tmp_path: Path) -> None:
    check_at_once(failure(tmp_path, topic(kafka, "nowhere-to-be-found"), NOWHERE), "topic 'nowhere-to-be-found'")
    check_at_once(failure(tmp_path, ROWS, topic(kafka, "nowhere-to-be-found")), "topic 'nowhere-to-be-found'")


def test_kafka_lets_nobody_in(kafka: KafkaBroker, tmp_path: Path) -> None:
    login = {
        "properties.bootstrap.servers": kafka.sasl,
        "properties.security.protocol": "SASL_PLAINTEXT",
        "properties.sasl.mechanism": "PLAIN",
        "properties.sasl.username": KAFKA_USER,
        "properties.sasl.password": KAFKA_PASSWORD + "x",
    }
    check_at_once(failure(tmp_path, topic(kafka, "t", **login), NOWHERE), "refuses the login")
    transactional = {"sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": "p"}
    check_at_once(failure(tmp_path, ROWS, topic(kafka, "t", **login, **transactional)), "refuses the login")


def test_redis_lets_nobody_in(redis_server: RedisServerProcess, tmp_path: Path) -> None:
    sink = {"connector": "redis", "url": redis_server.url, "password": REDIS_PASSWORD + "x", "key.prefix": "k:"}
    message = failure(tmp_path, ROWS, sink, key=", PRIMARY KEY (id) NOT ENFORCED", columns="id BIGINT, v STRING")
    check_at_once(message, "does not let this user connect")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_web_server_refuses(http_server: HttpServer, tmp_path: Path, status: int) -> None:
    http_server.answer = lambda _: Reply(status)
    sink = {"connector": "http", "url": http_server.url + "/rows", "format": "json"}
    check_at_once(failure(tmp_path, ROWS, sink), f"answers {status}")


def test_a_web_server_that_is_down_for_a_moment_is_asked_again(http_server: HttpServer, tmp_path: Path) -> None:
    http_server.answer = lambda _: Reply(503)
    sink = {
        "connector": "http",
        "url": http_server.url + "/rows",
        "format": "json",
        "sink.max-retries": "0",
    }
    assert "gave up after 2 restarts" in failure(tmp_path, ROWS, sink)


def test_an_object_store_refuses(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    nowhere = {"connector": "filesystem", "path": "s3://no-such-bucket/in", "format": "json", **s3.options}
    check_at_once(failure(tmp_path, nowhere, NOWHERE), "(?i)no.?such.?bucket|does not exist")
    check_at_once(failure(tmp_path, ROWS, nowhere), "(?i)no.?such.?bucket")


def test_a_lake_table_is_missing(tmp_path: Path) -> None:
    delta = {"connector": "delta", "table-path": str(tmp_path / "nowhere")}
    check_at_once(failure(tmp_path, delta, NOWHERE), "no Delta table")
    iceberg = {
        "connector": "iceberg",
        "catalog-name": "c",
        "catalog-type": "in-memory",
        "warehouse": str(tmp_path / "w"),
        "catalog-database": "d",
        "catalog-table": "t",
    }
    check_at_once(failure(tmp_path, iceberg, NOWHERE), "no Iceberg table")


@pytest.mark.parametrize("on_s3", [False, True])
def test_a_file_is_damaged(s3: S3Server, tmp_path: Path, on_s3: bool) -> None:
    """A store shows no object before it is complete; a file on a disk may still be written if it was just changed."""
    whole = io.BytesIO()
    pq.write_table(pa.table({"id": range(1000)}), whole)
    content = whole.getvalue()[:-10]
    file = tmp_path / "in" / "a.parquet"
    path, more = str(file.parent), dict[str, str]()
    if on_s3:
        path = f"s3://{s3.create_bucket()}/in"
        with s3.filesystem().open_output_stream(f"{path.removeprefix('s3://')}/a.parquet") as stream:
            stream.write(content)
        more = s3.options
    file.parent.mkdir()
    file.write_bytes(content)
    os.utime(file, (1, 1))
    message = failure(tmp_path, {"connector": "filesystem", "path": path, "format": "parquet", **more}, NOWHERE)
    check_at_once(message, "in/a.parquet is no Parquet file or is truncated")
    assert "not restarted: the same error would come again" in message
