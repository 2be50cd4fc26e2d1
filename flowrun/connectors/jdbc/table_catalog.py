"""Catalogs of type `jdbc`: the databases of one server, after Flink's JdbcCatalog."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar, cast
from urllib.parse import quote

from flowrun.api.table_catalog import CatalogType, StoredTable
from flowrun.connectors.jdbc.address import parse_address
from flowrun.connectors.jdbc.postgres.catalog_queries import database_names, relation_names, stored_table
from flowrun.connectors.jdbc.postgres.connecting import CLIENT
from flowrun.connectors.jdbc.postgres.describing import Run
from flowrun.connectors.jdbc.relation import Access
from flowrun.core.options import Option, Options, OptionType
from flowrun.errors import ConnectorError, OptionError

T = TypeVar("T")

_SCHEME = "postgresql"
_TIMEOUT = "connection.max-retry-timeout"
_DEFAULT_SCHEMA = "public"
_SILENCE_MS = 60_000
_NAMES = {"'url'": "'base-url', 'default-database'", "'table-name'": "the name"}
"""Options of the connector → what stands for them here, in hints."""

OPTIONS = (
    Option(
        "base-url",
        OptionType.STRING,
        "The server: jdbc:postgresql://host:port, without a database, perhaps with parameters behind a question mark.",
        required=True,
    ),
    Option(
        "default-database", OptionType.STRING, "The database that names without one are looked up in.", required=True
    ),
    Option("username", OptionType.STRING, "The user; needs 'password'."),
    Option("password", OptionType.STRING, "The user's password; shown nowhere.", secret=True),
    Option(
        _TIMEOUT,
        OptionType.DURATION,
        "How long the server may leave a call without any answer before its connection is given up.",
        default=_SILENCE_MS,
        minimum=1_000,
    ),
)


class JdbcCatalog:
    """The databases of a server. Each that is asked has one connection, until `close`.

    Args:
        options: of the catalog.

    Raises:
        OptionError: they do not go together.
    """

    def __init__(self, options: Options) -> None:
        self._user, self._password = (cast("str | None", options.get(n)) for n in ("username", "password"))
        if self._password is not None and self._user is None:
            raise OptionError("username", "option 'password' needs option 'username'")
        self._base_url = options.text("base-url")
        self._default_database = options.text("default-database")
        self._silence_ms = options.integer(_TIMEOUT)
        self._schema = self._checked_address() or _DEFAULT_SCHEMA
        self._sessions: dict[str, _Session] = {}

    def _checked_address(self) -> str | None:
        """The schema that the URL says names without one are in."""
        try:
            urls = self._base_url, self._url(self._default_database)
            given, address = (parse_address(url, (_SCHEME,)) for url in urls)
        except OptionError as error:
            message = error.message.replace("'url'", "'base-url'").replace("/database", "")
            raise OptionError("base-url", message, hint=error.hint) from None
        if given.database:
            raise OptionError(
                "base-url",
                f"option 'base-url' ends with the database '{given.database}'",
                hint=f"leave it out: 'default-database' = '{given.database}'",
            )
        return address.schema.split(",")[0].strip().strip('"') if address.schema else None

    def _url(self, database: str) -> str:
        server, mark, parameters = self._base_url.partition("?")
        return f"{server.rstrip('/')}/{quote(database, '')}{mark}{parameters}"

    @property
    def default_database(self) -> str:
        """As the options say."""
        return self._default_database

    def databases(self) -> Sequence[str]:
        """Those that the user may connect to."""
        return self._ask(self._default_database, database_names)

    def tables(self, database: str) -> Sequence[str] | None:
        """As `schema.table`."""
        return self._ask_if_there(database, relation_names)

    def views(self, database: str) -> Sequence[str] | None:
        """As `schema.view`."""
        return self._ask_if_there(database, lambda run: relation_names(run, only_views=True))

    def table(self, database: str, name: str) -> StoredTable | None:
        """The table `schema.table`, or of the default schema."""
        if "\0" in name:  # no name in PostgreSQL has one
            return None
        return self._ask_if_there(database, lambda run: stored_table(name, self._schema, run))

    def options_of(self, database: str, name: str) -> Mapping[str, str]:
        """The connector's options for a database."""
        silence = None if self._silence_ms == _SILENCE_MS else f"{self._silence_ms} ms"
        given = {"username": self._user, "password": self._password, _TIMEOUT: silence}
        known = {name: value for name, value in given.items() if value is not None}
        return {"connector": "jdbc", "url": self._url(database), **known}

    def close(self) -> None:
        """Disconnect from all databases."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            session.close()

    def _ask_if_there(self, database: str, question: Callable[[Run], T]) -> T | None:
        """The answer of a database; None: there is no such database."""
        try:
            return self._ask(database, question)
        except ConnectorError as error:
            if database == self._default_database or error.retryable or database in self.databases():
                raise
            return None

    def _ask(self, database: str, question: Callable[[Run], T]) -> T:
        with _own_names():
            session = self._sessions.get(database)
            if session is None:
                address = parse_address(self._url(database))
                silence_s = address.silence_s or self._silence_ms / 1000
                access = Access(address, "the catalog", self._user, self._password, silence_s)
                session = self._sessions[database] = _Session(access)
            return question(session.rows)


class _Session:
    """A connection to one database, which answers queries."""

    def __init__(self, access: Access) -> None:
        # Imported here: the client library is needed only where the server is asked.
        from flowrun.connectors.jdbc.postgres.writing import PostgresWriter

        self._connection = PostgresWriter(access)

    def rows(self, query: str) -> list[tuple[object, ...]]:
        return self._connection.rows(query)

    def close(self) -> None:
        self._connection.close()


@contextmanager
def _own_names() -> Iterator[None]:
    """Hints of errors inside name the options of the catalog, not those of the connector."""
    try:
        yield
    except ConnectorError as error:
        for name, instead in _NAMES.items():
            error.hint = error.hint and error.hint.replace(name, instead)
        raise


def _open(name: str, options: Options) -> JdbcCatalog:  # noqa: ARG001 -- what it is called is the script's affair
    return JdbcCatalog(options)


CATALOG_TYPE = CatalogType(
    name="jdbc",
    summary="The databases of a PostgreSQL server.",
    options=OPTIONS,
    open=_open,
    origins={"url": "base-url"},
    client=CLIENT,
)
