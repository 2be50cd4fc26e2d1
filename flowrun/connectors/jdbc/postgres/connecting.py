"""Connections to PostgreSQL: what libpq is told, and what its errors mean."""

from __future__ import annotations

from contextlib import AbstractContextManager

from flowrun.api.client_library import ClientLibrary
from flowrun.connectors.jdbc.client_errors import is_from, translating
from flowrun.connectors.jdbc.quoting import identifier
from flowrun.connectors.jdbc.relation import Access
from flowrun.errors import ConnectorError, DataError, FlowrunError

CLIENT = ClientLibrary("postgres", ("adbc_driver_postgresql", "psycopg"))
NEEDED_BY = "connector 'jdbc' with jdbc:postgresql:"

_CONNECT_TIMEOUT_S = 10
_KEEPALIVES = {"keepalives_idle": "10", "keepalives_interval": "5", "keepalives_count": "3"}
_PASSING = ("08", "53", "57P", "40", "55P03", "57014", "25006")
"""Classes of SQLSTATEs for what may be over soon: lost connections, a server that starts or stops or is full, deadlocks, time-outs."""
_OPEN = ("25", "55", "58", "57", "XX", "P0", "F0")
"""Classes of those for what may pass: transactions that were ended, objects in use, disks that fail, damage, errors of procedures."""
_OF_ROWS = ("22", "23")
"""Classes of SQLSTATEs for values that a column does not take."""
_REMEDIES = {
    "42501": "the user needs the right to it: GRANT … ON … TO …",
    "21000": "keys that differ as declared are equal in the table: declare the key columns with the types and digits that they have there",
}
"""By SQLSTATE."""
_OF_TLS = (
    "certificate verify failed",
    "does not match host name",
    "does not support SSL",
    "no encryption",
    "invalid sslmode value",
    "certificate file",
    "private key file",
    "valid client certificate",
    "certificate authentication failed",
    "alert unknown ca",
)
"""What the client library says where one side does not believe the other's certificate, or cannot read its own."""
_LOGIN = "check 'url', 'username' and 'password'"
_TLS = (
    "check sslmode, sslrootcert (who signed the server's certificate; its name must be that of the host), sslcert and sslkey "
    "(the certificate of the user, and its key, as PEM)"
)
_FOR_GOOD = (
    "authentication failed",
    "does not exist",
    "no pg_hba.conf entry",
    "no password supplied",
    "permission denied",
    "invalid connection option",
    "invalid port number",
    *_OF_TLS,
)


def conninfo(access: Access) -> str:
    """What libpq connects with; holds the password.

    >>> from flowrun.connectors.jdbc.address import parse_address
    >>> conninfo(Access(parse_address("jdbc:postgresql://db/shop?connectTimeout=3"), "t", "me")).split(" keepalives")[0]
    "connect_timeout='3' host='db' dbname='shop' user='me'"
    """
    address = access.address
    chosen = {
        "connect_timeout": str(_CONNECT_TIMEOUT_S),
        **({"host": "localhost"} if "host" not in address.parameters else {}),
        **address.parameters,
        **({"dbname": address.database} if address.database else {}),
    }
    user, password = access.user or address.user, access.password or address.password
    chosen |= {**({"user": user} if user else {}), **({"password": password} if password else {}), **_KEEPALIVES}
    return " ".join(f"{name}={conninfo_value(value)}" for name, value in chosen.items())


def conninfo_value(value: str) -> str:
    r"""A value as libpq reads it in a connection string.

    >>> conninfo_value("it's")
    "'it\\'s'"
    """
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def settings(access: Access, chosen: dict[str, str]) -> str:
    """The query that sets what a session needs: texts in one form whatever the server's defaults are, and `chosen`."""
    every = {
        "timezone": "UTC",
        "datestyle": "ISO",
        "intervalstyle": "iso_8601",
        "standard_conforming_strings": "on",
        "bytea_output": "hex",
        "extra_float_digits": "1",
        **({"search_path": _quoted(access.address.schema)} if access.address.schema else {}),
        **chosen,
    }
    calls = ", ".join(f"set_config('{name}', '{_doubled(value)}', false)" for name, value in every.items())
    return f"SELECT {calls}"


def _quoted(schemas: str) -> str:
    """Names of schemas, between commas, as they are spelled."""
    return ", ".join(identifier(name.strip().strip('"')) for name in schemas.split(","))


def _doubled(value: str) -> str:
    return value.replace("'", "''")


def translated(access: Access) -> AbstractContextManager[None]:
    """Errors of the client libraries inside become a `ConnectorError`, or a `DataError` where the server does not take a value."""
    return translating(
        lambda error: is_from(error, "psycopg", "adbc_driver_manager", "psycopg_binary"),
        lambda error: _meaning(access, str(error), getattr(error, "sqlstate", None)),
    )


def _meaning(access: Access, text: str, state: str | None) -> FlowrunError:
    server = server_name(access)
    said = _tidy(text)
    if state is not None and state[:2] in _OF_ROWS:
        return DataError(f"{server} refuses a value: {said}")
    if state is None or state.startswith("28") or state == "3D000":
        lost = may_answer_later(text)
        of_tls = any(sign in text for sign in _OF_TLS)
        hint = "check that it runs and can be reached" if lost else _TLS if of_tls else _LOGIN
        return ConnectorError(f"{server}: {said}", retryable=lost, hint=hint)
    may_pass = True if state.startswith(_PASSING) else None if state.startswith(_OPEN) else False
    return ConnectorError(f"{server}: {said}", retryable=may_pass, hint=_REMEDIES.get(state))


def may_answer_later(text: str) -> bool:
    """Whether a server that lets nobody in may do so later, by what the client library says: a wrong password stays wrong.

    >>> may_answer_later("connection refused"), may_answer_later('FATAL:  role "me" does not exist')
    (True, False)
    """
    return not any(sign in text for sign in _FOR_GOOD)


def _tidy(text: str) -> str:
    """The message in one line, without the query, which may be long and hold rows."""
    lines = [line.strip() for line in text.partition("\nQuery was:")[0].splitlines()]
    kept = [line for line in lines if line and not line.startswith(("LINE ", "^", "SQLSTATE"))]
    return "; ".join(kept)[:600] or "an error without a text"


def server_name(access: Access) -> str:
    """The server and database, for messages."""
    parameters = access.address.parameters
    where = parameters.get("host", "localhost")
    port = f":{parameters['port']}" if "port" in parameters else ""
    return f"PostgreSQL at {where}{port}/{access.address.database}"
