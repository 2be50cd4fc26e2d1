"""Encrypted connections to a real PostgreSQL: whose certificate is believed, and who logs in by one."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest

from flowrun.api.connector import TableDefinition
from flowrun.connectors.postgres_cdc.connector import CONNECTOR as CDC
from flowrun.core import types as t
from flowrun.core.options import parse_options
from flowrun.core.schema import Schema
from flowrun.errors import ConnectorError
from flowrun.testing.connector_conformance import SourceDrive, writer_context
from tests.connectors.jdbc.tables import ask, batch, lookup, options_of, read, sink, source
from tests.runtime.rpc.certificates import make_authority, make_identity, needs_openssl
from tests.servers.needed import give_up
from tests.servers.postgres import PostgresDatabase, PostgresServer, binaries_folder

pytestmark = [pytest.mark.exhaustive, needs_openssl]

SCHEMA = Schema.of(id=t.BIGINT, v=t.STRING)
CLIENT = "certified"
"""Who logs in by a certificate, and has no password."""
SOON_S = 30
ACCESS = f"""
hostssl all {CLIENT} 127.0.0.1/32 cert
hostssl all all 127.0.0.1/32 scram-sha-256
"""


@dataclass(frozen=True)
class Encrypted:
    """A database whose server takes encrypted connections only, as `localhost`.

    Attributes:
        authority: who signed the certificate of the server.
        stranger: an authority that did not.
        client: folder of the certificate and key of `CLIENT`.
    """

    database: PostgresDatabase
    authority: Path
    stranger: Path
    client: Path

    def url(self, **parameters: object) -> str:
        """Of the database, at the name that the certificate has."""
        named = replace(self.database, host="localhost").jdbc_url
        return f"{named}?{'&'.join(f'{name}={value}' for name, value in parameters.items())}"

    def options(self, table: str, url: str, **more: object) -> dict[str, object]:
        return {**options_of(self.database, table, **more), "url": url}

    def of_client(self, table: str, **more: object) -> dict[str, object]:
        """The options with which `CLIENT` logs in by its certificate."""
        url = self.url(
            sslmode="verify-full",
            sslrootcert=self.authority,
            sslcert=self.client / "cert.pem",
            sslkey=self.client / "key.pem",
        )
        found = self.options(table, url, username=CLIENT, **more)
        del found["password"]
        return found


@pytest.fixture(scope="module")
def encrypted() -> Iterator[Encrypted]:
    binaries = binaries_folder()
    if binaries is None:
        give_up("no PostgreSQL on this machine: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="flowrun-postgres-tls-"))
    folder.chmod(0o755)  # the server runs as an account of its own
    (folder / "server").mkdir()
    server = PostgresServer(binaries, folder / "server")
    try:
        authority, stranger = make_authority(folder / "authority"), make_authority(folder / "stranger")
        identity = make_identity(folder / "localhost", authority)
        client = make_identity(folder / CLIENT, authority)
        (folder / "hba.conf").write_text(ACCESS)
        _give(folder, (folder / "server").stat())
        server.start(
            ssl="on",
            ssl_cert_file=str(identity / "cert.pem"),
            ssl_key_file=str(identity / "key.pem"),
            ssl_ca_file=str(authority / "ca.pem"),
            hba_file=str(folder / "hba.conf"),
        )
        database = server.create_database()
        database.execute(
            f"CREATE TABLE t (id bigint PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a'), (2, 'b');"
            f"CREATE ROLE {CLIENT} LOGIN REPLICATION; ALTER TABLE t OWNER TO {CLIENT};"
            f"GRANT CREATE ON DATABASE {database.name} TO {CLIENT}; GRANT CREATE ON SCHEMA public TO {CLIENT}"
        )
        yield Encrypted(database, authority / "ca.pem", stranger / "ca.pem", client)
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)


def _give(folder: Path, owner: os.stat_result) -> None:
    """The server reads its own certificate and key as its own account; the keys of clients stay with who runs the test."""
    for path in (folder / "localhost", *(folder / "localhost").iterdir()):
        os.chown(path, owner.st_uid, owner.st_gid)


def write(options: dict[str, object], *rows: tuple[int, str]) -> None:
    writer = sink(options, SCHEMA, ("id",)).create_writer(writer_context())
    writer.open()
    writer.write(batch(SCHEMA, list(rows)))
    writer.flush(True)
    writer.close()


def follow(encrypted: Encrypted, **more: object) -> SourceDrive:
    """A drive of `postgres-cdc` that logs in by a certificate."""
    database = encrypted.database
    given = {
        "hostname": "localhost", "port": database.port, "database-name": database.name, "username": CLIENT, "table-name": "t",
        "slot.name": "certified_slot", "debezium.database.sslmode": "verify-full",
        "debezium.database.sslrootcert": encrypted.authority, "debezium.database.sslcert": encrypted.client / "cert.pem",
        "debezium.database.sslkey": encrypted.client / "key.pem", **more,
    }  # fmt: skip
    options, problems = parse_options(CDC.source_options, {name: str(value) for name, value in given.items()}, "t")
    assert not problems
    assert CDC.create_source is not None
    return SourceDrive(CDC.create_source(TableDefinition("t", SCHEMA, options, primary_key=("id",))))


def until(drive: SourceDrive, holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + SOON_S
    while not holds():
        assert time.monotonic() < deadline
        drive.readers[0].poll(drive)
        time.sleep(0.005)


@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
def test_a_table_is_read_looked_up_and_written_over_a_checked_connection(encrypted: Encrypted, mode: str) -> None:
    options = encrypted.options("t", encrypted.url(sslmode=mode, sslrootcert=encrypted.authority))
    assert sorted(read(source(options, SCHEMA)))[:2] == [(1, "a"), (2, "b")]
    with lookup(options, SCHEMA, ("id",)) as looking:
        assert ask(looking, pa.array([77, 2])) == [(1, (2, "b"))]
    write(options, (3, mode))
    assert encrypted.database.execute("SELECT v FROM t WHERE id = 3") == [(mode,)]


def test_ssl_true_checks_the_certificate_as_in_java(encrypted: Encrypted) -> None:
    options = encrypted.options("t", encrypted.url(ssl="true", sslrootcert=encrypted.authority))
    assert len(read(source(options, SCHEMA))) >= 2
    unknown = encrypted.options("t", encrypted.url(ssl="true", sslrootcert=encrypted.stranger))
    with pytest.raises(ConnectorError, match="certificate verify failed"):
        read(source(unknown, SCHEMA))


def test_a_client_logs_in_by_its_certificate(encrypted: Encrypted) -> None:
    options = encrypted.of_client("t")
    assert sorted(read(source(options, SCHEMA)))[:2] == [(1, "a"), (2, "b")]
    with lookup(options, SCHEMA, ("id",)) as looking:
        assert ask(looking, pa.array([1])) == [(0, (1, "a"))]
    write(options, (4, "by certificate"))
    assert encrypted.database.execute("SELECT v FROM t WHERE id = 4") == [("by certificate",)]


@pytest.mark.parametrize(
    ("parameters", "host", "said"),
    [
        ({"sslmode": "verify-full", "sslrootcert": "stranger"}, "localhost", "certificate verify failed"),
        ({"sslmode": "verify-full", "sslrootcert": "authority"}, "127.0.0.1", "does not match host name"),
        ({"sslmode": "verify-full", "sslrootcert": "/no/such/ca.pem"}, "localhost", "/no/such/ca.pem.* does not exist"),
        ({"sslmode": "disable"}, "localhost", "no encryption"),
    ],
    ids=["another authority", "another name", "no file", "not encrypted"],
)
def test_a_connection_that_is_not_believed_is_one_error_that_says_why(
    encrypted: Encrypted, parameters: dict[str, str], host: str, said: str
) -> None:
    files = {"stranger": str(encrypted.stranger), "authority": str(encrypted.authority)}
    url = encrypted.url(**{n: files.get(v, v) for n, v in parameters.items()}).replace("localhost", host)
    options = encrypted.options("t", url)
    attempts: list[Callable[[], object]] = [
        lambda: read(source(options, SCHEMA)),
        lambda: write(options, (9, "never")),
        lambda: write({**options, "sink.delivery-guarantee": "exactly-once"}, (9, "never")),
    ]
    for attempt in attempts:
        with pytest.raises(ConnectorError, match=said) as raised:
            attempt()
        assert raised.value.retryable is False
        assert "sslmode" in str(raised.value.hint)
        assert encrypted.database.password not in str(raised.value)
    with pytest.raises(ConnectorError, match=said), lookup(options, SCHEMA, ("id",)) as looking:
        ask(looking, pa.array([1]))


def test_a_client_without_its_certificate_is_not_let_in(encrypted: Encrypted) -> None:
    options = encrypted.of_client("t")
    bare = {**options, "url": encrypted.url(sslmode="verify-full", sslrootcert=encrypted.authority)}
    with pytest.raises(ConnectorError, match="certificate") as raised:
        read(source(bare, SCHEMA))
    assert raised.value.retryable is False


def test_changes_are_followed_over_a_checked_connection(encrypted: Encrypted) -> None:
    drive = follow(encrypted)
    drive.answer_requests()
    try:
        until(drive, lambda: sum(batch.num_rows for batch in drive.emitted) >= 2)
        encrypted.database.execute("INSERT INTO t VALUES (100, 'later')")
        until(drive, lambda: any(100 in batch.columns.column("id").to_pylist() for batch in drive.emitted))
    finally:
        drive.close()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"debezium.database.sslrootcert": "stranger"}, "certificate verify failed"),
        ({"hostname": "127.0.0.1"}, "does not match host name"),
    ],
)
def test_changes_are_not_followed_over_a_connection_that_is_not_believed(
    encrypted: Encrypted, more: dict[str, str], said: str
) -> None:
    given = {n: str(encrypted.stranger) if v == "stranger" else v for n, v in more.items()}
    drive = follow(encrypted, **given)
    drive.answer_requests()
    try:
        with pytest.raises(ConnectorError, match=said) as raised:
            until(drive, lambda: False)
        assert raised.value.retryable is False
    finally:
        drive.close()
