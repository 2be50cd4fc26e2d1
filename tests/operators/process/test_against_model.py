"""Process functions on rows and on batches against a plain model: random commands, timers, snapshots, restores at any parallelism."""

from __future__ import annotations

import collections
import math
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.api.operator import OperatorRecipe
from flowrun.core.clock import ManualClock
from flowrun.core.elements import MAX_TIMESTAMP
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, DOUBLE, STRING, array
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.operators.process.factories import ProcessFunctionFactory
from flowrun.testing import OperatorHarness
from tests.examples import examples
from tests.operators.process.machines import COLUMNS, COMMANDS, SHOWN, Model
from tests.slices import everyday

KEY_TYPES = {"text": STRING, "double": DOUBLE, "array": array(BIGINT), "number": BIGINT}
KEYS = {
    "text": ["a", "b", "c", None, ""],
    "double": [0.0, -0.0, math.nan, 1.5, None],
    "array": [[1], [1, 2], [], None, [2]],
    "number": [1, 2, 3, None, -4],
}
ROWS = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from(COMMANDS), st.integers(0, 3), st.integers(0, 90)),
    min_size=1,
    max_size=14,
)
STEPS = st.lists(
    st.one_of(
        ROWS,
        ROWS,
        st.tuples(st.just("watermark"), st.integers(0, 120)),
        st.tuples(st.just("clock"), st.sampled_from([0, 1, 10, 20, 40, 60])),
        st.tuples(st.just("restore"), st.integers(1, 3)),
        st.tuples(st.just("snapshot"), st.just(0)),
    ),
    min_size=1,
    max_size=14,
)


def key_of(value: object) -> object:
    """Equal for equal keys."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return tuple(value) if isinstance(value, list) else value


class Job:
    """Some subtasks of the machine, and the model of each key."""

    def __init__(self, machine: str, kind: str) -> None:
        self.schema = Schema.from_pairs([("k", KEY_TYPES[kind]), *((f.name, f.type) for f in COLUMNS)])
        self.factory = self.make_factory(machine, kind)
        self.input = 0
        self.keys = KEYS[kind]
        self.models: dict[object, Model] = collections.defaultdict(Model)
        self.expected: dict[object, list[object]] = collections.defaultdict(list)
        self.got: dict[object, list[object]] = collections.defaultdict(list)
        self.now, self.watermark = 0, -1
        self.subtasks = [self._harness(0, 1, None)]

    def make_factory(self, machine: str, kind: str) -> OperatorRecipe:
        shown = Schema.from_pairs([("k", KEY_TYPES[kind]), *((f.name, f.type) for f in SHOWN)])
        recipe = FunctionRecipe(f"tests.operators.process.machines:{machine}")
        return ProcessFunctionFactory(recipe, self.schema, shown, (0,))

    def options(self) -> dict[str, object]:
        return {"schema": self.schema, "state_keys": [(0,)]}

    def _harness(self, subtask: int, parallelism: int, snapshots: list[object] | None) -> OperatorHarness:
        options = {**self.options(), "clock": ManualClock(self.now), "checkpointing": True}
        if snapshots is None:
            return OperatorHarness(self.factory, subtask=subtask, parallelism=parallelism, **options)
        return OperatorHarness.restore(self.factory, snapshots, subtask=subtask, parallelism=parallelism, **options)

    def push(self, rows: list[tuple[int, str, int, int]]) -> None:
        values = [self.keys[r[0]] for r in rows]
        columns = {("k", "key2")[self.input]: pa.array(values, self.schema.types[0].arrow)}
        columns |= {n: pa.array([r[i] for r in rows]) for i, n in enumerate(COLUMNS.names, start=1)}
        for harness in self.subtasks:
            harness.push(columns, [0] * len(rows), self.input)
        for value, (_, command, m, v) in zip(values, rows, strict=True):
            key = key_of(value)
            shown = self.models[key].do(command, m, v, self.now)
            if shown is not None:
                self.expected[key].append(shown)
        self._fire("processing", self.now)

    def _fire(self, domain: str, until: int, pending_only: bool = False) -> None:
        for key, model in self.models.items():
            self.expected[key] += model.fire(domain, until, self.now, pending_only)

    def advance_watermark(self, timestamp: int) -> None:
        if timestamp <= self.watermark:
            return
        self.watermark = timestamp
        for harness in self.subtasks:
            harness.watermark(timestamp)
        self._fire("event", timestamp)

    def advance_clock(self, ms: int) -> None:
        target = self.now + ms
        for harness in self.subtasks:
            harness.advance_processing_time(ms)
        while due := [t for m in self.models.values() for t in m.timers["processing"] if t <= target]:
            self.now = max(self.now, min(due))
            self._fire("processing", self.now)
        self.now = target

    def restore(self, parallelism: int) -> None:
        snapshots = [h.snapshot() for h in self.subtasks]
        self.collect()
        for harness in self.subtasks:
            harness.close()
        self.subtasks = [self._harness(i, parallelism, snapshots) for i in range(parallelism)]
        self.restore_watermarks()
        self._fire("event", self.watermark)
        self._fire("processing", self.now)

    def restore_watermarks(self) -> None:
        if self.watermark >= 0:
            for harness in self.subtasks:
                harness.watermark(self.watermark)

    def do(self, steps: list[object]) -> None:
        for step in steps:
            match step:
                case list():
                    self.push(step)
                case ("watermark", timestamp):
                    self.advance_watermark(timestamp)
                case ("clock", ms):
                    self.advance_clock(ms)
                case ("restore", parallelism):
                    self.restore(parallelism)
                case ("snapshot", _):
                    for harness in self.subtasks:
                        harness.snapshot()
            self.collect()
            assert self.shown() == self.wanted()

    def shown(self) -> dict[object, list[object]]:
        return {k: v for k, v in self.got.items() if v}

    def wanted(self) -> dict[object, list[object]]:
        return {k: v for k, v in self.expected.items() if v}

    def collect(self) -> None:
        for harness in self.subtasks:
            for key, *shown in harness.rows():
                self.got[key_of(key)].append(tuple(shown))
            harness.clear()

    def end(self) -> None:
        for harness in self.subtasks:
            harness.end_input()
        self._fire("event", MAX_TIMESTAMP)
        self._fire("processing", MAX_TIMESTAMP, pending_only=True)
        self.collect()
        for harness in self.subtasks:
            harness.close()


@pytest.mark.parametrize(("kind", "machine"), everyday(product(KEYS, ["RowMachine", "BatchMachine"]), 3))
@examples(60)
@given(steps=STEPS)
def test_the_machine_shows_what_the_model_shows(machine: str, kind: str, steps: list[object]) -> None:
    job = Job(machine, kind)
    job.do(steps)
    job.end()
    assert job.shown() == job.wanted()


@pytest.mark.parametrize(("before", "after"), [("RowMachine", "BatchMachine"), ("BatchMachine", "RowMachine")])
def test_rows_and_batches_read_each_others_state(before: str, after: str) -> None:
    rng = np.random.default_rng(5)
    old, new = Job(before, "text"), Job(after, "text")
    for _ in range(20):
        commands = [
            (int(rng.integers(0, 5)), str(rng.choice(COMMANDS)), int(rng.integers(0, 4)), int(rng.integers(0, 90)))
            for _ in range(10)
        ]
        old.push(commands)
    snapshots = [h.snapshot() for h in old.subtasks]
    old.collect()
    new.models, new.expected, new.got = old.models, old.expected, old.got
    new.subtasks = [new._harness(i, 2, snapshots) for i in range(2)]
    new.push([(k, "show", 0, 0) for k in range(5)])
    new.end()
    assert new.got == new.expected
