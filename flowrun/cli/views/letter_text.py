"""One dead letter as text: nothing in it is obeyed by a terminal, whatever the record holds."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from flowrun.core.printable import printable

_SHOWN_BYTES = 64 << 10
_LINE_BYTES = 16
_NAMES = (
    "id", "time", "pipeline", "version", "job", "place", "source", "kind", "format", "file", "topic", "partition", "offset",
    "timestamp", "reason",
)  # fmt: skip


def letter_lines(row: Mapping[str, Any], *, replayed: bool, as_hex: bool) -> Iterator[str]:
    """The lines for one letter: what is known of it, then its record or row.

    Args:
        row: by column of `DEAD_LETTER_SCHEMA`.
        replayed: whether it was replayed.
        as_hex: bytes as hexadecimal digits, also where they are text.
    """
    width = max(map(len, (*_NAMES, "replayed")))
    for name in _NAMES:
        if row[name] not in (None, ""):
            yield f"{name:<{width}}  {_line(row[name])}"
    yield f"{'replayed':<{width}}  {'yes' if replayed else 'no'}"
    if row["headers"]:
        yield f"{'headers':<{width}}  {_line(row['headers'])}"
    if row["key"]:
        yield ""
        yield f"key, {len(row['key'])} bytes:"
        yield from _bytes(row["key"], as_hex=as_hex)
    if row["raw"] is not None:
        yield ""
        yield f"record, {len(row['raw'])} bytes:"
        yield from _bytes(row["raw"], as_hex=as_hex)
    elif row["text"] is not None:
        yield ""
        yield "row:" if row["kind"] != "decoding" else "the message has no value; what cannot be read:"
        yield printable(str(row["text"]))


def letter_json(row: Mapping[str, Any]) -> str:
    r"""The same as JSON: times as text, bytes as Base64, and nothing but ASCII.

    >>> print(letter_json({"raw": b"\x1b", "reason": "é"}))
    {"raw": "Gw==", "reason": "\u00e9"}
    """
    return json.dumps({name: _plain(value) for name, value in row.items()})


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat(sep=" ", timespec="milliseconds") if isinstance(value, datetime) else value


def _line(value: object) -> str:
    text = str(_plain(value))
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def _bytes(data: bytes, *, as_hex: bool) -> Iterator[str]:
    shown = data[:_SHOWN_BYTES]
    if as_hex:
        for start in range(0, len(shown), _LINE_BYTES):
            part = shown[start : start + _LINE_BYTES]
            text = "".join(chr(b) if 0x20 <= b < 0x7F else "." for b in part)
            yield f"{start:08x}  {part.hex(' '):<{3 * _LINE_BYTES - 1}}  {text}"
    else:
        yield printable(shown.decode("utf-8", "backslashreplace"))
    if len(data) > len(shown):
        yield f"… {len(data) - len(shown)} bytes more: --raw writes all of them"
