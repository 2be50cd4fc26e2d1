"""Rows in the JSON of an answer."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from flowrun.errors import OptionError

_WHITE = b" \t\r\n"


class NoRowsError(Exception):
    """An answer is no JSON, or has no rows where they should be; says why in words for users."""


def parse_pointer(option: str, text: str) -> tuple[str, ...]:
    """The parts of a JSON Pointer (RFC 6901): names of members and numbers of elements.

    Raises:
        OptionError: it does not begin with `/`, or has a `~` that stands for nothing.

    >>> parse_pointer("rows", "/data/a~1b")
    ('data', 'a/b')
    """
    if not text:
        return ()
    if not text.startswith("/") or re.search("~(?![01])", text):
        raise OptionError(option, f"option '{option}': '{text}' is no JSON pointer", hint="for example /data/items")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/"))


def rows_in(body: bytes, pointer: tuple[str, ...]) -> list[bytes]:
    """The JSON texts of the rows of an answer, as they stand there: elements of an array, or one object. Nothing for null and for no body.

    Args:
        body: the answer.
        pointer: where the rows are in it.

    Raises:
        NoRowsError: the answer is no JSON, or there is something else.

    >>> rows_in(b'{"data": [{"id": 1}, {"id": 2.50}]}', ("data",))
    [b'{"id": 1}', b'{"id": 2.50}']
    """
    text = body.strip(_WHITE)
    if not text:
        return []
    for depth, part in enumerate(pointer):
        where = "/" + "/".join(pointer[: depth + 1])
        members = _decoded(text, dict[str, msgspec.Raw] if text[:1] == b"{" else list[msgspec.Raw])
        if isinstance(members, dict):
            found = members.get(part)
        else:
            found = members[int(part)] if part.isdecimal() and int(part) < len(members) else None
        if found is None:
            raise NoRowsError(f"it has nothing at {where}")
        text = bytes(found).strip(_WHITE)
    match text[:1]:
        case b"{":
            _decoded(text, dict[str, msgspec.Raw])
            return [text]
        case b"[":
            return [bytes(element).strip(_WHITE) for element in _decoded(text, list[msgspec.Raw])]
        case b"n" if _decoded(text, msgspec.Raw) is not None and text == b"null":
            return []
        case _:
            raise NoRowsError(_not_json(text) or f"it has no object or array, but {_shown(text)}")


def _decoded(text: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NoRowsError(_not_json(text) or str(error)) from None


def _not_json(text: bytes) -> str | None:
    """Why a text is no JSON; None: it is."""
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return f"it is no JSON ({error}): {_shown(text)}"
    return None


def _shown(text: bytes) -> str:
    shown = " ".join(text[:100].decode("utf-8", "replace").split())
    return shown + ("…" if len(text) > 100 else "")
