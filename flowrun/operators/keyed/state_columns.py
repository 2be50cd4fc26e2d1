"""State by number of which snapshots show the past: a snapshot refers to columns as they are, and costs the same whatever they hold.

The thread that writes a snapshot copies what it needs, while the operator goes on. What the operator overwrites before that, it puts
aside first; the writer copies, then puts right what was overwritten: the oldest values that were put aside are those of the moment.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from flowrun.core.arrays import Bools, Integers
from flowrun.operators.keyed.state_arrays import allocated, extended, resized

Values: TypeAlias = npt.NDArray[Any]

_COPIED_BYTES = 2 << 20
"""What a snapshot needs is copied at once if it is no more: less than may be put aside, and done in about a millisecond."""
_ASIDE_BYTES = 128
"""To put an entry aside and to put it right again takes as long as a copy of about so many bytes. A column is copied for its snapshot once
that has cost as much as the copy does: so never more than twice what is least."""
_SEARCHED_SHARE = 16
"""If no more than one in so many entries of a column was put aside, their places are searched, else looked up in an array of all."""


class StateColumn:
    """A value, or a row of several, for each of the numbers 0, 1, … For one thread; what was captured may be read from others.

    Args:
        fill: the entry of a number that nothing was put for: an array without dimensions, or a row. Entries have its type.
    """

    __slots__ = ("_captures", "_fill", "_values")

    def __init__(self, fill: npt.NDArray[Any] | np.generic) -> None:
        self._fill = np.asarray(fill)
        self._values: Values = allocated(0, self._fill[np.newaxis])
        self._captures: list[weakref.ref[CapturedColumn]] = []

    def __len__(self) -> int:
        """How many entries there is room for."""
        return len(self._values)

    @property
    def fill(self) -> Values:
        """The entry of a number that nothing was put for."""
        return self._fill

    @property
    def entry_bytes(self) -> int:
        """Size of an entry."""
        return self._fill.nbytes

    @property
    def values(self) -> Values:
        """All entries: a view that cannot be changed, to be read at once."""
        view = self._values[:]
        view.flags.writeable = False
        return view

    def get(self, numbers: Integers) -> Values:
        """A copy of some entries."""
        entries: Values = self._values[numbers]
        return entries

    def reserve(self, size: int) -> None:
        """Have room for the numbers 0 … size − 1."""
        if len(self._values) < size:
            self._become(extended(self._values, size, self._fill if self._fill.any() else 0))

    def put(self, numbers: Integers, entries: Values | int, before: Values | None = None) -> None:
        """Replace entries; of several of one number the last counts.

        Args:
            numbers: of the entries; the array does not change any more.
            entries: the new ones.
            before: the old ones as `get` gives them, if they are known; does not change any more.
        """
        if self._captures:
            self._preserve(numbers, self._values[numbers] if before is None else before)
        self._values[numbers] = entries

    def begin(self, start: int, stop: int, entries: Values | int) -> None:
        """Put the first entries of the numbers start … stop − 1, which no snapshot shows."""
        self._values[start:stop] = entries

    def own(self) -> Values:
        """All entries, to be changed at once, for changes of most of them: copied if a snapshot may show them."""
        if self._captures:
            self._become(resized(self._values, len(self._values)))
        return self._values

    def keep(self, numbers: Integers) -> None:
        """Make these entries those of the numbers 0, 1, …"""
        kept = allocated(len(numbers), self._values)
        np.take(self._values, numbers, axis=0, out=kept, mode="clip")
        self._become(kept)

    def capture(self) -> CapturedColumn:
        """The entries as they are now, to be read later."""
        capture = CapturedColumn(self._values)
        self._captures = [*self._waiting(), weakref.ref(capture)]
        return capture

    def _become(self, values: Values) -> None:
        """From now on another array is written to, so what was captured stays as it is."""
        self._values, self._captures = values, []

    def _preserve(self, numbers: Integers, entries: Values) -> None:
        self._captures = self._waiting()
        for reference in self._captures:
            capture = reference()
            if capture is not None:
                capture.preserve(numbers, entries)

    def _waiting(self) -> list[weakref.ref[CapturedColumn]]:
        """The captures that are still to be read."""
        return [r for r in self._captures if (capture := r()) is not None and not capture.is_settled]


class CapturedColumn:
    """All entries of a column at one moment, read once, by any thread."""

    __slots__ = ("__weakref__", "_aside", "_aside_entries", "_lock", "_reading", "_values", "is_settled")

    def __init__(self, values: Values) -> None:
        self._values = values
        self._aside: list[tuple[Integers, Values]] = []
        self._aside_entries = 0
        self._lock = threading.Lock()
        """Held for a moment only: to begin to read, or to make a copy that nobody overwrites."""
        self._reading = False
        self.is_settled = False
        """Whether it does not matter any more what happens to the column."""

    def preserve(self, numbers: Integers, entries: Values) -> None:
        """The owner is about to overwrite these entries."""
        self._aside.append((numbers, entries))
        self._aside_entries += len(numbers)
        if self._aside_entries * _ASIDE_BYTES <= self._values.nbytes or self._reading:
            return
        with self._lock:
            if not self._reading:
                self._values = self._values.copy()
                for changed, old in reversed(self._aside):
                    self._values[changed] = old
                self._aside, self.is_settled = [], True

    def read(self, numbers: Integers) -> Values:
        """The entries of ascending numbers as they were. Once."""
        with self._lock:
            self._reading = True
        entries = _as_put_aside(self._values, numbers, self._aside)
        self.is_settled = True
        self._values, self._aside = self._values[:0], []
        return entries


class CapturedEntries:
    """The chosen entries of several columns at one moment, read once, by any thread. Few are copied at once.

    Args:
        columns: whose entries belong together.
        chosen: by number; does not change any more.
    """

    def __init__(self, columns: Sequence[StateColumn], chosen: Bools) -> None:
        self.count = int(np.count_nonzero(chosen))
        self._read: Callable[[], tuple[Integers, list[Values]]]
        if self.count * sum(c.entry_bytes for c in columns) <= _COPIED_BYTES:
            numbers = np.flatnonzero(chosen)
            copied = [c.get(numbers) for c in columns]
            self._read = lambda: (numbers, copied)
        else:
            self._read = partial(_read_captured, chosen, [c.capture() for c in columns])

    def read(self) -> tuple[Integers, list[Values]]:
        """(numbers of the chosen entries, the entries of each column)."""
        return self._read()


def _read_captured(chosen: Bools, captures: Sequence[CapturedColumn]) -> tuple[Integers, list[Values]]:
    numbers = np.flatnonzero(chosen)
    return numbers, [capture.read(numbers) for capture in captures]


def _as_put_aside(values: Values, numbers: Integers, aside: Sequence[tuple[Integers, Values]]) -> Values:
    """The entries of ascending numbers, with what was put aside in the place of what overwrote it."""
    entries: Values = values[numbers]
    changes = list(aside)  # after the copy: whoever spoilt it has put the old entries aside by now
    if not changes or not len(numbers):
        return entries
    places: Integers | None = None
    if _SEARCHED_SHARE * sum(len(changed) for changed, _ in changes) > len(values):
        places = np.full(len(values), -1, np.int64)
        places[numbers] = np.arange(len(numbers))
    for changed, old in reversed(changes):
        if places is None:
            at = np.minimum(np.searchsorted(numbers, changed), len(numbers) - 1)
            known = numbers[at] == changed
        else:
            at = places[changed]
            known = at >= 0
        entries[at[known]] = old[known]
    return entries
