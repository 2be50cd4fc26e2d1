"""Whether objects provide what a protocol asks for, found out once for each class: `isinstance` looks at each attribute each time."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from typing_extensions import TypeIs

P = TypeVar("P")
_MOST = 4_096
_known: dict[tuple[type, type], bool] = {}


def provides(value: object, protocol: type[P]) -> TypeIs[P]:
    """Whether an object has the members of a protocol that can be checked at run time. Objects of one class are alike. Thread-safe.

    >>> from collections.abc import Sized
    >>> provides([], Sized), provides(7, Sized)
    (True, False)
    """
    asked = type(value), protocol
    known = _known.get(asked)
    if known is None:
        if len(_known) >= _MOST:  # classes that were made on the way
            _known.clear()
        known = _known[asked] = isinstance(value, protocol)
    return known
