"""Requests to a REST API over HTTP: of a job in another process of this machine, or of a cluster; see `flowrun.rest`."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from flowrun.core.record import record
from flowrun.errors import ClusterError
from flowrun.runners.rest_requests import RestReply
from flowrun.runtime.rpc.address import TcpAddress

_PORTS = {"http": 80, "https": 443}


@record
class RestAddress:
    """Where a REST API listens, as `flowrun ui` and job managers tell it.

    Attributes:
        host: of it.
        port: of it.
        encrypted: whether it speaks TLS.
        token: that stood in the address; None: it is in a file.
    """

    host: str
    port: int
    encrypted: bool = False
    token: str | None = None

    def __repr__(self) -> str:
        return f"RestAddress({self})"

    def __str__(self) -> str:
        """Without the token.

        >>> str(parse_rest_address("http://127.0.0.1:8081/#token=5f")), parse_rest_address("https://[::1]").port
        ('http://127.0.0.1:8081', 443)
        """
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.encrypted else 'http'}://{host}:{self.port}"


def parse_rest_address(text: str) -> RestAddress:
    """The address of a REST API, or of its page, with `#token=…` or without.

    Raises:
        ClusterError: it is none, or a token would be readable on its way.
    """
    example = "http://127.0.0.1:8081, or https://HOST:PORT beyond this machine"
    try:
        parts = urlsplit(text)
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        raise ClusterError("this is no address of a REST API", hint=example) from None
    if not parts.hostname or parts.username is not None or parts.query or parts.path not in ("", "/"):
        raise ClusterError("this is no address of a REST API", hint=example)
    encrypted = parts.scheme == "https"
    if not encrypted and not TcpAddress(parts.hostname, port).is_of_this_machine:
        raise ClusterError(
            f"http://{parts.hostname}:{port} is beyond this machine, where others would read the token on its way",
            hint="https:// encrypts: REST APIs listen there with TLS only",
        )
    token = parts.fragment.partition("&")[0].removeprefix("token=") if parts.fragment.startswith("token=") else ""
    return RestAddress(parts.hostname, port, encrypted, token or None)


def trusting(folder: Path | None) -> ssl.SSLContext:
    """How a client knows a REST API that speaks TLS.

    Args:
        folder: of a cluster's own authority, `ca.pem`: whoever has a certificate of it belongs to the cluster, as in all its
            connections, whatever name is in it. None: the authorities of the system, and names count.

    Raises:
        ClusterError: the authority cannot be read.
    """
    from flowrun.runtime.rpc.tls import AUTHORITY

    if folder is None:
        context = ssl.create_default_context()
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        try:
            context.load_verify_locations(folder / AUTHORITY)
        except (OSError, ValueError) as error:
            raise ClusterError(
                f"the authority {folder / AUTHORITY} cannot be used: {error}",
                hint="the folder of --tls has ca.pem, by whose certificates a cluster is known",
            ) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


class HttpRequests:
    """Asks over HTTP, a connection a request.

    Args:
        places: where the API may listen, the likeliest first: of several job managers one leads, and the others do not listen.
        tokens: of each place.
        context: of encrypted places.
        timeout_s: how long an answer may take.
    """

    def __init__(
        self,
        places: Sequence[RestAddress],
        tokens: Sequence[str],
        context: ssl.SSLContext | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        self.places = tuple(places)
        self._tokens = tuple(tokens)
        self._context = context
        self._timeout_s = timeout_s

    def ask(self, method: str, path: str, body: bytes | None = None) -> RestReply:
        """See `RestRequests`."""
        reasons: list[ClusterError] = []
        for place, token in zip(self.places, self._tokens, strict=True):
            connection = self._connection(place)
            try:
                connection.connect()
            except TimeoutError:
                reasons.append(self.silent(place))
            except (OSError, http.client.HTTPException) as error:
                reasons.append(self.gone(place, error))
            else:
                return self._ask(connection, place, token, (method, path, body))
            connection.close()
        raise ClusterError("; ".join(reason.message for reason in reasons), hint=reasons[-1].hint)

    def silent(self, place: RestAddress) -> ClusterError:
        """The error that nothing is answered in time."""
        return ClusterError(f"the REST API at {place} does not answer", hint="look at the log of its process")

    def gone(self, place: RestAddress, error: Exception) -> ClusterError:
        """The error that nobody is there."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return ClusterError(
                f"the certificate of the REST API at {place} is not trusted here: {error.verify_message}",
                hint="--tls FOLDER names the folder with ca.pem, the authority of its cluster",
            )
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
        return ClusterError(
            f"the REST API at {place} cannot be reached: {reason}",
            hint="its process says where it listens; `flowrun ui --cluster` asks a cluster",
        )

    def _connection(self, place: RestAddress) -> http.client.HTTPConnection:
        if place.encrypted:
            return http.client.HTTPSConnection(
                place.host, place.port, timeout=self._timeout_s, context=self._context or trusting(None)
            )
        return http.client.HTTPConnection(place.host, place.port, timeout=self._timeout_s)

    def _ask(
        self,
        connection: http.client.HTTPConnection,
        place: RestAddress,
        token: str,
        request: tuple[str, str, bytes | None],
    ) -> RestReply:
        method, path, body = request
        headers = {"Authorization": f"Bearer {token}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return RestReply(response.status, response.read())
        except TimeoutError:
            raise self.silent(place) from None
        except (OSError, ValueError, http.client.HTTPException) as error:  # ValueError: a head that HTTP does not allow
            raise self.gone(place, error) from None
        finally:
            connection.close()
