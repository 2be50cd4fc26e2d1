"""Random lives of a slot pool with many workers: workers come and are lost, jobs lose slots and ask again, subtasks do not end.

Beside it stands what jobs were told. `simulation/test_stories.py` has the same pool behind the resource manager and a network.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flowrun.core.record import record
from flowrun.core.resources import ResourceProfile
from flowrun.runtime.slot_messages import (
    AllocatedSlot,
    SlotAnswer,
    SlotRequest,
    SlotRequestBulk,
    SlotsGranted,
    SlotsPending,
    SlotsRefused,
)
from flowrun.runtime.slot_pool import SlotPool
from flowrun.runtime.worker_slots import place
from tests.examples import examples

JOBS = st.sampled_from("abcd")
PICK = st.integers(0, 99)


@record(eq=False)
class Held:
    """What a job was granted by one bulk, and has not given back or lost."""

    slots: dict[str, AllocatedSlot]


class Life(RuleBasedStateMachine):
    """Jobs and workers of one pool."""

    @initialize(expected=st.sampled_from([None, None, 0, 4]))
    def begin(self, expected: int | None) -> None:
        self.pool = SlotPool(None, None, expected=expected)
        self.expected = expected
        self.numbers = itertools.count(1)
        self.workers: dict[str, tuple[int, int | None]] = {}
        """Name → slots and thousandths of cores."""
        self.queue: list[SlotRequestBulk] = []
        self.held: dict[tuple[str, int], Held] = {}
        self.stuck: set[tuple[str, int]] = set()
        """Slots whose subtasks do not end."""

    def hear(self, answers: Sequence[SlotAnswer]) -> None:
        for answer in answers:
            key = (answer.job_id, answer.number)
            match answer:
                case SlotsGranted(slots=slots):
                    first = self.queue.pop(0)
                    assert (first.job_id, first.number) == key, "first come, first served"
                    assert [s.name for s in slots] == [r.name for r in first.requests], "all or none"
                    self.held[key] = Held({s.allocation_id: s for s in slots})
                case SlotsRefused():
                    assert self.expected is not None, "more workers may come"
                    self.queue = [b for b in self.queue if (b.job_id, b.number) != key]
                case SlotsPending():
                    assert key in [(b.job_id, b.number) for b in self.queue]

    # ---- workers

    @rule(slots=st.integers(1, 4), cpu=st.sampled_from([None, 1_000, 4_000]))
    def add_worker(self, slots: int, cpu: int | None) -> None:
        name = f"w{next(self.numbers)}"
        self.workers[name] = (slots, cpu)
        self.hear(self.pool.add_worker(name, slots, ResourceProfile(cpu)))

    @precondition(lambda self: self.workers)
    @rule(pick=PICK)
    def remove_worker(self, pick: int) -> None:
        name = sorted(self.workers)[pick % len(self.workers)]
        del self.workers[name]
        expected: Counter[str] = Counter()
        for (job_id, _), held in self.held.items():
            for allocation in [a for a, slot in held.slots.items() if slot.worker == name]:
                del held.slots[allocation]
                expected[job_id] += 1
        self.stuck = {slot for slot in self.stuck if slot[0] != name}
        lost, answers = self.pool.remove_worker(name)
        assert Counter({job_id: len(slots) for job_id, slots in lost.items()}) == expected
        self.hear(answers)

    @rule(slots=st.sampled_from([None, 0, 6]))
    def expect(self, slots: int | None) -> None:
        self.expected = slots
        self.hear(self.pool.expect(slots))

    # ---- jobs

    @rule(job=JOBS, slots=st.integers(1, 5), cpu=st.sampled_from([None, None, 500, 2_500]))
    def request(self, job: str, slots: int, cpu: int | None) -> None:
        bulk = self.bulk(job, slots, cpu)
        self.queue.append(bulk)
        self.hear(self.pool.request(bulk))

    def bulk(self, job: str, slots: int, cpu: int | None, instead_of: tuple[str, ...] = ()) -> SlotRequestBulk:
        requests = tuple(SlotRequest(f"default/{i + 1}", ResourceProfile(cpu)) for i in range(slots))
        return SlotRequestBulk(job, job, next(self.numbers), requests, instead_of)

    @precondition(lambda self: self.held)
    @rule(pick=PICK, more=st.integers(0, 2))
    def ask_again(self, pick: int, more: int) -> None:
        """A job has lost some slots, and gives back the others as it asks for all of them."""
        key = sorted(self.held)[pick % len(self.held)]
        left = self.held.pop(key).slots
        bulk = self.bulk(key[0], max(len(left) + more, 1), None, tuple(left))
        if left:
            before = [b for b in self.queue if b.instead_of]
            self.queue = [*before, bulk, *(b for b in self.queue if not b.instead_of)]
        else:
            self.queue.append(bulk)
        self.hear(self.pool.request(bulk))

    @precondition(lambda self: self.queue)
    @rule(pick=PICK)
    def withdraw(self, pick: int) -> None:
        bulk = self.queue.pop(pick % len(self.queue))
        self.hear(self.pool.withdraw(bulk.job_id, bulk.number))

    @precondition(lambda self: self.held)
    @rule(pick=PICK, count=st.integers(1, 5))
    def release(self, pick: int, count: int) -> None:
        key = sorted(self.held)[pick % len(self.held)]
        held = self.held[key].slots
        given = sorted(held)[:count]
        for allocation in given:
            del held[allocation]
        self.hear(self.pool.release(key[0], given))

    @rule(job=JOBS, pick=PICK, is_stuck=st.booleans())
    def leave(self, job: str, pick: int, is_stuck: bool) -> None:
        """A job ends; perhaps a subtask of it does not."""
        own = [slot for (j, _), held in self.held.items() if j == job for slot in held.slots.values()]
        lost = [own[pick % len(own)]] if own and is_stuck else []
        self.stuck |= {(slot.worker, slot.index) for slot in lost}
        self.queue = [b for b in self.queue if b.job_id != job]
        self.held = {key: held for key, held in self.held.items() if key[0] != job}
        self.hear(self.pool.leave(job, [slot.allocation_id for slot in lost]))

    # ---- what must hold

    @invariant()
    def slots_are_held_by_whom_they_were_granted_to(self) -> None:
        if not hasattr(self, "held"):
            return
        mine = [slot for held in self.held.values() for slot in held.slots.values()]
        assert {(s.worker, s.index): s for s in mine} == self.pool.held
        assert len(self.pool.held) == len(mine), "a slot is held twice"
        assert not self.stuck & self.pool.held.keys(), "a slot is given whose subtask has not ended"
        for worker in self.pool.workers:
            slots, cpu = self.workers[worker.name]
            used = [s for s in mine if s.worker == worker.name]
            assert all(0 <= s.index < slots for s in used)
            assert worker.free == slots - len(used) - len(worker.lost)
            assert cpu is None or sum(p.cpu_millis or 0 for p in worker.used) <= cpu, (
                "more cores are given than there are"
            )

    @invariant()
    def who_could_be_served_does_not_wait(self) -> None:
        if not hasattr(self, "held"):
            return
        assert self.pool.waiting == tuple(self.queue)
        if self.queue:
            assert place(self.queue[0].requests, self.pool.workers) is None

    @invariant()
    def nobody_waits_for_what_will_never_be(self) -> None:
        if not hasattr(self, "held") or self.expected is None:
            return
        empty = [worker.emptied() for worker in self.pool.workers]
        for bulk in self.queue:
            assert len(bulk.requests) <= self.expected or place(bulk.requests, empty) is not None

    def teardown(self) -> None:
        if not hasattr(self, "held"):
            return
        for job in "abcd":
            self.leave(job, 0, is_stuck=False)
        assert self.pool.held == {}
        assert self.pool.waiting == ()
        assert self.pool.free == sum(slots for slots, _ in self.workers.values()) - len(self.stuck)


class Everyday(Life):
    """A few of them."""


class Exhaustive(Life):
    """Many."""


Everyday.TestCase.settings = examples(10, stateful_step_count=30)
TestEveryday = Everyday.TestCase
Exhaustive.TestCase.settings = examples(100, stateful_step_count=50)
TestExhaustive = pytest.mark.exhaustive(Exhaustive.TestCase)
