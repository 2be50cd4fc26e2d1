"""Reads a source without a runtime: the calls a task would make, one after the other."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from flowrun.api.operator import InputStatus
from flowrun.api.source import ReaderContext, Source, SourceReader, Split, SplitEnumerator
from flowrun.core.clock import ManualClock
from flowrun.core.elements import RecordBatch
from flowrun.testing.metrics import RecordedMetrics
from flowrun.testing.processing_time import ManualProcessingTime


class CollectingOutput:
    """Keeps what a reader emits."""

    def __init__(self) -> None:
        self.batches: list[RecordBatch] = []

    def emit(self, columns: RecordBatch, split_id: str) -> None:
        self.batches.append(columns)

    def emit_watermark(self, timestamp_ms: int, split_id: str) -> None:
        raise AssertionError("this source sends no watermarks of its own")

    def advance(self, timestamp_ms: int, split_id: str) -> None:
        raise AssertionError("this source sends no watermarks of its own")

    def mark_idle(self, split_id: str) -> None:
        raise AssertionError("this source is never idle")

    @property
    def rows(self) -> list[tuple[object, ...]]:
        return [tuple(r.values()) for b in self.batches for r in b.columns.to_pylist()]


class Reading:
    """One reader of a source, with its enumerator, driven by hand."""

    def __init__(
        self,
        source: Source,
        *,
        parallelism: int = 1,
        subtask: int = 0,
        batch_rows: int = 1000,
        clock: ManualClock | None = None,
        enumerator: SplitEnumerator | None = None,
        restored: Sequence[Split] = (),
    ) -> None:
        self.clock = clock or ManualClock(1_700_000_000_000)
        self.processing_time = ManualProcessingTime(self.clock)
        self.enumerator = enumerator or source.create_enumerator(parallelism, self.clock)
        self.output = CollectingOutput()
        self._asked = False
        self.available = threading.Event()
        context = ReaderContext(
            subtask=subtask,
            parallelism=parallelism,
            batch_rows=batch_rows,
            clock=self.clock,
            metrics=RecordedMetrics(),
            request_split=self._ask,
            notify_available=self._wake,
            processing_time=self.processing_time,
        )
        self.reader: SourceReader = source.create_reader(context)
        if restored:
            self.reader.add_splits(restored)
        self.reader.start()

    def _ask(self) -> None:
        self._asked = True

    def _wake(self) -> None:
        self.available.set()

    def step(self) -> InputStatus:
        """Answer an open request for a split, then poll once."""
        if self._asked:
            self._asked = False
            split = self.enumerator.next_split(0)
            if split is not None:
                self.reader.add_splits([split])
            elif self.enumerator.exhausted:
                self.reader.notify_no_more_splits()
        return self.reader.poll(self.output)

    def to_the_end(self) -> list[tuple[object, ...]]:
        """All rows of a bounded source; time passes whenever the reader waits."""
        for _ in range(100_000):
            status = self.step()
            if status is InputStatus.END_OF_INPUT:
                return self.output.rows
            if status is InputStatus.NOTHING_AVAILABLE:
                self.processing_time.advance(100)
        raise AssertionError("the source does not end")
