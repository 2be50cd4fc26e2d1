"""The input of a task in batch mode whose head gets its rows key after key.

Rows of inputs with keys are gathered and sorted; those of the others, such as broadcast rules, are processed as they come, so all of them
are there before the first of the sorted ones. Event time ends when all rows have been processed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from flowrun.api.operator import InputStatus
from flowrun.core.elements import MAX_WATERMARK, LatencyMarker, RecordBatch, Watermark, WatermarkStatus
from flowrun.runtime.task.key_sort import SORT_MEMORY_BYTES, KeysEnd, KeySort, SortedRows
from flowrun.runtime.task.network_input import Head, NetworkInput


class SortedHead(Head, Protocol):
    """What is fed: a chain whose head forgets keys."""

    def end_keys(self) -> None:
        """No more rows come of the keys that were."""
        ...


class GatheringHead:
    """Stands in for the chain while its inputs are read: keeps what is to be sorted.

    Args:
        head: gets the rows of inputs without keys.
        keys: positions of the key columns of each input; none: it is not sorted.
        spill_folder: gives where files may be written.
        batch_rows: how many rows the chain is to get at a time.
    """

    def __init__(
        self, head: SortedHead, keys: Sequence[Sequence[int]], spill_folder: Callable[[], Path], batch_rows: int
    ) -> None:
        self.head = head
        self.inputs = len(keys)
        sorted_by = {i: columns for i, columns in enumerate(keys) if columns}
        self.sort = KeySort(sorted_by, spill_folder, batch_rows, SORT_MEMORY_BYTES)
        self._sorted = frozenset(i for i, columns in enumerate(keys) if columns)

    def process_batch(self, batch: RecordBatch, input_index: int) -> None:
        """Keep rows, or have them processed."""
        if input_index in self._sorted:
            self.sort.add(input_index, batch)
        else:
            self.head.process_batch(batch, input_index)

    def process_event(self, event: Watermark | WatermarkStatus | LatencyMarker, input_index: int) -> None:
        """Nothing: event time ends when all rows have been processed, and in batch mode that is all that happens to it."""

    def end_input(self, input_index: int) -> None:
        """Nothing: an input ends when all have been processed."""


class SortedInput:
    """Reads all inputs to their end, then feeds the chain with what was sorted.

    Args:
        gathering: is fed by `network`.
        network: the inputs.
    """

    def __init__(self, gathering: GatheringHead, network: NetworkInput) -> None:
        self._gathering = gathering
        self._network = network
        self._merged: Iterator[SortedRows | KeysEnd] | None = None

    def process_next(self) -> InputStatus:
        """Gather one element more; later, have the chain process one batch more."""
        head = self._gathering.head
        if self._merged is None:
            status = self._network.process_next()
            if status is not InputStatus.END_OF_INPUT:
                return status
            self._merged = self._gathering.sort.merged()
            return InputStatus.MORE_AVAILABLE
        following = next(self._merged, None)
        match following:
            case SortedRows(input_index=index, rows=rows):
                head.process_batch(rows, index)
            case KeysEnd():
                head.end_keys()
            case None:
                for index in range(self._gathering.inputs):
                    head.process_event(MAX_WATERMARK, index)
                    head.end_input(index)
                return InputStatus.END_OF_INPUT
        return InputStatus.MORE_AVAILABLE

    @property
    def has_urgent(self) -> bool:
        """There are no barriers in batch mode."""
        return False

    def stop(self, drain: bool) -> None:
        """Inputs end when the sources upstream do."""

    def end_event_time(self) -> None:
        """There are no barriers in batch mode."""

    def release(self) -> None:
        """Free the inputs, delete what was written."""
        self._network.release()
        self._gathering.sort.close()
