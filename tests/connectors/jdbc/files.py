"""Databases of tests that are files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flowrun.connectors.jdbc.address import parse_address
from flowrun.connectors.jdbc.duckdb.database import lease
from flowrun.connectors.jdbc.relation import Access
from flowrun.connectors.jdbc.sqlite.connecting import SqliteConnection

SCHEMES = ("duckdb", "sqlite")


@dataclass(frozen=True)
class FileDatabase:
    """A file. Tests ask it over the connections of the connector: of either library a process may have the file open once only."""

    scheme: str
    path: Path

    @property
    def jdbc_url(self) -> str:
        """What a pipeline says."""
        return f"jdbc:{self.scheme}:{self.path}" + (";threads=1" if self.scheme == "duckdb" else "")

    def numbers(self, last: int) -> str:
        """A query for the numbers 1, 2, … up to `last`, in a column `i`."""
        if self.scheme == "duckdb":
            return f"SELECT i FROM range(1, {last + 1}) AS r (i)"
        return f"WITH RECURSIVE r (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < {last}) SELECT i FROM r"

    def execute(self, text: str) -> list[tuple[Any, ...]]:
        """Run statements, between semicolons; the rows of the last one."""
        access = Access(parse_address(self.jdbc_url), "t")
        statements = [s for s in text.split(";") if s.strip()]
        if self.scheme == "duckdb":
            held = lease(access, writes=True)
            try:
                return [held.run(s) for s in statements][-1]
            finally:
                held.end()
        connection = SqliteConnection(access, writes=True)
        try:
            return [connection.run(s) for s in statements][-1]
        finally:
            connection.close()


def made(scheme: str, folder: Path) -> FileDatabase:
    """A new, empty database."""
    path = folder / f"shop.{scheme}"
    if scheme == "duckdb":
        import duckdb

        duckdb.connect(str(path)).close()
    else:
        path.touch()  # an empty file is a database of SQLite
    return FileDatabase(scheme, path)
