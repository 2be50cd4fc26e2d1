"""What one checkpoint or savepoint consists of, as values: operators, their tables, source positions, pending commits, rows in flight.

Everything comes from the metadata; state files are not read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import orjson
import pyarrow as pa

from flowrun.api.source import JsonValue
from flowrun.api.state import KEY_COLUMNS_METADATA, OperatorState
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.operators.state_meanings import Meanings
from flowrun.runtime.checkpoint.recorded_graph import RecordedExchange, recorded_exchanges, recorded_meanings
from flowrun.state.checkpoints import CheckpointMetadata, FileReference, KeyedTableState, OperatorMetadata

COMMITTABLES = "committables"
SPLITS = "splits"


@record
class DescribedColumn:
    """A column of a state table. `meaning` is what it holds, where the name does not say."""

    name: str
    type: str
    is_key: bool
    meaning: str | None = None


@record
class GroupSpread:
    """How the rows of a keyed table lie in its key groups; rows that do not count any more included."""

    groups: int
    filled: int
    median: int
    largest: int
    largest_group: int


@record
class DescribedTable:
    """A piece of an operator's state.

    Attributes:
        redistribution: of operator state: split, union or broadcast; None: keyed state.
        rows: exact, or at most (see `exact`).
        exact: False: some rows in the files do not count any more.
        size: bytes of its files; 0 for operator state, which is kept with the metadata.
        files: how many; `shared` of them are in the folders of earlier checkpoints.
        incremental: `whole` (written each time), `segments` (a bag in pieces) or `log` (the newest of a key counts).
    """

    name: str
    redistribution: str | None
    rows: int
    exact: bool
    size: int
    files: int
    shared: int
    subtasks: int
    incremental: str
    columns: tuple[DescribedColumn, ...]
    spread: GroupSpread | None = None


@record
class SourcePosition:
    """How far one split was read. `watermark` in epoch ms; None: none yet."""

    split_id: str
    subtask: int
    position: JsonValue
    watermark: int | None


@record
class PendingCommit:
    """Something that a sink wrote and that was not committed when the checkpoint was taken."""

    commit_id: str
    subtask: int
    checkpoint_id: int | None
    payload: JsonValue


@record
class DescribedOperator:
    """One operator with everything that it remembers."""

    saved: OperatorMetadata
    tables: tuple[DescribedTable, ...]
    positions: tuple[SourcePosition, ...]
    commits: tuple[PendingCommit, ...]

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(t.size for t in self.tables)


@record
class DescribedExchange:
    """What was in flight on one exchange. `watermarks`: (lowest, highest) that its channels had seen, epoch ms; None: aligned."""

    data_set_id: str
    exchange: RecordedExchange | None
    channels: int
    rows: int
    size: int
    events: int
    watermarks: tuple[int, int] | None


@record
class Description:
    """One checkpoint or savepoint."""

    metadata: CheckpointMetadata
    operators: tuple[DescribedOperator, ...]
    in_flight: tuple[DescribedExchange, ...]


def describe(metadata: CheckpointMetadata) -> Description:
    """Everything that the metadata of a checkpoint says, ready to be shown."""
    meanings = recorded_meanings(metadata.job_graph)
    prefix = f"chk-{metadata.checkpoint_id}/"
    operators = tuple(_operator(o, meanings.get(o.operator_id, {}), prefix) for o in metadata.operators.values())
    return Description(metadata, operators, tuple(_in_flight(metadata)))


def _operator(saved: OperatorMetadata, meanings: Meanings, prefix: str) -> DescribedOperator:
    keyed: dict[str, list[KeyedTableState]] = {}
    states: dict[str, dict[int, OperatorState]] = {}
    for subtask, state in sorted(saved.subtasks.items()):
        for name, table in state.keyed.items():
            keyed.setdefault(name, []).append(table)
        for name, rows in state.operator.items():
            states.setdefault(name, {})[subtask] = rows
    tables = [
        *(_keyed_table(n, t, saved.max_parallelism, meanings.get(n, {}), prefix) for n, t in keyed.items()),
        *(_operator_table(n, s) for n, s in states.items()),
    ]
    return DescribedOperator(
        saved, tuple(tables), tuple(_positions(states.get(SPLITS, {}))), tuple(_commits(states.get(COMMITTABLES, {})))
    )


def _keyed_table(
    name: str, states: Sequence[KeyedTableState], max_parallelism: int, meanings: Mapping[str, str], prefix: str
) -> DescribedTable:
    references = [r for state in states for r in state.files]
    files = {r.file.path: r.file for r in references}
    schema = states[0].schema
    log = any(state.key is not None for state in states)
    segments = any(r.live is not None for r in references)
    keys = int((schema.metadata or {}).get(KEY_COLUMNS_METADATA, b"0")) or len(states[0].key or ())
    return DescribedTable(
        name=name,
        redistribution=None,
        rows=sum(f.rows for f in files.values()),
        exact=not log and not segments,
        size=sum(f.size for f in files.values()),
        files=len(files),
        shared=sum("/" in path and path.startswith("chk-") and not path.startswith(prefix) for path in files),
        subtasks=len(states),
        incremental="log" if log else "segments" if segments else "whole",
        columns=tuple(
            DescribedColumn(f.name, str(f.type), 0 < i <= keys, meanings.get(f.name)) for i, f in enumerate(schema)
        ),
        spread=_spread(references, max_parallelism),
    )


def _spread(references: Sequence[FileReference], max_parallelism: int) -> GroupSpread | None:
    counts = np.zeros(max_parallelism, np.int64)
    for reference in references:
        file = reference.file
        if file.groups is None or len(file.offsets) != len(file.groups) + 1:
            return None
        offsets = np.array(file.offsets, np.int64)
        counts[file.groups.start : file.groups.stop] += offsets[1:] - offsets[:-1]
    if not counts.any():
        return None
    largest = int(counts.argmax())
    return GroupSpread(
        max_parallelism, int(np.count_nonzero(counts)), int(np.median(counts)), int(counts[largest]), largest
    )


def _operator_table(name: str, states: Mapping[int, OperatorState]) -> DescribedTable:
    first = next(iter(states.values()))
    return DescribedTable(
        name=name,
        redistribution=first.redistribution.value,
        rows=sum(s.rows.num_rows for s in states.values()),
        exact=True,
        size=0,
        files=0,
        shared=0,
        subtasks=len(states),
        incremental="whole",
        columns=tuple(DescribedColumn(f.name, str(f.type), False) for f in first.rows.schema),
    )


def _positions(states: Mapping[int, OperatorState]) -> list[SourcePosition]:
    return [
        SourcePosition(str(row.get("split_id")), subtask, _json(row.get("position")), _integer(row.get("watermark")))
        for subtask, state in states.items()
        for row in _objects(state.rows)
    ]


def _commits(states: Mapping[int, OperatorState]) -> list[PendingCommit]:
    return [
        PendingCommit(str(row.get("commit_id")), subtask, _integer(row.get("checkpoint_id")), _json(row.get("payload")))
        for subtask, state in states.items()
        for row in _objects(state.rows)
    ]


def _objects(rows: pa.Table) -> list[dict[str, object]]:
    objects: list[dict[str, object]] = rows.to_pylist()
    return objects


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _json(value: object) -> JsonValue:
    """JSON text as a value; other text as it is."""
    if not isinstance(value, str):
        return None
    try:
        parsed: JsonValue = orjson.loads(value)
    except orjson.JSONDecodeError:
        return value
    return parsed


def _in_flight(metadata: CheckpointMetadata) -> list[DescribedExchange]:
    exchanges = recorded_exchanges(metadata.job_graph)
    ids = dict.fromkeys([*(i.data_set_id for i in metadata.in_flight), *(p.data_set_id for p in metadata.progress)])
    described = []
    for data_set_id in ids:
        held = [i for i in metadata.in_flight if i.data_set_id == data_set_id]
        elements = [e for i in held for e in i.elements]
        batches = [e for e in elements if isinstance(e, RecordBatch)]
        seen = [p.watermark for p in metadata.progress if p.data_set_id == data_set_id]
        described.append(
            DescribedExchange(
                data_set_id,
                exchanges.get(data_set_id),
                len({(i.producer, i.consumer) for i in held}),
                sum(b.num_rows for b in batches),
                sum(b.nbytes for b in batches),
                len(elements) - len(batches),
                (min(seen), max(seen)) if seen else None,
            )
        )
    return described
