"""Small jobs for storage tests: segments, snapshots and metadata of one operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from flowrun.api.state import KeyGroupRange, OperatorSnapshot, SegmentedTable, StateSegment, keyed_schema
from flowrun.core.elements import CheckpointKind
from flowrun.state.checkpoints import CheckpointMetadata, OperatorMetadata, OperatorSubtaskState
from flowrun.state.storage.folder import JobFolder

COMMITTED_AFTER = (
    " --committed-after remove (which first deletes what was committed after it, so that each row is there once)"
)
"""How hints go on that name an older checkpoint: sinks may have committed more since."""

GROUPS = KeyGroupRange(0, 16)
OPERATOR = "a" * 32
LOG = keyed_schema([pa.field("k", pa.int64())], [pa.field("v", pa.int64()), pa.field("__deleted", pa.bool_())])
BAG = keyed_schema([pa.field("k", pa.int64())], [pa.field("v", pa.int64())])


def log_segment(values: Mapping[int, int | None]) -> StateSegment:
    """A segment of an upsert log: key → value, None: deleted. A key's group is key mod 16."""
    rows = [{"__key_group": k % 16, "k": k, "v": v, "__deleted": v is None} for k, v in values.items()]
    table = pa.Table.from_pylist(rows, schema=LOG)
    return StateSegment(lambda: table)


def bag_segment(values: Sequence[tuple[int, int]]) -> StateSegment:
    """A segment of a bag of (key, value)."""
    table = pa.Table.from_pylist([{"__key_group": k % 16, "k": k, "v": v} for k, v in values], schema=BAG)
    return StateSegment(lambda: table)


def log(*segments: StateSegment) -> OperatorSnapshot:
    return OperatorSnapshot(segmented={"log": SegmentedTable(LOG, segments, ("k",))})


def bag(*segments: StateSegment) -> OperatorSnapshot:
    return OperatorSnapshot(segmented={"bag": SegmentedTable(BAG, segments)})


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Rows without their key groups, sorted."""
    return sorted(zip(*table.drop_columns(["__key_group"]).to_pydict().values(), strict=True))


def metadata(
    folder: JobFolder, checkpoint_id: int, state: OperatorSubtaskState, *, lineage: str = "L", **more: Any
) -> CheckpointMetadata:
    """The metadata of a checkpoint of one operator with one subtask."""
    operator = OperatorMetadata(OPERATOR, "uid", "my op", "v1", 1, 16, {} if state.is_empty else {0: state})
    return CheckpointMetadata(
        **{
            "checkpoint_id": checkpoint_id,
            "kind": CheckpointKind.CHECKPOINT,
            "triggered_ms": 1_000,
            "completed_ms": 2_000,
            "job_name": "my job",
            "lineage": lineage,
            "job_folder": folder.job_folder,
            "flowrun_version": "0",
            "pipeline": None,
            "job_graph": None,
            "operators": {OPERATOR: operator},
            **more,
        }
    )


def take(
    folder: JobFolder,
    writer: Any,
    checkpoint_id: int,
    snapshot: OperatorSnapshot,
    *,
    lineage: str = "L",
    kind: CheckpointKind = CheckpointKind.CHECKPOINT,
    directory: str | None = None,
) -> tuple[str, OperatorSubtaskState]:
    """A complete checkpoint or savepoint: its path, and what the writer wrote."""
    target = folder.begin(checkpoint_id, kind, directory)
    state = writer.write(checkpoint_id, target, kind, snapshot)
    path = folder.finish(target, metadata(folder, checkpoint_id, state, lineage=lineage, kind=kind))
    if kind is CheckpointKind.CHECKPOINT:
        writer.completed(checkpoint_id)
    return path, state
