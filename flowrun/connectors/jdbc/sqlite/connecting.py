"""Connections to SQLite files by ADBC, and what its errors mean.

All connections of a process are made by one library: two copies of SQLite in a process would let go of each other's locks on a file.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from flowrun.api.client_library import ClientLibrary
from flowrun.connectors.jdbc.client_errors import is_from, translating
from flowrun.connectors.jdbc.relation import Access
from flowrun.errors import ConnectorError, DataError, FlowrunError

CLIENT = ClientLibrary("sqlite", ("adbc_driver_sqlite",))
NEEDED_BY = "connector 'jdbc' with jdbc:sqlite:"
Rows = list[tuple[Any, ...]]

_BATCH_ROWS = 65_536
_LIBRARY = "adbc_driver_manager"
_OF_ROWS = ("constraint failed", "cannot store", "datatype mismatch", "string or blob too big")
_NO_DATABASE = ("file is not a database", "file is encrypted")


class SqliteConnection:
    """One connection; used by one thread. Every statement is a transaction of its own but between BEGIN and COMMIT.

    Raises:
        ConnectorError: there is no such file, it is none of SQLite, or it may not be read or written.
        SetupError: ADBC's driver is not installed.
    """

    def __init__(self, access: Access, *, writes: bool) -> None:
        self._access = access
        library = CLIENT.module("adbc_driver_sqlite.dbapi", NEEDED_BY)
        path = Path(access.address.database).resolve()
        if not path.exists():
            raise ConnectorError(
                f"there is no file '{path}'",
                retryable=False,
                hint="flowrun makes no tables: create the file and its table with SQLite first",
            )
        may_write = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
        settings = dict(access.address.parameters)
        mode = settings.pop("mode", "rw" if may_write else "ro")
        if writes and (mode == "ro" or not may_write):
            raise ConnectorError(
                f"{file_name(access)} cannot be written to",
                retryable=False,
                hint="leave mode=ro out of 'url'"
                if may_write
                else "check the permissions of the file and of its folder",
            )
        with translated(access):
            self._connection = library.connect(f"file:{quote(str(path))}?mode={mode}", autocommit=True)
        self.close = weakref.finalize(self, _close, self._connection)
        """Rolls back and disconnects; idempotent. A committer is told nothing when its job ends, so it happens when nobody knows the
        connection any more, at the latest."""
        try:
            self._set_up(settings, writes)
        except BaseException:
            self.close()
            raise

    def _set_up(self, settings: dict[str, str], writes: bool) -> None:
        self.run(f"PRAGMA busy_timeout = {int(self._access.silence_s * 1000)}")
        self.run("PRAGMA temp_store = MEMORY")
        (mode,) = self.run("PRAGMA journal_mode")[0]
        wanted = settings.get("journal_mode", "WAL")
        if (
            writes and str(mode).lower() != wanted.lower()
        ):  # with WAL those who read and the one who writes do not wait for each other
            self.run(f"PRAGMA journal_mode = {wanted}")
        if "synchronous" in settings:
            self.run(f"PRAGMA synchronous = {settings['synchronous']}")

    def run(self, statement: str, parameters: Sequence[object] | None = None) -> Rows:
        """The rows of a short statement. Raises ConnectorError, DataError."""
        with translated(self._access), self._connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            return list(cursor.fetchall()) if cursor.description is not None else []

    def run_for(self, rows: pa.RecordBatch, statement: str) -> None:
        """Run a statement once a row, whose columns are its parameters. Raises ConnectorError, DataError."""
        with translated(self._access), self._connection.cursor() as cursor:
            cursor.executemany(statement, rows)

    def query(self, text: str) -> Generator[pa.RecordBatch, None, None]:
        """The rows of a query as they come. Raises ConnectorError."""
        with translated(self._access), self._connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(_BATCH_ROWS)})
            cursor.execute(text)
            with cursor.fetch_record_batch() as reader:
                yield from reader


def _close(connection: Any) -> None:
    with suppress(Exception):  # what is wrong with a connection that is not needed any more does not matter
        connection.close()


def file_name(access: Access) -> str:
    """The file, for messages.

    >>> from flowrun.connectors.jdbc.address import parse_address
    >>> file_name(Access(parse_address("jdbc:sqlite:shop.db"), "t"))
    "the SQLite file 'shop.db'"
    """
    return f"the SQLite file '{access.address.database}'"


def translated(access: Access) -> AbstractContextManager[None]:
    """Errors of the library inside become a `ConnectorError`, or a `DataError` where SQLite does not take a value."""
    return translating(lambda error: is_from(error, _LIBRARY), lambda error: _meaning(access, _tidy(str(error))))


def _meaning(access: Access, text: str) -> FlowrunError:
    name = file_name(access)
    if any(sign in text for sign in _OF_ROWS):
        return DataError(f"{name} refuses a value: {text}")
    if any(sign in text for sign in _NO_DATABASE):
        return ConnectorError(f"{name} is no SQLite file", retryable=False, hint="check the path in 'url'")
    if "malformed" in text:
        return ConnectorError(
            f"{name} is damaged: {text}", retryable=False, hint="`sqlite3 FILE .recover` saves what can be read"
        )
    if "locked" in text or "busy" in text:
        return ConnectorError(
            f"{name} was locked by somebody else for {access.silence_s:g} s",
            retryable=True,
            hint="end the transaction that is open in another program; 'connection.max-retry-timeout' says how long to wait",
        )
    if "readonly" in text:
        return ConnectorError(
            f"{name} cannot be written to", retryable=False, hint="check the permissions of the file and of its folder"
        )
    passing = any(sign in text for sign in ("disk I/O error", "disk is full", "unable to open"))
    return ConnectorError(f"{name}: {text}", retryable=passing)


def _tidy(text: str) -> str:
    """The message in one line, without the statement, which may be long and hold values."""
    first = text.partition("\nquery:")[0].replace("[SQLite] ", "")
    return "; ".join(line.strip() for line in first.splitlines() if line.strip())[:600]
