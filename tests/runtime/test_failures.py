"""A failure anywhere takes the whole job down: every operator closed, every thread joined, the root cause reported with its place."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
from runtime_fakes import Collect, Count, ListSource, RepeatSource, Seen, job, random_rows, rows, until, vertex

from flowrun.api.state import OperatorSnapshot
from flowrun.core.clock import ManualClock
from flowrun.core.elements import IDLE, RecordBatch, Watermark, WatermarkStatus
from flowrun.errors import ClusterError, DataError, JobFailedError
from flowrun.graph.partitioner import CustomPartitioner, KeyGroupPartitioner, RebalancePartitioner
from flowrun.operators.base import AbstractOperator
from flowrun.runners.embedded import run_embedded, start_embedded
from flowrun.runtime.lifecycle import JobState


class Ledger:
    """Counts which operators were made and closed."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.made: list[object] = []
        self.closed: list[object] = []

    def check_all_closed(self) -> None:
        assert sorted(map(id, self.made)) == sorted(map(id, self.closed))


class Fragile(AbstractOperator):
    """Fails in one phase of one subtask."""

    def __init__(self, ledger: Ledger, phase: str, error: Exception | None = None) -> None:
        self._ledger = ledger
        self._phase = phase
        self._error = error or ValueError(f"broke in {phase}")
        with ledger.lock:
            ledger.made.append(self)

    def _maybe(self, phase: str) -> None:
        if phase == self._phase and (not hasattr(self, "context") or self.context.subtask == 1):
            raise self._error

    def setup(self, context: Any, output: Any) -> None:
        super().setup(context, output)
        self._maybe("setup")

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        self._maybe("initialize_state")

    def open(self) -> None:
        self._maybe("open")
        if self._phase == "timer":
            self.context.processing_time.register(0, lambda _: self._maybe("timer"))
        if self._phase == "mail":
            self.context.execute(lambda: self._maybe("mail"))

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        self._maybe("process")
        self.output.emit(batch)

    def process_watermark(self, watermark: Watermark, input_index: int = 0) -> None:
        self._maybe("watermark")
        super().process_watermark(watermark, input_index)

    def process_status(self, status: WatermarkStatus, input_index: int = 0) -> None:
        self._maybe("status")
        super().process_status(status, input_index)

    def end_input(self, input_index: int = 0) -> None:
        self._maybe("end_input")

    def finish(self) -> None:
        self._maybe("finish")

    def close(self) -> None:
        with self._ledger.lock:
            self._ledger.closed.append(self)
        self._maybe("close")


PHASES = [
    "setup", "initialize_state", "open", "process", "watermark", "status", "timer", "mail", "end_input", "finish", "close"
]  # fmt: skip


@pytest.mark.parametrize("chained", [False, True])
@pytest.mark.parametrize("phase", PHASES)
def test_a_failure_in_any_phase_closes_everything_and_names_its_place(phase: str, chained: bool) -> None:
    ledger = Ledger()
    endless = phase in ("timer", "mail", "status")
    elements = [rows([1, 2, 3]), Watermark(5), IDLE]
    source = vertex("source", lambda: ListSource(lambda _: elements, endless=endless), parallelism=2)
    ok, bad = lambda: Fragile(ledger, "never"), lambda: Fragile(ledger, phase)
    middle = vertex("m", *((ok, bad, ok) if chained else (bad,)), parallelism=2).read(source, KeyGroupPartitioner((0,)))
    if phase in ("process", "watermark", "status"):
        middle.reads.clear()
        middle.read(source)
    last = vertex("last", ok, parallelism=2).read(middle, RebalancePartitioner())
    with pytest.raises(JobFailedError) as raised:
        run_embedded(job(source, middle, last))
    error = raised.value
    assert isinstance(error.__cause__, ValueError)
    assert error.operator == ("m.1" if chained else "m")
    if phase != "setup":
        assert error.subtask == 1
    assert f"ValueError: broke in {phase}" in error.message
    ledger.check_all_closed()


def test_the_row_of_the_batch_is_named() -> None:
    ledger = Ledger()
    wrong = DataError("'x' is no number", row=2, hint="clean the column")
    source = vertex("source", lambda: ListSource(lambda _: [rows([1])], endless=True), parallelism=2)
    parse = vertex("parse", lambda: Fragile(ledger, "process", wrong), parallelism=2).read(source)
    with pytest.raises(JobFailedError) as raised:
        run_embedded(job(source, parse))
    assert raised.value.message == (
        "operator 'parse', subtask 2 of 2, failed while it ran: 'x' is no number (row 2 of the batch)"
    )
    assert raised.value.hint == "clean the column"


def test_a_failing_factory_is_named() -> None:
    def refuse() -> Any:
        raise ValueError("cannot be made")

    ledger = Ledger()
    source = vertex("source", lambda: ListSource(lambda _: [], endless=True))
    sink = vertex("sink", lambda: Fragile(ledger, "never"), refuse).read(source)
    with pytest.raises(JobFailedError, match=r"operator 'sink\.1', subtask 1 of 1, failed while it was created"):
        run_embedded(job(source, sink))
    ledger.check_all_closed()


def test_what_fails_while_closing_is_a_note_not_hidden() -> None:
    class Worse(Fragile):
        def close(self) -> None:
            super().close()
            raise OSError("cannot close")

    ledger = Ledger()
    source = vertex("source", lambda: ListSource(lambda _: [rows([1])], endless=True), parallelism=2)
    sink = vertex("sink", lambda: Worse(ledger, "process"), parallelism=2).read(source)
    with pytest.raises(JobFailedError) as raised:
        run_embedded(job(source, sink))
    assert isinstance(raised.value.__cause__, ValueError)
    notes = "\n".join(raised.value.__notes__)
    assert notes.count("cannot close") == 2
    assert "closing 'sink' failed, too: OSError: cannot close" in notes
    ledger.check_all_closed()


def test_a_failing_custom_partitioner_blames_the_operator_that_emits() -> None:
    source = vertex("source", lambda: ListSource(lambda _: [rows([1])]))
    wrong = CustomPartitioner(lambda batch, n: batch.columns["k"].to_numpy() + 9, "mine")
    sink = vertex("sink", Count, parallelism=2).read(source, wrong)
    with pytest.raises(JobFailedError, match=r"operator 'source'.*partitioner 'mine' sent row 0 to channel 10"):
        run_embedded(job(source, sink))


def test_no_slots_no_job() -> None:
    source = vertex("source", lambda: ListSource(lambda _: []), parallelism=3)
    with pytest.raises(JobFailedError, match="needs 3 slots, there are 2") as raised:
        run_embedded(job(source), task_slots=2)
    assert isinstance(raised.value.__cause__, ClusterError)


def test_no_buffers_no_job() -> None:
    ledger = Ledger()
    source = vertex("source", lambda: ListSource(lambda _: [], endless=True), lambda: Fragile(ledger, "never"))
    middle = vertex("middle", Count).read(source)
    sink = vertex("sink", Count, parallelism=4).read(middle, RebalancePartitioner())
    with pytest.raises(JobFailedError, match="not enough network buffers") as raised:
        run_embedded(job(source, middle, sink), network_slots=4)
    assert raised.value.hint is not None
    ledger.check_all_closed()


class Gate(AbstractOperator):
    """Stops in its first batch until the test lets it go on."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        self.reached.set()
        self.go_on.wait()


def test_cancel_wakes_a_writer_that_waits_for_buffers() -> None:
    """The source is blocked in the middle of one emit_next, by a sink that does not read."""

    class Flood(RepeatSource):
        def emit_next(self) -> Any:
            while True:
                self.output.emit(self._batch)

    gate = Gate()
    source = vertex("source", lambda: Flood(random_rows(60_000)))
    sink = vertex("sink", lambda: gate).read(source)
    running = start_embedded(job(source, sink))
    gate.reached.wait()
    until(lambda: running.status().vertices[0].back_pressured_ms_per_s != 0)
    running.cancel()
    until(lambda: "canceled" in {s.value for s in running.status().vertices[0].states})
    gate.go_on.set()
    result = running.wait()
    assert result is not None
    assert result.state is JobState.CANCELED


def test_cancel_wakes_tasks_that_wait_for_input_or_pause() -> None:
    class Pausing(Count):
        def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
            paused.set()
            self.context.pause(1_000_000)

    paused = threading.Event()
    source = vertex("source", lambda: ListSource(lambda _: [rows([1])], endless=True), parallelism=2)
    idle = vertex("idle", Count).read(source, RebalancePartitioner())
    pausing = vertex("pausing", Pausing).read(source, RebalancePartitioner())
    with start_embedded(job(source, idle, pausing), clock=ManualClock()) as running:
        paused.wait()
        running.cancel()
        result = running.wait()
    assert result is not None
    assert result.state is JobState.CANCELED


def test_a_pause_ends_when_its_time_has_come() -> None:
    clock, done, paused = ManualClock(), threading.Event(), threading.Event()

    class Pausing(Count):
        def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
            paused.set()
            self.context.pause(100)
            done.set()

    source = vertex("source", lambda: ListSource(lambda _: [rows([1])]))
    with start_embedded(job(source, vertex("sink", Pausing).read(source)), clock=clock) as running:
        paused.wait()
        while not done.is_set():
            clock.advance(100)
        result = running.wait()
    assert result is not None
    assert result.state is JobState.FINISHED


def test_a_subtask_that_does_not_end_is_named_with_the_place_where_it_is() -> None:
    gate, clock = Gate(), ManualClock()
    source = vertex("source", lambda: ListSource(lambda _: [rows([1])], endless=True))
    sink = vertex("stubborn", lambda: gate).read(source)
    graph = job(source, sink)
    graph = replace(graph, settings=replace(graph.settings, cancellation_timeout_ms=500))
    running = start_embedded(graph, clock=clock)
    gate.reached.wait()
    running.cancel()
    until(lambda: not (running.status().state is not JobState.CANCELLING))
    while not running.status().state.is_terminal:
        clock.advance(500)
    with pytest.raises(JobFailedError, match=r"stubborn \(1/1\) is in operator 'stubborn', at .*process_batch"):
        running.wait()
    gate.go_on.set()
    for thread in threading.enumerate():
        if thread.name.startswith("stubborn"):
            thread.join()


def test_a_failing_source_takes_a_blocked_sink_with_it() -> None:
    class Failing(ListSource):
        def emit_next(self) -> Any:
            raise OSError("connection lost")

    ledger, seen = Ledger(), Seen()
    good = vertex("good", lambda: ListSource(lambda _: [rows([1])], endless=True), lambda: Fragile(ledger, "never"))
    bad = vertex("bad", lambda: Failing(lambda _: []))
    join = vertex("join", lambda: Collect(seen, inputs=2)).read(good).read(bad, index=1)
    with pytest.raises(
        JobFailedError, match="operator 'bad', subtask 1 of 1, failed while it ran: OSError: connection lost"
    ):
        run_embedded(job(good, bad, join))
    ledger.check_all_closed()


def test_many_failing_jobs_leave_nothing_behind() -> None:
    for _ in range(50):
        ledger = Ledger()
        source = vertex("source", lambda: RepeatSource(rows([1, 2, 3])), parallelism=2)
        sink = vertex("sink", lambda: Fragile(ledger, "process"), parallelism=2).read(source)  # noqa: B023
        with pytest.raises(JobFailedError):
            run_embedded(job(source, sink))
        ledger.check_all_closed()
