"""Names in state that become parts of paths, checked where they are read; one is that under which a sink shows the rows it keeps by key.

That name is operator state: a job that restores from it replaces the rows.
"""

from __future__ import annotations

import re

import pyarrow as pa

from flowrun.api.state import OperatorState, Redistribution
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


IDENTITY = "identity"
"""Name of the operator state of sinks that keep rows by key."""

_SCHEMA = pa.schema([("identity", pa.string())])


def identity_state(identity: str) -> OperatorState:
    """Operator state of one row, which every subtask gets.

    >>> read_identity(identity_state("1f0c"))
    '1f0c'
    """
    return OperatorState(pa.Table.from_pylist([{"identity": identity}], _SCHEMA), Redistribution.BROADCAST)


def read_identity(state: OperatorState) -> str:
    """What `identity_state` was given. Raises StateError if it is no name, since names of files are made of it."""
    return plain_name(str(state.rows.column(0)[0].as_py()), "the identity of a sink")
