"""The data protocol as a stateful property: whatever befalls processes and connections, rows come in order, once, and all of them."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.examples import examples
from tests.runtime.simulation.data_plane import DataPlane

PICK = st.integers(0, 99)


class Exchange(RuleBasedStateMachine):
    """Subtasks of one exchange in two or three processes."""

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.plane = DataPlane(seed)

    def name(self, pick: int) -> str:
        return sorted(self.plane.members)[pick % len(self.plane.members)]

    @rule(ms=st.sampled_from([1, 20, 50, 100]))
    def go_on(self, ms: int) -> None:
        self.plane.time.run_for(ms)

    @rule()
    def fail(self) -> None:
        self.plane.fail()

    @rule(pick=PICK)
    def kill(self, pick: int) -> None:
        self.plane.kill(self.name(pick))

    @rule(pick=PICK)
    def reset(self, pick: int) -> None:
        self.plane.reset(self.name(pick))

    @rule(pick=PICK)
    def hang(self, pick: int) -> None:
        self.plane.members[self.name(pick)].process.stop()

    @rule(pick=PICK)
    def wake(self, pick: int) -> None:
        self.plane.members[self.name(pick)].process.go_on()

    @precondition(lambda self: not self.plane.is_cut)
    @rule()
    def cut(self) -> None:
        self.plane.cut()

    @precondition(lambda self: self.plane.is_cut)
    @rule()
    def mend(self) -> None:
        self.plane.mend()

    def teardown(self) -> None:
        if hasattr(self, "plane"):
            self.plane.end()


class Everyday(Exchange):
    """A few of them."""


class Exhaustive(Exchange):
    """Many."""


Everyday.TestCase.settings = examples(5, stateful_step_count=20)
TestEveryday = Everyday.TestCase
Exhaustive.TestCase.settings = examples(60, stateful_step_count=50)
TestExhaustive = pytest.mark.exhaustive(Exhaustive.TestCase)
