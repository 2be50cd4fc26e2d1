"""What a task processes: the element source behind its default action, for tasks with and without inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from flowrun.api.operator import InputStatus, SourceOperator
from flowrun.core.elements import (
    ACTIVE,
    MAX_TIMESTAMP,
    MAX_WATERMARK,
    CheckpointBarrier,
    EndOfInput,
    LatencyMarker,
    RecordBatch,
    Watermark,
    WatermarkStatus,
)
from flowrun.errors import InternalError
from flowrun.runtime.metrics import ScopedMetrics
from flowrun.runtime.network.barriers import BarrierHandler
from flowrun.runtime.network.gate import GateEvent, InputGate
from flowrun.runtime.network.valve import StatusWatermarkValve
from flowrun.runtime.task.chain import OperatorChain


class TaskInput(Protocol):
    """Feeds the head of a chain."""

    def process_next(self) -> InputStatus:
        """Have the chain process about one batch or one event, without waiting for input."""
        ...

    def stop(self, drain: bool) -> None:
        """End the input early, if this task is where it starts."""
        ...

    def release(self) -> None:
        """Free what was requested. Idempotent."""
        ...


class SourceInput:
    """The input of a task whose head is a source: the source polls the outside.

    When it ends, MAX follows (after ACTIVE, if it was idle) unless the source sent it or was stopped without drain.
    """

    def __init__(self, chain: OperatorChain, listener: Callable[[], None]) -> None:
        self._chain = chain
        head = chain.operators[0]
        if not hasattr(head, "emit_next"):
            raise InternalError(f"'{chain.name_of(0)}' has no inputs but is no source operator: it has no emit_next")
        self._source: SourceOperator = head  # type: ignore[assignment]
        self._source.set_availability_listener(listener)
        self._wake = listener
        self._drain = True

    def process_next(self) -> InputStatus:
        """Poll the source."""
        try:
            status = self._source.emit_next()
        except BaseException as error:
            self._chain.note_failure(0, error)
            raise
        if status is InputStatus.END_OF_INPUT and self._drain:
            output = self._chain.head_output
            if output.current_watermark < MAX_TIMESTAMP:
                if output.idle:
                    output.emit_status(ACTIVE)
                output.emit_watermark(MAX_WATERMARK)
        return status

    def stop(self, drain: bool) -> None:
        """Have the source end early."""
        self._drain = self._drain and drain
        try:
            self._source.stop(drain)
        except BaseException as error:
            self._chain.note_failure(0, error)
            raise
        self._wake()

    def release(self) -> None:
        """The operator is closed with its chain."""


class _Input:
    """One logical input: its gate (single or union), its valve, and where its channels start in the task's numbering."""

    __slots__ = ("ended", "first_channel", "gate", "index", "valve")

    def __init__(self, index: int, gate: InputGate, first_channel: int) -> None:
        self.index = index
        self.gate = gate
        self.valve = StatusWatermarkValve(gate.channels)
        self.first_channel = first_channel
        self.ended = False


class NetworkInput:
    """The inputs of a one-, two- or multi-input task, read in turn so that none starves.

    Args:
        chain: whose head is fed.
        gates: one gate a logical input, by input index.
        barriers: decides when barriers take effect.
        on_barrier: acts on one.
        metrics: of the task.
    """

    def __init__(
        self,
        chain: OperatorChain,
        gates: Sequence[InputGate],
        barriers: BarrierHandler,
        on_barrier: Callable[[CheckpointBarrier], None],
        metrics: ScopedMetrics,
    ) -> None:
        self._chain = chain
        self._inputs: list[_Input] = []
        first = 0
        for index, gate in enumerate(gates):
            self._inputs.append(_Input(index, gate, first))
            first += gate.channels
        self._barriers = barriers
        self._on_barrier = on_barrier
        self._turn = 0
        self._records_in = metrics.counter("records_in")
        self._bytes_in = metrics.counter("bytes_in")
        metrics.gauge("current_input_watermark", self._input_watermark)

    def process_next(self) -> InputStatus:
        """The next element of the next input that has one."""
        for _ in self._inputs:
            member = self._inputs[self._turn]
            self._turn = (self._turn + 1) % len(self._inputs)
            if member.ended:
                continue
            element = member.gate.poll()
            if element is None:
                continue
            if isinstance(element, RecordBatch):
                self._records_in.inc(element.num_rows)
                self._bytes_in.inc(element.nbytes)
                self._chain.process_batch(element, member.index)
            else:
                self._process_event(member, element)
            return InputStatus.MORE_AVAILABLE
        if all(member.ended for member in self._inputs):
            return InputStatus.END_OF_INPUT
        return InputStatus.NOTHING_AVAILABLE

    def stop(self, drain: bool) -> None:
        """Inputs end when the sources upstream do."""

    def release(self) -> None:
        """Free all gates."""
        for member in self._inputs:
            member.gate.release()

    def _input_watermark(self) -> int:
        return min(member.valve.last_watermark for member in self._inputs)

    def _process_event(self, member: _Input, element: GateEvent) -> None:
        channel, event = element.channel, element.event
        match event:
            case Watermark(timestamp=timestamp):
                self._forward(member, member.valve.watermark(channel, timestamp))
            case WatermarkStatus(idle=idle):
                self._forward(member, member.valve.status(channel, idle=idle))
            case LatencyMarker():
                self._chain.process_event(event, member.index)
            case CheckpointBarrier():
                self._act(self._barriers.barrier(member.first_channel + channel, event))
            case EndOfInput():
                self._forward(member, member.valve.end(channel))
                self._act(self._barriers.end_of_input(member.first_channel + channel))
                if member.gate.is_finished:
                    self._end(member)

    def _forward(self, member: _Input, events: Sequence[Watermark | WatermarkStatus]) -> None:
        for event in events:
            self._chain.process_event(event, member.index)

    def _act(self, barrier: CheckpointBarrier | None) -> None:
        if barrier is not None:
            self._on_barrier(barrier)

    def _end(self, member: _Input) -> None:
        member.ended = True
        self._chain.end_input(member.index)
