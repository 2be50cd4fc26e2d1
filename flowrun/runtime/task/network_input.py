"""The input of tasks that read from others: gates read in turn, watermarks through valves, barriers through their handler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from flowrun.api.input_selection import InputSelectable, InputSelection
from flowrun.api.operator import InputStatus
from flowrun.core.elements import (
    MAX_TIMESTAMP,
    CheckpointBarrier,
    EndOfInput,
    LatencyMarker,
    RecordBatch,
    Watermark,
    WatermarkStatus,
)
from flowrun.errors import UnsupportedPlanError
from flowrun.runtime.metrics import ScopedMetrics
from flowrun.runtime.network.barriers import (
    Actions,
    BarrierAction,
    BarrierHandler,
    Block,
    GiveUp,
    Record,
    Resume,
    StopRecording,
    TakeSnapshot,
    WakeAt,
)
from flowrun.runtime.network.gate import GateEvent, GateRows, InputGate
from flowrun.runtime.network.subpartition import InFlightElement
from flowrun.runtime.network.valve import ChannelState, StatusWatermarkValve


def _valve_watermark(valve: StatusWatermarkValve) -> int:
    return valve.last_watermark


class Head(Protocol):
    """What is fed: the chain, through its head."""

    def process_batch(self, batch: RecordBatch, input_index: int) -> None:
        """Rows."""
        ...

    def process_event(self, event: Watermark | WatermarkStatus | LatencyMarker, input_index: int) -> None:
        """A watermark, status or probe."""
        ...

    def end_input(self, input_index: int) -> None:
        """One input ended."""
        ...


class FinishedHead:
    """Stands in for a chain that had finished before the checkpoint that its job restores from: it drops everything."""

    def process_batch(self, batch: RecordBatch, input_index: int) -> None:
        """Drop rows."""

    def process_event(self, event: Watermark | WatermarkStatus | LatencyMarker, input_index: int) -> None:
        """Drop an event."""

    def end_input(self, input_index: int) -> None:
        """Do nothing: no operator waits for the end."""


class Checkpointing(Protocol):
    """What barriers lead to. Channels are numbered over all inputs of the task."""

    def take(self, action: TakeSnapshot) -> None:
        """Take the snapshot and send the barrier on."""
        ...

    def record(self, checkpoint_id: int, channel: int, element: InFlightElement) -> None:
        """An element of a recorded channel, before it is processed."""
        ...

    def stop_recording(self, checkpoint_id: int, channel: int) -> None:
        """A recorded channel is done."""
        ...

    def give_up(self, checkpoint_id: int, reason: str | None) -> None:
        """There will be no snapshot; decline for this reason, if there is one."""
        ...

    def wake_at(self, checkpoint_id: int, time_ms: int) -> None:
        """Call `NetworkInput.alignment_timed_out` at a time (epoch ms)."""
        ...


class _Input:
    """One logical input: its gate (single or union), its valve, and where its channels start in the task's numbering."""

    __slots__ = ("ended", "first_channel", "gate", "index", "records", "valve")

    def __init__(self, index: int, gate: InputGate, first_channel: int) -> None:
        self.index = index
        self.gate = gate
        self.valve = StatusWatermarkValve(gate.channels)
        self.first_channel = first_channel
        self.ended = False
        self.records = 0


class NetworkInput:
    """The inputs of a one-, two- or multi-input task, read in turn so that none starves.

    Args:
        head: is fed.
        gates: one gate a logical input, by input index.
        barriers: decides when barriers take effect.
        checkpointing: carries that out.
        metrics: of the task.
        selectable: the head's operator, if it selects its inputs; `name` is how messages call it.
    """

    def __init__(
        self,
        head: Head,
        gates: Sequence[InputGate],
        barriers: BarrierHandler,
        checkpointing: Checkpointing,
        metrics: ScopedMetrics,
        selectable: InputSelectable | None = None,
        name: str = "",
    ) -> None:
        self._head = head
        self._selectable = selectable
        self._name = name
        self._declined_id = -1
        self._inputs: list[_Input] = []
        first = 0
        for index, gate in enumerate(gates):
            self._inputs.append(_Input(index, gate, first))
            first += gate.channels
        self._barriers = barriers
        self._checkpointing = checkpointing
        self._recorded: set[int] = set()
        """Channels whose elements are recorded."""
        self._recording_id = -1
        self._turn = 0
        self._records_in = metrics.counter("numRecordsIn")
        self._bytes_in = metrics.counter("numBytesIn")
        metrics.gauge("currentInputWatermark", self._input_watermark)
        if len(self._inputs) > 1:
            for number, member in enumerate(self._inputs, 1):
                metrics.gauge(f"currentInput{number}Watermark", partial(_valve_watermark, member.valve))
        metrics.gauge_family("input", self._inputs_now)

    def process_next(self) -> InputStatus:
        """The next element of the next input that has one, of those that are selected.

        Raises:
            UnsupportedPlanError: only inputs are selected that have ended.
        """
        selection = InputSelection.ALL if self._selectable is None else self._selectable.next_selection()
        for _ in self._inputs:
            member = self._inputs[self._turn]
            self._turn = (self._turn + 1) % len(self._inputs)
            if member.ended or not selection.includes(member.index):
                continue
            element = self._poll_recorded(member) if self._recorded else member.gate.poll()
            if element is None:
                if not member.gate.is_finished:
                    continue
                self._end(member)
            elif isinstance(element, RecordBatch):
                self._process_rows(member, element)
            elif isinstance(element, GateRows):
                self._process_channel(member, element.channel, element.rows)
            else:
                self._process_event(member, element)
            return InputStatus.MORE_AVAILABLE
        if all(member.ended for member in self._inputs):
            return InputStatus.END_OF_INPUT
        if selection.inputs is not None:
            self._check_selection(selection)
        return InputStatus.NOTHING_AVAILABLE

    def _check_selection(self, selection: InputSelection) -> None:
        going = [m.index for m in self._inputs if not m.ended]
        if any(selection.includes(index) for index in going):
            return
        raise UnsupportedPlanError(
            f"'{self._name}' cannot go on: it selects input {', '.join(map(str, sorted(selection.inputs or ())))}, of which everything was"
            f" read, and not {' or '.join(map(str, going))}",
            hint="let next_selection give another input, once end_input was called for one",
        )

    @property
    def has_urgent(self) -> bool:
        """Whether a barrier has overtaken rows in a channel and was not read."""
        return any(member.gate.has_urgent for member in self._inputs)

    def stop(self, drain: bool) -> None:
        """Inputs end when the sources upstream do."""

    def end_event_time(self) -> None:
        """A barrier that drains has passed: nothing more comes from any input, MAX came before."""
        for member in self._inputs:
            if not member.ended:
                self._end(member)

    def abort_checkpoint(self, checkpoint_id: int) -> None:
        """The job master gave a checkpoint up."""
        self._act(self._barriers.abort(checkpoint_id))

    def alignment_timed_out(self, checkpoint_id: int) -> None:
        """The time for the alignment of a checkpoint is up."""
        self._act(self._barriers.timed_out(checkpoint_id))

    def channel_states(self) -> list[ChannelState]:
        """What the valves know of each channel, in the task's numbering."""
        return [state for member in self._inputs for state in member.valve.channels]

    def start_at(self, watermarks: Sequence[int]) -> None:
        """Rows restored before reached these event times, ms, one an input: nothing before them is passed on."""
        for member, timestamp in zip(self._inputs, watermarks, strict=True):
            member.valve.start_at(timestamp)

    def release(self) -> None:
        """Free all gates."""
        for member in self._inputs:
            member.gate.release()

    def _inputs_now(self) -> dict[str, int]:
        """Of each input, by its number from 1: rows that it brought, its open channels, how many of them are idle, and the slowest.

        Gauges `input.1.records`, `input.1.openChannels`, …; for any thread. A channel's number is that of its producer among the input's.
        """
        found = {}
        for number, member in enumerate(self._inputs, 1):
            left = [
                (c.watermark, i, c.idle) for i, c in enumerate(member.valve.channels) if c.watermark < MAX_TIMESTAMP
            ]
            found[f"{number}.records"] = member.records
            found[f"{number}.openChannels"] = len(left)
            found[f"{number}.idleChannels"] = sum(idle for _, _, idle in left)
            slowest = min((c for c in left if not c[2]), default=None)
            if slowest is not None:
                found[f"{number}.slowestWatermark"], found[f"{number}.slowestChannel"] = slowest[:2]
        return found

    def _input_watermark(self) -> int:
        return min(member.valve.last_watermark for member in self._inputs)

    def _process_rows(self, member: _Input, rows: RecordBatch) -> None:
        self._records_in.inc(rows.num_rows)
        member.records += rows.num_rows
        self._bytes_in.inc(rows.nbytes)
        self._head.process_batch(rows, member.index)

    def _process_channel(self, member: _Input, channel: int, rows: RecordBatch) -> None:
        """Rows of one channel, with what its watermarks mean beside those of the others."""
        if rows.watermarks is not None:
            rows = rows.with_watermarks(member.valve.passing(channel, rows.watermarks))
        if rows.num_rows or rows.watermarks is not None:
            self._process_rows(member, rows)
        if (
            rows.watermarks is not None
        ):  # the channel's next watermark may be no greater: whoever has not looked between rows waits for this
            self._head.process_event(Watermark(int(rows.watermarks.timestamps[-1])), member.index)

    def _poll_recorded(self, member: _Input) -> GateRows | GateEvent | None:
        """As `poll`, one channel at a time; what belongs to the snapshot is recorded."""
        element = member.gate.poll_channel()
        if element is None:
            return None
        channel = member.first_channel + element.channel
        if channel in self._recorded:
            for content in element.rows.pieces() if isinstance(element, GateRows) else (element.event,):
                if isinstance(content, RecordBatch | Watermark | WatermarkStatus):
                    self._checkpointing.record(self._recording_id, channel, content)
        return element

    def _process_event(self, member: _Input, element: GateEvent) -> None:
        channel, event = element.channel, element.event
        match event:
            case Watermark(timestamp=timestamp):
                self._forward(member, member.valve.watermark(channel, timestamp))
            case WatermarkStatus(idle=idle):
                self._forward(member, member.valve.status(channel, idle=idle))
            case LatencyMarker():
                self._head.process_event(event, member.index)
            case CheckpointBarrier() if self._selectable is not None:
                self._decline(event.checkpoint_id)
            case CheckpointBarrier():
                number = member.first_channel + channel
                self._act(self._with_overtaken(number, element.overtaken, self._barriers.barrier(number, event)))
            case EndOfInput():
                self._forward(member, member.valve.end(channel))
                # The input itself ends when its gate is asked next: not if the task stops at the barrier that this completes.
                self._act(self._barriers.end_of_input(member.first_channel + channel))

    def _with_overtaken(self, channel: int, overtaken: Sequence[InFlightElement], actions: Actions) -> Actions:
        """The same actions, with what the barrier of a channel overtook there recorded before the channel is done."""
        if not overtaken:
            return actions
        following: list[BarrierAction] = []
        for action in actions:
            match action:
                case TakeSnapshot(barrier=barrier, recorded=recorded):
                    following.append(replace(action, recorded=recorded | {channel}))
                    following += (
                        Record(barrier.checkpoint_id, channel, overtaken),
                        StopRecording(barrier.checkpoint_id, channel),
                    )
                case StopRecording(checkpoint_id=checkpoint_id, channel=stopped) if stopped == channel:
                    following += (Record(checkpoint_id, channel, overtaken), action)
                case _:
                    following.append(action)
        return following

    def _decline(self, checkpoint_id: int) -> None:
        """No barrier can be waited for that is behind the rows of an input that is not selected."""
        if checkpoint_id > self._declined_id:
            self._declined_id = checkpoint_id
            self._checkpointing.give_up(
                checkpoint_id,
                f"'{self._name}' selects its inputs (InputSelectable), which cannot be part of a checkpoint",
            )

    def _forward(self, member: _Input, events: Sequence[Watermark | WatermarkStatus]) -> None:
        for event in events:
            self._head.process_event(event, member.index)

    def _act(self, actions: Actions) -> None:
        for action in actions:
            match action:
                case Block(channel=channel):
                    member = self._member(channel)
                    member.gate.block(channel - member.first_channel)
                case Resume(channel=channel):
                    member = self._member(channel)
                    member.gate.resume(channel - member.first_channel)
                case TakeSnapshot():
                    self._recorded = set(action.recorded)
                    self._recording_id = action.barrier.checkpoint_id
                    self._checkpointing.take(action)
                case Record(checkpoint_id=checkpoint_id, channel=channel, elements=elements):
                    for content in elements:
                        self._checkpointing.record(checkpoint_id, channel, content)
                case StopRecording(checkpoint_id=checkpoint_id, channel=channel):
                    self._recorded.discard(channel)
                    self._checkpointing.stop_recording(checkpoint_id, channel)
                case GiveUp(checkpoint_id=checkpoint_id, reason=reason):
                    if checkpoint_id == self._recording_id:
                        self._recorded.clear()
                    self._checkpointing.give_up(checkpoint_id, reason)
                case WakeAt(checkpoint_id=checkpoint_id, time_ms=time_ms):
                    self._checkpointing.wake_at(checkpoint_id, time_ms)

    def _member(self, channel: int) -> _Input:
        return next(m for m in reversed(self._inputs) if m.first_channel <= channel)

    def _end(self, member: _Input) -> None:
        member.ended = True
        self._head.end_input(member.index)
