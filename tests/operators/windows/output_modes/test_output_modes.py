"""Output modes of windows, against results taken in one by one."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from flowrun.core.elements import MAX_TIMESTAMP
from flowrun.core.schema import Schema
from flowrun.core.semantics import OutputMode
from flowrun.core.types import BIGINT, STRING, timestamp
from flowrun.operators.windows.output_modes import operator as output_modes
from flowrun.operators.windows.output_modes.factories import OutputModeFactory
from flowrun.testing.harness import OperatorHarness
from tests.operators.stored import stored
from tests.operators.windows.streams import millis
from tests.slices import everyday

RESULTS = Schema.of(k=STRING, window_start=timestamp(3), window_end=timestamp(3), n=BIGINT)
Result = tuple[Any, ...]


class Oracle:
    """One result after the other."""

    def __init__(self, mode: OutputMode, merging: bool, lateness: int) -> None:
        self.mode, self.merging, self.lateness = mode, merging, lateness
        self.last: dict[Result, int] = {}
        self.sent: list[Any] = []
        self.changed = False

    def take(self, key: str, start: int, end: int, n: int) -> None:
        window = (key, start, end)
        for other in [o for o in self.last if self.merging and o[0] == key and o != window]:
            if other[1] < end and start < other[2]:
                self.send("-D", other, self.last.pop(other))
                self.changed = True
        before = self.last.get(window)
        if before == n:
            return
        self.changed = True
        if before is not None:
            self.send("-U", window, before)
        self.send("+I" if before is None else "+U", window, n)
        self.last[window] = n

    def send(self, kind: str, window: Result, n: int) -> None:
        if self.mode is OutputMode.UPDATE:
            self.sent.append((kind, *window, n))

    def advance(self, watermark: int) -> None:
        if self.mode is OutputMode.COMPLETE:
            if self.changed:
                self.sent += sorted(("+I", *w, n) for w, n in self.last.items())
            self.changed = False
            return
        due = [w for w in self.last if watermark == MAX_TIMESTAMP or w[2] - 1 + self.lateness <= watermark]
        rows = sorted(("+I", *w, self.last.pop(w)) for w in due)
        self.sent += rows if self.mode is OutputMode.APPEND else []


def events(rng: random.Random, merging: bool, lateness: int) -> list[Any]:
    """Results of windows that fire again and again, and watermarks by which they still may."""
    made: list[Any] = []
    watermark = 0
    sessions: dict[str, list[tuple[int, int]]] = {k: [] for k in "abc"}
    for _ in range(150):
        if rng.random() < 0.1:
            watermark += rng.randrange(1, 12)
            made.append(watermark)
            continue
        key = rng.choice("abc")
        start = max(0, watermark + rng.randrange(-lateness, 30))
        if merging:
            end = start + 5
            touching = [w for w in sessions[key] if w[0] <= end and start <= w[1]]
            start, end = min([start, *(w[0] for w in touching)]), max([end, *(w[1] for w in touching)])
            if end - 1 + lateness <= watermark:
                continue
            sessions[key] = [w for w in sessions[key] if w not in touching] + [(start, end)]
        else:
            start = start // 10 * 10
            end = start + 10
            if end - 1 + lateness <= watermark:
                continue
        made.append((key, start, end, rng.randrange(4)))
    return [*made, MAX_TIMESTAMP]


def push(harness: OperatorHarness, rows: list[Result]) -> None:
    harness.push(
        {
            "k": [r[0] for r in rows],
            "window_start": pa.array([r[1] for r in rows], pa.timestamp("ms")),
            "window_end": pa.array([r[2] for r in rows], pa.timestamp("ms")),
            "n": [r[3] for r in rows],
        },
        timestamps=[r[2] - 1 for r in rows],
    )


def sent(harness: OperatorHarness) -> list[Any]:
    return [(kind, k, millis(start), millis(end), n) for kind, (k, start, end, n) in harness.changes()]


def drive(harness: OperatorHarness, stream: list[Any], cuts: int) -> None:
    waiting: list[Result] = []
    for event in stream:
        if isinstance(event, tuple):
            waiting.append(event)
            continue
        for start in range(0, len(waiting), cuts):
            push(harness, waiting[start : start + cuts])
        waiting.clear()
        harness.watermark(event)
    for start in range(0, len(waiting), cuts):
        push(harness, waiting[start : start + cuts])


def by_key(rows: list[Any], mode: OutputMode) -> list[Any]:
    """Changes of each key in order; other modes send by end, whatever the order of keys."""
    return sorted(rows, key=lambda r: r[1]) if mode is OutputMode.UPDATE else sorted(rows)


@pytest.mark.parametrize(
    ("mode", "merging", "lateness", "cuts"),
    everyday(product(OutputMode, [False, True], [0, 20], [1, 7, 1000]), 5, ci=2),
)
def test_results_are_taken_in_one_by_one(
    mode: OutputMode, merging: bool, lateness: int, cuts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_modes, "_SPARE", 4)
    for seed in range(2):
        stream = events(random.Random(seed), merging, lateness)
        oracle = Oracle(mode, merging, lateness)
        for event in stream:
            if isinstance(event, tuple):
                oracle.take(*event)
            else:
                oracle.advance(event)
        harness = OperatorHarness(OutputModeFactory(mode, 1, RESULTS, merging, lateness), schema=RESULTS)
        drive(harness, stream, cuts)
        assert by_key(sent(harness), mode) == by_key(oracle.sent, mode)


@pytest.mark.parametrize("mode", [OutputMode.UPDATE, OutputMode.APPEND])
@pytest.mark.parametrize("merging", [False, True])
@pytest.mark.parametrize("widths", [(1, 2), (3, 1)])
def test_last_results_survive_a_restore_at_another_parallelism(
    mode: OutputMode, merging: bool, widths: tuple[int, int]
) -> None:
    stream = events(random.Random(3), merging, 20)
    factory = OutputModeFactory(mode, 1, RESULTS, merging, 20)
    first, second = stream[:80], stream[80:]
    options: dict[str, Any] = {"schema": RESULTS, "state_keys": [(0,)]}
    olds = [OperatorHarness(factory, subtask=i, parallelism=widths[0], **options) for i in range(widths[0])]
    rows: list[Any] = []
    for old in olds:
        drive(old, first, 7)
        rows += sent(old)
    snapshots = [stored(old.snapshot()) for old in olds]
    for i in range(widths[1]):
        new = OperatorHarness.restore(factory, snapshots, subtask=i, parallelism=widths[1], **options)
        drive(new, second, 7)
        rows += sent(new)
    oracle = Oracle(mode, merging, 20)
    for event in stream:
        if isinstance(event, tuple):
            oracle.take(*event)
        else:
            oracle.advance(event)
    assert by_key(rows, mode) == by_key(oracle.sent, mode)


def test_in_append_mode_no_result_is_late() -> None:
    harness = OperatorHarness(OutputModeFactory(OutputMode.APPEND, 1, RESULTS, False, 5), schema=RESULTS)
    push(harness, [("a", 0, 10, 1)])
    harness.watermark(12)
    assert sent(harness) == []
    harness.watermark(14)
    assert sent(harness) == [("+I", "a", 0, 10, 1)]
    assert harness.watermarks() == [7, 9]
