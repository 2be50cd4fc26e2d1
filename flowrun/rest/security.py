"""Who may ask for what: the address, the origin and the token of a request, and what every answer tells a browser."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from flowrun.core.record import record
from flowrun.rest.doors import Door
from flowrun.rest.refusals import Refused

if TYPE_CHECKING:
    from starlette.types import Scope

MOST_HEAD_BYTES = 16_384
"""Of the path and the headers of a request."""
CONNECTION = "flowrun"
"""Under which the state of a request has its `Shown`."""

HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Of every answer. There is no CORS: pages of elsewhere may read nothing."""


@record(eq=False, frozen=False)
class Shown:
    """What a connection has shown.

    Attributes:
        door: at which it came.
        trusted: whether a request of it had the token.
        begin_answer: is to be called when a request has come as a whole.
    """

    door: Door
    trusted: bool = False
    begin_answer: Callable[[], None] = lambda: None


def check_head(scope: Scope) -> None:
    """Pass if the head of a request is small enough: the parser refuses only a large one that comes in pieces.

    Raises:
        Refused: it is not.
    """
    around = 4  # `: ` and the end of the line
    size = len(scope["raw_path"]) + len(scope["query_string"])
    if size + sum(len(name) + len(value) + around for name, value in scope["headers"]) > MOST_HEAD_BYTES:
        raise Refused(400, "the head is too large", f"path and headers have at most {MOST_HEAD_BYTES} bytes")


def check_place(headers: Mapping[str, str], door: Door) -> None:
    """Pass if a request is meant for this server, and comes from its own page if it comes from one.

    Raises:
        Refused: it is not.
    """
    host = headers.get("host", "").lower()
    if not host or (door.hosts is not None and host not in door.hosts):
        raise Refused(403, f"the Host header is not {door.url.split('/')[2]}")
    origin = headers.get("origin")
    own = f"{'http' if door.tls is None else 'https'}://{host}"
    if origin is not None and origin.lower() != own:
        raise Refused(403, "requests of pages of other servers are refused")


def check_token(headers: Mapping[str, str], shown: Shown) -> None:
    """Pass if a request carries the token, and trust its connection from now on.

    Raises:
        Refused: it does not.
    """
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Refused(
            401, "a token is needed", "send it as `Authorization: Bearer TOKEN`", {"WWW-Authenticate": "Bearer"}
        )
    if not hmac.compare_digest(token.strip().encode(), shown.door.token.encode()):
        raise Refused(403, "the token is wrong", "`flowrun ui` prints the address with the token of a job")
    shown.trusted = True
