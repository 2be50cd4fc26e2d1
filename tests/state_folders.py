"""Real checkpoints and savepoints in folders, written by the storage itself, of the small pipelines of `savepoint_builders`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from flowrun.api.state import (
    DELETED_COLUMN,
    KEY_GROUP_COLUMN,
    OperatorSnapshot,
    OperatorState,
    SegmentedTable,
    StateSegment,
    keyed_schema,
)
from flowrun.core.clock import SystemClock
from flowrun.core.elements import CheckpointKind
from flowrun.graph.job_graph import JobGraph
from flowrun.state.checkpoints import CheckpointMetadata, OperatorSubtaskState
from flowrun.state.key_groups import key_group_range, key_groups, subtask_of
from flowrun.state.storage.folder import JobFolder, open_job_folder
from tests import savepoint_builders as b

USER = pa.field("user_id", pa.string())
TOTALS = keyed_schema([USER], [pa.field("n", pa.int64()), pa.field("total", pa.decimal128(10, 2))])
LINEAGE = "0a1b2c3d-0000-0000-0000-000000000000"


def shop(parallelism: int = 2) -> JobGraph:
    """orders → per_user → out."""
    tables = b.Counting(tables={"totals": TOTALS, "names": NAMES})
    counted = b.counted(b.source(uid="orders"), uid="per_user", factory=tables)
    return b.job(b.sink(counted, uid="out"), parallelism=parallelism)


def totals(counts: Mapping[str, int]) -> pa.Table:
    """Rows of the keyed table `totals`: a user's count, and half of it."""
    users = pa.array(list(counts), pa.string())
    groups = pa.array(key_groups([users], 128))
    half = pa.array([f"{n / 2:.2f}" for n in counts.values()]).cast(pa.decimal128(10, 2))
    return pa.Table.from_arrays([groups, users, pa.array(list(counts.values()), pa.int64()), half], schema=TOTALS)


NAMES = keyed_schema([USER], [pa.field("name", pa.string())])
_NAME_LOG = NAMES.append(pa.field(DELETED_COLUMN, pa.bool_()))


class Names:
    """The upsert log `names`, in segments that stay the same objects from checkpoint to checkpoint."""

    def __init__(self) -> None:
        self._segments: dict[int, list[StateSegment]] = {}

    def add(self, names: Mapping[str, str | None], parallelism: int = 2) -> None:
        """A segment with new names; None deletes."""
        users = pa.array(list(names), pa.string())
        groups = key_groups([users], 128)
        rows = pa.Table.from_arrays(
            [
                pa.array(groups),
                users,
                pa.array([n or "" for n in names.values()], pa.string()),
                pa.array([n is None for n in names.values()]),
            ],
            schema=_NAME_LOG,
        )
        owners = subtask_of(groups, parallelism, 128)
        for subtask in range(parallelism):
            part = rows.filter(pa.array(owners == subtask))
            self._segments.setdefault(subtask, []).append(StateSegment(lambda part=part: part))

    def table(self, subtask: int) -> SegmentedTable:
        """What a snapshot names."""
        return SegmentedTable(_NAME_LOG, tuple(self._segments.get(subtask, ())), ("user_id",))


class ShopFolder:
    """The folder of job `shop`, in which checkpoints can be taken."""

    def __init__(self, directory: Path, graph: JobGraph | None = None, lineage: str = LINEAGE) -> None:
        self.graph = graph or shop()
        self.lineage = lineage
        self.directory = directory
        self.folder: JobFolder = open_job_folder(str(directory), "shop", lineage=lineage, clock=SystemClock())
        self._writers: dict[tuple[str, int], Any] = {}

    def __enter__(self) -> ShopFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.folder.close()

    def take(
        self,
        counts: Mapping[str, int],
        names: Names | None = None,
        *,
        number: int | None = None,
        kind: CheckpointKind = CheckpointKind.CHECKPOINT,
        directory: Path | None = None,
        read_to: int = 100,
        pending: Sequence[str] = (),
        **options: Any,
    ) -> Path:
        """Take a checkpoint or savepoint; gives its folder."""
        number = number or self.folder.next_checkpoint_id
        target = self.folder.begin(number, kind, None if directory is None else str(directory))
        states: dict[str, dict[int, OperatorSubtaskState]] = {}
        rows = totals(counts)
        for vertex in self.graph.vertices:
            for operator in vertex.operators:
                for subtask in range(vertex.parallelism):
                    snapshot = self._snapshot(operator.name, subtask, vertex.parallelism, rows, names, read_to, pending)
                    if snapshot.is_empty:
                        continue
                    groups = key_group_range(subtask, vertex.parallelism, vertex.max_parallelism)
                    writer = self._writers.setdefault(
                        (operator.operator_id, subtask),
                        self.folder.writer(operator.operator_id, operator.name, subtask, groups),
                    )
                    state = writer.write(number, target, kind, snapshot)
                    states.setdefault(operator.operator_id, {})[subtask] = state
        path = self.folder.finish(target, self._metadata(number, kind, states, options))
        for writer in self._writers.values():
            writer.completed(number)
        return Path(path)

    def _snapshot(
        self,
        operator: str,
        subtask: int,
        parallelism: int,
        rows: pa.Table,
        names: Names | None,
        read_to: int,
        pending: Sequence[str],
    ) -> OperatorSnapshot:
        if operator == "per_user":
            owners = subtask_of(rows[KEY_GROUP_COLUMN].to_numpy(), parallelism, 128)
            own = rows.filter(pa.array(owners == subtask))
            return OperatorSnapshot({"totals": own}, {}, {} if names is None else {"names": names.table(subtask)})
        if operator == "orders" and subtask == 0:
            split = {
                "split_id": ["orders.json"],
                "position": [f'{{"offset": {read_to}}}'],
                "watermark": pa.array([1_700_000_000_000], pa.int64()),
            }
            return OperatorSnapshot(operator={"splits": OperatorState(pa.table(split))})
        if operator == "out" and subtask == 1 and pending:
            committables = {
                "checkpoint_id": pa.array([7] * len(pending), pa.int64()),
                "commit_id": list(pending),
                "payload": ['{"path": "part-0"}'] * len(pending),
            }
            return OperatorSnapshot(operator={"committables": OperatorState(pa.table(committables))})
        return OperatorSnapshot()

    def _metadata(
        self,
        number: int,
        kind: CheckpointKind,
        states: Mapping[str, Mapping[int, OperatorSubtaskState]],
        options: Mapping[str, Any],
    ) -> CheckpointMetadata:
        made = b.savepoint(self.graph, {})
        operators = {i: replace(o, subtasks=dict(states.get(i, {}))) for i, o in made.operators.items()}
        files = {
            r.file.path: r.file for s in states.values() for o in s.values() for t in o.keyed.values() for r in t.files
        }
        written = sum(f.size for p, f in files.items() if "/" not in p or p.startswith(f"chk-{number}/"))
        return replace(
            made,
            **{
                "checkpoint_id": number,
                "kind": kind,
                "lineage": self.lineage,
                "job_folder": self.folder.job_folder,
                "operators": operators,
                "state_bytes": sum(f.size for f in files.values()),
                "written_bytes": written,
                **options,
            },
        )
