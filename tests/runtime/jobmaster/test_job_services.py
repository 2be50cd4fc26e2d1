"""The small parts of a job master: enumerators, hooks, tickets, the I/O thread."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from checkpoint_fakes import Numbers
from runtime_fakes import Count, job, vertex

from flowrun.api.source import JsonValue, Split
from flowrun.connectors import memory
from flowrun.core.clock import ManualClock, SystemClock
from flowrun.core.elements import CheckpointKind
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT
from flowrun.errors import InternalError, StateError
from flowrun.graph.execution_graph import ExecutionVertexId
from flowrun.runtime.checkpoint.events import SnapshotRequested
from flowrun.runtime.jobmaster.hooks import MasterHooks
from flowrun.runtime.jobmaster.io_thread import IoThread
from flowrun.runtime.jobmaster.snapshot_requests import SnapshotRequests
from flowrun.runtime.jobmaster.snapshot_ticket import SnapshotTicket
from flowrun.runtime.jobmaster.source_coordinator import SourceCoordinator, SplitAnswer
from flowrun.runtime.jobmaster.sources import JobSources, SourceError
from flowrun.runtime.mailbox import Mailbox
from flowrun.runtime.messages import SplitRequest
from flowrun.runtime.timers import TimerThread
from flowrun.state.checkpoints import CheckpointMetadata, OperatorMetadata

EMPTY = CheckpointMetadata(4, CheckpointKind.CHECKPOINT, 0, 0, "test", "l", "/j", "0", None, None, {})

# ---- sources


class Sources:
    def __init__(self, *names: str) -> None:
        self.numbers = {n: Numbers(10, splits=3) for n in names}
        vertices = [vertex(n, Count, source=s) for n, s in self.numbers.items()]
        self.sent: list[SplitAnswer] = []
        clock = ManualClock()
        self.jobs = JobSources(
            job(*vertices), clock=clock, timers=TimerThread(clock), post=lambda mail: mail(), send=self.sent.append,
            failed=lambda error: None,
        )  # fmt: skip

    def request(self, name: str, attempt: str = "a") -> None:
        self.jobs.request(SplitRequest(ExecutionVertexId(f"{name}-0", 0), attempt))


def enumerator(name: str, state: JsonValue) -> CheckpointMetadata:
    return replace(
        EMPTY, operators={f"{name}-0": OperatorMetadata(f"{name}-0", None, name, f"{name}-0", 1, 128, enumerator=state)}
    )


def test_splits_are_in_the_enumerators_snapshot_until_they_are_handed_out() -> None:
    sources = Sources("a", "b")
    sources.jobs.begin(None)
    sources.request("a")
    assert sources.jobs.snapshot() == {"a-0": [1, 2], "b-0": [0, 1, 2]}
    assert [a.split.split_id for a in sources.sent if a.split] == ["0"]


def test_a_reader_that_waits_is_asked_again_when_another_one_has_asked() -> None:
    class InStep:
        """Hands out a split for subtask 0 once subtask 1 has asked."""

        exhausted, discovery_interval_ms = False, None
        asked: ClassVar[set[int]] = set()

        def start(self) -> None: ...

        def next_split(self, subtask: int) -> Split | None:
            self.asked.add(subtask)
            return Split("0", {}) if subtask == 0 and self.asked == {0, 1} else None

        def close(self) -> None: ...

    class Source:
        def create_enumerator(self, parallelism: int, clock: object, restored: JsonValue = None) -> InStep:
            return InStep()

    coordinator = SourceCoordinator("s", Source(), 2, ManualClock())  # type: ignore[arg-type]
    coordinator.start()
    assert coordinator.request(SplitRequest(ExecutionVertexId("s", 0), "first")) == []
    assert coordinator.request(SplitRequest(ExecutionVertexId("s", 1), "second")) == [
        SplitAnswer("first", Split("0", {}))
    ]
    coordinator.close()


def test_a_restart_of_some_vertices_leaves_the_other_enumerators_alone() -> None:
    sources = Sources("a", "b")
    sources.jobs.begin(None)
    sources.request("a")
    sources.request("b")
    sources.jobs.go_back(enumerator("a", [1, 2]), (), {"a-0"})
    assert sources.numbers["a"].enumerators[0].closed
    assert sources.numbers["a"].enumerators[1].restored == [1, 2]
    assert len(sources.numbers["b"].enumerators) == 1


def test_a_source_that_the_checkpoint_does_not_know_starts_afresh_and_a_finished_one_not_at_all() -> None:
    sources = Sources("a", "b")
    sources.jobs.begin(enumerator("x", [1]), {"b-0"})
    assert sources.numbers["a"].enumerators[0].restored is None
    assert sources.numbers["b"].enumerators == []
    assert sources.jobs.snapshot() == {"a-0": [0, 1, 2], "b-0": None}
    sources.request("b")
    assert sources.sent == []


def test_who_waited_for_a_split_before_a_restart_is_forgotten() -> None:
    sources = Sources("a")
    sources.jobs.begin(enumerator("a", []))
    sources.request("a", "old")
    assert sources.sent == [SplitAnswer("old", None)]


def test_an_enumerator_that_fails_is_named() -> None:
    sources = Sources("a")

    def fail() -> None:
        raise OSError("listing failed")

    sources.numbers["a"].before_start = fail
    with pytest.raises(SourceError) as raised:
        sources.jobs.begin(None)
    assert raised.value.source == "a"
    assert str(raised.value.__cause__) == "listing failed"


def reader(subtask: int) -> SplitRequest:
    return SplitRequest(ExecutionVertexId("a-0", subtask), f"attempt {subtask}")


def in_order(splits: int, parallelism: int) -> SourceCoordinator:
    source = memory.MemorySource("rows", Schema.of(k=BIGINT))
    memory.put("rows", *[[] for _ in range(splits)])
    coordinator = SourceCoordinator("a", source, parallelism, ManualClock(), unneeded_end_first=True)
    coordinator.start()
    return coordinator


def test_readers_that_get_no_split_end_before_the_others_begin() -> None:
    coordinator = in_order(2, 4)
    assert coordinator.request(reader(1)) == []
    assert coordinator.request(reader(3)) == [SplitAnswer("attempt 3", None)]
    assert coordinator.request(reader(0)) == []
    assert len(coordinator.snapshot()) == 2, "none is on its way"  # type: ignore[arg-type]
    assert coordinator.ended(3) == []
    assert coordinator.request(reader(2)) == [SplitAnswer("attempt 2", None)]
    answers = coordinator.ended(2)
    assert [(a.attempt_id, a.split and a.split.split_id) for a in answers] == [
        ("attempt 1", "rows-0"),
        ("attempt 0", "rows-1"),
    ]
    assert coordinator.request(reader(1)) == [SplitAnswer("attempt 1", None)]
    assert coordinator.ended(1) == []


def test_nobody_waits_where_each_reader_gets_a_split_or_goes_on_from_a_checkpoint() -> None:
    coordinator = in_order(2, 2)
    assert [a.split and a.split.split_id for s in (0, 1, 0) for a in coordinator.request(reader(s))] == [
        "rows-0",
        "rows-1",
        None,
    ]
    coordinator.start([{"id": "rows-1", "position": {"partition": 1}}])
    (answer,) = coordinator.request(reader(1))
    assert answer.split is not None, "the readers that wait for none may have splits of their own"
    coordinator.close()
    memory.clear()


# ---- hooks


class Broken:
    name = "broken"

    def trigger(self, checkpoint_id: int) -> JsonValue:
        raise OSError("no answer")

    def restore(self, checkpoint_id: int, state: JsonValue) -> None:
        raise OSError("no answer")

    def complete(self, checkpoint_id: int) -> None: ...

    def abort(self, checkpoint_id: int) -> None: ...


def test_a_hook_that_fails_is_named() -> None:
    hooks = MasterHooks([Broken()])
    with pytest.raises(StateError, match="master hook 'broken' failed: no answer"):
        hooks.trigger(1)
    with pytest.raises(StateError, match="master hook 'broken' could not be restored: no answer"):
        hooks.restore(None)


def test_two_hooks_of_one_name_are_refused() -> None:
    with pytest.raises(InternalError, match="one name: broken"):
        MasterHooks([Broken(), Broken()])


def test_state_of_a_hook_that_is_not_there_is_not_dropped_silently() -> None:
    with pytest.raises(
        StateError, match="checkpoint 4 has state of the master hooks offsets, which are not registered"
    ):
        MasterHooks([]).restore(replace(EMPTY, hooks={"offsets": 1}))


# ---- tickets and requests


def test_the_first_answer_of_a_ticket_counts() -> None:
    ticket = SnapshotTicket("r", SystemClock())
    ticket.succeed("/savepoint")
    ticket.fail("late")
    assert ticket.is_answered
    assert ticket.wait() == "/savepoint"


def test_a_ticket_that_is_not_answered_in_time_says_that_the_snapshot_goes_on() -> None:
    ticket = SnapshotTicket("r", SystemClock())
    with pytest.raises(StateError, match="not complete after 1 ms"):
        ticket.wait(1)
    ticket.fail("disk full", "free some space")
    with pytest.raises(StateError, match="disk full") as raised:
        ticket.wait()
    assert raised.value.hint == "free some space"


def test_requests_wait_while_the_job_does_not_run_and_are_answered_at_its_end() -> None:
    mailbox, submitted = Mailbox(), list[SnapshotRequested]()
    requests = SnapshotRequests(mailbox, SystemClock(), True, submitted.append)

    def deliver() -> None:
        while (mail := mailbox.take_nowait()) is not None:
            mail()

    early = requests.ask("/somewhere", savepoint=True, stop=False, drain=False)
    deliver()
    assert submitted == []
    requests.resume()
    assert [(r.request_id, r.directory, r.options.kind) for r in submitted] == [
        (early.request_id, "/somewhere", CheckpointKind.SAVEPOINT)
    ]
    requests.answer(early.request_id, "/somewhere/savepoint", None, None)
    assert early.wait() == "/somewhere/savepoint"
    requests.pause()
    waiting = requests.ask(None, savepoint=False, stop=True, drain=True)
    deliver()
    unread = requests.ask(None, savepoint=False, stop=False, drain=False)
    assert requests.has_open
    mailbox.close()
    requests.close("the job has ended (finished)")
    for ticket in (waiting, unread, requests.ask(None, savepoint=False, stop=False, drain=False)):
        with pytest.raises(StateError, match="the job has ended"):
            ticket.wait()


# ---- the I/O thread


def test_calls_run_in_order_beside_the_caller_and_their_results_come_as_letters() -> None:
    mails: list[Callable[[], None]] = []
    seen: list[object] = []
    gate = threading.Event()
    io = IoThread("kept-io", mails.append)

    def fail() -> None:
        raise OSError("away")

    def wait() -> int:
        gate.wait(20)
        return 1

    io.submit(wait, seen.append, seen.append)
    io.submit(fail, seen.append, lambda error: seen.append(str(error)))
    assert seen == []
    gate.set()
    io.close()
    io.close()
    for mail in mails:
        mail()
    assert seen == [1, "away"]
