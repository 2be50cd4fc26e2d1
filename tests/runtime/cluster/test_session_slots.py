"""Which job gets which slots of a session cluster."""

from __future__ import annotations

import random
from dataclasses import field

from flowrun.core.clock import SystemClock
from flowrun.core.record import record
from flowrun.errors import ClusterError
from flowrun.runtime.cluster.session_messages import TaskManagerRegistration, WorkerAssignment
from flowrun.runtime.cluster.session_slots import SessionSlots, TaskManagerSlots
from flowrun.runtime.timers import TimerThread


@record(eq=False, frozen=False)
class Manager:
    """A task manager that remembers which workers it was to start."""

    name: str
    started: list[WorkerAssignment]
    is_gone: bool = False
    forgotten: list[str] = field(default_factory=list)

    def forget_job_manager(self, job_manager: str) -> None:
        self.forgotten.append(job_manager)

    def start_worker(self, assignment: WorkerAssignment) -> None:
        if self.is_gone:
            raise ClusterError("gone")
        self.started.append(assignment)

    def of(self, job_manager: str) -> int:
        return sum(a.job_manager == job_manager for a in self.started)


class Timers(TimerThread):
    """Timers that fire when the test says so."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.due: list[object] = []

    def after(self, delay_ms: int, callback: object) -> object:  # type: ignore[override]
        self.due.append(callback)
        return None

    def fire(self) -> None:
        due, self.due = self.due, []
        for callback in due:
            callback()  # type: ignore[operator]


def add(slots: SessionSlots, name: str, number: int) -> tuple[Manager, TaskManagerSlots]:
    manager = Manager(name, [])
    return manager, slots.add(TaskManagerRegistration(name, 1, "here", number), manager)


def test_a_job_gets_all_its_slots_or_none_and_spreads_over_task_managers() -> None:
    slots = SessionSlots(Timers())
    first, _ = add(slots, "a", 2)
    slots.require("j", "jm:1", 4)
    assert first.started == []
    assert slots.waits_for("j") == "slots: needs 4, has 0, 2 of 2 are free"
    second, _ = add(slots, "b", 4)
    assert (first.of("jm:1"), second.of("jm:1")) == (1, 3)
    assert slots.waits_for("j") is None
    assert len({a.worker for a in first.started + second.started}) == 4


def test_jobs_come_in_turn_and_one_that_never_fits_keeps_nobody_waiting() -> None:
    slots = SessionSlots(Timers())
    manager, state = add(slots, "a", 4)
    slots.require("huge", "jm:0", 9)
    slots.require("one", "jm:1", 3)
    slots.require("two", "jm:2", 2)
    slots.require("three", "jm:3", 1)
    assert [manager.of(f"jm:{n}") for n in range(4)] == [0, 3, 0, 0], "the third waits behind the second"
    assert slots.waits_for("huge") == "slots: needs 9, has 0, 1 of 4 are free"
    assert slots.waits_for("two") == "slots: needs 2, has 0, 1 of 4 are free"
    assert slots.waits_for("three") == "slots: needs 1, has 0, 1 of 4 are free; 1 job is before it"
    for assignment in list(manager.started):
        slots.end_worker(state, assignment.worker, "ended", failed=False)
    assert [manager.of(f"jm:{n}") for n in range(4)] == [0, 6, 0, 0], "a running job gets its slots back first"
    slots.forget("one")
    for assignment in manager.started[3:]:
        slots.end_worker(state, assignment.worker, "ended", failed=False)
    assert [manager.of(f"jm:{n}") for n in range(4)] == [0, 6, 2, 1]


def test_a_slot_rests_after_its_worker_died_and_a_job_that_begins_again_counts_its_own_workers() -> None:
    timers = Timers()
    slots = SessionSlots(timers)
    manager, state = add(slots, "a", 2)
    slots.require("j", "jm:1", 2)
    slots.end_worker(state, manager.started[0].worker, "was killed by SIGKILL", failed=True)
    assert manager.of("jm:1") == 2
    timers.fire()
    assert manager.of("jm:1") == 3
    slots.require("j", "jm:2", 2)  # another job manager process of the same job
    for assignment in manager.started[1:3]:
        slots.end_worker(state, assignment.worker, "ended with exit code 0", failed=False)
    assert manager.of("jm:2") == 2
    assert slots.waits_for("j") is None


def test_what_a_lost_task_manager_had_is_given_by_others() -> None:
    slots = SessionSlots(Timers())
    first, state = add(slots, "a", 2)
    slots.require("j", "jm:1", 2)
    first.is_gone = True
    slots.remove(state, "killed")
    slots.remove(state, "killed")
    assert slots.waits_for("j") == "slots: needs 2, has 0, no task manager is there"
    second, _ = add(slots, "b", 3)
    assert second.of("jm:1") == 2


def test_workers_of_a_job_that_needs_none_any_more_are_not_replaced() -> None:
    slots = SessionSlots(Timers())
    manager, state = add(slots, "a", 2)
    slots.require("j", "jm:1", 2)
    slots.require("j", "jm:1", 0)
    for assignment in list(manager.started):
        slots.end_worker(state, assignment.worker, "ended with exit code 0", failed=False)
    assert manager.of("jm:1") == 2
    assert state.free == 2, "they would find nobody, and their slots would rest"
    assert slots.waits_for("j") is None


def test_a_task_manager_that_comes_again_under_its_name_has_none_of_the_workers_that_it_had() -> None:
    slots = SessionSlots(Timers())
    add(slots, "a", 2)
    slots.require("j", "jm:1", 2)
    again, _ = add(slots, "a", 2)
    assert again.of("jm:1") == 2
    assert slots.waits_for("j") is None


def test_no_slot_is_given_twice_whatever_happens() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        timers = Timers()
        slots = SessionSlots(timers)
        managers: list[tuple[Manager, TaskManagerSlots]] = []
        for step in range(60):
            match chance.randrange(6):
                case 0:
                    managers.append(add(slots, f"m{step}", chance.randint(1, 4)))
                case 1:
                    slots.require(f"j{chance.randrange(4)}", f"jm:{chance.randrange(9)}", chance.randint(1, 6))
                case 2:
                    slots.forget(f"j{chance.randrange(4)}")
                case 3 if managers:
                    _, state = managers.pop(chance.randrange(len(managers)))
                    slots.remove(state, "gone")
                case 4 if managers:
                    _, state = chance.choice(managers)
                    if state.workers:
                        slots.end_worker(
                            state, chance.choice(list(state.workers)), "over", failed=chance.random() < 0.5
                        )
                case _:
                    timers.fire()
            for _, state in managers:
                assert len(state.workers) + len(state.resting) <= state.registration.slots
                assert state.free >= 0
        timers.fire()
        held = {id(r): r for _, state in managers for r in state.workers.values()}
        for requirement in held.values():
            given = sum(r is requirement for _, state in managers for r in state.workers.values())
            assert given == requirement.workers


def test_task_managers_delete_what_workers_of_a_job_manager_have_left_when_it_is_no_more() -> None:
    slots = SessionSlots(Timers())
    first, _ = add(slots, "a", 2)
    second, _ = add(slots, "b", 2)
    slots.require("j", "jm:1", 1)
    slots.require("j", "jm:1", 2)
    assert first.forgotten == []
    slots.require("j", "jm:2", 2)
    slots.forget("j")
    slots.forget("j")
    assert first.forgotten == second.forgotten == ["jm:1", "jm:2"]


def test_a_worker_that_died_is_replaced_where_it_was_if_there_is_a_slot() -> None:
    slots = SessionSlots(Timers())
    first, there = add(slots, "a", 2)
    second, elsewhere = add(slots, "b", 4)
    slots.require("i", "jm:1", 3)
    slots.require("j", "jm:2", 1)
    (own,) = [a for a in (*first.started, *second.started) if a.job_manager == "jm:2"]
    home, manager = (first, there) if own in first.started else (second, elsewhere)
    slots.end_worker(manager, own.worker, "was killed", failed=True)
    assert home.of("jm:2") == 2
    slots.end_worker(manager, home.started[-1].worker, "was killed", failed=True)
    assert first.of("jm:2") + second.of("jm:2") == 3, "elsewhere if there is none"
