"""Splits reach readers from the job's one enumerator; what sinks write becomes visible when the job says so."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from runtime_fakes import ROWS, ListSource, Seen, job, rows, until, vertex

from flowrun.api.operator import InputStatus
from flowrun.api.sink import Committable
from flowrun.api.source import Boundedness, Delivery, Split
from flowrun.core.clock import ManualClock
from flowrun.core.elements import RecordBatch
from flowrun.errors import ConnectorError, InternalError, JobFailedError
from flowrun.graph.job_graph import JobSettings
from flowrun.graph.partitioner import RebalancePartitioner
from flowrun.operators.base import AbstractOperator
from flowrun.runners.embedded import run_embedded, start_embedded
from flowrun.runtime.lifecycle import JobState


@dataclass
class Numbers:
    """A source of numbered splits; more can be found later if `endless`."""

    splits: deque[int]
    endless: bool = False
    fail: str = ""
    log: list[str] = field(default_factory=list)
    schema: Any = ROWS
    boundedness: Boundedness = Boundedness.BOUNDED
    delivery: Delivery = Delivery.EXACTLY_ONCE
    found: deque[int] = field(default_factory=deque)

    def create_enumerator(self, parallelism: int, clock: Any, restored: Any = None) -> Numbers:
        self._maybe("create")
        return self

    def start(self) -> None:
        self._maybe("start")

    def next_split(self, subtask: int) -> Split | None:
        self._maybe("next")
        return Split(f"s{self.splits[0]}", {"n": self.splits.popleft()}) if self.splits else None

    @property
    def exhausted(self) -> bool:
        return not self.endless

    @property
    def discovery_interval_ms(self) -> int | None:
        return 100 if self.endless else None

    def discover(self) -> None:
        self._maybe("discover")
        self.splits += self.found
        self.found.clear()

    def add_splits_back(self, splits: Sequence[Split]) -> None:
        self.splits.extendleft(int(str(split.position["n"])) for split in reversed(splits))

    def close(self) -> None:
        self.log.append("close")
        if self.fail == "close":
            raise OSError("cannot close")

    def _maybe(self, what: str) -> None:
        if self.fail == what:
            raise ConnectorError(f"cannot {what}")


class Reader(AbstractOperator):
    """Asks for a split at a time and emits its number."""

    inputs = 0

    def connect(self, request_split: Callable[[], None]) -> None:
        self._request = request_split
        self._splits: list[Split] = []
        self._no_more = self._stopped = False

    def open(self) -> None:
        self._request()

    def add_splits(self, splits: Sequence[Split]) -> None:
        self._splits += splits

    def notify_no_more_splits(self) -> None:
        self._no_more = True

    def emit_next(self) -> InputStatus:
        if self._stopped:
            return InputStatus.END_OF_INPUT
        if self._splits:
            n = self._splits.pop().position["n"]
            assert isinstance(n, int)
            self.output.emit(rows([n], [n]))
            self._request()
            return InputStatus.MORE_AVAILABLE
        return InputStatus.END_OF_INPUT if self._no_more else InputStatus.NOTHING_AVAILABLE

    def set_availability_listener(self, listener: Callable[[], None]) -> None: ...

    def stop(self, drain: bool) -> None:
        self._stopped = True


class Forget(AbstractOperator):
    """Records rows."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        self._seen.add(self.context.subtask, 0, batch)


def numbers_job(source: Numbers, seen: Seen, parallelism: int = 2) -> Any:
    read = vertex("numbers", Reader, parallelism=parallelism, source=source)
    return job(read, vertex("sink", lambda: Forget(seen)).read(read, RebalancePartitioner()))


def test_every_split_is_read_once() -> None:
    source, seen = Numbers(deque(range(50))), Seen()
    run_embedded(numbers_job(source, seen))
    assert sorted(k for k, _ in seen.pairs()) == list(range(50))
    assert source.log == ["close"]


def test_subtasks_without_a_split_end() -> None:
    seen = Seen()
    run_embedded(numbers_job(Numbers(deque([7])), seen, parallelism=4))
    assert seen.pairs() == [(7, 7)]


def test_waiting_readers_are_served_when_something_is_discovered() -> None:
    clock, source, seen = ManualClock(), Numbers(deque(), endless=True), Seen()
    with start_embedded(numbers_job(source, seen, parallelism=1), clock=clock) as running:
        for n in range(3):
            source.found.append(n)
            while len(seen.pairs()) <= n:
                clock.advance(100)
        running.stop()
        result = running.wait()
    assert result is not None
    assert result.state is JobState.FINISHED
    assert seen.pairs() == [(0, 0), (1, 1), (2, 2)]


@pytest.mark.parametrize("what", ["create", "start", "next"])
def test_a_failing_enumerator_fails_the_job_and_is_named(what: str) -> None:
    source = Numbers(deque([1]), fail=what)
    with pytest.raises(JobFailedError, match=f"'numbers' failed: cannot {what}") as raised:
        run_embedded(numbers_job(source, Seen()))
    assert isinstance(raised.value.__cause__, ConnectorError)
    assert source.log == ([] if what == "create" else ["close"])


def test_a_failing_discovery_fails_the_job() -> None:
    clock, source = ManualClock(), Numbers(deque(), endless=True, fail="discover")
    running = start_embedded(numbers_job(source, Seen()), clock=clock)
    while not running.status().state.is_terminal:
        clock.advance(100)
    with pytest.raises(JobFailedError, match="'numbers' failed: cannot discover"):
        running.wait()


def test_what_fails_while_closing_an_enumerator_is_noted() -> None:
    source = Numbers(deque([1]), fail="close")
    result = run_embedded(numbers_job(source, Seen()))
    assert result.problems == ("closing the splits of 'numbers' failed: cannot close",)


def test_a_source_whose_operator_takes_no_splits_is_a_bug() -> None:
    read = vertex("numbers", lambda: ListSource(lambda _: []), source=Numbers(deque()))
    with pytest.raises(JobFailedError, match="CoordinatedSource") as raised:
        run_embedded(job(read))
    assert isinstance(raised.value.__cause__, InternalError)


@dataclass
class Store:
    """A sink that remembers what was committed and aborted."""

    committed: list[str] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    fail: str = ""
    schema: Any = ROWS
    delivery: Delivery = Delivery.EXACTLY_ONCE
    event: threading.Event = field(default_factory=threading.Event)

    def create_committer(self) -> Store:
        return self

    def commit(self, committables: Sequence[Committable]) -> None:
        if self.fail == "commit":
            raise OSError("disk full")
        self.committed += (c.commit_id for c in committables)
        self.event.set()

    def abort(self, committables: Sequence[Committable]) -> None:
        self.aborted += (c.commit_id for c in committables)
        if self.fail == "abort":
            raise OSError("cannot remove")


class Writer(AbstractOperator):
    """Hands over one committable a batch while running if `rolls`, and one at the end."""

    def __init__(self, rolls: bool, *, break_after: threading.Event | None = None) -> None:
        self._rolls = rolls
        self._break_after = break_after

    def connect(self, submit: Callable[[Sequence[Committable]], None]) -> None:
        self._submit = submit

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        if self._rolls:
            self._submit([Committable(f"rolled-{batch.columns['k'][0]}", {})])

    def finish(self) -> None:
        self._submit([Committable(f"end-{self.context.subtask}", {})])
        self._submit([])
        if self._break_after is not None and self.context.subtask == 0:
            self._break_after.set()

    def close(self) -> None:
        if self._break_after is not None and self.context.subtask == 1:
            self._break_after.wait(30)
            raise ValueError("broke after it had finished")


def writing(store: Store, *, rolls: bool = False, endless: bool = False, broken: bool = False) -> Any:
    source = vertex("source", lambda: ListSource(lambda s: [rows([s])], endless=endless), parallelism=2)
    all_finished = threading.Event() if broken else None
    sink = vertex("out", lambda: Writer(rolls, break_after=all_finished), parallelism=2, sink=store).read(source)
    return job(source, sink, settings=JobSettings(unbounded=endless))


def test_results_are_committed_at_the_end_in_the_order_of_subtasks() -> None:
    store = Store()
    run_embedded(writing(store))
    assert (store.committed, store.aborted) == (["end-0", "end-1"], [])


def test_a_job_that_fails_at_the_very_end_leaves_no_output() -> None:
    store = Store()
    with pytest.raises(JobFailedError, match="broke after it had finished"):
        run_embedded(writing(store, broken=True))
    assert store.committed == []
    assert sorted(store.aborted) == ["end-0", "end-1"]


def test_what_is_rolled_while_the_job_runs_is_committed_at_once() -> None:
    store = Store()
    with start_embedded(writing(store, rolls=True, endless=True)) as running:
        until(lambda: not (len(store.committed) < 2))
        assert sorted(store.committed) == ["rolled-0", "rolled-1"]
        running.stop()
        running.wait()
    assert store.committed[2:] == ["end-0", "end-1"]


def test_a_cancelled_job_commits_nothing_more() -> None:
    store = Store()
    with start_embedded(writing(store, endless=True)) as running:
        running.cancel()
        result = running.wait()
    assert result is not None
    assert result.state is JobState.CANCELED
    assert store.committed == []


def test_a_failing_commit_fails_the_job_and_discards_the_rest() -> None:
    store = Store(fail="commit")
    with pytest.raises(JobFailedError, match="'out' failed: OSError: disk full"):
        run_embedded(writing(store))
    assert store.aborted == ["end-0", "end-1"]


def test_a_failing_commit_while_running_fails_the_job() -> None:
    store = Store(fail="commit")
    with pytest.raises(JobFailedError, match="'out' failed: OSError: disk full"):
        run_embedded(writing(store, rolls=True, endless=True))
    assert {"rolled-0", "rolled-1"} & set(store.aborted)


def test_what_cannot_be_discarded_is_noted() -> None:
    store = Store(fail="abort")
    with pytest.raises(JobFailedError) as raised:
        run_embedded(writing(store, broken=True))
    assert "sink 'out' could not discard what it had written: cannot remove" in raised.value.__notes__
