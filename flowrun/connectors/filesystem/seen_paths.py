"""The paths that a source has found. In a checkpoint a few of them are a list, and many are compressed."""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Any, cast

from flowrun.api.source import JsonValue
from flowrun.core.shapes import ShapeError, listed, text

_LISTED = 1000
_SEPARATOR = "\0"
"""A character that no path contains."""
_LARGEST = 1 << 30
"""How many bytes of paths a snapshot may decompress to: a damaged one could be short and claim any number."""


class SeenPaths:
    """A set of paths that only grows.

    For 100,000 paths of 60 characters each a checkpoint holds 0.5 MB instead of 5 MB, or 4 MB if each has a random name of 36
    characters. They are compressed, which takes about 0.1 s, only if paths were added since the last checkpoint.

    >>> seen = SeenPaths(["/in/b", "/in/a"])
    >>> seen.snapshot()
    ['/in/a', '/in/b']
    >>> many = SeenPaths(f"/in/{i}" for i in range(2000))
    >>> SeenPaths.restore(many.snapshot()) == many
    True
    """

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self._paths = set(paths)
        self._snapshot: JsonValue = None

    @classmethod
    def restore(cls, snapshot: JsonValue) -> SeenPaths:
        """The set of paths of which `snapshot` gave this value.

        Raises:
            ValueError: no call of `snapshot` gave this text.
        """
        if isinstance(snapshot, str):
            return cls(_decompressed(snapshot).decode().split(_SEPARATOR))
        return cls(cast("list[str]", snapshot))

    def __contains__(self, path: str) -> bool:
        return path in self._paths

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SeenPaths) and self._paths == other._paths

    __hash__ = None  # type: ignore[assignment]  # it changes

    def add(self, path: str) -> None:
        """Add a path."""
        self._paths.add(path)
        self._snapshot = None

    def snapshot(self) -> JsonValue:
        """A sorted list of up to 1000 paths; for more of them a text: the paths separated by NUL, compressed by zlib, in Base64."""
        if self._snapshot is None:
            paths = sorted(self._paths)
            if len(paths) <= _LISTED:
                return cast(JsonValue, paths)
            self._snapshot = b64encode(zlib.compress(_SEPARATOR.join(paths).encode(), 1)).decode()
        return self._snapshot


def paths(value: Any, place: str) -> None:
    """Check that a value has the shape of a snapshot of `SeenPaths`."""
    if not isinstance(value, str):
        listed(text)(value, place)
        return
    try:
        SeenPaths.restore(value)
    except ValueError:
        raise ShapeError(place, "a list, or paths compressed by zlib as Base64", value) from None


def _decompressed(snapshot: str) -> bytes:
    reading = zlib.decompressobj()
    try:
        found = reading.decompress(b64decode(snapshot, validate=True), _LARGEST)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not reading.eof:
        raise ValueError("cut off, or too long")
    return found
