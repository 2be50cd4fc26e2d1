"""JDBC URLs: which database they name, and what of their parameters means something here."""

from __future__ import annotations

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

_SERVER_TYPES = {"any": "any", "primary": "primary", "master": "primary", "secondary": "standby", "slave": "standby"}


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
        parameters = _hosts(hosts)
    else:
        database = where
    given = dict(_parameter(part) for part in query.split("&") if part)
    for name in given:
        if name not in (*_POSTGRES, *_OWN, *_NEEDLESS):
            raise OptionError(
                "url",
                f"jdbc:postgresql: has no parameter '{name}'",
                hint=did_you_mean(name, (*_POSTGRES, *_OWN, *_NEEDLESS)),
            )
    parameters |= {_POSTGRES[name]: value for name, value in given.items() if name in _POSTGRES}
    if given.get("ssl", "false").lower() in ("", "true"):
        parameters.setdefault("sslmode", "verify-full")
    if "target_session_attrs" in parameters:
        wanted = parameters["target_session_attrs"]
        parameters["target_session_attrs"] = _SERVER_TYPES.get(wanted, wanted)
    return Address(
        "postgresql",
        unquote(database),
        parameters,
        given.get("currentSchema"),
        given.get("user"),
        given.get("password"),
        _seconds(given.get("socketTimeout")),
    )


def _parameter(part: str) -> tuple[str, str]:
    name, _, value = part.partition("=")
    return unquote(name), unquote(value)


def _hosts(text: str) -> dict[str, str]:
    """Hosts and ports as libpq lists them: several are tried in turn."""
    hosts, ports = [], []
    for one in text.split(","):
        bracket = one.rfind("]")
        host, colon, port = one.rpartition(":") if one.rfind(":") > bracket else (one, "", "")
        if not colon:
            host = one
        if colon and not port.isdigit():
            raise OptionError("url", f"option 'url': '{port}' is no port")
        hosts.append(host.strip("[]"))
        ports.append(port)
    found = {"host": ",".join(hosts)} if any(hosts) else {}
    return {**found, "port": ",".join(ports)} if any(ports) else found


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        raise OptionError("url", f"parameter 'socketTimeout' expects seconds, got '{text}'") from None
    return seconds if seconds > 0 else None
