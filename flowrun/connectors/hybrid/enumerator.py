"""Hands out the splits of one source after the other: the next one's when all readers have read the one before to its end.

After Apache Flink's `HybridSourceSplitEnumerator`, with one difference: all sources are settled when the job begins, not when they are
switched to. So what is wrong with the last one is said at once, and what was deleted before it was read is an error, not a gap.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from enum import Enum, auto
from itertools import groupby
from typing import cast

import numpy as np

from flowrun.api.source import JsonValue, LooksAgain, Split, SplitEnumerator
from flowrun.connectors.hybrid.parts import End, Part, identifier_of, unwrap
from flowrun.core.clock import Clock
from flowrun.errors import ConnectorError, StateError

_log = logging.getLogger(__name__)


class _Step(Enum):
    """How far a reader has come with a source."""

    READING = auto()
    ENDING = auto()
    """It was told that there are no more splits of the source."""
    ENDED = auto()
    """It has read all that it had, and so has asked again."""


class HybridEnumerator:
    """The enumerators of all sources that are not read to their end.

    Args:
        name: of the table, for messages.
        parts: the sources in order.
        parallelism: the number of readers.
        clock: for the enumerators.
        restored: state of an earlier enumerator; None: it is a new one.
    """

    def __init__(
        self, name: str, parts: Sequence[Part], parallelism: int, clock: Clock, restored: JsonValue = None
    ) -> None:
        self._name = name
        self._steps = [_Step.READING] * parallelism
        states = {} if restored is None else self._states(parts, restored)
        if restored is not None:
            first = min(i for i, p in enumerate(parts) if p.identifier in states)
            parts = parts[first:]
        self._left: deque[tuple[Part, SplitEnumerator]] = deque(
            (p, p.source.create_enumerator(parallelism, clock, states.get(p.identifier))) for p in parts
        )

    def _states(self, parts: Sequence[Part], restored: JsonValue) -> dict[str, JsonValue]:
        kept = cast("dict[str, list[dict[str, JsonValue]]]", restored)["sources"]
        states = {cast(str, s["source"]): s["state"] for s in kept}
        unknown = [n for n in states if n not in {p.identifier for p in parts}]
        if unknown or not states:
            raise StateError(
                f"table '{self._name}': the state is one of sources {', '.join(map(repr, states)) or 'without names'}, and the table has "
                + ", ".join(f"'{p.identifier}'" for p in parts),
                hint="give the sources their names back, or give the table's source another uid to start it anew",
            )
        begins = {p.identifier: p.begin_ms for p in parts}
        moved = next((s for s in kept if s["begin"] != begins[cast(str, s["source"])]), None)
        if moved is not None:
            now = begins[cast(str, moved["source"])]
            raise StateError(
                f"table '{self._name}': the state is one of source '{moved['source']}' from {_moment(moved['begin'])} on, and the table "
                f"has it from {_moment(now)} on: rows between them would be lost, or count twice",
                hint="leave switch-time as it was, or give the table's source another uid to start it anew",
            )
        return states

    @property
    def _current(self) -> tuple[Part, SplitEnumerator]:
        return self._left[0]

    @property
    def _is_last(self) -> bool:
        return len(self._left) == 1

    def start(self) -> None:
        """Start the enumerators of all sources that are left.

        Raises:
            ConnectorError: what one of them reads cannot be found.
        """
        for _, enumerator in self._left:
            enumerator.start()

    def next_split(self, subtask: int) -> Split | None:
        """A split of the source whose turn it is, or its end; None: the reader has to wait."""
        steps = self._steps
        if steps[subtask] is not _Step.READING:  # who asks again has read to the end
            steps[subtask] = _Step.ENDED
            if any(step is not _Step.ENDED for step in steps):
                return None
            self._switch()
        part, enumerator = self._current
        split = enumerator.next_split(subtask)
        if split is not None:
            return part.wrap(split)
        if self._is_last or not enumerator.exhausted:
            return None
        steps = self._steps
        steps[subtask] = _Step.ENDING
        return End(part.identifier, subtask).split

    def _switch(self) -> None:
        part, enumerator = self._left.popleft()
        enumerator.close()
        self._steps = [_Step.READING] * len(self._steps)
        _log.info(
            "table '%s': source '%s' is read to its end, '%s' begins",
            self._name,
            part.identifier,
            self._current[0].identifier,
        )

    @property
    def exhausted(self) -> bool:
        """Whether all splits of the last source were handed out, and it has an end."""
        return self._is_last and self._current[1].exhausted

    @property
    def discovery_interval_ms(self) -> int | None:
        """How often to look for new splits: as often as the source that wants it most often; None: none does."""
        return min((i for _, e in self._left if (i := e.discovery_interval_ms) is not None), default=None)

    def discover(self) -> None:
        """Look for new splits of all sources that are left: what comes into the last one is not to be missed."""
        for _, enumerator in self._left:
            if enumerator.discovery_interval_ms is not None:
                enumerator.discover()

    def look_again(self) -> Sequence[str]:
        """Find what came since the snapshot in sources that end; gives its names."""
        found: list[str] = []
        for _, enumerator in self._left:
            looking: object = enumerator
            if isinstance(looking, LooksAgain):
                found += looking.look_again()
        return found

    def add_splits_back(self, splits: Sequence[Split]) -> None:
        """Take splits that are to be handed out first, and ends as if they had not been told."""
        for end in map(End.of, splits):
            if end is not None:
                self._steps[end.subtask] = _Step.READING
        enumerators = {part.identifier: enumerator for part, enumerator in self._left}
        real = [split for split in splits if End.of(split) is None]
        for identifier, group in groupby(real, identifier_of):
            enumerators[identifier].add_splits_back([unwrap(split) for split in group])

    def take_before(self, until_ms: int | None) -> list[Split]:
        """Hand out all splits that may have rows with an event time before `until_ms`, ms (None: all), without any reader.

        Raises:
            ConnectorError: there is no end to them.
        """
        taken: list[Split] = []
        while True:
            part, enumerator = self._current
            while found := [s for n in range(len(self._steps)) if (s := enumerator.next_split(n)) is not None]:
                taken += map(part.wrap, found)
            if not enumerator.exhausted:
                raise ConnectorError(
                    f"table '{self._name}': source '{part.identifier}' has no end",
                    retryable=False,
                    hint="bound it, or read rows before its switch-time only",
                )
            behind = None if self._is_last else self._left[1][0].begin_ms
            if self._is_last or (until_ms is not None and behind is not None and behind >= until_ms):
                return taken
            self._left.popleft()[1].close()

    def snapshot(self) -> JsonValue:
        """The sources that are left, each with the event time from which on its rows are, and the state of its enumerator."""
        return {
            "sources": [{"source": p.identifier, "begin": p.begin_ms, "state": e.snapshot()} for p, e in self._left]
        }

    def close(self) -> None:
        """Close the enumerators."""
        for _, enumerator in self._left:
            enumerator.close()


def _moment(ms: JsonValue) -> str:
    return "its first row" if ms is None else f"{np.datetime64(cast(int, ms), 'ms')}Z"
