"""The body of a request, from its bytes to a value of the type that its route takes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec

from flowrun.core.typed_values import to_kind
from flowrun.rest.refusals import Refused

if TYPE_CHECKING:
    from starlette.requests import Request

_DRAINED_BYTES = 8 << 20
_DRAIN_S = 2.0
"""So much, and so long, is read of a body that is refused: else its sender would see a broken connection, not the answer."""
_SILENCE_S = 0.2
"""After which its sender waits for the answer."""
_SHOWN = 80
"""So many characters of a wrong value are shown."""


async def read_body(request: Request, most_bytes: int) -> bytes:
    """The bytes of a body.

    Raises:
        Refused: there is none, it has no length, it is too long, or it is not said to be JSON.
    """
    headers = request.headers
    length = headers.get("content-length", "")
    if "transfer-encoding" in headers or not (length.isascii() and length.isdecimal()):
        raise Refused(411, "a Content-Length is needed")
    if len(length) > len(str(most_bytes)) or int(length) > most_bytes:
        await _drain(request)
        raise Refused(413, f"a request has at most {most_bytes} bytes")
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refused(415, "the content type is application/json")
    return await request.body()


async def _drain(request: Request) -> None:
    if "expect" in request.headers:  # it waits for leave to send
        return
    came, pieces = 0, request.stream()
    with suppress(TimeoutError, StopAsyncIteration):
        async with asyncio.timeout(_DRAIN_S):
            while came <= _DRAINED_BYTES:
                came += len(await asyncio.wait_for(anext(pieces), _SILENCE_S))


def body_of(data: bytes, kind: type) -> Any:
    """A value of a record from JSON.

    Raises:
        Refused: it is none; says where it differs.
    """
    try:
        given = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Refused(400, "the body is no JSON") from None
    if not isinstance(given, Mapping):
        raise Refused(400, "the body is no JSON object")
    known = [f.name for f in fields(kind)]
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise Refused(400, f"unknown key '{unknown[0]}'", f"known are {', '.join(known)}")
    whole = {k: int(v) if isinstance(v, float) and v.is_integer() else v for k, v in given.items()}
    try:  # JSON knows no integers: 2.0 is one as well
        return to_kind(whole, kind)
    except msgspec.ValidationError as error:
        name = str(error).rpartition("`$.")[2].rstrip("`")
        meant = _described(kind, name) if name in whole else None
        wrong = f"'{name}' is {meant}, not {str(whole[name])[:_SHOWN]!r}" if meant is not None else str(error)
        hint = "GET /v1/openapi.json has the schema of each body"
        raise Refused(400, f"the body is not what it must be: {wrong}", hint) from None


def _described(kind: type, name: str) -> str | None:
    """What a field of a record is said to be; None: its type says all."""
    annotated = get_type_hints(kind, include_extras=True)[name]
    told = (part.description for part in getattr(annotated, "__metadata__", ()) if isinstance(part, msgspec.Meta))
    return next((text for text in told if text is not None), None)
