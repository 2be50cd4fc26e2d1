"""Going back to an older checkpoint or savepoint.

What sinks committed after that checkpoint would be written a second time. It is therefore taken back first, if the user has said so;
if not, the job does not start.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from flowrun.api.sink import CommitReverting, Committable, CommittedPiece, Sink
from flowrun.core.elements import CheckpointKind
from flowrun.core.record import record
from flowrun.errors import ConnectorError, StateError
from flowrun.graph.job_graph import JobGraph
from flowrun.runtime.checkpoint.after_restore import AfterRestore
from flowrun.runtime.checkpoint.assembly import pending_commits
from flowrun.runtime.checkpoint.told_commits import note_taken_back, silent_sinks, telling_outputs, with_told
from flowrun.state.checkpoints import CheckpointMetadata
from flowrun.state.commit_log import CommittedAfter, LineageLog, WentBack, committed_after
from flowrun.state.storage.commit_log_files import note_return, read_commit_logs
from flowrun.state.storage.locate import SnapshotPath
from flowrun.state.storage.lock import highest_number
from flowrun.state.storage.state_path import StatePath, resolve

_log = logging.getLogger(__name__)

_SHOWN = 3
_FOR_EVER = 2**62
"""Above all numbers of checkpoints."""


@record
class _SinkPieces:
    """What one sink of the job would write once more. `pieces` is None where the sink cannot say and cannot take anything back."""

    name: str
    committer: CommitReverting | None
    committables: tuple[Committable, ...]
    pieces: tuple[CommittedPiece, ...] | None

    @property
    def gone(self) -> list[str]:
        """Names of pieces that are not where they were committed."""
        return [p.name for p in self.pieces or () if not p.is_there]

    @property
    def text(self) -> str:
        """The sink and what it committed, in a few words."""
        if self.pieces is None:
            return f"sink '{self.name}': {len(self.committables)} commits"
        return f"sink '{self.name}': {_listed([p.name for p in self.pieces])}"


class GoingBack:
    """What there is to settle before a job restores from a snapshot; `settle` does it.

    Args:
        metadata: of the snapshot.
        job_graph: that will run: only what its sinks would write once more matters.
        folders: job folders whose logs may know of commits after it.
        is_record_gone: whether the log of the job that took it is in none of them: only outputs can tell then.

    Raises:
        StateError: a log is damaged; or the snapshot counts on rows that were taken back since.
    """

    def __init__(
        self, metadata: CheckpointMetadata, job_graph: JobGraph, folders: Iterable[str], *, is_record_gone: bool = False
    ) -> None:
        self._metadata = metadata
        self._outputs = telling_outputs(job_graph)
        logs: dict[str, LineageLog] = {}
        for folder in dict.fromkeys(folders):
            for lineage, log in read_commit_logs(resolve(folder)).items():
                logs.setdefault(lineage, log)
        self._silent = silent_sinks(job_graph) if is_record_gone else []
        logs = with_told(metadata.lineage, logs, self._outputs)
        _check_not_taken_back(metadata, logs)
        held = [c.commit_id for cs in pending_commits(metadata).values() for c in cs]
        self._after = committed_after(metadata.lineage, metadata.checkpoint_id, held, logs.values())
        self._sinks = [s for s in _sinks(job_graph, self._after) if s.pieces is None or s.pieces]

    @property
    def is_needed(self) -> bool:
        """Whether something was committed after the snapshot, or may have been."""
        return bool(self._sinks or self._silent) or not all(a.is_complete for a in self._after)

    def check(self, choice: AfterRestore) -> None:
        """Whether the job may start.

        Raises:
            StateError: it may not; says what was committed, and what the user can choose.
        """
        if choice is AfterRestore.KEEP or not self.is_needed:
            return
        about = self._metadata
        where = f"{about.kind.value} {about.checkpoint_id} of '{about.job_name}'"
        if not all(a.is_complete for a in self._after):
            raise StateError(
                f"what sinks committed after {where} is not known any more: the log was shortened, as no checkpoint and no savepoint "
                "that it knew of needed it; going on from here would write those rows again",
                hint="go on from a newer checkpoint or savepoint; --committed-after keep goes on all the same: rows are then there twice",
            )
        if self._silent:
            raise StateError(
                f"what sink '{self._silent[0]}' committed after {where} is not known: the record of it was in "
                f"'{about.job_folder}', which is not there",
                hint="put that folder back; or, if nothing was committed after it or you have taken it back by hand, go on with "
                "--committed-after keep: else rows are there twice",
            )
        if choice is AfterRestore.REFUSE:
            raise StateError(
                f"going on from {where} would write rows again that were committed after it: {self._text}",
                hint="go on from a newer checkpoint or savepoint, or say what becomes of these: --committed-after remove deletes them "
                "first, so that each row is there once; --committed-after keep leaves them, and their rows are there twice",
            )
        unable = [s.name for s in self._sinks if s.committer is None]
        if unable:
            raise StateError(
                f"sink '{unable[0]}' cannot take back what it committed after {where}",
                hint="take it back by hand, then go on with --committed-after keep; without that, rows are there twice",
            )
        gone = [name for s in self._sinks for name in s.gone]
        if gone and choice is AfterRestore.REMOVE:
            raise StateError(
                f"{_listed(gone)} that were committed after {where} are not there any more",
                hint="--committed-after remove-existing deletes the others and goes on: what was deleted is written again, and the rows "
                "of what was moved are then there twice",
            )

    @property
    def _text(self) -> str:
        return "; ".join(s.text for s in self._sinks)

    def take_back(self, next_checkpoint_id: int, continued: str, own: StatePath) -> None:
        """Take back what was committed after the snapshot; whoever is interrupted here does it again.

        Args:
            next_checkpoint_id: the first number of the run that goes on.
            continued: its lineage.
            own: its job's folder.

        Raises:
            StateError: it cannot be done, or cannot be noted.
        """
        for after in self._after:
            if after.commits:
                self._note(after.log, next_checkpoint_id if after.log.lineage == continued else None, own)
        for sink in self._sinks:
            if sink.committer is None:
                continue
            try:
                sink.committer.revert(sink.committables)
            except ConnectorError as error:
                raise StateError(
                    f"sink '{sink.name}' could not take back what it had committed: {error.message}", hint=error.hint
                ) from error
            _log.info("took back what was committed after %d: %s", self._metadata.checkpoint_id, sink.text)

    def _note(self, log: LineageLog, next_checkpoint_id: int | None, own: StatePath) -> None:
        """Note that what a lineage committed is taken back, for all who restore from later snapshots of it.

        `next_checkpoint_id`: snapshots from there on do not count on it; None: those that the lineage takes from now on do not.
        """
        event = WentBack(self._metadata.checkpoint_id, next_checkpoint_id or _FOR_EVER)
        if log.folder:
            folder = resolve(log.folder)
            highest = highest_number(folder)
            if next_checkpoint_id is None and highest is not None:
                event = WentBack(event.to, highest + 1)
            note_return(folder, log.lineage, event)
        else:
            note_taken_back(self._outputs, log.lineage, event)
            note_return(own, log.lineage, event)


def log_folders(found: SnapshotPath, own: StatePath) -> list[str]:
    """The job folders whose logs may know what was committed after a snapshot: of the job that took it, and of the one that goes on."""
    moved = found.root if found.metadata.kind is CheckpointKind.CHECKPOINT else ""
    return [f for f in (moved, found.metadata.job_folder, own.uri) if f]


def _check_not_taken_back(metadata: CheckpointMetadata, logs: dict[str, LineageLog]) -> None:
    log = logs.get(metadata.lineage)
    for back in () if log is None else log.returns:
        if back.to < metadata.checkpoint_id < back.before:
            raise StateError(
                f"{metadata.kind.value} {metadata.checkpoint_id} of '{metadata.job_name}' counts on rows that are there no more: they were "
                f"taken back when the job went back to {back.to}",
                hint=f"go on from {back.to}, from one before it, or from one taken later (number {back.before} or higher)",
            )


def _sinks(job_graph: JobGraph, after: Sequence[CommittedAfter]) -> list[_SinkPieces]:
    """What each sink of the job would write once more. Several sinks may write below one folder: each piece counts once."""
    found = []
    claimed: set[str] = set()
    committables = [c for a in after for entry in a.commits for c in entry.committables]
    taken_back = frozenset().union(*(a.taken_back for a in after))
    if not committables:
        return []
    for vertex in job_graph.vertices:
        for operator in vertex.operators:
            if operator.sink is not None:
                own = [
                    c for a in after for e in a.commits if e.operator_id == operator.operator_id for c in e.committables
                ]
                pieces = _pieces(
                    operator.name.removeprefix("Sink: "), operator.sink, own, committables, taken_back, claimed
                )
                found.append(pieces)
    return found


def _pieces(
    name: str,
    sink: Sink,
    own: Sequence[Committable],
    committables: Sequence[Committable],
    taken_back: frozenset[str],
    claimed: set[str],
) -> _SinkPieces:
    committer: object = sink.create_committer()
    if not isinstance(committer, CommitReverting):
        left = tuple(c for c in own if c.commit_id not in taken_back)
        return _SinkPieces(name, None, left, None if left else ())
    try:
        found = committer.committed(committables)
    except ConnectorError as error:
        raise StateError(f"sink '{name}': {error.message}", hint=error.hint) from error
    # What an earlier return took back is gone on purpose.
    pieces = [p for p in found if p.commit_id not in claimed and (p.is_there or p.commit_id not in taken_back)]
    claimed.update(p.commit_id for p in pieces)
    return _SinkPieces(name, committer, tuple(committables), tuple(pieces))


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{len(names)} {'file' if len(names) == 1 else 'files'} ({', '.join(names[:_SHOWN])}{more})"
