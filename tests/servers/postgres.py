"""A PostgreSQL server for tests: from the binaries of Debian's package `postgresql`, or of any other installation on the PATH.

`postgres` is a fresh database for one test, `postgres_server` the server behind it, which the tests of a process share. It listens on
the loopback interface only, takes passwords only, and has logical decoding and prepared transactions. Nothing waits for the disk
(`fsync=off`): what is committed survives `kill`, though not a failure of the machine.
"""

from __future__ import annotations

import glob
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.servers.needed import give_up

USER = "flowrun"
_ADMINISTRATION = "postgres"
_START_TIMEOUT_S = 60.0
_PACKAGES = "/usr/lib/postgresql/*/bin"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_wal_senders": "32",
    "max_replication_slots": "32",
    "max_prepared_transactions": "32",
    "max_connections": "100",
    "fsync": "off",
    "full_page_writes": "off",
    "lc_messages": "C",
    "timezone": "UTC",
}


@dataclass(frozen=True, slots=True)
class PostgresDatabase:
    """One database of a server, and who may use it."""

    host: str
    port: int
    name: str
    user: str
    password: str

    @property
    def jdbc_url(self) -> str:
        """As Flink's connector takes it; without user and password."""
        return f"jdbc:postgresql://{self.host}:{self.port}/{self.name}"

    @property
    def uri(self) -> str:
        """For libpq and all that is built on it; holds the password."""
        return f"postgresql://{self.user}:{quote(self.password, '')}@{self.host}:{self.port}/{self.name}"

    def connect(self, **options: Any) -> Any:
        """A connection of psycopg that commits each statement by itself; `options` are those of `psycopg.connect`."""
        import psycopg

        return psycopg.connect(self.uri, **{"autocommit": True, **options})

    def execute(self, statement: str, parameters: Sequence[object] | None = None) -> list[tuple[Any, ...]]:
        """Run one statement, or several without parameters; gives the rows of the last one, if it has rows."""
        with self.connect() as connection:
            cursor = connection.execute(statement, parameters)
            while cursor.nextset():
                pass
            return cursor.fetchall() if cursor.description is not None else []


class PostgresServer:
    """A server with a data folder of its own.

    Args:
        binaries: the folder that holds `initdb` and `postgres`.
        folder: for its data and log; must be empty, and is removed by `close`.
    """

    def __init__(self, binaries: Path, folder: Path) -> None:
        self._binaries = binaries
        self._folder = folder
        self._data = folder / "data"
        self._log = folder / "server.log"
        self._account = _account()
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        self.password = secrets.token_urlsafe(12)
        self.port = _free_port()
        self._make_data()

    def _make_data(self) -> None:
        secret = self._folder / "password"
        secret.write_text(self.password)
        if self._account is not None:
            for path in (self._folder, secret):
                os.chown(path, self._account.pw_uid, self._account.pw_gid)
        made = subprocess.run(
            [
                *self._as_account(),
                *(str(self._binaries / "initdb"), "-D", str(self._data), "-U", USER, "--no-sync"),
                *("--auth=scram-sha-256", f"--pwfile={secret}", "--encoding=UTF8", "--locale=C.UTF-8"),
            ],
            check=False,
            capture_output=True,
            text=True,
            cwd="/",
        )
        if made.returncode:
            raise RuntimeError(f"initdb failed:\n{made.stdout}{made.stderr}")

    def _as_account(self, *, ends_with_us: bool = False) -> list[str]:
        """What runs a command as the account of the server, which does not run as root, and ends it with this process."""
        if shutil.which("setpriv") is None:
            return []
        account = self._account
        who = [] if account is None else [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
        end = ["--pdeathsig", "QUIT"] if ends_with_us else []
        return ["setpriv", *who, *end, "--"] if who or end else []

    @property
    def administration(self) -> PostgresDatabase:
        """The database that is always there."""
        return PostgresDatabase("127.0.0.1", self.port, _ADMINISTRATION, USER, self.password)

    @property
    def log(self) -> str:
        """What the server has written to its log."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    @property
    def is_running(self) -> bool:
        """Whether its first process is there."""
        return self._process is not None and self._process.poll() is None

    def start(self, **settings: str) -> None:
        """Start it and wait until it takes connections. `settings` are for this start, besides those above."""
        assert not self.is_running
        chosen = {**_SETTINGS, **settings, "port": str(self.port)}
        arguments = [argument for name, value in chosen.items() for argument in ("-c", f"{name}={value}")]
        command = [*self._as_account(ends_with_us=True), str(self._binaries / "postgres"), "-D", str(self._data)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([*command, *arguments], stdout=log, stderr=log, cwd="/")
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        """The server itself says in its lock file that it is ready, as `pg_ctl` expects it."""
        assert self._process is not None
        lock_file = self._data / "postmaster.pid"
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise RuntimeError(f"PostgreSQL ended as it was started:\n{self.log[-3000:]}")
            with suppress(FileNotFoundError):
                lines = lock_file.read_text().splitlines()
                if len(lines) >= 8 and lines[0] == str(self._process.pid) and lines[7].strip() == "ready":
                    return
            time.sleep(0.02)
        raise RuntimeError(f"PostgreSQL was not ready after {_START_TIMEOUT_S:g} s:\n{self.log[-3000:]}")

    def stop(self) -> None:
        """End it in order: what is under way is rolled back, connections are closed."""
        if self.is_running:
            assert self._process is not None
            self._process.send_signal(signal.SIGINT)
            self._process.wait(_START_TIMEOUT_S)

    def kill(self) -> None:
        """End all its processes at once, as kill -9 does."""
        if self.is_running:
            assert self._process is not None
            processes = self._processes()
            for process in processes:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            self._process.wait(_START_TIMEOUT_S)
            _wait_until_gone(processes[1:])

    def restart(self, **settings: str) -> None:
        """Stop it and start it again, on the same port."""
        self.stop()
        self.start(**settings)

    def hang(self) -> None:
        """Let all its processes stand still: connections stay, and nothing answers. `go_on` ends that."""
        for process in self._processes():
            os.kill(process, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let what stands still go on."""
        for process in self._processes():
            with suppress(ProcessLookupError):  # it may end meanwhile
                os.kill(process, signal.SIGCONT)

    def _processes(self) -> list[int]:
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        return [self._process.pid, *map(int, children)]

    def create_database(self) -> PostgresDatabase:
        """A new, empty database."""
        self._databases += 1
        name = f"test_{os.getpid()}_{self._databases}"
        self.administration.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        return PostgresDatabase("127.0.0.1", self.port, name, USER, self.password)

    def drop_database(self, database: PostgresDatabase) -> None:
        """Remove a database with its replication slots and prepared transactions; connections to it are cut."""
        for (transaction,) in self.administration.execute(
            "SELECT gid FROM pg_prepared_xacts WHERE database = %s", [database.name]
        ):
            database.execute(f"ROLLBACK PREPARED '{transaction}'")
        self.administration.execute(
            "SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots WHERE database = %s AND active",
            [database.name],
        )
        self.administration.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s", [database.name]
        )
        self.administration.execute(f"DROP DATABASE {database.name} WITH (FORCE)")

    def close(self) -> None:
        """Stop it and remove its data."""
        if self.is_running:
            self.go_on()
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


def binaries_folder() -> Path | None:
    """The folder with the server's programs: Debian's newest, or that of the PATH; None: there is none on this machine."""
    found = sorted(glob.glob(_PACKAGES), key=lambda p: int(Path(p).parent.name) if Path(p).parent.name.isdigit() else 0)
    on_path = shutil.which("initdb")
    if on_path is not None:
        found.insert(0, str(Path(on_path).resolve().parent))
    whole = [Path(f) for f in found if (Path(f) / "initdb").exists() and (Path(f) / "postgres").exists()]
    return whole[-1] if whole else None


def _account() -> pwd.struct_passwd | None:
    """Whom the server runs as where this is root, as whom it refuses to run."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise RuntimeError("PostgreSQL does not run as root, and there is no account postgres or nobody")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _wait_until_gone(processes: Sequence[int]) -> None:
    """Children of a killed server belong to nobody here: what is left of them must not keep the data from the next server."""
    deadline = time.monotonic() + _START_TIMEOUT_S
    while any(Path(f"/proc/{p}").exists() for p in processes):
        if time.monotonic() > deadline:
            raise RuntimeError("processes of a killed PostgreSQL are still there")
        time.sleep(0.01)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The server that tests of this process share. Where the machine has none tests are skipped, but not in CI."""
    binaries = binaries_folder()
    if binaries is None:
        give_up("no PostgreSQL on this machine: apt-get install postgresql")
    server = PostgresServer(binaries, Path(tempfile.mkdtemp(prefix="flowrun-postgres-")))
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> Iterator[PostgresDatabase]:
    """A fresh database; the server runs when the test begins, whatever tests before it did."""
    if not postgres_server.is_running:
        postgres_server.start()
    database = postgres_server.create_database()
    yield database
    if postgres_server.is_running:
        postgres_server.go_on()
    else:
        postgres_server.start()
    postgres_server.drop_database(database)
