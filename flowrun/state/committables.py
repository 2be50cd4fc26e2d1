"""Committables as operator state: what a sink wrote up to a checkpoint and nobody may see before that is complete."""

from __future__ import annotations

from collections.abc import Iterable

import orjson
import pyarrow as pa

from flowrun.api.sink import Committable
from flowrun.api.state import OperatorState

COMMITTABLES = "committables"
"""Name of the operator state of sinks."""

COMMITTABLES_SCHEMA = pa.schema([("checkpoint_id", pa.int64()), ("commit_id", pa.string()), ("payload", pa.string())])
"""`checkpoint_id` is the checkpoint at whose barrier it was written; `payload` is JSON."""


def committables_state(entries: Iterable[tuple[int, Committable]]) -> OperatorState:
    """Operator state of (checkpoint id, committable) pairs, dealt out at another parallelism.

    >>> state = committables_state([(3, Committable("a", {"file": "x"}))])
    >>> read_committables(state)
    [(3, Committable(commit_id='a', payload={'file': 'x'}))]
    """
    rows = [
        {"checkpoint_id": at, "commit_id": c.commit_id, "payload": orjson.dumps(dict(c.payload)).decode()}
        for at, c in entries
    ]
    return OperatorState(pa.Table.from_pylist(rows, COMMITTABLES_SCHEMA))


def read_committables(state: OperatorState) -> list[tuple[int, Committable]]:
    """What `committables_state` was given, in order."""
    return [
        (row["checkpoint_id"], Committable(row["commit_id"], orjson.loads(row["payload"])))
        for row in state.rows.to_pylist()
    ]
