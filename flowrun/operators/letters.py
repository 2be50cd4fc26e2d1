"""Dead letters as rows: what a record or a row that cannot be processed says of itself, and its id."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import orjson
import pyarrow as pa

from flowrun.api.source import RejectedRecord
from flowrun.core.row_errors import DEAD_LETTER_SCHEMA, RowFault

Letter: TypeAlias = dict[str, Any]
"""Values by column of `DEAD_LETTER_SCHEMA`, times in ms; columns that are not there are NULL."""
_SHOWN_BYTES = 64 << 10
_BATCH_BYTES = 64 << 20
_ROW_BYTES = 256
"""What a letter takes beside its record, about."""


def letter_of_record(bad: RejectedRecord, source: str) -> Letter:
    """What the letter of a record that cannot be decoded says of the record.

    Args:
        bad: the record.
        source: the name of its source.
    """
    shown = (bad.raw or b"") if bad.shown is None else bad.shown
    return {
        "id": _digest(b"record", source.encode(), bad.file.encode(), b"%d" % bad.offset, bad.key, bad.raw),
        "file": bad.file,
        "offset": bad.offset,
        "topic": bad.topic,
        "partition": bad.partition,
        "timestamp": bad.timestamp_ms,
        "key": bad.key,
        "headers": encode_headers(bad.headers) if bad.headers else None,
        "text": shown[:_SHOWN_BYTES].decode("utf-8", "replace") + "…" * (len(shown) > _SHOWN_BYTES),
        "raw": bad.raw,
    }


def letter_of_row(place: str, fault: RowFault, text: str) -> Letter:
    """What the letter of a row says of the row; `text` is the row as JSON. Equal rows of one place have one id."""
    return {"id": _digest(b"row", place.encode(), fault.value.encode(), text.encode()), "text": text}


def letter_batches(letters: Sequence[Letter]) -> Iterator[pa.RecordBatch]:
    """Letters as batches of `DEAD_LETTER_SCHEMA`, each of about 64 MiB of records at most, however long these are."""
    begin = size = 0
    for position, letter in enumerate(letters):
        more = (
            _ROW_BYTES
            + 3 * len(letter.get("text") or "")
            + len(letter.get("raw") or b"")
            + len(letter.get("key") or b"")
        )
        if position > begin and size + more > _BATCH_BYTES:
            yield _batch(letters[begin:position])
            begin, size = position, 0
        size += more
    yield _batch(letters[begin:])


def _batch(letters: Sequence[Letter]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(letters), DEAD_LETTER_SCHEMA.arrow)


def encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> str:
    """The headers of a message as JSON, in their order.

    >>> encode_headers([("trace", b"7"), ("trace", None)])
    '[["trace","Nw=="],["trace",null]]'
    """
    values = [[name, None if value is None else base64.b64encode(value).decode()] for name, value in headers]
    return orjson.dumps(values).decode()


def decode_headers(text: str | None) -> list[tuple[str, bytes | None]]:
    """The headers that `encode_headers` was given; none of NULL.

    Raises:
        ValueError: the text is none of its.

    >>> decode_headers('[["trace","Nw=="],["trace",null]]')
    [('trace', b'7'), ('trace', None)]
    """
    if not text:  # CSV does not know NULL from an empty text
        return []
    try:
        found = orjson.loads(text)
        return [(str(name), None if value is None else base64.b64decode(value, validate=True)) for name, value in found]
    except (TypeError, ValueError) as error:
        raise ValueError(f"no headers of a message: {error}") from None


def _digest(*parts: bytes | None) -> str:
    """128 bits of BLAKE2b over the parts, each with its length, so that no two lists of parts look the same."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        state.update((-1 if part is None else len(part)).to_bytes(9, "little", signed=True))
        state.update(part or b"")
    return state.hexdigest()
