"""The end of a hosted task that leaves state behind: every operator's snapshot, written by the task itself."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

from flowrun.api.state import OperatorSnapshot
from flowrun.core.elements import MIN_TIMESTAMP, CheckpointKind, Watermark
from flowrun.core.record import record
from flowrun.graph.job_graph import JobVertex
from flowrun.operators.kept_rows import KEPT_ROWS, kept_rows_of
from flowrun.runtime.task.chain import OperatorChain
from flowrun.spark.hosted.destinations import DestinationWriter
from flowrun.spark.hosted.job import SinkPlace
from flowrun.state.checkpoints import OperatorSubtaskState
from flowrun.state.committables import COMMITTABLES, committables_state
from flowrun.state.key_groups import key_group_range
from flowrun.state.sink_identity import IDENTITY, identity_state
from flowrun.state.storage.contract import SnapshotStorage


@record(eq=False)
class SubtaskNote:
    """What a task says when it has ended.

    Attributes:
        subtask: of the vertex.
        states: of those operators that remember anything; their files are written.
        watermarks: of each place, the last event time that rows sent there allow; None: none was said.
    """

    subtask: int
    states: tuple[OperatorSubtaskState, ...]
    watermarks: tuple[int | None, ...]


@record(eq=False)
class LeaveSnapshot:
    """Event time stops where the backfill ends, and the operators' state is written.

    Files have names of their own: those of attempts that were lost are in the folder, but no metadata names them.

    Attributes:
        vertex: of the job.
        sinks: of the vertex, whose rows are taken instead of written.
        watermarks: of each input where event time stops; None: it has none.
        checkpoint_id: of the savepoint.
        target: its folder.
        storage: writes into it.
    """

    vertex: JobVertex
    sinks: tuple[SinkPlace, ...]
    watermarks: tuple[int | None, ...]
    checkpoint_id: int
    target: str
    storage: SnapshotStorage

    def end(self, chain: OperatorChain, writers: Sequence[DestinationWriter], subtask: int, inputs: int) -> bytes:
        """Write what the operators remember, and say what was written (a pickled `SubtaskNote`)."""
        for number, watermark in enumerate(self.watermarks):
            if watermark is not None:
                chain.process_event(Watermark(watermark), number)
        chain.prepare_snapshot(self.checkpoint_id)
        snapshots = chain.snapshot_state(self.checkpoint_id)
        for place in self.sinks:
            snapshots[place.position] = _sink_snapshot(place, writers[place.result])
        states = [
            self._written(position, subtask, snapshot)
            for position, snapshot in enumerate(snapshots)
            if not snapshot.is_empty
        ]
        reached = tuple(None if w.watermark == MIN_TIMESTAMP else w.watermark for w in writers)
        return pickle.dumps(SubtaskNote(subtask, tuple(states), reached))

    def _written(self, position: int, subtask: int, snapshot: OperatorSnapshot) -> OperatorSubtaskState:
        vertex, operator = self.vertex, self.vertex.operators[position]
        groups = key_group_range(subtask, vertex.parallelism, vertex.max_parallelism)
        writer = self.storage.writer(operator.operator_id, operator.name, subtask, groups)
        return writer.write(self.checkpoint_id, self.target, CheckpointKind.SAVEPOINT, snapshot)


def _sink_snapshot(place: SinkPlace, writer: DestinationWriter) -> OperatorSnapshot:
    """What the sink would remember if it had written all rows, and all of it were visible."""
    kept, rows = kept_rows_of(place.sink), writer.kept()
    operator = {COMMITTABLES: committables_state(())}
    if kept is None or rows is None:
        return OperatorSnapshot(operator=operator)
    if place.identity:
        operator[IDENTITY] = identity_state(place.identity)
    return OperatorSnapshot(keyed={KEPT_ROWS: kept.table(rows)}, operator=operator)
