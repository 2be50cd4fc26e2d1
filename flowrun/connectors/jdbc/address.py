"""JDBC URLs: which database they name, and what of their parameters means something here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from urllib.parse import unquote

from flowrun.api.connector import TablePlace
from flowrun.connectors.jdbc.file_addresses import duckdb_location, sqlite_location
from flowrun.core.record import record
from flowrun.errors import OptionError, did_you_mean

FORMS = {
    "postgresql": "jdbc:postgresql://host:port/database",
    "duckdb": "jdbc:duckdb:path",
    "sqlite": "jdbc:sqlite:path",
}
"""The databases that there is code for, and the form of their URLs."""

_POSTGRES = {
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "sslpassword": "sslpassword",
    "channelBinding": "channel_binding",
    "gssEncMode": "gssencmode",
    "ApplicationName": "application_name",
    "connectTimeout": "connect_timeout",
    "targetServerType": "target_session_attrs",
}
"""Parameters of the JDBC driver that libpq has, too, and their names there."""

_ELSEWHERE = "changes of other databases come by Kafka ('debezium-json'), and their tables by files that they export"
_OWN = ("user", "password", "currentSchema", "socketTimeout", "ssl")
_NEEDLESS = (
    "assumeMinServerVersion",
    "binaryTransfer",
    "defaultRowFetchSize",
    "loginTimeout",
    "preferQueryMode",
    "prepareThreshold",
    "reWriteBatchedInserts",
    "stringtype",
    "tcpKeepAlive",
)
"""Parameters that tune the JDBC driver itself: scripts that have them run, and need none of them here."""

_SERVER_TYPES = {
    "any": "any",
    "primary": "primary",
    "master": "primary",
    "secondary": "standby",
    "slave": "standby",
    "preferSecondary": "prefer-standby",
    "preferSlave": "prefer-standby",
}
_CHOICES: Mapping[str, Sequence[str]] = {
    "ssl": ("false", "true"),
    "sslmode": ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "channelBinding": ("disable", "prefer", "require"),
    "gssEncMode": ("disable", "prefer", "require"),
    "targetServerType": tuple(_SERVER_TYPES),
}
"""Parameters of PostgreSQL with values of their own."""
_MOST_PORT = 65_535


@record
class Address:
    """What a JDBC URL says.

    Attributes:
        scheme: one of `FORMS`.
        database: the name of the database, or the path of its file.
        parameters: what the client library is told, by its own names.
        schema: where tables are that are named without one; None: the server's own default.
        user: of the URL's parameters.
        password: of the URL's parameters; shown nowhere.
        silence_s: after how many seconds without an answer a connection is given up; None: the URL does not say.
    """

    scheme: str
    database: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    silence_s: float | None = None

    @property
    def is_file(self) -> bool:
        """Whether the database is a file and no server."""
        return self.scheme in ("duckdb", "sqlite")


def parse_address(url: str, schemes: Sequence[str] = tuple(FORMS)) -> Address:
    """What a URL says.

    Args:
        url: as users write it.
        schemes: the databases that are meant.

    Raises:
        OptionError: it is no JDBC URL of one of these databases, or a parameter is not known.

    >>> parse_address("jdbc:postgresql://db:5433/shop?sslmode=require").parameters
    {'host': 'db', 'port': '5433', 'sslmode': 'require'}
    """
    start, _, rest = url.partition(":")
    scheme, _, location = rest.partition(":")
    if start != "jdbc" or scheme not in schemes:
        shown = f"{start}:{scheme}:…" if start == "jdbc" else "something else"
        *others, last = (FORMS[s] for s in schemes)
        expected = f"{', '.join(others)} or {last}" if others else last
        is_unknown = start == "jdbc" and scheme not in FORMS
        raise OptionError(
            "url", f"option 'url' expects {expected}, got {shown}", hint=_ELSEWHERE if is_unknown else None
        )
    match scheme:
        case "duckdb":
            return Address(scheme, *duckdb_location(location))
        case "sqlite":
            return Address(scheme, *sqlite_location(location))
        case _:
            return _postgres_address(location)


def postgres_place(host: str, port: str, database: str, schema: str | None, table: str) -> TablePlace:
    """What a table of PostgreSQL is outside, whichever connector reaches it.

    >>> str(postgres_place("DB", "5432", "shop", None, "orders"))
    'postgresql://db:5432/shop public.orders'
    """
    name = table if "." in table else f"{schema or 'public'}.{table}"
    return TablePlace(f"postgresql://{host.lower()}:{port}/{database}", name)


def _postgres_address(location: str) -> Address:
    where, _, query = location.partition("?")
    parameters: dict[str, str] = {}
    if where.startswith("//"):
        hosts, _, database = where[2:].partition("/")
        parameters = _hosts(hosts, location)
    else:
        database = where
    given: dict[str, str] = {}
    for name, value in (_parameter(part) for part in query.split("&") if part):
        if name in given:
            raise OptionError(
                "url", f"jdbc:postgresql: the parameter '{name}' is given twice", hint="leave one of them out"
            )
        given[name] = value
        if name not in (*_POSTGRES, *_OWN, *_NEEDLESS):
            raise OptionError(
                "url",
                f"jdbc:postgresql: has no parameter '{name}'",
                hint=did_you_mean(name, (*_POSTGRES, *_OWN, *_NEEDLESS)),
            )
        _check_value(name, value)
    parameters |= {_POSTGRES[name]: value for name, value in given.items() if name in _POSTGRES}
    if given.get("ssl", "false").lower() != "false":
        parameters.setdefault("sslmode", "verify-full")
    if "target_session_attrs" in parameters:
        parameters["target_session_attrs"] = _SERVER_TYPES[parameters["target_session_attrs"]]
    return Address(
        "postgresql",
        unquote(database),
        parameters,
        given.get("currentSchema"),
        given.get("user"),
        given.get("password"),
        float(given.get("socketTimeout", "0")) or None,
    )


def _parameter(part: str) -> tuple[str, str]:
    name, _, value = part.partition("=")
    return unquote(name), unquote(value)


def _check_value(name: str, value: str) -> None:
    """Whether a parameter may have a value. Raises OptionError."""
    if name in _CHOICES:
        said = (value or "true").lower() if name == "ssl" else value
        if said not in _CHOICES[name]:
            raise OptionError(
                "url",
                f"jdbc:postgresql: the parameter '{name}' cannot be '{value}'",
                hint=did_you_mean(said, _CHOICES[name]),
            )
    if name in ("connectTimeout", "socketTimeout") and not re.fullmatch(r"[0-9]{1,9}(\.[0-9]*)?", value, re.ASCII):
        raise OptionError("url", f"jdbc:postgresql: the parameter '{name}' expects seconds, got '{value}'")


def _hosts(text: str, location: str) -> dict[str, str]:
    """Hosts and ports as libpq lists them: several are tried in turn. `location` is all that the URL says."""
    hosts, ports = [], []
    for one in text.split(","):
        bracket = one.rfind("]")
        host, colon, port = one.rpartition(":") if one.rfind(":") > bracket else (one, "", "")
        if not colon:
            host = one
        is_port = port.isascii() and port.isdecimal() and 1 <= int(port) <= _MOST_PORT
        if "@" in host or (colon and not is_port and "@" in location):  # nothing of it is shown: it may hold a password
            raise OptionError(
                "url",
                "jdbc:postgresql: the URL has a user before its host",
                hint="give 'username' and 'password' as options of the table",
            )
        if colon and not is_port:
            raise OptionError("url", f"option 'url': '{port}' is no port", hint=f"ports are 1 to {_MOST_PORT}")
        hosts.append(host.strip("[]"))
        ports.append(port)
    found = {"host": ",".join(hosts)} if any(hosts) else {}
    return {**found, "port": ",".join(ports)} if any(ports) else found
