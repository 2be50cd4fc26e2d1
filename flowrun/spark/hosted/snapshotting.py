"""Ends a hosted task of a backfill that writes a savepoint: the task itself writes the snapshot of each operator."""

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
from flowrun.state.kept_names import IDENTITY, identity_state
from flowrun.state.key_groups import key_group_range
from flowrun.state.storage.contract import SnapshotStorage


@record(eq=False)
class SubtaskNote:
    """What a task reports when it has ended.

    Attributes:
        subtask: the number of the subtask.
        states: the states of those operators that have any; their files are written.
        watermarks: for each destination the last watermark that was sent there; None: none was sent.
    """

    subtask: int
    states: tuple[OperatorSubtaskState, ...]
    watermarks: tuple[int | None, ...]


@record(eq=False)
class LeaveSnapshot:
    """Event time stops where the backfill ends, and the operators' state is written.

    Each attempt of a task writes files with names of its own: those of attempts that were lost are in the folder, but not in the metadata.

    Attributes:
        vertex: a vertex of the job.
        sinks: the sinks of the vertex, whose rows are taken instead of written.
        watermarks: for each input the event time at which it stops; None: it has no event time.
        checkpoint_id: the id of the savepoint.
        target: the folder of the savepoint.
        storage: writes files into it.
    """

    vertex: JobVertex
    sinks: tuple[SinkPlace, ...]
    watermarks: tuple[int | None, ...]
    checkpoint_id: int
    target: str
    storage: SnapshotStorage

    def end(self, chain: OperatorChain, writers: Sequence[DestinationWriter], subtask: int, inputs: int) -> bytes:
        """Write the state of the operators; gives a pickled `SubtaskNote`."""
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
    """The snapshot that the sink would have if it had written all rows and all of them were visible."""
    kept, rows = kept_rows_of(place.sink), writer.kept()
    operator = {COMMITTABLES: committables_state(())}
    if kept is None or rows is None:
        return OperatorSnapshot(operator=operator)
    if place.identity:
        operator[IDENTITY] = identity_state(place.identity)
    return OperatorSnapshot(keyed={KEPT_ROWS: kept.table(rows)}, operator=operator)
