"""Runs two versions of a pipeline beside the job that runs, over the same rows and from the same state, and compares what their sinks get.

1. *Record*: the tables that are read are read on from a savepoint of the running job for some seconds, into files. Nothing is confirmed to
   their servers, as no checkpoint is taken.
2. *Replay*: each version restores from that savepoint all state but that of its sources and sinks, reads the files in place of its tables,
   and comes to its end. Its sinks are files, too.
3. *Compare*: sink by sink, as `flowrun verify` does: final rows, whatever the order.

Both versions see exactly the same rows in the same order, so what differs is theirs: not where they stood when one looked. At the end of
the files event time ends, and windows fire with what they have, in both alike.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from flowrun.connectors.live_rows import listening
from flowrun.core.clock import Clock
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import PipelineError
from flowrun.graph.job_graph import JobGraph
from flowrun.graph.job_graph_generator import build_job_graph
from flowrun.graph.stream_graph_generator import build_stream_graph
from flowrun.lowering import lower
from flowrun.lowering.settings import graph_settings
from flowrun.plan.changelog import ChangelogMode, changelog_modes
from flowrun.plan.expressions import ColumnRef
from flowrun.plan.nodes import NodeHints, Plan, PlanNode, Scan, Sink, TableReference, WatermarkKind, walk_plan
from flowrun.plan.rewrites.traversal import map_plan, with_sinks
from flowrun.runners.capture import CaptureFile
from flowrun.runners.comparison import SinkComparison, compare
from flowrun.runners.compile import CompiledPipeline
from flowrun.runners.embedded import JobStateOptions, start_embedded
from flowrun.runtime.checkpoint.after_restore import AfterRestore
from flowrun.runtime.job_status import JobStatus
from flowrun.runtime.lifecycle import ExecutionState
from flowrun.state.checkpoints import CheckpointMetadata, OperatorMetadata
from flowrun.state.storage.locate import locate
from flowrun.state.storage.metadata_file import write_metadata
from flowrun.state.storage.state_path import resolve

_LOOK_MS = 100
_START_MS = 60_000
"""For how long sources may take to run before the time of a recording counts all the same."""


@record
class ShadowResult:
    """What came of it.

    Attributes:
        rows: that were recorded, by table.
        sinks: that both versions have, compared: what is called `stream` there is the old version, `spark` the new one.
        only_old: sinks of the old version alone, or with other columns in the new one.
        only_new: sinks of the new version alone.
    """

    rows: Mapping[str, int]
    sinks: tuple[SinkComparison, ...]
    only_old: tuple[str, ...]
    only_new: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Whether all sinks got the same rows."""
        return all(s.equal for s in self.sinks) and not self.only_old and not self.only_new


def check_can_be_shadowed(old: CompiledPipeline, new: CompiledPipeline) -> None:
    """Pass if two versions can be compared over recorded rows.

    Raises:
        PipelineError: a table gives changes, or watermarks of its own, or is not declared alike in both.
    """
    for compiled in (old, new):
        modes = changelog_modes(compiled.optimised)
        for scan in _scans(compiled.optimised):
            if modes[id(scan)] is not ChangelogMode.APPEND:
                raise _not_recorded(scan, "it gives changes of rows")
            if scan.table.source_watermarks or (scan.watermark and scan.watermark.kind is WatermarkKind.SOURCE):
                raise _not_recorded(scan, "it sends watermarks of its own")
    before = {s.table.name: s for s in _scans(old.optimised)}
    for scan in _scans(new.optimised):
        other = before.get(scan.table.name)
        if other is not None and (_declared(other) != _declared(scan) or _origin(other.table) != _origin(scan.table)):
            raise _not_recorded(scan, "it is not declared alike in both versions")


def _not_recorded(scan: Scan, why: str) -> PipelineError:
    return PipelineError.of(
        f"--shadow cannot record the rows of table '{scan.table.name}': {why}", "leave --shadow out"
    )


def _origin(table: TableReference) -> tuple[object, ...]:
    return (table.connector, dict(table.options), table.format, dict(table.metadata))


def shadow(
    old: CompiledPipeline, new: CompiledPipeline, savepoint: str, *, record_ms: int, sample: int, clock: Clock
) -> ShadowResult:
    """Record, replay and compare.

    Args:
        old: the version that runs.
        new: the other one; both have passed `check_can_be_shadowed`.
        savepoint: of the running job, taken for this alone: it is changed.
        record_ms: for how long rows are recorded, from when the sources run.
        sample: rows that differ to give, a side and sink.
        clock: processing time.

    Raises:
        JobFailedError: a version failed.
        StateError: the state does not fit.
    """
    with tempfile.TemporaryDirectory(prefix="flowrun-shadow-") as folder:
        scratch = Path(folder)
        scans = {scan.table.name: scan for version in (new, old) for scan in _scans(version.optimised)}
        files = {name: scratch / f"table-{number}" for number, name in enumerate(scans)}
        rows = _record(old.optimised, scans, files, savepoint, scratch, record_ms, clock)
        _strip(savepoint, old.job_graph, new.job_graph)
        for name, version in (("old", old), ("new", new)):
            (scratch / name).mkdir()
            _replay(version.optimised, files, savepoint, scratch / name)
        before, after = ({_name(s): s for s in v.optimised.sinks} for v in (old, new))
        both = [n for n in before if n in after and before[n].schema == after[n].schema]
        compared = tuple(
            compare(
                name,
                before[name].schema,
                _captured_file(scratch / "old", name),
                _captured_file(scratch / "new", name),
                scratch,
                sample,
            )
            for name in both
        )
        return ShadowResult(
            rows, compared, tuple(n for n in before if n not in both), tuple(n for n in after if n not in both)
        )


# ---- the rows that are read


class _Recording:
    """The rows of a table as a file of Arrow's IPC format. `take` may be called by any thread."""

    def __init__(self, folder: Path, schema: Schema) -> None:
        folder.mkdir()
        self._lock = threading.Lock()
        self._schema = schema.arrow
        self._writer = pa.ipc.new_file(str(folder / "rows.arrow"), self._schema)
        self.rows = 0

    def take(self, batch: RecordBatch) -> None:
        """Write rows."""
        with self._lock:
            self._writer.write_batch(pa.RecordBatch.from_arrays(batch.columns.columns, schema=self._schema))
            self.rows += batch.num_rows

    def close(self) -> None:
        """All rows are in the file."""
        self._writer.close()


def _record(
    plan: Plan,
    scans: Mapping[str, Scan],
    files: Mapping[str, Path],
    savepoint: str,
    scratch: Path,
    record_ms: int,
    clock: Clock,
) -> dict[str, int]:
    """Read tables on from a savepoint for some time; gives how many rows came, by table."""
    with ExitStack() as stack:
        recordings: dict[str, _Recording] = {}
        sinks: list[Sink] = []
        for name, scan in scans.items():
            schema = _declared(scan)
            recordings[name] = recording = _Recording(files[name], schema)
            stack.callback(recording.close)
            listener = f"recorded {name} {id(scan)}"
            stack.enter_context(listening(listener, recording))
            sinks.append(Sink(schema, NodeHints(name=listener), _raw(scan), _listened(listener)))
        graph = _job_graph(with_sinks(plan, tuple(sinks)))
        state = _from(savepoint, scratch / "recording")
        with start_embedded(graph, state=state) as job:
            up_by_ms = clock.monotonic_ns() / 1e6 + _START_MS
            while not _is_up(job.status()) and clock.monotonic_ns() / 1e6 < up_by_ms and job.wait(_LOOK_MS) is None:
                pass
            until_ms = clock.monotonic_ns() / 1e6 + record_ms
            while clock.monotonic_ns() / 1e6 < until_ms and job.wait(_LOOK_MS) is None:
                pass
        return {name: recording.rows for name, recording in recordings.items()}


def _is_up(status: JobStatus) -> bool:
    """Whether all sources have come to what they read."""
    return all(set(vertex.states) <= {ExecutionState.RUNNING, ExecutionState.FINISHED} for vertex in status.vertices)


def _raw(scan: Scan) -> Scan:
    """A scan of all stored columns of its table, as they come."""
    schema = _declared(scan)
    columns = tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(schema))
    return replace(scan, schema=schema, physical=schema, projections=columns, watermark=None, filters=(), declared=None)


def _declared(scan: Scan) -> Schema:
    return scan.physical if scan.declared is None else scan.declared


# ---- the versions


def _replay(plan: Plan, files: Mapping[str, Path], savepoint: str, folder: Path) -> None:
    """Run a version over recorded rows, with its sinks in files."""
    with ExitStack() as stack:
        sinks = []
        for sink in plan.sinks:
            listener = f"shadow {_name(sink)} {id(sink)}"
            capture = stack.enter_context(CaptureFile(_captured_file(folder, _name(sink)), sink.schema))
            stack.enter_context(listening(listener, capture))
            sinks.append(replace(sink, table=_listened(listener)))

        def replayed(node: PlanNode) -> PlanNode:
            return _from_file(node, files[node.table.name]) if isinstance(node, Scan) else node

        graph = _job_graph(map_plan(with_sinks(plan, tuple(sinks)), replayed))
        with start_embedded(graph, state=_from(savepoint, folder / "state")) as job:
            job.wait()


def _from_file(scan: Scan, folder: Path) -> Scan:
    """A scan of recorded rows in place of those of its table."""
    table = TableReference(scan.table.name, "filesystem", {"path": str(folder)}, "arrow")
    return replace(scan, table=table, filters=())


def _listened(listener: str) -> TableReference:
    """A table whose rows go to who listens."""
    return TableReference(listener, "print", {"live": "true"})


def _job_graph(plan: Plan) -> JobGraph:
    settings = replace(plan.settings, checkpoint=None, restart=None)
    graph = build_stream_graph(plan.name, lower(replace(plan, settings=settings)), graph_settings(settings))
    return build_job_graph(graph)


def _from(savepoint: str, directory: Path) -> JobStateOptions:
    return JobStateOptions(
        str(directory),
        restore_from=savepoint,
        allow_non_restored_state=True,
        committed_after=AfterRestore.KEEP,  # nothing is written where it was
    )


def _captured_file(folder: Path, sink: str) -> Path:
    return folder / f"{sink.encode().hex()[:200]}.arrow"


def _scans(plan: Plan) -> Sequence[Scan]:
    return [node for node in walk_plan(plan) if isinstance(node, Scan)]


def _name(sink: Sink) -> str:
    return sink.hints.name or sink.table.name


# ---- the state


def _strip(savepoint: str, *graphs: JobGraph) -> None:
    """Take the state of sources and sinks out of a savepoint: they are others in a shadow."""
    found = locate(savepoint)
    ends = {
        o.operator_id
        for graph in graphs
        for v in graph.vertices
        for o in v.operators
        if o.source is not None or o.sink is not None
    }
    operators = {i: _without_state(o) if i in ends else o for i, o in found.metadata.operators.items()}
    stripped: CheckpointMetadata = replace(found.metadata, operators=operators)
    write_metadata(resolve(found.folder), stripped)


def _without_state(operator: OperatorMetadata) -> OperatorMetadata:
    return replace(operator, subtasks={}, enumerator=None, finished=False)
