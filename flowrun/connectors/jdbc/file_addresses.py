"""JDBC URLs of databases that are files: `jdbc:duckdb:shop.duckdb;access_mode=READ_ONLY`, `jdbc:sqlite:shop.db?journal_mode=WAL`."""

from __future__ import annotations

from urllib.parse import unquote

from flowrun.errors import OptionError, did_you_mean

_DUCKDB = ("access_mode", "duckdb.read_only", "memory_limit", "temp_directory", "threads")
"""Parameters of DuckDB's JDBC driver that mean something here."""

_SQLITE = {
    "journal_mode": ("WAL", "DELETE", "TRUNCATE", "PERSIST"),
    "synchronous": ("OFF", "NORMAL", "FULL", "EXTRA"),
    "mode": ("ro", "rw"),
}
"""Parameters of SQLite's own URIs and of its JDBC driver that mean something here, and their values."""

_ELSEWHERE = ("md:", "motherduck:", "http:", "https:", "s3:", "gs:", "azure:")


def duckdb_location(location: str) -> tuple[str, dict[str, str]]:
    """(path, settings): what DuckDB is told when it opens the file.

    Raises:
        OptionError: it is no file, or a parameter is not known.

    >>> duckdb_location("shop.duckdb;duckdb.read_only=true;threads=2")
    ('shop.duckdb', {'access_mode': 'READ_ONLY', 'threads': '2'})
    """
    path, *rest = location.split(";")
    _check_path("duckdb", path)
    settings: dict[str, str] = {}
    for name, value in _parameters("duckdb", [part for part in rest if part], _DUCKDB):
        if name == "duckdb.read_only":
            settings |= {"access_mode": "READ_ONLY"} if value.lower() == "true" else {}
        else:
            settings[name] = value
    mode = settings.pop("access_mode", "automatic").upper()
    if mode not in ("AUTOMATIC", "READ_WRITE", "READ_ONLY"):
        raise OptionError("url", f"'access_mode' of jdbc:duckdb: is AUTOMATIC, READ_WRITE or READ_ONLY, got '{mode}'")
    return path, {**({"access_mode": mode} if mode == "READ_ONLY" else {}), **settings}


def sqlite_location(location: str) -> tuple[str, dict[str, str]]:
    """(path, what SQLite is told when it has opened the file).

    Raises:
        OptionError: it is no file, or a parameter is not known.

    >>> sqlite_location("file:my%20shop.db?journal_mode=delete")
    ('my shop.db', {'journal_mode': 'DELETE'})
    """
    path, _, query = location.partition("?")
    if path.startswith("file:"):
        path = unquote(path.removeprefix("file:"))
    _check_path("sqlite", path)
    settings: dict[str, str] = {}
    for name, value in _parameters("sqlite", [part for part in query.split("&") if part], tuple(_SQLITE)):
        allowed = {v.lower(): v for v in _SQLITE[name]}
        if value.lower() not in allowed:
            raise OptionError("url", f"'{name}' of jdbc:sqlite: is one of {', '.join(_SQLITE[name])}, got '{value}'")
        settings[name] = allowed[value.lower()]
    return path, settings


def _parameters(scheme: str, parts: list[str], known: tuple[str, ...]) -> list[tuple[str, str]]:
    found = [(unquote(name), unquote(value)) for name, _, value in (part.partition("=") for part in parts)]
    for name, _ in found:
        if name not in known:
            raise OptionError("url", f"jdbc:{scheme}: has no parameter '{name}'", hint=did_you_mean(name, known))
    return found


def _check_path(scheme: str, path: str) -> None:
    if not path or path == ":memory:":
        raise OptionError(
            "url",
            f"jdbc:{scheme}:{path} is a database in memory, which nobody else can fill or read",
            hint=f"name a file: jdbc:{scheme}:path",
        )
    if path.startswith(_ELSEWHERE):
        raise OptionError(
            "url", f"jdbc:{scheme}: expects the path of a file on this machine, got {path.partition(':')[0]}:…"
        )
