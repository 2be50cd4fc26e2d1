"""Sends requests and judges their answers: time-outs, further attempts, redirects, and what is said of all that goes wrong."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urljoin, urlsplit

from flowrun.connectors.http.endpoint import CLIENT, Endpoint
from flowrun.core.record import record
from flowrun.errors import ConnectorError

_USUAL = {"accept": "*/*", "accept-encoding": "gzip, deflate", "user-agent": "flowrun"}
_MOST_REDIRECTS = 5
_FOR_GOOD = frozenset(range(300, 500)) - {408, 409, 423, 424, 425, 429} | {501, 505, 511}
"""Status codes of requests that are wrong, or not allowed: the same request gets the same answer until somebody changes something."""
_SHOWN_TEXT = 200
_READ_OF_A_REFUSAL = 64 << 10


@record
class HttpRequest:
    """One request.

    Attributes:
        method: GET, POST, …
        url: all of it, quoted.
        body: None: it has none.
        headers: those beside the endpoint's, in small letters; the endpoint's count if it has the same.
        ignored: status codes that are good for this request beside the endpoint's.
    """

    method: str
    url: str
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()
    ignored: frozenset[int] = frozenset()


@record
class HttpAnswer:
    """A good answer, or one to be ignored. `body`: what was read of it."""

    status: int
    body: bytes
    is_ignored: bool


@record
class _Problem:
    """What is wrong with an attempt. `wait_ms`: what the server asks for. `retried`: whether another attempt may do better."""

    message: str
    hint: str | None = None
    retried: bool = False
    may_pass: bool = False
    wait_ms: float = 0
    cause: BaseException | None = None


class _FailedAttemptError(Exception):
    def __init__(self, problem: _Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class HttpClient:
    """Connections to one server, for one event loop. They are kept for further requests.

    Cookies are neither kept nor sent; environment variables and `.netrc` are not looked at.

    Args:
        endpoint: the server.
        connections: the most at a time.
        most_bytes: of an answer; None: an answer does not matter, and of a long one only the beginning is read.
        on_attempt: told of each attempt whether it is a further one, in the thread of the loop.
    """

    def __init__(
        self, endpoint: Endpoint, connections: int, most_bytes: int | None, on_attempt: Callable[[bool], None]
    ) -> None:
        self._httpx: Any = CLIENT.module("httpx", "connector 'http'")
        endpoint.learn_secrets()
        self._endpoint = endpoint
        self._most_bytes = most_bytes
        self._on_attempt = on_attempt
        patience = endpoint.patience
        whole = patience.request_ms / 1000
        self._extensions = {
            "timeout": {"connect": patience.connect_ms / 1000, "read": whole, "write": whole, "pool": whole}
        }
        needs_tls = endpoint.url.startswith("https:") or endpoint.proxy.startswith("https:")
        self._transport = self._httpx.AsyncHTTPTransport(
            verify=endpoint.tls() if needs_tls else False,
            trust_env=False,
            proxy=endpoint.proxy or None,
            limits=self._httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
        )
        self._given = {name.lower(): value for name, value in endpoint.headers}

    async def close(self) -> None:
        """Disconnect; idempotent."""
        await self._transport.aclose()

    async def send(self, request: HttpRequest) -> HttpAnswer:
        """The answer to a request, after as many attempts as it takes and the endpoint allows.

        Raises:
            ConnectorError: the server cannot be reached, does not answer, refuses, or answers too much. Retryable if the last attempt
                failed for a reason that may pass.
        """
        patience = self._endpoint.patience
        attempt = 0
        while True:
            self._on_attempt(attempt > 0)
            try:
                return await self._attempt(request)
            except _FailedAttemptError as failed:
                problem = failed.problem
            if not problem.retried or attempt >= patience.retries or problem.wait_ms > patience.most_asked_ms:
                raise self._failed(request, problem, attempt) from problem.cause
            wait_ms = patience.wait_ms(attempt) * random.uniform(0.5, 1)
            await asyncio.sleep(max(wait_ms, problem.wait_ms) / 1000)
            attempt += 1

    def _failed(self, request: HttpRequest, problem: _Problem, attempt: int) -> ConnectorError:
        message, hint = problem.message, problem.hint
        if problem.retried and problem.wait_ms > self._endpoint.patience.most_asked_ms:
            message += f", and asks to wait for {problem.wait_ms / 1000:g} s"
            hint = "'retry-strategy.max-retry-after' says how long a wait a server may ask for"
        elif attempt:
            message += f" ({attempt + 1} attempts)"
        retryable = True if problem.retried else None if problem.may_pass else False
        return ConnectorError(f"{request.method} {self._endpoint}: {message}", retryable=retryable, hint=hint)

    async def _attempt(self, request: HttpRequest) -> HttpAnswer:
        httpx, limit_ms = self._httpx, self._endpoint.patience.request_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                return await self._followed(request)
        except (TimeoutError, httpx.TimeoutException) as error:
            connecting = isinstance(error, httpx.ConnectTimeout)
            what = "cannot be connected to" if connecting else "does not answer"
            option = "connection.timeout" if connecting else "request.timeout"
            limit_ms = self._endpoint.patience.connect_ms if connecting else limit_ms
            raise self._problem(
                f"the server {what} within {limit_ms / 1000:g} s",
                f"'{option}' says how long to wait",
                error,
                retried=True,
            ) from None
        except httpx.DecodingError as error:
            raise self._problem(
                f"the answer is not compressed as it says: {error}", None, error, may_pass=True
            ) from None
        except (httpx.InvalidURL, httpx.LocalProtocolError, httpx.UnsupportedProtocol) as error:
            raise self._problem(f"the request cannot be sent: {error}", None, error) from None
        except (httpx.TransportError, OSError) as error:
            raise self._broken(error) from None

    def _broken(self, error: BaseException) -> _FailedAttemptError:
        """What is wrong with a connection."""
        found = _tls_error(error)
        if isinstance(found, ssl.SSLCertVerificationError):
            return self._problem(
                f"the server's certificate is not trusted: {found.verify_message}",
                "'security.cert.server' names the authorities to trust, if it is not signed by one of the system's",
                error,
            )
        if found is not None and not isinstance(found, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            return self._problem(
                f"there can be no TLS with the server: {found.reason or found}",
                "check that it speaks TLS at this port, and 'security.cert.client' if it asks for a certificate",
                error,
            )
        if isinstance(error, self._httpx.ProxyError):
            return self._problem(
                f"the proxy refuses: {error}", "check the option 'proxy'", error, may_pass="407" not in str(error)
            )
        if isinstance(error, self._httpx.ConnectError):
            return self._problem(
                f"the server cannot be reached: {_reason(error)}",
                "check that it runs, and the option 'url'",
                error,
                retried=True,
            )
        shows_none = self._endpoint.url.startswith("https:") and not self._endpoint.certificate
        return self._problem(
            f"the connection failed: {str(error) or type(error).__name__}",
            # what TLS says of that is lost on its way through the client library
            "if the server asks for a certificate, 'security.cert.client' names it" if shows_none else None,
            error,
            retried=True,
        )

    @staticmethod
    def _problem(
        message: str, hint: str | None, cause: BaseException, *, retried: bool = False, may_pass: bool = False
    ) -> _FailedAttemptError:
        return _FailedAttemptError(_Problem(message, hint, retried, may_pass, cause=cause))

    async def _followed(self, request: HttpRequest) -> HttpAnswer:
        """The answer, wherever on the same server it is found."""
        url = request.url
        for _ in range(_MOST_REDIRECTS):
            made = self._httpx.Request(
                request.method,
                url,
                headers={**_USUAL, **dict(request.headers), **self._given},
                content=request.body,
                extensions=self._extensions,
            )
            response = await self._transport.handle_async_request(made)
            try:
                target = response.headers.get("location")
                if target is None or response.status_code not in _redirects(request.method):
                    return await self._judged(request, response)
            finally:
                await response.aclose()
            url = _on_the_same_server(url, target)
        raise _FailedAttemptError(_Problem(f"the server has redirected the request {_MOST_REDIRECTS} times"))

    async def _judged(self, request: HttpRequest, response: Any) -> HttpAnswer:
        status, codes = int(response.status_code), self._endpoint.statuses
        if status in codes.ignored or status in request.ignored:
            await _beginning(response)
            return HttpAnswer(status, b"", is_ignored=True)
        if status in codes.good:
            if self._most_bytes is None:
                return HttpAnswer(status, await _beginning(response), is_ignored=False)
            body, is_whole = await _read(response, self._most_bytes)
            if not is_whole:
                raise _FailedAttemptError(
                    _Problem(
                        f"the answer is longer than {self._most_bytes} bytes",
                        "'lookup.response.max-size' says how long it may be",
                    )
                )
            return HttpAnswer(status, body, is_ignored=False)
        said = " ".join((await _beginning(response)).decode("utf-8", "replace").split())[:_SHOWN_TEXT]
        message = f"the server answers {status} {response.reason_phrase}".rstrip() + (f": {said}" if said else "")
        retried = status in codes.retried
        wait_ms = _asked_wait_ms(response.headers.get("retry-after")) if retried else 0
        raise _FailedAttemptError(_Problem(message, _remedy(status), retried, status not in _FOR_GOOD, wait_ms))


def _redirects(method: str) -> frozenset[int]:
    """The status codes that send a request of a method elsewhere as it is. After others a POST would become a GET."""
    return frozenset({307, 308} | ({301, 302, 303} if method == "GET" else set()))


def _on_the_same_server(url: str, target: str) -> str:
    """Where a redirect leads. Credentials and rows go to the server that the user names, and to no other."""
    found = urljoin(url, target)
    try:
        old, new = urlsplit(url), urlsplit(found)
        same = (old.scheme, old.hostname, _port(old)) == (new.scheme, new.hostname, _port(new))
    except ValueError:
        same, new = False, urlsplit("")
    if not same or "@" in new.netloc:
        raise _FailedAttemptError(
            _Problem(
                f"the server redirects to another one, {new.scheme}://{new.netloc.rpartition('@')[2]}",
                "nothing was sent there, as credentials are for the server of 'url'; name the other one in 'url' if it is meant",
            )
        )
    return found


def _port(parts: Any) -> int:
    port: int | None = parts.port
    return port or (443 if parts.scheme == "https" else 80)


async def _beginning(response: Any) -> bytes:
    """What fits: the connection is used again only if that was all."""
    body, _ = await _read(response, _READ_OF_A_REFUSAL)
    return body


async def _read(response: Any, most: int) -> tuple[bytes, bool]:
    """(at most so many bytes of the body, whether that is all of it)."""
    pieces: list[bytes] = []
    size = 0
    async for piece in response.aiter_bytes():
        pieces.append(piece)
        size += len(piece)
        if size > most:
            return b"".join(pieces)[:most], False
    return b"".join(pieces), True


def _asked_wait_ms(header: str | None) -> float:
    """The wait that `Retry-After` asks for: seconds, or a date."""
    if header is None:
        return 0
    text = header.strip()
    if text.isdecimal():
        return float(text) * 1000
    try:
        return max(0.0, (parsedate_to_datetime(text).timestamp() - time.time()) * 1000)
    except (ValueError, OverflowError):
        return 0


def _remedy(status: int) -> str | None:
    if status in (401, 403):
        return "check the credentials: 'username' and 'password', 'bearer-token', or headers"
    if status in (301, 302, 303, 307, 308):
        return "name the place that it redirects to in 'url'"
    if status == 413:
        return "'sink.batch.max-size' and 'sink.flush-buffer.size' make requests smaller"
    return (
        "'success-codes', 'retry-codes' and 'ignored-response-codes' say what status codes mean"
        if status >= 400
        else None
    )


def _tls_error(error: BaseException) -> ssl.SSLError | None:
    return next((e for e in _origins(error) if isinstance(e, ssl.SSLError)), None)


def _reason(error: BaseException) -> str:
    """What the system says of a connection that was not made."""
    found = [e for e in _origins(error) if isinstance(e, OSError) and e.errno]
    if not found:
        return str(error) or type(error).__name__
    last = found[-1]
    return str(last.strerror) if isinstance(last, socket.gaierror) else os.strerror(last.errno or 0)


def _origins(error: BaseException) -> Iterator[BaseException]:
    """The error and what it came from; of several at once the first."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = (
            current.exceptions[0]
            if isinstance(current, BaseExceptionGroup)
            else current.__cause__ or current.__context__
        )
