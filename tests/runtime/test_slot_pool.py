"""The slots of one process: who gets them, who waits, and who never will."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flowrun.core.resources import ResourceProfile
from flowrun.errors import InternalError, PipelineError
from flowrun.runtime.slot_messages import (
    AllocatedSlot,
    SlotAnswer,
    SlotRequest,
    SlotRequestBulk,
    SlotsGranted,
    SlotsPending,
    SlotsRefused,
)
from flowrun.runtime.slot_pool import LocalSlots, SlotPool
from tests.examples import examples

MIB = 1 << 20


def bulk(
    job: str, slots: int, number: int = 1, *, cpu: int | None = None, memory: int | None = None
) -> SlotRequestBulk:
    """So many slots for job `job`, each of a profile."""
    profile = ResourceProfile(cpu, memory)
    return SlotRequestBulk(job, job, number, tuple(SlotRequest(f"default/{i + 1}", profile) for i in range(slots)))


def shown(answers: Sequence[SlotAnswer]) -> list[str]:
    """Answers in short."""
    found = []
    for answer in answers:
        match answer:
            case SlotsGranted(job_id=job, slots=slots):
                found.append(f"{job} has {','.join(str(s.index) for s in slots)}")
            case SlotsPending(job_id=job, reason=reason):
                found.append(f"{job} {reason}")
            case SlotsRefused(job_id=job, reason=reason):
                found.append(f"{job} never: {reason}")
    return found


def test_a_pool_gives_all_slots_of_a_job_or_none() -> None:
    pool = SlotPool("local", 3)
    assert shown(pool.request(bulk("a", 2))) == ["a has 0,1"]
    assert shown(pool.request(bulk("b", 2))) == ["b needs 2 slots, 1 of 3 are free (held by 'a' 2)"]
    assert shown(pool.leave("a")) == ["b has 0,1"]
    assert pool.leave("b") == []
    assert pool.held == {}


def test_who_comes_first_is_served_first_even_if_a_later_one_would_fit() -> None:
    pool = SlotPool("local", 2)
    pool.request(bulk("a", 1))
    pool.request(bulk("large", 2))
    assert shown(pool.request(bulk("small", 1))) == [
        "small needs 1 slot, 1 of 2 are free (held by 'a' 1); 1 request is before it"
    ]
    assert shown(pool.leave("a")) == [
        "large has 0,1",
        "small needs 1 slot, 0 of 2 are free (held by 'large' 2)",
    ]
    assert shown(pool.leave("large")) == ["small has 0"]


def test_those_that_wait_hear_of_it_only_when_something_changed() -> None:
    pool = SlotPool("local", 2)
    pool.request(bulk("a", 2))
    pool.request(bulk("b", 2))
    assert shown(pool.request(bulk("c", 2))) == [
        "c needs 2 slots, 0 of 2 are free (held by 'a' 2); 1 request is before it"
    ], "nothing changed for b"
    assert pool.withdraw("x", 1) == []


def test_a_job_hears_of_the_first_of_its_bulks() -> None:
    pool = SlotPool("local", 1)
    pool.request(bulk("a", 1))
    assert len(pool.request(bulk("b", 1, number=1))) == 1
    assert pool.request(bulk("b", 1, number=2)) == []
    granted, waits = pool.leave("a")
    assert (granted.number, waits.number) == (1, 2)


def test_what_can_never_fit_is_refused_at_once_and_stops_nobody() -> None:
    pool = SlotPool("local", 2)
    (refused,) = pool.request(bulk("large", 3))
    assert isinstance(refused, SlotsRefused)
    assert refused.reason == "needs 3 slots, there are 2"
    assert "give the cluster 3 slots" in refused.hint
    assert shown(pool.request(bulk("a", 1))) == ["a has 0"]


def test_a_job_whose_slots_were_lost_in_part_comes_before_those_that_wait() -> None:
    pool = SlotPool(None, None, expected=None)
    pool.add_worker("w1", 1)
    pool.add_worker("w2", 3)
    assert shown(pool.request(bulk("a", 3))) == ["a has 0,0,1"]
    assert shown(pool.request(bulk("b", 3))) == ["b needs 3 slots, 1 of 4 are free (held by 'a' 3)"]
    lost, _ = pool.remove_worker("w1")
    assert len(lost["a"]) == 1
    assert shown(pool.add_worker("w3", 1)) == ["b needs 3 slots, 2 of 4 are free (held by 'a' 2)"]
    left = tuple(slot.allocation_id for slot in pool.held.values())
    again = replace(bulk("a", 3, 2), instead_of=left)
    assert shown(pool.request(again)) == [
        "a has 0,0,1",
        "b needs 3 slots, 1 of 4 are free (held by 'a' 3)",
    ], "b, which waits for as many as there would be, does not keep it from going on"


def test_jobs_that_have_lost_slots_do_not_wait_for_each_other() -> None:
    pool = SlotPool(None, None, expected=None)
    pool.add_worker("w1", 1)
    pool.add_worker("w2", 2)
    pool.add_worker("w3", 1)
    pool.request(bulk("a", 2))
    pool.request(bulk("b", 2))
    held = {job: tuple(s.allocation_id for s in pool.held.values() if s.allocation_id[0] == job) for job in "ab"}
    pool.remove_worker("w3")
    pool.remove_worker("w1")
    assert [len([s for s in pool.held.values() if s.allocation_id[0] == job]) for job in "ab"] == [1, 1]
    pool.request(replace(bulk("a", 2, 2), instead_of=held["a"]))
    assert shown(pool.request(replace(bulk("b", 2, 2), instead_of=held["b"]))) == [
        "a has 0,1",
        "b needs 2 slots, 0 of 2 are free (held by 'a' 2)",
    ]


def test_a_job_whose_slots_were_lost_is_refused_when_nothing_more_will_come() -> None:
    pool = SlotPool(None, None, expected=2)
    pool.add_worker("w1", 1)
    pool.add_worker("w2", 1)
    assert shown(pool.request(bulk("a", 2))) == ["a has 0,0"]
    pool.remove_worker("w2")
    (left,) = pool.held.values()
    again = replace(bulk("a", 2, 2), instead_of=(left.allocation_id,))
    assert shown(pool.request(again)) == ["a needs 2 slots, 1 of 1 are free"]
    assert shown(pool.expect(0)) == ["a never: needs 2 slots, there are 1"]
    assert pool.waiting == ()
    assert shown(pool.request(replace(again, number=3))) == ["a never: needs 2 slots, there are 1"]
    pool.expect(0, "Spark is gone")
    assert shown(pool.request(replace(again, number=4))) == ["a never: needs 2 slots, there are 1: Spark is gone"]
    assert shown(pool.request(bulk("b", 1))) == ["b has 0"]


def test_a_request_that_is_withdrawn_gives_its_slots_back_even_if_they_are_on_their_way() -> None:
    pool = SlotPool("local", 1)
    pool.request(bulk("a", 1))
    pool.request(bulk("b", 1))
    assert pool.withdraw("b", 1) == []
    assert pool.waiting == ()
    pool.request(bulk("b", 1, number=2))
    assert shown(pool.withdraw("a", 1)) == ["b has 0"]


def test_a_job_may_give_back_some_of_its_slots() -> None:
    pool = SlotPool("local", 2)
    (first,) = pool.request(bulk("a", 1, number=1))
    pool.request(bulk("a", 1, number=2))
    assert isinstance(first, SlotsGranted)
    assert pool.release("other", [first.slots[0].allocation_id]) == [], "only its own"
    assert len(pool.held) == 2
    pool.release("a", [first.slots[0].allocation_id])
    assert list(pool.held) == [("local", 1)]


def test_without_a_number_there_are_as_many_slots_as_are_asked_for() -> None:
    pool = SlotPool("local", None)
    assert shown(pool.request(bulk("a", 3))) == ["a has 0,1,2"]
    assert shown(pool.request(bulk("b", 2))) == ["b has 3,4"]
    pool.leave("a")
    assert shown(pool.request(bulk("c", 4))) == ["c has 0,1,2,5"]


def test_slots_whose_subtasks_do_not_end_are_given_to_nobody() -> None:
    pool = SlotPool("local", 2)
    (granted,) = pool.request(bulk("a", 2))
    assert isinstance(granted, SlotsGranted)
    pool.request(bulk("b", 2))
    pool.request(bulk("c", 1))
    assert shown(pool.leave("a", [granted.slots[0].allocation_id])) == [
        "b never: needs 2 slots, there are 1, 1 more are held by subtasks that did not end",
        "c has 1",
    ]


class TestResources:
    def test_a_slot_of_no_profile_is_an_equal_share(self) -> None:
        pool = SlotPool("local", 2, ResourceProfile(4000, 100 * MIB))
        (granted,) = pool.request(bulk("a", 1))
        assert isinstance(granted, SlotsGranted)
        assert granted.slots[0].profile == ResourceProfile(2000, 50 * MIB)

    def test_a_large_slot_leaves_less_for_others(self) -> None:
        pool = SlotPool("local", 4, ResourceProfile(4000))
        assert shown(pool.request(bulk("a", 1, cpu=3000))) == ["a has 0"]
        assert shown(pool.request(bulk("b", 1, cpu=500))) == ["b has 1"]
        assert shown(pool.request(bulk("c", 1))) == [
            "c needs 1 slot, 2 of 4 are free (held by 'a' 1, 'b' 1); of 4 cpu it needs 1 cpu, 3.5 cpu are in use"
        ]
        assert shown(pool.leave("a")) == ["c has 0"]

    def test_a_slot_that_is_larger_than_the_worker_is_refused(self) -> None:
        pool = SlotPool("local", 4, ResourceProfile(None, 100 * MIB))
        assert shown(pool.request(bulk("a", 1, memory=200 * MIB))) == [
            "a never: needs 1 slot of 200 MiB together (the largest, 'default/1', of 200 MiB), there are 100 MiB in all"
        ]

    def test_what_is_preferred_is_given_as_long_as_it_is_there(self) -> None:
        pool = SlotPool("local", 4, ResourceProfile(4000))
        wish = SlotRequest("default/1", ResourceProfile(1000), ResourceProfile(2500))
        answers = [answer for job in "abc" for answer in pool.request(SlotRequestBulk(job, job, 1, (wish,)))]
        got = [slot.profile.cpu_millis for a in answers if isinstance(a, SlotsGranted) for slot in a.slots]
        assert got == [2500, 1000], "and no less than is needed: the third one waits"
        assert isinstance(answers[-1], SlotsPending)

    def test_what_a_worker_does_not_count_is_not_limited(self) -> None:
        pool = SlotPool("local", None, ResourceProfile(1000))
        assert shown(pool.request(bulk("a", 1, cpu=1000, memory=1 << 50))) == ["a has 0"]
        assert shown(pool.request(bulk("b", 5))) == ["b has 1,2,3,4,5"], (
            "no number of slots, no share: it names nothing"
        )


class TestWorkers:
    def test_slots_are_spread_over_the_workers(self) -> None:
        pool = SlotPool(None, None, expected=4)
        assert shown(pool.request(bulk("a", 3))) == ["a needs 3 slots, 0 of 0 are free"]
        assert shown(pool.add_worker("w1", 2)) == ["a needs 3 slots, 2 of 2 are free"]
        (granted,) = pool.add_worker("w2", 2)
        assert isinstance(granted, SlotsGranted)
        assert [(s.worker, s.index) for s in granted.slots] == [("w1", 0), ("w2", 0), ("w1", 1)]
        (last,) = pool.request(bulk("b", 1))
        assert isinstance(last, SlotsGranted)
        assert last.slots[0].worker == "w2"

    def test_what_no_worker_that_is_expected_could_hold_is_refused(self) -> None:
        pool = SlotPool(None, None, expected=2)
        assert shown(pool.request(bulk("a", 3))) == ["a never: needs 3 slots, there are 2"]
        pool.expect(None)
        assert shown(pool.request(bulk("b", 3))) == ["b needs 3 slots, 0 of 0 are free"]

    def test_a_worker_that_is_gone_takes_its_slots_along(self) -> None:
        pool = SlotPool("w1", 1, expected=2)
        pool.add_worker("w2", 1)
        pool.request(bulk("a", 2))
        lost, answers = pool.remove_worker("w1")
        assert {job: [s.worker for s in slots] for job, slots in lost.items()} == {"a": ["w1"]}
        assert answers == []
        assert [worker for worker, _ in pool.held] == ["w2"]
        assert shown(pool.request(bulk("a", 1, number=2))) == ["a needs 1 slot, 0 of 1 are free (held by 'a' 1)"]
        assert shown(pool.add_worker("w3", 1)) == ["a has 0"]
        assert pool.remove_worker("w1") == ({}, [])

    def test_who_waits_for_a_worker_that_never_comes_is_refused(self) -> None:
        pool = SlotPool("w1", 1, expected=2)
        pool.request(bulk("a", 2))
        assert shown(pool.expect(0)) == ["a never: needs 2 slots, there are 1"]

    def test_who_waits_for_a_worker_that_is_gone_for_good_is_refused(self) -> None:
        pool = SlotPool("w1", 1, expected=0)
        pool.request(bulk("a", 1))
        pool.request(bulk("b", 1))
        _, answers = pool.remove_worker("w1")
        assert shown(answers) == ["b never: needs 1 slot, there are 0"]

    def test_a_large_slot_goes_where_it_fits(self) -> None:
        pool = SlotPool("small", 4, ResourceProfile(1000))
        pool.add_worker("large", 4, ResourceProfile(4000))
        (granted,) = pool.request(bulk("a", 1, cpu=3000))
        assert isinstance(granted, SlotsGranted)
        assert granted.slots[0].worker == "large"
        assert shown(pool.request(bulk("b", 2, cpu=3000))) == [
            "b never: needs 2 slots of 6 cpu together (the largest, 'default/1', of 3 cpu), there are 5 cpu in all in 2 workers"
        ]

    def test_ten_thousand_slots_of_a_thousand_workers_are_given_in_a_moment(self) -> None:
        pool = SlotPool(None, None, expected=None)
        for number in range(1000):
            pool.add_worker(f"w{number}", 10)
        started = time.process_time()
        (granted,) = pool.request(bulk("a", 10_000))
        assert isinstance(granted, SlotsGranted)
        assert len({(s.worker, s.index) for s in granted.slots}) == 10_000
        assert time.process_time() - started < 5


def test_a_cluster_has_at_least_one_slot() -> None:
    with pytest.raises(PipelineError, match="at least one slot, got 0"):
        SlotPool("local", 0)


def test_a_bulk_is_asked_for_once() -> None:
    pool = SlotPool("local", 2)
    pool.request(bulk("a", 1))
    with pytest.raises(InternalError, match="bulk 1 is empty or not new"):
        pool.request(bulk("a", 1))
    with pytest.raises(InternalError, match="empty"):
        pool.request(bulk("b", 0))


def test_requesters_are_told_in_the_order_in_which_things_happen() -> None:
    heard: list[SlotAnswer] = []

    class Requester:
        def answer_slot_request(self, answer: SlotAnswer) -> None:
            heard.append(answer)

    slots = LocalSlots(SlotPool("local", 1))
    slots.request_slots(bulk("a", 1), Requester())
    slots.request_slots(bulk("b", 1), Requester())
    slots.leave("a")
    slots.leave("a")
    assert shown(heard) == ["a has 0", "b needs 1 slot, 0 of 1 are free (held by 'a' 1)", "b has 0"]
    slots.leave("b")
    assert slots.held == {}


class Jobs(RuleBasedStateMachine):
    """Jobs come, give back slots and go in any order: what they were told is what the pool does."""

    @initialize(slots=st.one_of(st.none(), st.integers(1, 4)), cpu=st.one_of(st.none(), st.integers(1, 6)))
    def begin(self, slots: int | None, cpu: int | None) -> None:
        self.cpu = None if cpu is None else cpu * 1000
        self.pool = SlotPool("local", slots, ResourceProfile(self.cpu))
        self.number = 0
        self.queue: list[tuple[str, int]] = []
        """Who waits, as a client sees it."""
        self.mine: dict[tuple[str, int], dict[str, AllocatedSlot]] = {}

    def hear(self, answers: Sequence[SlotAnswer]) -> None:
        for answer in answers:
            key = (answer.job_id, answer.number)
            match answer:
                case SlotsGranted(slots=slots):
                    assert self.queue[0] == key, "first come, first served"
                    self.queue.pop(0)
                    self.mine[key] = {s.allocation_id: s for s in slots}
                case SlotsRefused():
                    self.queue.remove(key)
                case SlotsPending(needed=needed, free=free):
                    assert key in self.queue
                    assert needed
                    assert free is None or free >= 0

    @rule(job=st.sampled_from("abc"), slots=st.integers(1, 5), cpu=st.sampled_from([None, 500, 1000, 2500]))
    def request(self, job: str, slots: int, cpu: int | None) -> None:
        self.number += 1
        self.queue.append((job, self.number))
        self.hear(self.pool.request(bulk(job, slots, self.number, cpu=cpu)))

    @precondition(lambda self: self.queue)
    @rule(pick=st.integers(0, 99))
    def withdraw(self, pick: int) -> None:
        job, number = self.queue.pop(pick % len(self.queue))
        self.hear(self.pool.withdraw(job, number))

    @precondition(lambda self: self.mine)
    @rule(pick=st.integers(0, 99), count=st.integers(1, 5))
    def release(self, pick: int, count: int) -> None:
        key = sorted(self.mine)[pick % len(self.mine)]
        given = sorted(self.mine[key])[:count]
        for allocation in given:
            del self.mine[key][allocation]
        if not self.mine[key]:
            del self.mine[key]
        self.hear(self.pool.release(key[0], given))

    @rule(job=st.sampled_from("abc"))
    def leave(self, job: str) -> None:
        self.queue = [key for key in self.queue if key[0] != job]
        self.mine = {key: slots for key, slots in self.mine.items() if key[0] != job}
        self.hear(self.pool.leave(job))

    @invariant()
    def no_slot_is_held_twice(self) -> None:
        if not hasattr(self, "pool"):
            return
        held = [slot for slots in self.mine.values() for slot in slots.values()]
        assert len({slot.index for slot in held}) == len(held)
        assert {("local", slot.index): slot for slot in held} == self.pool.held
        assert self.pool.total is None or len(held) <= self.pool.total
        assert self.cpu is None or sum(slot.profile.cpu_millis or 0 for slot in held) <= self.cpu

    @invariant()
    def who_could_be_served_does_not_wait(self) -> None:
        if not hasattr(self, "pool"):
            return
        assert [(b.job_id, b.number) for b in self.pool.waiting] == self.queue
        if self.queue:
            first, free = self.pool.waiting[0], self.pool.free
            default = ResourceProfile(self.cpu).share(self.pool.total)
            needed = sum(r.profile.otherwise(default).cpu_millis or 0 for r in first.requests)
            used = sum(slot.profile.cpu_millis or 0 for slot in self.pool.held.values())
            enough = self.cpu is None or used + needed <= self.cpu
            assert not (enough and (free is None or len(first.requests) <= free))

    def teardown(self) -> None:
        if hasattr(self, "pool"):
            for job in "abc":
                self.leave(job)
            assert self.pool.held == {}
            assert self.pool.waiting == ()


Jobs.TestCase.settings = examples(60, stateful_step_count=30)
TestJobs = Jobs.TestCase
