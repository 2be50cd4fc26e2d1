"""Events as bytes. Watermarks are many, so they have a form of their own."""

from __future__ import annotations

import struct

from flowrun.core.elements import CheckpointBarrier, EndOfInput, Event, LatencyMarker, Watermark, WatermarkStatus
from flowrun.errors import ClusterError
from flowrun.runtime.rpc.codec import decode, encode

_WATERMARK = struct.Struct(">cq")
_KINDS: dict[bytes, type[Event]] = {
    b"s": WatermarkStatus,
    b"l": LatencyMarker,
    b"b": CheckpointBarrier,
    b"e": EndOfInput,
}
_CODES = {kind: code for code, kind in _KINDS.items()}


def encode_event(event: Event) -> bytes:
    """One byte that says the kind, and the rest.

    >>> decode_event(memoryview(encode_event(Watermark(7))))
    Watermark(timestamp=7)
    """
    if isinstance(event, Watermark):
        return _WATERMARK.pack(b"w", event.timestamp)
    kind = type(event)
    return _CODES[kind] + encode(event, kind)


def decode_event(data: memoryview) -> Event:
    """The way back.

    Raises:
        ClusterError: the bytes are no event.
    """
    code = bytes(data[:1])
    if code == b"w" and len(data) == _WATERMARK.size:
        return Watermark(_WATERMARK.unpack(data)[1])
    kind = _KINDS.get(code)
    if kind is None:
        raise ClusterError(f"{len(data)} bytes of another process are no event")
    event: Event = decode(data[1:], kind)
    return event
