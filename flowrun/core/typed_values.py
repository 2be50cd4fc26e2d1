"""Records from what JSON has, by msgspec, for several threads.

msgspec learns what a record is when it is asked for one for the first time. Meanwhile another thread finds half of that, and the process
ends with a segmentation fault (0.22; eight threads that begin at once do so in one run of two). So kinds are learned one by one.
"""

from __future__ import annotations

import threading
from typing import TypeVar

import msgspec

T = TypeVar("T")

_learning = threading.Lock()
_known: set[object] = set()


def learn_kind(kind: type[T]) -> type[T]:
    """Have msgspec know a kind of record, before threads ask for it; gives the kind."""
    if kind not in _known:
        with _learning:
            msgspec.json.Decoder(kind)
            _known.add(kind)
    return kind


def to_kind(value: object, kind: type[T], *, str_keys: bool = False) -> T:
    """A record from the objects, lists and texts that it is in JSON.

    Args:
        value: what it is in JSON.
        kind: of the record.
        str_keys: whether keys that are no texts are texts there.

    Raises:
        msgspec.ValidationError: it is none; says where it differs.
    """
    return msgspec.convert(value, learn_kind(kind), str_keys=str_keys)
