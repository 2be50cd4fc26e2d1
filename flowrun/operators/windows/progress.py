"""How far the windows of a subtask had fired, as state that new subtasks read at any parallelism.

The operator state `progress` says up to which event time windows had fired and for which key groups, so that a new subtask neither
fires again nor forgets.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flowrun.api.state import KeyGroupRange, OperatorSnapshot, OperatorState, Redistribution
from flowrun.core.elements import MIN_TIMESTAMP
from flowrun.core.record import record

PROGRESS = "progress"
_PROGRESS_SCHEMA = pa.schema(
    [("key_group_start", pa.int32()), ("key_group_stop", pa.int32()), ("fired", pa.int64()), ("sequence", pa.int64())]
)


@record
class Progress:
    """How far the windows of key groups had fired.

    Attributes:
        ranges: (key groups, event time up to which windows had fired), one per old subtask.
        sequence: an arrival number above all in the state.
    """

    ranges: tuple[tuple[KeyGroupRange, int], ...] = ()
    sequence: int = 0

    @classmethod
    def read(cls, snapshot: OperatorSnapshot) -> Progress:
        """From a snapshot's operator state; nothing had fired if there is none."""
        state = snapshot.operator.get(PROGRESS)
        rows = [] if state is None else state.rows.to_pylist()
        ranges = tuple((KeyGroupRange(r["key_group_start"], r["key_group_stop"]), r["fired"]) for r in rows)
        return cls(ranges, max((r["sequence"] for r in rows), default=0))

    def as_state(self) -> OperatorState:
        """The operator state of one subtask; every new subtask reads those of all."""
        rows = [
            {"key_group_start": g.start, "key_group_stop": g.stop, "fired": fired, "sequence": self.sequence}
            for g, fired in self.ranges
        ]
        return OperatorState(pa.Table.from_pylist(rows, schema=_PROGRESS_SCHEMA), Redistribution.UNION)

    def within(self, groups: KeyGroupRange) -> Progress:
        """The part that concerns some key groups."""
        cut = (
            (KeyGroupRange(max(old.start, groups.start), min(old.stop, groups.stop)), fired)
            for old, fired in self.ranges
        )
        return Progress(tuple((g, fired) for g, fired in cut if g.start < g.stop), self.sequence)

    def advanced(self, groups: KeyGroupRange, fired: int, sequence: int) -> Progress:
        """The progress of a subtask that restored this one and has itself come to event time `fired`."""
        if self.most <= fired:
            return Progress(((groups, fired),), sequence)
        return Progress(tuple((g, max(ahead, fired)) for g, ahead in self.ranges), sequence)

    @property
    def least(self) -> int:
        """The event time that all key groups have reached."""
        return min((fired for _, fired in self.ranges), default=MIN_TIMESTAMP)

    @property
    def most(self) -> int:
        """The event time that some key group has reached."""
        return max((fired for _, fired in self.ranges), default=MIN_TIMESTAMP)

    def fired_of(self, row_groups: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """The event time that each key group had reached."""
        reached = np.full(len(row_groups), MIN_TIMESTAMP, np.int64)
        for old, time in self.ranges:
            reached[(row_groups >= old.start) & (row_groups < old.stop)] = time
        return reached
