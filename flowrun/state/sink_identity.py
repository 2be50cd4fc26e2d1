"""The name under which a sink that keeps rows by key shows them. It is operator state: a job that restores from it replaces the rows."""

from __future__ import annotations

import pyarrow as pa

from flowrun.api.state import OperatorState, Redistribution
from flowrun.state.plain_names import plain_name

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
