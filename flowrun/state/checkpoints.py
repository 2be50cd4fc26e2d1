"""What a checkpoint consists of, as values: files, the state of operators, rows in flight, and the metadata that names them all.

A checkpoint or savepoint is a folder with `_metadata.json` (a `CheckpointMetadata`) and Parquet files; docs/state-format.md describes
it to readers in other tools. Paths are relative to the job's folder (checkpoints, whose files may lie in the folder of an earlier
one) or to the savepoint's folder, so that both can be moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field

import pyarrow as pa

from flowrun.api.source import JsonValue
from flowrun.api.state import KeyGroupRange, OperatorState
from flowrun.core.elements import CheckpointKind, Event, RecordBatch
from flowrun.core.record import record
from flowrun.state.commit_log import Fork

FORMAT_VERSION = 1
"""Of the folder layout, the metadata, the key-group hash and the Parquet columns. A change that old readers cannot read raises it."""


@record
class StateFile:
    """One immutable Parquet file.

    Attributes:
        path: relative, with `/`.
        size: bytes.
        rows: how many.
        checksum: of what page checksums do not cover; see docs/state-format.md.
        groups: key groups that the file may hold; None for files that are not sorted by key group.
        offsets: len(groups) + 1 row numbers: rows of group g are offsets[g − groups.start] … offsets[g − groups.start + 1].
    """

    path: str
    size: int
    rows: int
    checksum: str
    groups: KeyGroupRange | None = None
    offsets: tuple[int, ...] = ()


@record
class FileReference:
    """A file as one checkpoint uses it. `live`: numbers in its `__segment` column that count; None: all rows do."""

    file: StateFile
    live: tuple[int, ...] | None = None


@record
class KeyedTableState:
    """A keyed state table of one subtask: files oldest first. `key` as in `SegmentedTable`."""

    schema: pa.Schema
    files: tuple[FileReference, ...]
    key: tuple[str, ...] | None = None


@record
class OperatorSubtaskState:
    """What one operator of one subtask remembers: keyed tables are in files, operator state is still in memory."""

    operator_id: str
    keyed: Mapping[str, KeyedTableState] = field(default_factory=dict)
    operator: Mapping[str, OperatorState] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is remembered."""
        return not self.keyed and not self.operator


@record
class InFlightFile:
    """Rows in flight on one exchange, channel by channel and in order.

    Attributes:
        data_set_id: the exchange.
        schema: of the rows.
        file: columns `__channel`, `__timestamp`, `__row_kind` and `row`, a struct; see docs/state-format.md.
    """

    data_set_id: str
    schema: pa.Schema
    file: StateFile


@record
class StoredRows:
    """A batch in flight as it lies in a file: `num_rows` rows from row `first` on; whether it has event times and row kinds."""

    source: InFlightFile
    first: int
    num_rows: int
    timestamps: bool
    row_kinds: bool


KeptElement = RecordBatch | StoredRows | Event
"""What was in flight, as a checkpoint keeps it."""


@record
class InFlight:
    """Elements of one channel that an unaligned barrier overtook, in order; never barriers, latency markers or ends of input.

    Attributes:
        data_set_id: the exchange.
        producer: subtask that sent them.
        consumer: subtask that was to receive them.
        received: True: the consumer had yet to process them after its snapshot; they go before those that the producer still held.
        elements: rows, watermarks and statuses. Rows are in memory, or, as a subtask acknowledges them, in a file that it has written.
    """

    data_set_id: str
    producer: int
    consumer: int
    received: bool
    elements: tuple[KeptElement, ...]


def rows_of(elements: Iterable[KeptElement]) -> list[RecordBatch | StoredRows]:
    """The batches among elements in flight."""
    return [e for e in elements if isinstance(e, RecordBatch | StoredRows)]


def schema_in_flight(rows: RecordBatch | StoredRows) -> pa.Schema:
    """The columns of a batch in flight."""
    return rows.source.schema if isinstance(rows, StoredRows) else rows.columns.schema


def has_row_kinds(rows: RecordBatch | StoredRows) -> bool:
    """Whether rows of a batch in flight may be changes."""
    return rows.row_kinds if isinstance(rows, StoredRows) else rows.row_kinds is not None


@record
class ChannelProgress:
    """Event time of one input channel of a subtask at its snapshot: what its watermark valve had seen. Unaligned checkpoints only."""

    data_set_id: str
    producer: int
    consumer: int
    watermark: int
    idle: bool
    aligned: bool = True
    """False: it was idle, is active again, but its watermark has not caught up, so that it does not hold the others back yet."""


@record
class SnapshotFigures:
    """What a snapshot of one subtask took. Durations in ms, sizes in bytes.

    Attributes:
        alignment_ms: from the first barrier to the last.
        synchronous_ms: until everything is captured: the subtask processes nothing meanwhile. What operators flush before
            (`prepare_snapshot`) is ordinary work done a little earlier.
        asynchronous_ms: writing.
    """

    alignment_ms: float = 0.0
    synchronous_ms: float = 0.0
    asynchronous_ms: float = 0.0
    written_bytes: int = 0
    """Bytes of files that did not exist before this checkpoint."""
    state_bytes: int = 0
    """Bytes of all files that the snapshot names."""
    in_flight_bytes: int = 0


@record
class SubtaskSnapshot:
    """What a subtask acknowledges: one entry a chained operator that remembers anything."""

    operators: tuple[OperatorSubtaskState, ...] = ()
    in_flight: tuple[InFlight, ...] = ()
    progress: tuple[ChannelProgress, ...] = ()
    figures: SnapshotFigures = field(default_factory=SnapshotFigures)

    @property
    def files(self) -> tuple[StateFile, ...]:
        """All files that it names."""
        return (*self.state_files, *dict.fromkeys(rows.source.file for rows in self._stored_rows()))

    @property
    def state_files(self) -> tuple[StateFile, ...]:
        """Files of keyed state."""
        return tuple(r.file for o in self.operators for t in o.keyed.values() for r in t.files)

    def _stored_rows(self) -> Iterator[StoredRows]:
        return (e for held in self.in_flight for e in held.elements if isinstance(e, StoredRows))


@record
class OperatorMetadata:
    """One operator in a checkpoint.

    Attributes:
        operator_id: the hash by which it is found again.
        uid: the user's; None: the id is structural.
        name: the user's.
        vertex_id: its job vertex.
        parallelism: number of old subtasks.
        max_parallelism: number of key groups.
        subtasks: old subtask → its state; those without state are missing.
        finished: all its subtasks had come to their end: restored, it emits nothing any more.
        enumerator: state of the split enumerator, if it is a source.
    """

    operator_id: str
    uid: str | None
    name: str
    vertex_id: str
    parallelism: int
    max_parallelism: int
    subtasks: Mapping[int, OperatorSubtaskState] = field(default_factory=dict)
    finished: bool = False
    enumerator: JsonValue = None


@record
class ProjectText:
    """What the project of a pipeline adds to it.

    Attributes:
        file_name: of its `flowrun.yaml`.
        text: of that file.
        directory: absolute folder of it: the project's Python functions and secret files are looked up from there.
        scripts: name → text of the SQL files that declare tables for all scripts, in order; empty for a pipeline in YAML.
    """

    file_name: str
    text: str
    directory: str
    scripts: Mapping[str, str] = field(default_factory=dict)


@record
class PipelineText:
    """The pipeline that the job ran, for resuming without its file."""

    file_name: str
    text: str
    directory: str
    """Absolute folder of the file: relative paths of functions start there."""
    variables: Mapping[str, str] = field(default_factory=dict)
    overrides: Mapping[str, str] = field(default_factory=dict)
    working_directory: str = ""
    """Absolute folder in which the command was given: relative paths of connectors and of the checkpoint folder start there."""
    withheld: tuple[str, ...] = ()
    """Names of variables that were given but are not kept, as their values are secret; who resumes gives them again."""
    table_rows: Mapping[str, int] = field(default_factory=dict)
    """Rows of tables by which the job's joins were ordered; empty: they run in the order that is written. Who resumes orders by them again,
    however many rows there are by then."""
    catalog_tables: Mapping[str, str] = field(default_factory=dict)
    """What catalogs said of the tables that a script names: statements that declare them, by full name. Who resumes without the file goes
    by them again; they hold no secrets."""
    project: ProjectText | None = None
    """What its project added; None: it is in none."""


@record
class CheckpointMetadata:
    """Everything about a completed checkpoint or savepoint.

    Attributes:
        checkpoint_id: its number; grows within a job folder, over restarts and resumptions too.
        kind: of what.
        triggered_ms: epoch ms.
        completed_ms: epoch ms.
        job_name: of the pipeline.
        lineage: one for a run and everything that was resumed from it in the same job folder.
        job_folder: URI or absolute path of the job's folder when it was taken; empty for savepoints of jobs without checkpoints.
        flowrun_version: that wrote it.
        pipeline: None for jobs made in Python.
        job_graph: the job graph as `flowrun explain --stage job --format json` prints it.
        operators: by operator id, in topological order.
        in_flight: of unaligned checkpoints.
        progress: of unaligned checkpoints.
        state_bytes: of all files.
        written_bytes: of the files that it wrote itself.
        unaligned: whether rows in flight are part of it.
        drained: it was taken by a stop that ended event time: resuming would fire windows again.
        hooks: name of a master hook → what it asked to be remembered.
        ancestors: where its lineage began, the nearest first; empty for a fresh start.
    """

    checkpoint_id: int
    kind: CheckpointKind
    triggered_ms: int
    completed_ms: int
    job_name: str
    lineage: str
    job_folder: str
    flowrun_version: str
    pipeline: PipelineText | None
    job_graph: JsonValue
    operators: Mapping[str, OperatorMetadata]
    in_flight: tuple[InFlight, ...] = ()
    progress: tuple[ChannelProgress, ...] = ()
    state_bytes: int = 0
    written_bytes: int = 0
    unaligned: bool = False
    drained: bool = False
    hooks: Mapping[str, JsonValue] = field(default_factory=dict)
    ancestors: tuple[Fork, ...] = ()
    format_version: int = FORMAT_VERSION
