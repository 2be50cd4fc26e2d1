"""Sinks whose key is not that of the query: different rows of the query meet in one row of the sink, and the last one counts."""

from __future__ import annotations

from flowrun.plan.nodes import Sink
from flowrun.plan.unique_keys import unique_keys


def other_row_key(sink: Sink) -> tuple[str, ...] | None:
    """By which columns the query's rows differ, where that does not make them differ by the sink's key.

    Empty: it is not known that they differ by anything. None: each key has one row, or the sink declares no key.
    """
    own = sink.table.primary_key
    if not own or any(name not in sink.schema for name in own):
        return None
    positions = frozenset(sink.schema.index(name) for name in own)
    known = unique_keys(sink.input, widened=True)
    if any(key <= positions for key in known):
        return None
    names = sink.schema.names
    return min((tuple(names[i] for i in sorted(key)) for key in known), key=lambda key: (len(key), key), default=())
