"""State of numbered keys as rows of 64-bit words: one matrix, so that all of a key's numbers are in one place of the memory.

Numbers of any kind are stored as their bits. A snapshot captures a reference to the matrix; what is overwritten while nobody has
written the captured rows down yet is put aside first, so that taking a snapshot costs the same whatever the matrix holds.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence

import numpy as np

from flowrun.core.arrays import Bools, Integers
from flowrun.operators.keyed.state_arrays import resized, room_for

Words = Integers
"""Rows × words."""


class SlotWords:
    """A matrix of words by slot. For one thread; captured rows may be read from others.

    Args:
        initial: the words of a slot that nothing was put into.
    """

    def __init__(self, initial: Sequence[int]) -> None:
        self._initial = np.array(initial, np.int64)
        self._words: Words = np.zeros((0, len(self._initial)), np.int64)
        self._dirty: Bools = np.zeros(0, np.bool_)
        self._captures: list[weakref.ref[CapturedWords]] = []

    @property
    def initial(self) -> Words:
        """The words of one slot that nothing was put into."""
        return self._initial

    def make_room(self, slots: int) -> None:
        """Have rows for the slots 0 … slots − 1."""
        have = len(self._words)
        if have >= slots:
            return
        room = room_for(slots, have, self._initial.nbytes)
        self._replace(resized(self._words, room, self._initial), resized(self._dirty, room))

    def get(self, slots: Integers) -> Words:
        """A copy of the rows of some slots."""
        words: Words = self._words[slots]
        return words

    def put(self, slots: Integers, before: Words, after: Words) -> None:
        """Replace the rows of distinct slots. `before` is what `get` gave for them."""
        for reference in self._captures:
            capture = reference()
            if capture is not None:
                capture.preserve(slots, before)
        self._words[slots] = after
        self._dirty[slots] = True

    def touch(self, slots: Integers) -> None:
        """These slots count as changed."""
        self._dirty[slots] = True

    def column(self, word: int, count: int) -> Words:
        """One word of the slots 0 … count − 1: a view that is read at once."""
        return self._words[:count, word]

    def set_column(self, word: int, values: Words) -> None:
        """Replace one word of the slots 0 … n − 1; copies the matrix unless nothing captured it."""
        words = self._words.copy() if self._captures else self._words
        words[: len(values), word] = values
        self._replace(words, self._dirty)

    def keep(self, slots: Integers) -> None:
        """Make these slots the slots 0, 1, …"""
        self._replace(self._words[slots], self._dirty[slots])

    def dirty(self, count: int) -> Bools:
        """Which of the slots 0 … count − 1 were changed since the last `capture`: a view."""
        return self._dirty[:count]

    def capture(self) -> CapturedWords:
        """The rows as they are now, to be read later; no slot counts as changed then."""
        capture = CapturedWords(self._words)
        self._captures = [r for r in self._captures if (c := r()) is not None and not c.is_read]
        self._captures.append(weakref.ref(capture))
        self._dirty = np.zeros(len(self._words), np.bool_)
        return capture

    def _replace(self, words: Words, dirty: Bools) -> None:
        """From now on another matrix is written to, so what was captured stays as it is."""
        if words is not self._words:
            self._captures = []
        self._words, self._dirty = words, dirty


class CapturedWords:
    """The words of all slots at one moment, read once, by any thread.

    Reading copies the rows while they may be overwritten, then puts right what was: the owner puts the old words aside before it
    overwrites them, and the oldest of them are those of the moment.
    """

    def __init__(self, words: Words) -> None:
        self._words = words
        self._aside: list[tuple[Integers, Words]] = []
        self._aside_rows = 0
        self._own = False
        self._lock = threading.Lock()
        """Held for a moment only: to begin to read, or to make a copy that nobody overwrites."""
        self._reading = False
        self.is_read = False

    def preserve(self, slots: Integers, words: Words) -> None:
        """The owner is about to overwrite these rows."""
        if self.is_read or self._own:
            return
        self._aside.append((slots, words))
        self._aside_rows += len(slots)
        if self._aside_rows <= 2 * len(self._words) or self._reading:
            return
        with self._lock:  # nobody has asked for long: a copy is less than what is put aside
            if not self._reading:
                self._words = _as_put_aside(self._words, np.arange(len(self._words)), self._aside)
                self._aside, self._own = [], True

    def read(self, slots: Integers) -> Words:
        """The rows of some slots as they were. Once."""
        with self._lock:
            self._reading = True
        rows = _as_put_aside(self._words, slots, self._aside)
        self.is_read = True
        self._words, self._aside = self._words[:0], []
        return rows


def _as_put_aside(words: Words, slots: Integers, aside: Sequence[tuple[Integers, Words]]) -> Words:
    rows: Words = words[slots]
    changes = list(aside)  # after the copy: whoever spoilt it has put the old words aside by now
    if changes:
        place = np.full(len(words), -1, np.int64)
        place[slots] = np.arange(len(slots))
        for changed, old in reversed(changes):
            at = place[changed]
            known = at >= 0
            rows[at[known]] = old[known]
    return rows
