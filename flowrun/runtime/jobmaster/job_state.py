"""Where the state of a job lives and what it restores from: options, and what they open before anything runs."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from flowrun.api.sink import StartingAfresh
from flowrun.api.source import JsonValue
from flowrun.core.clock import Clock
from flowrun.core.elements import CheckpointKind
from flowrun.core.record import record
from flowrun.errors import StateError
from flowrun.graph.job_graph import JobGraph
from flowrun.runtime.checkpoint.after_restore import AfterRestore
from flowrun.runtime.checkpoint.assembly import JobIdentity, pending_commits
from flowrun.runtime.jobmaster.commit_hold import CommitHold
from flowrun.state.checkpoints import CheckpointMetadata, PipelineText
from flowrun.state.commit_log import Fork
from flowrun.state.storage.contract import CheckpointStorage
from flowrun.state.storage.names import checkpoint_folder, job_slug
from flowrun.state.storage.savepoints import Savepoints

if TYPE_CHECKING:
    from flowrun.runtime.checkpoint.going_back import GoingBack
    from flowrun.state.storage.locate import SnapshotPath

DEFAULT_STATE_DIRECTORY = ".flowrun/state"
"""Root of checkpoints, relative to the working directory, unless the pipeline or the caller names another."""


def state_directory(job_graph: JobGraph) -> str:
    """Root of the checkpoints of a job, as its pipeline says, unless the caller names another."""
    settings = job_graph.settings.checkpoint
    return (None if settings is None else settings.directory) or DEFAULT_STATE_DIRECTORY


@record
class JobStateOptions:
    """Where a job keeps its checkpoints, what it restores from, and what is stored beside its state.

    Attributes:
        directory: root of checkpoints: each pipeline has a folder of its own below. Savepoints without a folder go there, too.
        pipeline: text of the pipeline, for resuming without its file.
        job_graph_json: the job graph as `flowrun explain --stage job --format json` prints it; None: it is made.
        restore_from: a savepoint, one checkpoint, a job folder or a root of checkpoints (whose newest complete one counts).
        allow_non_restored_state: drop state of operators that the job no longer has.
        committed_after: what becomes of rows that sinks committed after that checkpoint or savepoint.
        hold: the job is on trial: it takes checkpoints, and commits nothing until this has accepted it. None: it commits.
        forget_later: checkpoints of the same history that were taken after what is restored are deleted, so that nobody goes on from them.
    """

    directory: str
    pipeline: PipelineText | None = None
    job_graph_json: JsonValue = None
    restore_from: str | None = None
    allow_non_restored_state: bool = False
    committed_after: AfterRestore = AfterRestore.REFUSE
    hold: CommitHold | None = None
    forget_later: bool = False


@record
class RestorePoint:
    """A completed checkpoint or savepoint that the job can go back to. `root`: where the paths of its files start."""

    metadata: CheckpointMetadata
    root: str

    @property
    def folder(self) -> str:
        """Path of the checkpoint or savepoint itself, as `JobStateOptions.restore_from` takes it."""
        if self.metadata.kind is CheckpointKind.SAVEPOINT:
            return self.root
        return f"{self.root.rstrip('/')}/{checkpoint_folder(self.metadata.checkpoint_id)}"


@record
class OpenedState:
    """What was opened for one run.

    Attributes:
        job_graph: to run; its key groups are those of the state that it restores from.
        storage: of snapshots.
        identity: what is written into every checkpoint.
        directory: where savepoints go unless somebody says otherwise.
        takes_checkpoints: whether the job has a folder of checkpoints, locked by this process.
        next_checkpoint_id: number of the first checkpoint.
        retained: completed checkpoints of the lineage, which are deleted as newer ones come.
        restored: what to restore from; None: a fresh start.
        continued: the lineage is that of `restored`: what earlier runs of it left behind and nothing needs may be deleted.
        needed_commits: commit ids in other checkpoints of the lineage: they could still be resumed.
        hold: see `JobStateOptions`.
    """

    job_graph: JobGraph
    storage: CheckpointStorage
    identity: JobIdentity
    directory: str
    takes_checkpoints: bool
    next_checkpoint_id: int
    retained: tuple[int, ...] = ()
    restored: RestorePoint | None = None
    continued: bool = False
    needed_commits: frozenset[str] = field(default_factory=frozenset)
    hold: CommitHold | None = None

    @property
    def run(self) -> str:
        """The lineage under which sinks began: that of the state which is gone on from, or this one."""
        return self.identity.lineage if self.restored is None else self.restored.metadata.lineage

    @property
    def restored_commits(self) -> frozenset[str]:
        """Commit ids that the snapshot holds from which the job restores."""
        held = {} if self.restored is None else pending_commits(self.restored.metadata)
        return frozenset(c.commit_id for committables in held.values() for c in committables)

    @property
    def shares_files(self) -> bool:
        """Whether others than their owner may read checkpoints, as far as the process lets them."""
        settings = self.job_graph.settings.checkpoint
        return settings is not None and settings.permissions == "umask"

    def restore_point(self, metadata: CheckpointMetadata, path: str) -> RestorePoint:
        """What a checkpoint or savepoint is that this run completed; `path` as `CheckpointStorage.finish` gave it."""
        is_savepoint = metadata.kind is CheckpointKind.SAVEPOINT
        return RestorePoint(metadata, path if is_savepoint else self.storage.job_folder)


def open_job_state(job_graph: JobGraph, options: JobStateOptions | None, clock: Clock) -> OpenedState:
    """Find what to restore from, check that the job can, and open where its checkpoints go. Blocks on I/O.

    Args:
        job_graph: of the pipeline as it is now.
        options: None: as its settings say, from the beginning.
        clock: for times in files.

    Raises:
        StateError: there is nothing to restore from, or it is damaged or does not fit; the job runs in batch mode, which restores from
            nothing; another process owns the folder of checkpoints, or it cannot be used; what was committed after what it restores
            from would be written twice.
        SetupError: a sink does not begin afresh, as there is output of an earlier run.
    """
    settings = job_graph.settings.checkpoint
    if options is None:
        configured = None if settings is None else settings.directory
        options = JobStateOptions(configured or DEFAULT_STATE_DIRECTORY)
    found: SnapshotPath | None = None
    if options.restore_from is not None and job_graph.settings.batch_mode:
        raise StateError(
            f"job '{job_graph.name}' runs in batch mode, which begins at the beginning: it cannot restore from {options.restore_from}",
            hint="run it in streaming mode",
        )
    if options.restore_from is not None:
        job_graph, found = _find(options.restore_from, job_graph, options.allow_non_restored_state)
    is_record_gone = found is not None and _is_record_gone(found, options, job_graph.name)
    if settings is None:
        return _without_checkpoints(job_graph, options, found, is_record_gone=is_record_gone)
    return _with_checkpoints(job_graph, options, found, clock, is_record_gone=is_record_gone)


def _is_record_gone(found: SnapshotPath, options: JobStateOptions, job_name: str) -> bool:
    """Whether the job that took a savepoint kept a log of its commits, and that is not there any more."""
    from flowrun.state.storage.commit_log_files import has_commit_log
    from flowrun.state.storage.state_path import resolve

    metadata = found.metadata
    if metadata.kind is not CheckpointKind.SAVEPOINT or not metadata.job_folder:
        return False
    folders = (resolve(metadata.job_folder), resolve(options.directory) / job_slug(job_name))
    return not any(has_commit_log(folder, metadata.lineage) for folder in folders)


def _going_back(
    found: SnapshotPath | None, job_graph: JobGraph, options: JobStateOptions, *, is_record_gone: bool
) -> GoingBack | None:
    """What is to be settled before the job restores from `found`; None: nothing is. Raises StateError if the user has not accepted it."""
    if found is None:
        return None
    from flowrun.runtime.checkpoint.going_back import GoingBack, log_folders
    from flowrun.state.storage.state_path import resolve

    own = resolve(options.directory) / job_slug(job_graph.name)
    going_back = GoingBack(found.metadata, job_graph, log_folders(found, own), is_record_gone=is_record_gone)
    going_back.check(options.committed_after)
    takes_back = options.committed_after in (AfterRestore.REMOVE, AfterRestore.REMOVE_EXISTING)
    return going_back if going_back.is_needed and takes_back else None


def _begin_sinks(job_graph: JobGraph, run: str) -> None:
    """A run begins afresh: sinks look at what is there. Raises SetupError if it must not start."""
    for vertex in job_graph.vertices:
        for operator in vertex.operators:
            sink: object = operator.sink
            if isinstance(sink, StartingAfresh):
                sink.begin(run)


def _ancestors(found: SnapshotPath | None, *, continued: bool) -> tuple[Fork, ...]:
    if found is None:
        return ()
    known = found.metadata.ancestors
    return known if continued else (Fork(found.metadata.lineage, found.metadata.checkpoint_id), *known)


def _find(path: str, job_graph: JobGraph, allow_non_restored_state: bool) -> tuple[JobGraph, SnapshotPath]:
    """(the graph with the key groups of the state, the state)."""
    # Imported here, as below: most runs begin afresh and without checkpoints, and should begin fast.
    from flowrun.runtime.checkpoint.compatibility import compare
    from flowrun.state.storage.locate import locate

    found = locate(path, job_name=job_graph.name)
    comparison = compare(found.metadata, job_graph)
    comparison.check(allow_non_restored_state)
    return comparison.job_graph, found


def _note_beginning(job_graph: JobGraph, lineage: str, ancestors: Sequence[Fork]) -> None:
    """A run begins at a snapshot of another one: its outputs keep a note of that. Raises StateError."""
    from flowrun.runtime.checkpoint.told_commits import note_beginning

    note_beginning(job_graph, lineage, ancestors)


def _without_checkpoints(
    job_graph: JobGraph, options: JobStateOptions, found: SnapshotPath | None, *, is_record_gone: bool
) -> OpenedState:
    lineage, ancestors = uuid.uuid4().hex, _ancestors(found, continued=False)
    storage = Savepoints(options.directory, job_graph.name, lineage=lineage, ancestors=ancestors)
    first = 1 if found is None else found.metadata.checkpoint_id + 1
    going_back = _going_back(found, job_graph, options, is_record_gone=is_record_gone)
    if going_back is not None:
        going_back.take_back(first, lineage, storage.folder)
    if found is None:
        _begin_sinks(job_graph, lineage)
    else:
        _note_beginning(job_graph, lineage, ancestors)
    return OpenedState(
        job_graph=job_graph,
        storage=storage,
        identity=JobIdentity(lineage, "", options.pipeline, options.job_graph_json, ancestors),
        directory=options.directory,
        takes_checkpoints=False,
        next_checkpoint_id=first,
        restored=None if found is None else RestorePoint(found.metadata, found.root),
    )


def _with_checkpoints(
    job_graph: JobGraph, options: JobStateOptions, found: SnapshotPath | None, clock: Clock, *, is_record_gone: bool
) -> OpenedState:
    from flowrun.state.storage.folder import open_job_folder
    from flowrun.state.storage.state_path import resolve

    folder = resolve(options.directory) / job_slug(job_graph.name)
    # In a new folder at the place of the old one numbers begin anew: that is another history.
    continued = found is not None and _is_of(found, folder.uri) and not is_record_gone
    lineage = found.metadata.lineage if found is not None and continued else uuid.uuid4().hex
    ancestors = _ancestors(found, continued=continued)
    settings = job_graph.settings.checkpoint
    shared = settings is not None and settings.permissions == "umask"
    storage = open_job_folder(
        options.directory, job_graph.name, lineage=lineage, clock=clock, ancestors=ancestors, shared=shared
    )
    first = max(1 if found is None else found.metadata.checkpoint_id + 1, storage.next_checkpoint_id)
    try:
        if found is None:
            _begin_sinks(job_graph, lineage)
        going_back = _going_back(found, job_graph, options, is_record_gone=is_record_gone)
        if going_back is not None and found is not None:
            going_back.take_back(first, lineage, folder)
        if found is not None and continued and (going_back is not None or options.forget_later):
            newest = found.metadata.checkpoint_id  # those after it count on what is gone, or are not to be gone on from
            storage.retain([n for n, o in storage.existing().items() if o.lineage == lineage and n <= newest])
        if found is not None and not continued:
            _note_beginning(job_graph, lineage, ancestors)
    except BaseException:
        storage.close()
        raise
    needed: set[str] = set()
    retained: list[int] = []
    if continued:
        for number, other in storage.existing().items():
            if other.lineage == lineage:
                retained.append(number)
                needed.update(c.commit_id for held in pending_commits(other).values() for c in held)
    return OpenedState(
        job_graph=job_graph,
        storage=storage,
        identity=JobIdentity(lineage, folder.uri, options.pipeline, options.job_graph_json, ancestors),
        directory=options.directory,
        takes_checkpoints=True,
        next_checkpoint_id=first,
        retained=tuple(sorted(retained)),
        restored=None if found is None else RestorePoint(found.metadata, found.root),
        continued=continued,
        needed_commits=frozenset(needed),
        hold=options.hold,
    )


def _is_of(found: SnapshotPath, folder: str) -> bool:
    """Whether a snapshot is a part of the history in a job's folder: a checkpoint lies there, a savepoint was taken of it."""
    metadata = found.metadata
    return folder == (found.root if metadata.kind is CheckpointKind.CHECKPOINT else metadata.job_folder)
