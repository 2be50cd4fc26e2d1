"""Committables as operator state: what a sink wrote up to a checkpoint and must stay invisible until the checkpoint is complete."""

from __future__ import annotations

from collections.abc import Iterable

import orjson
import pyarrow as pa

from flowrun.api.sink import Committable
from flowrun.api.state import OperatorState
from flowrun.core.shapes import ShapeError, anything, integer, mapping, members, text
from flowrun.errors import StateError

COMMITTABLES = "committables"
"""Name of the operator state of sinks."""

COMMITTABLES_SCHEMA = pa.schema([("checkpoint_id", pa.int64()), ("commit_id", pa.string()), ("payload", pa.string())])
"""`checkpoint_id` is the checkpoint at whose barrier it was written; `payload` is JSON."""

_row = members({"checkpoint_id": integer(), "commit_id": text, "payload": text})
_payload = mapping(anything)


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
    """What `committables_state` was given, in order.

    Raises:
        StateError: it is something else: says which row and member.
    """
    entries = []
    for position, row in enumerate(state.rows.to_pylist()):
        place = f"{COMMITTABLES}[{position}]"
        try:
            _row(row, place)
            payload = orjson.loads(row["payload"])
            _payload(payload, f"{place}.payload")
        except orjson.JSONDecodeError:
            raise StateError(f"{place}.payload should be JSON, not '{row['payload'][:40]}'") from None
        except ShapeError as error:
            raise StateError(str(error)) from None
        entries.append((row["checkpoint_id"], Committable(row["commit_id"], payload)))
    return entries
