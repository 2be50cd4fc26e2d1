"""Iceberg catalogs: which one a table is in, and how it is reached."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
import threading
from typing import Any

from flowrun.api.client_library import ClientLibrary
from flowrun.api.refusals import retryable_io
from flowrun.core.options import Options
from flowrun.core.record import record
from flowrun.errors import ConnectorError, OptionError

CLIENT = ClientLibrary("iceberg", ("pyiceberg", "sqlalchemy"))

IN_MEMORY = "in-memory"
TYPES = ("rest", "sql", IN_MEMORY)

_opening = threading.Lock()


@record
class CatalogAccess:
    """How a catalog is reached.

    Attributes:
        name: of the catalog: one store can have several.
        type: one of `TYPES`.
        properties: (name, value), as the client library takes them.
    """

    name: str
    type: str
    properties: tuple[tuple[str, str], ...]

    def open(self) -> Any:
        """The client library's catalog. One is kept for each process; it may be used by several threads. It blocks on I/O.

        Raises:
            SetupError: the client library is not installed.
            ConnectorError: the catalog cannot be reached.
        """
        library("pyiceberg.catalog")
        try:
            with _opening:
                try:
                    return _opened(self, os.getpid())
                except Exception as error:
                    if self.type == "rest" or "already exists" not in str(error):
                        raise
                    return _opened(self, os.getpid())  # another process made the catalog's own tables at the same time
        except Exception as error:
            raise ConnectorError(
                f"Iceberg catalog '{self.name}' ({self.type}) cannot be reached: {first_line(error)}",
                retryable=may_pass(error),
            ) from error


def may_pass(error: BaseException) -> bool:
    """Whether a catalog or its store may do later what it refuses now: not where a right is missing or a request is wrong."""
    errors = library("pyiceberg.exceptions")
    refusals = (
        errors.UnauthorizedError, errors.ForbiddenError, errors.BadRequestError, errors.OAuthError, errors.ValidationError,
        errors.NotInstalledError,
    )  # fmt: skip
    return not isinstance(error, refusals) and retryable_io(error, True) is True


@functools.lru_cache(maxsize=64)
def _opened(access: CatalogAccess, _process: int) -> Any:
    given = dict(access.properties)
    if access.type == IN_MEMORY:
        given["uri"] = _database_of(access.name)
    given["type"] = "sql" if access.type == IN_MEMORY else access.type
    return library("pyiceberg.catalog").load_catalog(access.name, **given)


@functools.cache
def _database_of(name: str) -> str:  # noqa: ARG001 -- each name has a database of its own
    """The database of an in-memory catalog: it is a file, as threads need connections of their own, and goes with the process."""
    folder = tempfile.mkdtemp(prefix="flowrun-catalog-")
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return f"sqlite:///{folder}/catalog.db"


def catalog_of(options: Options) -> CatalogAccess:
    """The catalog that options name.

    Raises:
        OptionError: an option that its type needs is missing, or a location is wrong.
    """
    kind = options.text("catalog-type")
    needed = {"rest": ("uri",), "sql": ("uri", "warehouse"), IN_MEMORY: ("warehouse",)}[kind]
    for name in needed:
        if not options.get(name):
            raise OptionError(name, f"catalog-type = {kind} needs option '{name}'", hint=_HINTS[kind, name])
    given = {n: str(v) for n in ("uri", "warehouse", "credential", "token") if (v := options.get(n)) is not None}
    if kind == IN_MEMORY and "uri" in given:
        raise OptionError(
            "uri", "catalog-type = in-memory has no uri", hint="use sql to keep the catalog in a database"
        )
    if kind != "rest" and "warehouse" in given:
        given["warehouse"] = _as_uri(given["warehouse"])
    given |= {k: str(v) for k, v in options.under("catalog-options").items()}
    given |= {k: str(v) for k, v in options.under("catalog-secrets").items()}
    return CatalogAccess(options.text("catalog-name"), kind, tuple(sorted(given.items())))


_HINTS = {
    ("rest", "uri"): "where the REST catalog answers: http://localhost:8181",
    ("sql", "uri"): "of the database: sqlite:////data/catalog.db, or postgresql+psycopg://user@host/database",
    ("sql", "warehouse"): "the folder or URI below which new tables are made: /data/warehouse, s3://bucket/warehouse",
    (IN_MEMORY, "warehouse"): "the folder or URI below which new tables are made: /data/warehouse",
}


def _as_uri(warehouse: str) -> str:
    """A location as a URI: local folders are made absolute, as other processes may have another working directory."""
    return warehouse if "://" in warehouse else f"file://{os.path.abspath(os.path.expanduser(warehouse))}"


def library(module: str) -> Any:
    """A module of the client library.

    Raises:
        SetupError: it is not installed.
    """
    return CLIENT.module(module, "connector 'iceberg'")


def first_line(error: BaseException) -> str:
    """The message of an error of the client library, in one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
