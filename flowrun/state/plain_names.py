"""Names in state that become parts of paths: checked where they are read."""

from __future__ import annotations

import re

from flowrun.errors import StateError

_PLAIN = re.compile(r"[A-Za-z0-9_-]*")


def plain_name(text: str, what: str) -> str:
    """A name that flowrun made up itself, as it is.

    Raises:
        StateError: it is none, so that somebody altered the state; `what` begins the message.

    >>> plain_name("8f0e", "the lineage")
    '8f0e'
    """
    if _PLAIN.fullmatch(text) is None:
        raise StateError(
            f"{what} in the state is {text!r}, which flowrun never writes",
            hint="somebody altered it; use another checkpoint or savepoint",
        )
    return text
