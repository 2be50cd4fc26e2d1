"""A Redis server as the user's options describe it, and connections that take commands as bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from flowrun.api.client_library import ClientLibrary
from flowrun.api.refusals import retryable_io
from flowrun.core.options import Option, Options, OptionType
from flowrun.core.record import record
from flowrun.errors import ConnectorError, OptionError
from flowrun.masking import learn_secret

CLIENT = ClientLibrary("redis", ("redis",))

SERVER_OPTIONS = (
    Option(
        "url",
        OptionType.STRING,
        "The server: `redis://HOST:PORT/DATABASE`, or `rediss://…` for TLS.",
        required=True,
    ),
    Option("username", OptionType.STRING, "Who logs in; the server's default user if it is left out."),
    Option("password", OptionType.STRING, "Password of the server or of the user.", secret=True),
    Option(
        "connection.timeout",
        OptionType.DURATION,
        "How long the server may take to answer, and to be connected to.",
        default=30_000,
        minimum=1,
    ),
)

DEFAULT_PORT = 6379


@record
class RedisServer:
    """Where the server is, and how to log in. Can be pickled.

    Attributes:
        host: name or address.
        port: of TCP.
        database: its number.
        is_encrypted: whether it is reached by TLS.
        username: None: the server's default user.
        password: None: there is none.
        timeout_ms: for connecting, and for each answer.
    """

    host: str
    port: int
    database: int
    is_encrypted: bool
    username: str | None
    password: str | None
    timeout_ms: int

    def __str__(self) -> str:
        return f"redis server {self.host}:{self.port}"

    @contextmanager
    def failures(self, action: str) -> Iterator[None]:
        """Turns what the client raises inside into one ConnectorError."""
        redis = CLIENT.module("redis", "connector 'redis'")
        try:
            yield
        except (redis.exceptions.AuthenticationError, redis.exceptions.NoPermissionError) as error:
            raise ConnectorError(
                f"{self} does not let this user {action}: {error}",
                retryable=False,
                hint="check 'username' and 'password', and what they may do",
            ) from error
        except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError, OSError) as error:
            scheme = "rediss:// is for ports with TLS only" if self.is_encrypted else "a port with TLS needs rediss://"
            raise ConnectorError(
                f"cannot {action}: {self} does not answer: {error}",
                retryable=retryable_io(error, True),
                hint=f"check 'url'; {scheme}",
            ) from error
        except redis.exceptions.ResponseError as error:
            hint = "a value of that name is of another type: choose another 'key.prefix', or the 'type' that it has"
            raise ConnectorError(
                f"cannot {action}: {self} refuses: {error}",
                retryable=False if type(error) is redis.exceptions.ResponseError and _is_for_good(str(error)) else None,
                hint=hint if str(error).startswith("WRONGTYPE") else None,
            ) from error

    def connect(self) -> RedisConnection:
        """A connection of its own. Blocks.

        Raises:
            SetupError: the client library is not installed.
            ConnectorError: the server does not answer, or does not let this user in.
        """
        return RedisConnection(self)


class RedisConnection:
    """Sends commands as bytes and reads their answers, in order. Not thread-safe.

    Args:
        server: to connect to.
    """

    def __init__(self, server: RedisServer) -> None:
        connections = CLIENT.module("redis.connection", "connector 'redis'")
        self.server = server
        kind = connections.SSLConnection if server.is_encrypted else connections.Connection
        seconds = server.timeout_ms / 1000
        self._connection: Any = kind(
            host=server.host,
            port=server.port,
            db=server.database,
            username=server.username,
            password=server.password,
            socket_timeout=seconds,
            socket_connect_timeout=seconds,
        )
        with server.failures("connect"):
            self._connection.connect()

    def ask(self, *command: bytes | str | int) -> Any:
        """The answer to one command; raises ConnectorError."""
        with self.server.failures(f"run {command[0]!s}"):
            self._connection.send_command(*command)
            return self._connection.read_response()

    def run(self, commands: Sequence[bytes | pa.Buffer], answers: int, action: str) -> list[Any]:
        """Send bytes that hold so many commands, and read all answers.

        Raises:
            ConnectorError: the connection failed, or one of the commands was refused: the others were carried out.
        """
        refused = None
        errors = CLIENT.module("redis.exceptions", "connector 'redis'")
        found: list[Any] = []
        with self.server.failures(action):
            self._connection.send_packed_command([bytes(c) for c in commands])
            for _ in range(answers):
                try:
                    found.append(self._connection.read_response())
                except errors.ResponseError as error:
                    refused = refused or error
            if refused is not None:
                raise refused
        return found

    def close(self) -> None:
        """Idempotent; never raises."""
        try:
            self._connection.disconnect()
        except Exception:  # the connection is of no use any more, however it ends
            return


def _is_for_good(refusal: str) -> bool:
    """Whether a server refuses the same command again. What begins with another code may pass: it is full, loads, or has a new master.

    The client library takes away the code ERR, with which wrong commands are answered.

    >>> [_is_for_good(t) for t in ("WRONGTYPE Operation against a key", "unknown command 'X'", "MISCONF cannot save", "OOM command")]
    [True, True, False, False]
    """
    code = re.match(r"[A-Z]{2,} ", refusal)
    return code is None or code[0] in ("WRONGTYPE ", "MOVED ", "NOPROTO ", "CROSSSLOT ")


def server_of(options: Options) -> RedisServer:
    """The server that the options name.

    Raises:
        OptionError: `url` is no address of a Redis server.
    """
    url = options.text("url")
    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORT
    except ValueError as error:
        raise _no_url(url, str(error)) from error
    if parts.scheme not in ("redis", "rediss") or not parts.hostname:
        raise _no_url(url, "it should begin with redis:// or rediss:// and name a host")
    database = parts.path.strip("/") or "0"
    if not database.isdigit():
        raise _no_url(url, f"'{database}' is no number of a database")
    password = options.get("password") or (None if parts.password is None else unquote(parts.password))
    if password is not None:
        learn_secret(str(password))
    username = options.get("username") or (unquote(parts.username) if parts.username else None)
    return RedisServer(
        parts.hostname,
        port,
        int(database),
        parts.scheme == "rediss",
        None if username is None else str(username),
        None if password is None else str(password),
        options.integer("connection.timeout"),
    )


def _no_url(url: str, why: str) -> OptionError:
    shown = url.rpartition("@")[2]
    return OptionError(
        "url", f"'{shown}' is no address of a Redis server: {why}", hint="for example redis://localhost:6379/0"
    )
