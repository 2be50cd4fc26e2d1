"""Which keys most rows of an exchange have: a look at a few rows now and then, so that skew has a name.

A sketch over all rows (Misra-Gries, count-min) would look at each of them; of 4,096 rows the share of a key that has a fifth of all is
known within two percent, which is all that is asked for. At most one batch in `EVERY_MS` is looked at, 64 rows of it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from functools import cached_property

import pyarrow as pa

from flowrun.core.clock import Clock

HEAVY_KEYS = "heavyKey"
"""Family of gauges of a subtask: by exchange and key, which part of the rows that were looked at has the key."""
EVERY_MS = 100
ROWS = 64
LOOKS = 64
SHOWN = 8
LONGEST_KEY = 80


class KeySample:
    """The keys of some recent rows of an exchange. `look` is called by the task's thread, `heaviest` by any.

    Args:
        columns: positions of the key columns.
        clock: whose monotonic time says when to look again.
    """

    def __init__(self, columns: Sequence[int], clock: Clock) -> None:
        self._columns = tuple(columns)
        self._clock = clock
        self._next_ns = 0
        self._looks: deque[_Look] = deque(maxlen=LOOKS)

    def look(self, rows: pa.RecordBatch, positions: pa.Int64Array | None = None) -> None:
        """These rows are sent, or those at `positions` alone; now and then the keys of some of them are kept."""
        now = self._clock.monotonic_ns()
        sent = rows.num_rows if positions is None else len(positions)
        if now < self._next_ns or not sent:
            return
        self._next_ns = now + EVERY_MS * 1_000_000
        step = max(sent // ROWS, 1)
        chosen = pa.array(range(0, min(sent, step * ROWS), step), pa.int64())
        if positions is not None:
            chosen = positions.take(chosen)
        # a copy: a slice would keep the whole batch
        self._looks.append(_Look(rows.select(list(self._columns)).take(chosen)))

    def heaviest(self) -> Mapping[str, float]:
        """The keys that most of the rows have, as text, with their parts of all, heaviest first."""
        counts: Counter[tuple[str, ...]] = Counter()
        names: list[str] = []
        for look in list(self._looks):
            names = look.keys.schema.names
            counts.update(look.counts)
        total = sum(counts.values())
        return {key_text(names, key): count / total for key, count in counts.most_common(SHOWN) if count > 1}


class _Look:
    """The keys of some rows of one batch. Each report of metrics asks for all looks: each of them is counted once."""

    def __init__(self, keys: pa.RecordBatch) -> None:
        self.keys = keys

    @cached_property
    def counts(self) -> Counter[tuple[str, ...]]:
        """How many of the rows have each key, as text."""
        texts = ([_text(value) for value in column.to_pylist()] for column in self.keys.columns)
        return Counter(zip(*texts, strict=True))


def _text(value: object) -> str:
    return "NULL" if value is None else repr(value) if isinstance(value, str | bytes) else str(value)


def key_text(names: Sequence[str], values: Sequence[str]) -> str:
    """A key for people, cut where it is long.

    >>> key_text(["user_id", "day"], ["'bob'", "3"])
    "user_id = 'bob', day = 3"
    """
    shown = ", ".join(f"{name} = {value}" for name, value in zip(names, values, strict=True))
    return shown if len(shown) <= LONGEST_KEY else shown[: LONGEST_KEY - 1] + "…"
