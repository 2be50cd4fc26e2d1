"""A source and a sink in memory that write down what is asked of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from flowrun.api.operator import InputStatus
from flowrun.api.sink import Committable
from flowrun.api.source import Boundedness, Delivery, Split
from flowrun.connectors.listed_splits import ListedSplitEnumerator
from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Schema


@dataclass(frozen=True)
class ListSource:
    """Each split is a list of steps: rows (a list of dicts), an int (own watermark), 'idle', 'wait', an exception, or a tuple of steps."""

    schema: Schema
    splits: dict[str, list]
    turns: bool = False
    """Whether a reader takes one step of each of its splits in turn and asks for all splits at once."""

    boundedness: Boundedness = Boundedness.BOUNDED

    delivery = Delivery.EXACTLY_ONCE

    def create_enumerator(self, parallelism, clock, restored=None):
        return ListedSplitEnumerator([Split(name, {"step": 0}) for name in self.splits], restored)

    def create_reader(self, context):
        return ListReader(self, context)


class ListReader:
    def __init__(self, source: ListSource, context) -> None:
        self.source, self.context = source, context
        self.splits: dict[str, int] = {}
        self.no_more = False
        self.closed = 0

    def start(self):
        if self.source.turns:
            for _ in range(len(self.source.splits) + 1):
                self.context.request_split()
        elif not self.splits:
            self.context.request_split()

    def poll(self, output):
        if not self.splits:
            return InputStatus.END_OF_INPUT if self.no_more else InputStatus.NOTHING_AVAILABLE
        for name in list(self.splits) if self.source.turns else [next(iter(self.splits))]:
            steps = self.source.splits[name]
            if self.splits[name] < len(steps):
                step = steps[self.splits[name]]
                self.splits[name] += 1
                if step == "wait":
                    return InputStatus.NOTHING_AVAILABLE
                self._do(step, name, output)
            if self.splits[name] >= len(steps):
                del self.splits[name]
                if not self.source.turns:
                    self.context.request_split()
        return InputStatus.MORE_AVAILABLE

    def _do(self, step, name, output):
        if isinstance(step, Exception):
            raise step
        if isinstance(step, tuple):
            for part in step:
                self._do(part, name, output)
        elif step == "idle":
            output.mark_idle(name)
        elif isinstance(step, int):
            output.emit_watermark(step, name)
        else:
            output.emit(RecordBatch(pa.RecordBatch.from_pylist(step, self.source.schema.arrow)), name)

    def add_splits(self, splits):
        self.splits.update({s.split_id: s.position["step"] for s in splits})

    def notify_no_more_splits(self):
        self.no_more = True

    def snapshot(self):
        return [Split(name, {"step": step}) for name, step in self.splits.items()]

    def notify_checkpoint_complete(self, checkpoint_id):
        pass

    def close(self):
        self.closed += 1


@dataclass
class ListSink:
    """Its writers put everything into `log`; a row with the value 13 in the first column breaks it."""

    schema: Schema
    log: list = field(default_factory=list)
    rolls: bool = False

    delivery = Delivery.EXACTLY_ONCE

    def create_writer(self, context):
        return ListWriter(self, context)

    def create_committer(self):
        return None


class ListWriter:
    def __init__(self, sink: ListSink, context) -> None:
        self.sink, self.context = sink, context
        self.open_rows: list = []
        self.parts = 0

    def open(self):
        self.sink.log.append("open")

    def write(self, batch: RecordBatch):
        values = batch.columns.column(0).to_pylist()
        if 13 in values:
            raise OSError(28, "No space left on device")
        self.open_rows += values

    def write_watermark(self, timestamp_ms):
        self.sink.log.append(("watermark", timestamp_ms))

    def flush(self, end_of_input):
        self.sink.log.append(("flush", end_of_input))

    def _part(self) -> Sequence[Committable]:
        if not self.open_rows:
            return ()
        rows, self.open_rows = self.open_rows, []
        self.parts += 1
        return (Committable(f"{self.context.subtask}-{self.parts}", {"rows": rows}),)

    def prepare_commit(self):
        return self._part()

    def rolled(self):
        assert self.sink.rolls, "rolled() is only for unbounded jobs without checkpoints"
        return self._part() if len(self.open_rows) >= 2 else ()

    def close(self):
        self.sink.log.append("close")
