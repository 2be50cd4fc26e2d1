"""DuckDB files that this process has open: each once, however many connections there are, because DuckDB lets one process write to a file.

Sources, lookups and sinks of a job take a `Lease` each. All writes of a process are made one after the other: transactions of DuckDB that
change the same rows at the same time fail instead of waiting for each other.
"""

from __future__ import annotations

import os
import re
import threading
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import duckdb

from flowrun.connectors.jdbc.client_errors import translating
from flowrun.connectors.jdbc.relation import Access
from flowrun.errors import ConnectorError, DataError, FlowrunError

_CONFIG = {
    "autoinstall_known_extensions": "false",  # a job asks nobody else than its file
    "python_enable_replacements": "false",  # a table is a table of the file, not a variable of this program
}
_READ_ONLY = "READ_ONLY"
_HELD_BY = re.compile(r"Conflicting lock is held in (.*?)(?:\. |$)", re.DOTALL)


class _Database:
    """One open file."""

    def __init__(self, connection: Any, settings: dict[str, str]) -> None:
        self.connection = connection
        self.settings = settings
        self.leases = 0
        self.writing = threading.Lock()


_open: dict[tuple[int, str], _Database] = {}
"""By process, because a forked one must not use what another has open, and path."""
_opening = threading.RLock()
"""Reentrant, because a lease that nobody ended is ended wherever the garbage collector finds it."""


class Lease:
    """A connection to a file that is open; used by one thread at a time, but for `interrupt`. The last one that ends closes the file."""

    def __init__(self, key: tuple[int, str], database: _Database) -> None:
        self.connection: Any = database.connection.cursor()
        self.writing = database.writing
        """Held by whoever has a transaction that writes."""
        self.end = weakref.finalize(self, _end, key, database, self.connection)
        """Rolls back what is under way, and disconnects; idempotent. A committer is told nothing when its job ends: so it happens when
        nobody knows the lease any more, at the latest."""

    def run(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """The rows of a statement: all are fetched, because a connection takes no other statement before. Raises duckdb.Error."""
        rows: list[tuple[Any, ...]] = self.connection.execute(statement, list(parameters)).fetchall()
        return rows

    def interrupt(self) -> None:
        """Make a query that is under way end soon; any thread may call it."""
        self.connection.interrupt()


def _end(key: tuple[int, str], database: _Database, connection: Any) -> None:
    with _opening:
        connection.close()
        database.leases -= 1
        if not database.leases:
            del _open[key]
            database.connection.close()


def lease(access: Access, *, writes: bool) -> Lease:
    """A connection to the file of a table, which is opened if this process does not have it open.

    Raises:
        ConnectorError: there is no such file, it is none of DuckDB, another process has it open, or it may not be written to.
    """
    path = Path(access.address.database).resolve()
    key = (os.getpid(), str(path))
    with _opening, translated(access):
        database = _open.get(key)
        if database is None:
            database = _open[key] = _Database(*_opened(access, path))
        read_only = database.settings.get("access_mode") == _READ_ONLY
        if writes and read_only:
            raise ConnectorError(
                f"{file_name(access)} is open for reading only", retryable=False, hint=_why_read_only(path)
            )
        wanted = {n: v for n, v in access.address.parameters.items() if n != "access_mode"}
        if different := [n for n, v in wanted.items() if database.settings.get(n) != v]:
            raise ConnectorError(
                f"{file_name(access)} is open in this process with another '{different[0]}'",
                retryable=False,
                hint="give all tables of the file the same 'url'",
            )
        taken = Lease(key, database)
        database.leases += 1
    with translated(access):
        taken.run("SET TimeZone = 'UTC'")
    return taken


def _opened(access: Access, path: Path) -> tuple[Any, dict[str, str]]:
    if not path.exists():
        raise ConnectorError(
            f"there is no file '{path}'",
            retryable=False,
            hint="flowrun makes no tables: create the file and its table with DuckDB first",
        )
    settings = dict(access.address.parameters)
    if not os.access(path, os.W_OK):
        settings["access_mode"] = _READ_ONLY
    connection = duckdb.connect(str(path), config={**_CONFIG, **settings})
    connection.execute("SET preserve_insertion_order = true").fetchall()
    return connection, settings


def _why_read_only(path: Path) -> str:
    if not os.access(path, os.W_OK):
        return "the user may not write to the file: check its permissions"
    return "a job that writes to a file has to open it for writing everywhere: leave access_mode out of the 'url' of all its tables"


def file_name(access: Access) -> str:
    """The file, for messages.

    >>> from flowrun.connectors.jdbc.address import parse_address
    >>> file_name(Access(parse_address("jdbc:duckdb:shop.duckdb"), "t"))
    "the DuckDB file 'shop.duckdb'"
    """
    return f"the DuckDB file '{access.address.database}'"


def translated(access: Access) -> AbstractContextManager[None]:
    """Errors of DuckDB inside become a `ConnectorError`, or a `DataError` where it does not take a value."""
    return translating(_is_of_client, lambda error: _meaning(access, error))


def _is_of_client(error: Exception) -> bool:
    return isinstance(
        error, duckdb.Error | RuntimeError
    )  # the latter while rows of a query are fetched as Arrow batches


def _meaning(access: Access, error: Exception) -> FlowrunError:
    name, text = file_name(access), _tidy(str(error))
    if isinstance(error, duckdb.IntegrityError | duckdb.DataError):
        return DataError(f"{name} refuses a value: {text}")
    if (held := _HELD_BY.search(str(error))) is not None:
        hint = (
            "one process at a time may write to a DuckDB file: end that one, and run all that writes to the file in one job. "
            "Several may read it if each says so: jdbc:duckdb:path;access_mode=READ_ONLY"
        )
        return ConnectorError(f"{name} is open in another process: {held[1].strip()}", retryable=True, hint=hint)
    if "not a valid DuckDB database file" in text:
        return ConnectorError(f"{name} is no DuckDB file", retryable=False, hint="check the path in 'url'")
    passing = isinstance(error, duckdb.TransactionException | duckdb.InterruptException | duckdb.IOException)
    return ConnectorError(f"{name}: {text}", retryable=passing)


def _tidy(text: str) -> str:
    """The message in one line, without the query, which may be long and hold values."""
    return "; ".join(line.strip() for line in text.partition("\nLINE ")[0].splitlines() if line.strip())[:600]
