"""Rows found by key and range of time: sorted runs of (part of the key's hash, time), merged by size tiers.

A run is an ascending array of 64-bit codes, 32 bits of the hash above 32 bits of time, so that a range of times of one key is a range
of the run: two binary searches give it, whatever the run holds, and a key with very many rows costs no more than one with few. Times
that span more than 2³² ms are kept coarser in the code and compared exactly afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flowrun.core.arrays import Integers, UInt64s
from flowrun.core.record import record
from flowrun.operators.keyed.hash_lists import Pairs
from flowrun.operators.keyed.integers import ranges

_TIME_BITS = 32
_HIGH = np.uint64(_TIME_BITS)
_LITTLE = 4096
_NUMBER_BITS = 40

MAX_FOUND = 1024 * 1024
"""Pairs that are found at a time, unless one row alone finds more."""


@record
class _Run:
    """Entries in order of code.

    Attributes:
        codes: ascending.
        numbers: of the rows.
        base: the earliest time, ms; codes hold (time − base) >> shift.
        last: the latest time, ms.
    """

    codes: UInt64s
    numbers: Integers
    base: int
    last: int
    shift: int

    def __len__(self) -> int:
        return len(self.codes)

    def encode(self, parts: UInt64s, times: Integers) -> UInt64s:
        """UInt64s of hash parts (upper 32 bits) and times, which are moved into the run's range."""
        offsets = (np.clip(times, self.base, self.last) - self.base) >> self.shift
        return parts | offsets.view(np.uint64)


def _run_of(parts: UInt64s, times: Integers, numbers: Integers) -> _Run:
    base, last = int(times.min()), int(times.max())
    shift = max(0, (last - base).bit_length() - _TIME_BITS)
    run = _Run(parts, numbers, base, last, shift)
    codes = run.encode(parts, times)
    order = np.argsort(codes)
    return _Run(codes[order], numbers[order], base, last, shift)


class TimeIndex:
    """Numbers of rows by hash of their key and time. What it finds has the hash's upper half: callers compare keys."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def add(self, hashes: Integers, times: Integers, numbers: Integers, time_of: Integers) -> None:
        """Add rows.

        Args:
            hashes: 64-bit hashes of their keys.
            times: ms.
            numbers: ascending, above all numbers added before.
            time_of: the time of each row by its number, ms, these and all earlier ones.
        """
        if not len(numbers):
            return
        self._runs.append(_run_of(_parts(hashes), times, numbers))
        merged = len(self._runs)
        size = len(numbers)
        while merged > 1 and len(self._runs[merged - 2]) <= 2 * size + _LITTLE:
            merged -= 1
            size += len(self._runs[merged - 1])
        if merged < len(self._runs):
            self._runs[merged - 1 :] = [_joined(self._runs[merged - 1 :], time_of)]

    def find(self, hashes: Integers, low: Integers, high: Integers, time_of: Integers) -> Iterator[Pairs]:
        """Rows of each hash with `low` ≤ time ≤ `high` (ms): pairs ordered by probe, then by number, some probes at a time."""
        if not self._runs or not len(hashes):
            return
        parts = _parts(hashes)
        order = np.argsort(parts)  # neighbours in a run are looked up one after the other
        parts, low, high = parts[order], low[order], high[order]
        first, last = int(low.min()), int(high.max())
        runs = [run for run in self._runs if run.base <= last and first <= run.last]
        found = [(run, *_ranges_in(run, parts, low, high)) for run in runs]
        totals = np.zeros(len(order), np.int64)
        for _, _, counts in found:
            totals += counts
        if not totals.any():
            return
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        ends = np.cumsum(totals[back])
        start = 0
        while start < len(back):
            before = int(ends[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + MAX_FOUND, side="right")))
            if int(ends[stop - 1]) > before:
                pairs = _pairs(found, back[start:stop], start)
                if any(run.shift for run in runs):
                    times = time_of[pairs.numbers]
                    at = back[pairs.probe]
                    pairs = pairs.where((times >= low[at]) & (times <= high[at]))
                if len(pairs):
                    yield pairs
            start = stop

    def renumber(self, moved: Integers) -> None:
        """Rows have other numbers now: `moved` holds the new one of each old one, −1 for rows that are gone."""
        runs = []
        for run in self._runs:
            numbers = moved[run.numbers]
            kept = numbers >= 0
            if kept.any():
                runs.append(_Run(run.codes[kept], numbers[kept], run.base, run.last, run.shift))
        self._runs = runs


def _pairs(found: list[tuple[_Run, Integers, Integers]], at: Integers, first: int) -> Pairs:
    """The pairs of some probes.

    Args:
        found: run, and where in it each probe's rows start and how many there are.
        at: places of the probes in these.
        first: the number of the first probe.
    """
    coded = []
    for run, starts, counts in found:
        lengths = counts[at]
        if lengths.any():
            probes = np.repeat(np.arange(first, first + len(at)), lengths)
            coded.append((probes << _NUMBER_BITS) | run.numbers[ranges(starts[at], lengths)])
    every = np.sort(coded[0] if len(coded) == 1 else np.concatenate(coded))
    return Pairs(every >> _NUMBER_BITS, every & ((1 << _NUMBER_BITS) - 1))


def _parts(hashes: Integers) -> UInt64s:
    upper: UInt64s = (hashes.view(np.uint64) >> _HIGH) << _HIGH
    return upper


def _ranges_in(run: _Run, parts: UInt64s, low: Integers, high: Integers) -> tuple[Integers, Integers]:
    """(start, length) of what each probe finds in a run; probes ascend by `parts`."""
    starts = np.searchsorted(run.codes, run.encode(parts, low), side="left")
    ends = np.searchsorted(run.codes, run.encode(parts, high), side="right")
    counts = ends - starts
    counts[(low > run.last) | (high < run.base) | (counts < 0)] = 0
    return starts, counts


def _joined(runs: list[_Run], time_of: Integers) -> _Run:
    """One run of several."""
    numbers = np.concatenate([r.numbers for r in runs])
    base, last = min(r.base for r in runs), max(r.last for r in runs)
    shift = max(0, (last - base).bit_length() - _TIME_BITS)
    whole = _Run(np.zeros(0, np.uint64), numbers, base, last, shift)
    pieces = [whole.encode(_upper(r.codes), _times_in(r, time_of)) for r in runs]
    codes = np.concatenate(pieces)
    order = np.argsort(codes, kind="stable")  # merges ascending pieces in linear time
    return _Run(codes[order], numbers[order], base, last, shift)


def _upper(codes: UInt64s) -> UInt64s:
    upper: UInt64s = (codes >> _HIGH) << _HIGH
    return upper


def _times_in(run: _Run, time_of: Integers) -> Integers:
    if run.shift:
        times: Integers = time_of[run.numbers]
        return times
    return (run.codes & np.uint64((1 << _TIME_BITS) - 1)).view(np.int64) + run.base
