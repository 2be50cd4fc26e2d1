"""Operators that remember exactly what they saw, so that a lost, repeated or reordered row shows."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from runtime_fakes import pairs
from task_bench import Signal

from flowrun.api.operator import InputStatus
from flowrun.api.state import KEY_GROUP_COLUMN, OperatorSnapshot, OperatorState
from flowrun.core.elements import Element, RecordBatch, Watermark, WatermarkStatus
from flowrun.operators.base import AbstractOperator
from flowrun.state.key_groups import key_groups

_SEEN = pa.schema([(KEY_GROUP_COLUMN, pa.int32()), ("k", pa.int64()), ("v", pa.int64()), ("late", pa.bool_())])


class ReplayingSource(AbstractOperator):
    """Emits the elements of its subtask up to `limit`, then waits; ends after the last one once `may_end` is set.

    Its position is its state. A subtask that is restored goes on from there, and re-emits its last watermark first.
    """

    inputs = 0

    def __init__(
        self, elements: Callable[[int], Sequence[Element]], may_end: Signal, limit: int | None = None, *,
        progress: list[int] | None = None,
    ) -> None:  # fmt: skip
        self._elements = elements
        self._may_end = may_end
        self._limit = limit
        self._position = 0
        self._stopped = False
        self._progress = progress

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        if restored is not None:
            rows = restored.operator["position"].rows
            assert rows.num_rows == 1
            self._position = rows["at"][0].as_py()

    def open(self) -> None:
        self._mine = list(self._elements(self.context.subtask))
        self._limit = len(self._mine) if self._limit is None else min(self._limit, len(self._mine))
        marks = [e for e in self._mine[: self._position] if isinstance(e, Watermark)]
        if marks:
            self.output.emit_watermark(marks[-1])

    def emit_next(self) -> InputStatus:
        if self._stopped:
            return InputStatus.END_OF_INPUT
        assert self._limit is not None
        if self._position >= self._limit:
            done = self._position == len(self._mine) and self._may_end
            return InputStatus.END_OF_INPUT if done else InputStatus.NOTHING_AVAILABLE
        element = self._mine[self._position]
        self._position += 1
        if isinstance(element, RecordBatch):
            self.output.emit(element)
        elif isinstance(element, Watermark):
            self.output.emit_watermark(element)
        elif isinstance(element, WatermarkStatus):
            self.output.emit_status(element)
        if self._progress is not None:
            self._progress.append(self._position)
        return InputStatus.MORE_AVAILABLE

    def set_availability_listener(self, listener: Callable[[], None]) -> None:
        self._may_end.listeners.append(listener)

    def stop(self, drain: bool) -> None:
        self._stopped = True

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        rows = pa.table({"at": [self._position]})
        return OperatorSnapshot(operator={"position": OperatorState(rows)})


class Outcome:
    """What the subtasks of one `Remember` remembered at their end: key → its (value, late) in the order of arrival."""

    def __init__(self) -> None:
        self.seen: dict[int, list[tuple[int, bool]]] = {}
        self.lock = threading.Lock()

    def values(self) -> dict[int, list[int]]:
        return {k: [v for v, _ in seen] for k, seen in self.seen.items()}

    def late(self) -> list[int]:
        return sorted(v for seen in self.seen.values() for v, late in seen if late)


class Remember(AbstractOperator):
    """Keyed by k: remembers every row in order and whether it was late, and passes it on. One batch a ticket, if there are any."""

    def __init__(
        self, outcome: Outcome | None = None, tickets: threading.Semaphore | None = None, inputs: int = 1
    ) -> None:
        self.inputs = inputs
        self._outcome = outcome
        self._tickets = tickets
        self._seen: dict[int, list[tuple[int, bool]]] = defaultdict(list)
        self._max = -(2**63)

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        if restored is None or "seen" not in restored.keyed:
            return
        for row in restored.keyed["seen"].to_pylist():
            assert row[KEY_GROUP_COLUMN] in self.context.key_groups
            self._seen[row["k"]].append((row["v"], row["late"]))

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        if self._tickets is not None:
            self._tickets.acquire()
        for k, v in pairs([batch]):
            self._seen[k].append((v, v <= self.current_watermark))
        groups = key_groups([batch.columns["k"]], self.context.max_parallelism)
        own = self.context.key_groups
        assert ((groups >= own.start) & (groups < own.stop)).all(), "rows of another subtask"
        self.output.emit(batch)

    def on_watermark(self, timestamp: int) -> None:
        assert timestamp > self._max, "event time must advance strictly"
        self._max = timestamp

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        flat: list[tuple[int, int, bool]] = [(k, v, late) for k, seen in self._seen.items() for v, late in seen]
        keys = pa.array([k for k, _, _ in flat], pa.int64())
        groups = key_groups([keys], self.context.max_parallelism) if flat else np.array([], np.int32)
        columns: list[Any] = [
            pa.array(groups, pa.int32()), keys, pa.array([v for _, v, _ in flat], pa.int64()),
            pa.array([late for _, _, late in flat], pa.bool_()),
        ]  # fmt: skip
        return OperatorSnapshot(keyed={"seen": pa.Table.from_arrays(columns, schema=_SEEN)})

    def finish(self) -> None:
        if self._outcome is not None:
            with self._outcome.lock:
                for k, seen in self._seen.items():
                    assert k not in self._outcome.seen
                    self._outcome.seen[k] = seen
