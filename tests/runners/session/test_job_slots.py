"""What a job manager process asks of its dispatcher: the slots of its job, from before it is compiled until its workers go."""

from __future__ import annotations

from flowrun.runners.session.job_slots import SessionJobSlots
from flowrun.runtime.rpc.address import parse_address


class Jobs:
    """The dispatcher."""

    def __init__(self) -> None:
        self.required: list[tuple[str, int, int]] = []

    def require_slots(self, job_manager: str, slots: int, checkpoint_id: int) -> None:
        self.required.append((job_manager, slots, checkpoint_id))


def listening() -> tuple[SessionJobSlots, Jobs]:
    jobs = Jobs()
    slots = SessionJobSlots(jobs)  # type: ignore[arg-type]
    slots.listen(parse_address("tcp://127.0.0.1:7"))
    return slots, jobs


def test_slots_are_asked_for_before_the_job_is_compiled_and_once() -> None:
    slots, jobs = listening()
    slots.begin(2)
    slots.begin(2)
    assert jobs.required == [("tcp://127.0.0.1:7", 2, 0)]
    slots.end()
    assert jobs.required[1:] == [("tcp://127.0.0.1:7", 0, 0)]


def test_who_does_not_know_before_asks_when_it_is_compiled() -> None:
    slots, jobs = listening()
    slots.begin(0)
    assert jobs.required == [], "it is not known"
    slots.begin(3, 5)
    slots.begin(3, 5)
    assert jobs.required == [("tcp://127.0.0.1:7", 3, 5)], "the dispatcher hears from which checkpoint the job goes on"
