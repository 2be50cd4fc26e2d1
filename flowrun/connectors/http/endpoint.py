"""A server as the user's options describe it: who asks, how the connection is protected, and how patient one is with it."""

from __future__ import annotations

import base64
import re
import ssl
from urllib.parse import unquote, urlsplit

from flowrun.api.client_library import ClientLibrary
from flowrun.connectors.http.statuses import StatusCodes, statuses_of
from flowrun.core.options import Option, Options, OptionType
from flowrun.core.record import record
from flowrun.errors import ConnectorError, OptionError
from flowrun.masking import learn_secret, learn_secrets_of_uri

CLIENT = ClientLibrary("http", ("httpx",))

_BACKOFF = "retry-strategy.exponential-delay"

ENDPOINT_OPTIONS = (
    Option(
        "url",
        OptionType.STRING,
        "Where requests go. `{column}` in its path or query stands for a value of the row or of the key, which is quoted.",
        required=True,
    ),
    Option(
        "headers.#",
        OptionType.STRING,
        "A header of every request: headers.X-Api-Key. Write secrets as ${secret:env:NAME}.",
    ),
    Option("username", OptionType.STRING, "Who logs in (Basic authentication)."),
    Option("password", OptionType.STRING, "The password that goes with `username`.", secret=True),
    Option("bearer-token", OptionType.STRING, "A token that is sent as `Authorization: Bearer …`.", secret=True),
    Option(
        "request.timeout",
        OptionType.DURATION,
        "How long one attempt may take, from connecting to the last byte of the answer.",
        default=30_000,
        minimum=1,
    ),
    Option("connection.timeout", OptionType.DURATION, "How long connecting may take.", default=10_000, minimum=1),
    Option(
        "security.cert.server",
        OptionType.STRING,
        "PEM file of the authorities that the server's certificate may be signed by; those of the system if it is left out.",
    ),
    Option("security.cert.client", OptionType.STRING, "PEM file of a certificate to show to the server (mTLS)."),
    Option("security.key.client", OptionType.STRING, "PEM file of its key, if that is in a file of its own."),
    Option("security.key.password", OptionType.STRING, "The password of that key.", secret=True),
    Option(
        "proxy",
        OptionType.STRING,
        "A proxy to go through: http://HOST:PORT. Environment variables such as HTTPS_PROXY are not looked at.",
    ),
    Option("success-codes", OptionType.STRING, "Status codes of answers that are good: 2XX, !204.", default="2XX"),
    Option(
        "retry-codes",
        OptionType.STRING,
        "Status codes after which the request is sent again.",
        default="408,425,429,500,502,503,504",
    ),
    Option(
        f"{_BACKOFF}.initial-backoff",
        OptionType.DURATION,
        "How long to wait before the first further attempt; a random part of up to a half is left out.",
        default=1_000,
        minimum=0,
    ),
    Option(f"{_BACKOFF}.max-backoff", OptionType.DURATION, "The longest wait.", default=60_000, minimum=0),
    Option(
        f"{_BACKOFF}.backoff-multiplier",
        OptionType.FLOAT,
        "How many times longer each wait is than the last.",
        default=2,
        minimum=1,
    ),
    Option(
        "retry-strategy.max-retry-after",
        OptionType.DURATION,
        "A server that asks for a longer wait (`Retry-After`) fails the request.",
        default=300_000,
        minimum=0,
    ),
)

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FRAMING = frozenset({"content-length", "transfer-encoding", "connection", "host", "te", "upgrade", "trailer"})
_TELLING = re.compile(r"auth|cookie|key|token|secret|password|credential|signature", re.IGNORECASE)
"""Headers with such names hold secrets, wherever their values come from."""


@record
class Patience:
    """How long to wait for a server, and between attempts.

    Attributes:
        request_ms: for one attempt, all of it.
        connect_ms: for connecting.
        retries: further attempts after the first one.
        first_ms: the wait before the first of them.
        most_ms: the longest wait.
        multiplier: from one wait to the next.
        most_asked_ms: the longest wait that a server may ask for.
    """

    request_ms: int
    connect_ms: int
    retries: int
    first_ms: int
    most_ms: int
    multiplier: float
    most_asked_ms: int

    def wait_ms(self, attempt: int) -> float:
        """The wait before further attempt 0, 1, …, without its random part.

        >>> [Patience(1, 1, 9, 100, 500, 2.0, 0).wait_ms(i) for i in (0, 1, 2, 3, 1000)]
        [100.0, 200.0, 400.0, 500.0, 500.0]
        """
        wait = float(self.first_ms)
        for _ in range(attempt):
            if wait >= self.most_ms or self.multiplier == 1:
                break
            wait *= self.multiplier
        return min(wait, float(self.most_ms))


@record
class Endpoint:
    """Where requests go, with all that goes with each of them. Can be pickled.

    Attributes:
        url: without user and password; may have placeholders.
        headers: name and value, credentials included.
        secrets: texts that must never be shown.
        authorities: PEM file; empty: the system's.
        certificate: PEM file of the client; empty: none.
        key: PEM file; empty: `certificate` has it.
        key_password: empty: none.
        proxy: URL; empty: none.
        patience: how long to wait.
        statuses: what answers mean.
    """

    url: str
    headers: tuple[tuple[str, str], ...]
    secrets: tuple[str, ...]
    authorities: str
    certificate: str
    key: str
    key_password: str
    proxy: str
    patience: Patience
    statuses: StatusCodes

    def __str__(self) -> str:
        """Origin and path, as messages name it: a query may hold a secret."""
        return self.url.partition("?")[0]

    def learn_secrets(self) -> None:
        """Mask what must not be shown, in this process."""
        for secret in self.secrets:
            learn_secret(secret)
        learn_secrets_of_uri(self.url)
        learn_secrets_of_uri(self.proxy)

    def tls(self) -> ssl.SSLContext:
        """What TLS is to check and to show. Reads files.

        Raises:
            ConnectorError: a file cannot be read, or is no PEM.
        """
        try:
            context = ssl.create_default_context(cafile=self.authorities or None)
        except (OSError, ValueError) as error:
            raise _bad_file("security.cert.server", self.authorities, error) from error
        if self.certificate:
            try:
                # without a password OpenSSL would ask the terminal for that of an encrypted key
                context.load_cert_chain(self.certificate, self.key or None, password=lambda: self.key_password)
            except (OSError, ValueError) as error:
                both = f"{self.certificate}, {self.key}" if self.key else self.certificate
                raise _bad_file("security.cert.client", both, error) from error
        return context


def _bad_file(option: str, path: str, error: Exception) -> ConnectorError:
    return ConnectorError(
        f"'{option}': the PEM file '{path}' cannot be used: {error}",
        retryable=False,
        hint="check that it is there and holds what the option says, and 'security.key.password' if its key is encrypted",
    )


def endpoint_of(options: Options, retries: int) -> Endpoint:
    """The server that options describe.

    Args:
        options: parsed ones of a table.
        retries: further attempts after a request that failed for a passing reason.

    Raises:
        OptionError: the address, a header or the credentials cannot be used.
    """
    address, user, password = _address(options.text("url"))
    headers, secrets = _headers(options)
    user, password = str(options.get("username") or user), str(options.get("password") or password)
    token = str(options.get("bearer-token") or "")
    secrets += [s for s in (password, token, str(options.get("security.key.password") or "")) if s]
    given = {name.lower() for name, _ in headers}
    ways = [
        n
        for n, there in (
            ("bearer-token", token),
            ("username", user),
            ("headers.Authorization", "authorization" in given),
        )
        if there
    ]
    if len(ways) > 1:
        raise OptionError(ways[0], f"'{ways[0]}' and '{ways[1]}' both say who asks: give one of them")
    if password and not user:
        raise OptionError("password", "'password' needs 'username'")
    if token:
        headers.append(("Authorization", f"Bearer {token}"))
    elif user:
        login = base64.b64encode(f"{user}:{password}".encode()).decode()
        secrets.append(login)
        headers.append(("Authorization", f"Basic {login}"))
    if token or user:
        _check_header("bearer-token" if token else "username", *headers[-1])
    key, certificate = str(options.get("security.key.client") or ""), str(options.get("security.cert.client") or "")
    if key and not certificate:
        raise OptionError("security.key.client", "'security.key.client' needs 'security.cert.client'")
    patience = Patience(
        options.integer("request.timeout"),
        options.integer("connection.timeout"),
        retries,
        options.integer(f"{_BACKOFF}.initial-backoff"),
        options.integer(f"{_BACKOFF}.max-backoff"),
        options.number(f"{_BACKOFF}.backoff-multiplier"),
        options.integer("retry-strategy.max-retry-after"),
    )
    made = Endpoint(
        address,
        tuple(headers),
        tuple(secrets),
        str(options.get("security.cert.server") or ""),
        certificate,
        key,
        str(options.get("security.key.password") or ""),
        _proxy(str(options.get("proxy") or "")),
        patience,
        statuses_of(options),
    )
    made.learn_secrets()
    return made


def _headers(options: Options) -> tuple[list[tuple[str, str]], list[str]]:
    """The headers that the user gives, and what of them is secret."""
    headers: list[tuple[str, str]] = []
    secrets: list[str] = []
    seen: dict[str, str] = {}
    for name, value in options.under("headers").items():
        option, text = f"headers.{name}", str(value)
        if name.lower() in seen:
            raise OptionError(option, f"header '{name}' is given twice: names of headers do not differ by case")
        seen[name.lower()] = name
        if name.lower() in _FRAMING:
            raise OptionError(option, f"header '{name}' belongs to the connection, which is not the user's")
        if _TELLING.search(name):
            secrets += [text, *text.split()[1:2]]  # `Bearer TOKEN`
            learn_secret(text)
        _check_header(option, name, text)
        headers.append((name, text))
    return headers, secrets


def _check_header(option: str, name: str, value: str) -> None:
    if not _TOKEN.fullmatch(name):
        raise OptionError(option, f"'{name}' is no name of a header")
    if not value.isascii() or any(ord(c) < 32 and c != "\t" for c in value) or "\x7f" in value:
        raise OptionError(option, f"the value of '{option}' has a character that no header can have")


def check_header_name(option: str, name: str) -> None:
    """Whether it can be the name of a header of a request. Raises OptionError."""
    _check_header(option, name, "")
    if name.lower() in _FRAMING:
        raise OptionError(option, f"header '{name}' belongs to the connection, which is not the user's")


def _address(url: str) -> tuple[str, str, str]:
    """The URL without credentials, user and password."""
    shown = re.sub(r"//[^/?#]*@", "//", url).partition("?")[0]
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise _no_url("url", shown, str(error)) from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _no_url("url", shown, "it should begin with http:// or https:// and name a host")
    if "{" in parts.netloc or "}" in parts.netloc:
        raise _no_url("url", shown, "placeholders may stand in its path and query only: rows do not choose the server")
    if parts.fragment:
        raise _no_url("url", shown, "a part behind # is never sent")
    if re.search(r"[\x00-\x20\x7f]", url):
        raise _no_url("url", shown, "it has white space or control characters, which are written as %20 …")
    host = parts.netloc.rpartition("@")[2]
    path = parts.path or "/"
    address = f"{parts.scheme}://{host}{path}" + (f"?{parts.query}" if parts.query else "")
    return address, unquote(parts.username or ""), unquote(parts.password or "")


def _proxy(url: str) -> str:
    if url:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise _no_url("proxy", url.rpartition("@")[2], "it should begin with http:// or https:// and name a host")
    return url


def _no_url(option: str, shown: str, why: str) -> OptionError:
    return OptionError(
        option,
        f"'{shown}' is no address of an HTTP server: {why}",
        hint="for example https://api.example.com/items/{id}",
    )
