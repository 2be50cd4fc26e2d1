"""Cuts encoded rows into requests. Which requests they become depends on nothing but the rows, their order and the shape."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.connectors.http.client import HttpRequest
from flowrun.connectors.http.layout import BodyMode, RequestShape
from flowrun.core.arrays import Integers

_DONE_IF_GONE = frozenset({404, 410})
"""What servers answer who do not know what is to be deleted."""


@dataclass(slots=True)
class _Body:
    """The rows that are gathered for the next request of a lane."""

    pieces: list[pa.Array] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0


class RequestCutter:
    """Makes requests of rows as `RowEncoder` gives them.

    Args:
        shape: of the requests.
        url: of rows that have none of their own.
        content_type: of bodies.
        identity: makes the idempotency keys of requests differ from those of all others, and stay the same where they must.
        send: takes each request with its lane.
    """

    def __init__(
        self,
        shape: RequestShape,
        url: str,
        content_type: str,
        identity: str,
        send: Callable[[int, HttpRequest], None],
    ) -> None:
        self._shape = shape
        self._url = url
        self._typed = (("content-type", content_type),)
        self._identity = identity
        self._send = send
        self._number = 0
        self._bodies: dict[int, _Body] = {}

    @property
    def has_waiting(self) -> bool:
        """Whether rows wait for others to go with."""
        return any(body.rows for body in self._bodies.values())

    def add(self, rows: pa.RecordBatch) -> None:
        """Send requests of rows, or let them wait for others. Raises what `send` raises."""
        if self._shape.mode is BodyMode.SINGLE:
            self._send_each(rows)
            return
        payloads, lanes = rows.column("payload"), rows.column("lane").to_numpy(zero_copy_only=False)
        if not len(payloads):
            return
        order = np.argsort(lanes, kind="stable")
        borders = np.flatnonzero(np.diff(lanes[order])) + 1
        for places in np.split(order, borders):
            own = payloads if len(places) == len(payloads) else payloads.take(pa.array(places))
            self._gather(int(lanes[places[0]]), own)

    def flush(self) -> None:
        """Send what waits. Raises what `send` raises."""
        for lane in sorted(self._bodies):
            self._send_body(lane, self._bodies[lane])

    def _send_each(self, rows: pa.RecordBatch) -> None:
        columns = (rows.column(name).to_pylist() for name in ("url", "payload", "lane"))
        for url, payload, lane in zip(*columns, strict=True):
            if payload is None:
                self._dispatch(lane, self._shape.delete_method, url or self._url, None)
            else:
                self._dispatch(lane, self._shape.method, url or self._url, payload)

    def _gather(self, lane: int, payloads: pa.Array) -> None:
        body = self._bodies.setdefault(lane, _Body())
        ends: Integers = np.cumsum(pc.binary_length(payloads).to_numpy(zero_copy_only=False).astype(np.int64))
        start = 0
        while start < len(payloads):
            before = int(ends[start - 1]) if start else 0
            fit = int(np.searchsorted(ends, before + self._shape.most_bytes - body.bytes, side="right"))
            stop = min(fit, start + self._shape.most_rows - body.rows)
            if stop <= start and not body.rows:
                stop = start + 1  # longer than a request may be: it goes alone
            if stop > start:
                body.pieces.append(payloads.slice(start, stop - start))
                body.rows += stop - start
                body.bytes += int(ends[stop - 1]) - before
            if stop < len(payloads) or body.rows >= self._shape.most_rows or body.bytes >= self._shape.most_bytes:
                self._send_body(lane, body)
            start = max(stop, start)

    def _send_body(self, lane: int, body: _Body) -> None:
        if not body.rows:
            return
        values = pa.concat_arrays(body.pieces)
        body.pieces, body.rows, body.bytes = [], 0, 0
        if self._shape.mode is BodyMode.ARRAY:
            content = b"[" + _joined(values, b",") + b"]"
        else:
            content = _joined(values, b"\n") + b"\n"
        self._dispatch(lane, self._shape.method, self._url, content)

    def _dispatch(self, lane: int, method: str, url: str, body: bytes | None) -> None:
        headers = self._typed if body is not None else ()
        self._number += 1
        if self._shape.key_header:
            if self._shape.by_content:
                key = key_of(method.encode(), url.encode(), body or b"")
            else:
                key = key_of(self._identity.encode(), b"%d" % self._number)
            headers = (*headers, (self._shape.key_header, key))
        ignored = _DONE_IF_GONE if body is None and method == "DELETE" else frozenset()
        self._send(lane, HttpRequest(method, url, body, headers, ignored))


def key_of(*parts: bytes) -> str:
    """An idempotency key, as a UUID: the same for the same parts.

    >>> key_of(b"commit", b"1") == key_of(b"commit", b"1") != key_of(b"commi", b"t1")
    True
    """
    digest = hashlib.sha256(b"".join(b"%d:%s" % (len(part), part) for part in parts)).digest()
    return str(uuid.UUID(bytes=digest[:16], version=5))


def _joined(values: pa.Array, between: bytes) -> bytes:
    whole = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    joined: bytes = pc.binary_join(whole, pa.scalar(between, pa.binary()))[0].as_py()
    return joined
