"""What a path given by the user names: a savepoint, one checkpoint, a job's folder or a folder of jobs."""

from __future__ import annotations

from flowrun.core.elements import CheckpointKind
from flowrun.core.record import record
from flowrun.errors import StateError, did_you_mean, near_matches
from flowrun.state.checkpoints import CheckpointMetadata
from flowrun.state.storage.leases import lease
from flowrun.state.storage.metadata_file import folder_of, metadata_in
from flowrun.state.storage.names import checkpoint_folder, checkpoint_number, job_slug
from flowrun.state.storage.other_checkpoints import complete_numbers, has_metadata
from flowrun.state.storage.state_path import StatePath, resolve
from flowrun.state.storage.stop_note import read_stop_note

_LOOKS = 10
"""How often the newest checkpoint is looked for if it goes while it is read: without a lease a job may be faster for a while."""


@record
class SnapshotPath:
    """A complete checkpoint or savepoint.

    Attributes:
        root: where the paths of its state files start: the job's folder, or the savepoint itself.
        folder: with `_metadata.json`.
        metadata: read from there.
    """

    root: str
    folder: str
    metadata: CheckpointMetadata


def locate(path: str, *, job_name: str | None = None) -> SnapshotPath:
    """The checkpoint or savepoint at `path`: itself, or the newest complete one of a job's folder or checkpoint directory.

    Args:
        path: local path or URI of a savepoint, a checkpoint, its metadata, a job's folder, or a folder with several of those.
        job_name: chooses among several jobs.

    Raises:
        StateError: there is none, there are several jobs and `job_name` does not choose, or the newest is damaged.
    """
    return locate_in(resolve(path), job_name=job_name)


def locate_in(location: StatePath, *, job_name: str | None = None) -> SnapshotPath:
    """As `locate`, of a location."""
    folder = folder_of(location)
    if has_metadata(folder):
        if checkpoint_number(folder.name) is not None:
            lease(folder.parent)
        return _snapshot(folder)
    if checkpoint_number(folder.name) is not None and folder.entries():
        raise StateError(f"checkpoint '{folder}' was never completed", hint=_others(folder))
    newest = _newest_of_running(folder)
    if newest is not None:
        return newest
    jobs = [e.name for e in folder.entries() if e.is_folder and _is_job(folder / e.name)]
    if len(jobs) == 1 and (job_name is None or job_slug(job_name) == jobs[0]):
        return _of_job(folder / jobs[0])
    if job_name is not None and job_slug(job_name) in jobs:
        return _of_job(folder / job_slug(job_name))
    if jobs:
        raise _unclear(folder, jobs, job_name)
    raise _nothing_at(folder)


def newest_checkpoint(directory: str, job_name: str) -> SnapshotPath | None:
    """The newest complete checkpoint in the folder of a job; None: it has none.

    Args:
        directory: of checkpoints, local path or URI.
        job_name: of the job.

    Raises:
        StateError: it is damaged, or the job was stopped with a savepoint since.
    """
    return _newest_of_running(resolve(directory) / job_slug(job_name))


def _of_job(folder: StatePath) -> SnapshotPath:
    newest = _newest_of_running(folder)
    if newest is None:
        raise _nothing_at(folder)
    return newest


def _newest_of_job(folder: StatePath) -> SnapshotPath | None:
    numbers = complete_numbers(folder)
    note = read_stop_note(folder)
    if note is not None and note.checkpoint_id > max(numbers, default=0):
        older = (
            f"; to go back to the checkpoint before on purpose, name {folder / checkpoint_folder(numbers[0])}"
            if numbers
            else ""
        )
        raise StateError(
            f"the job of '{folder}' was stopped with a savepoint, which is newer than its checkpoints: what it wrote is committed up to "
            "there, and would be written again from an older one",
            hint=f"resume from {note.savepoint}{older}",
        )
    return _snapshot(folder / checkpoint_folder(numbers[0])) if numbers else None


def _newest_of_running(folder: StatePath) -> SnapshotPath | None:
    """The newest of a job's folder, whose owner may be deleting older ones while it is looked for."""
    if complete_numbers(folder):
        lease(folder)
    for _ in range(_LOOKS):
        newest = max(complete_numbers(folder), default=0)
        try:
            return _newest_of_job(folder)
        except StateError:
            if has_metadata(folder / checkpoint_folder(newest)) or not complete_numbers(folder):
                raise
    return _newest_of_job(folder)


def _is_job(folder: StatePath) -> bool:
    return bool(complete_numbers(folder)) or read_stop_note(folder) is not None


def _snapshot(folder: StatePath) -> SnapshotPath:
    metadata = metadata_in(folder)
    root = folder if metadata.kind is CheckpointKind.SAVEPOINT else folder.parent
    return SnapshotPath(root.uri, folder.uri, metadata)


def _unclear(folder: StatePath, jobs: list[str], job_name: str | None) -> StateError:
    listed = ", ".join(f"'{j}'" for j in jobs)
    if job_name is None:
        return StateError(
            f"'{folder}' has checkpoints of several jobs: {listed}",
            hint=f"name one of them, for example {folder / jobs[0]}",
        )
    return StateError(
        f"'{folder}' has no checkpoint of job '{job_name}', but of {listed}",
        hint=did_you_mean(job_slug(job_name), jobs),
    )


def _others(folder: StatePath) -> str:
    numbers = complete_numbers(folder.parent)
    if not numbers:
        return f"'{folder.parent}' has no complete checkpoint"
    return f"the newest complete one is {folder.parent / checkpoint_folder(numbers[0])}"


def _nothing_at(folder: StatePath) -> StateError:
    entries = folder.entries()
    if entries:
        names = [e.name for e in entries]
        shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        savepoints = [e.name for e in entries if e.is_folder and has_metadata(folder / e.name)]
        if savepoints:
            return StateError(
                f"'{folder}' has no checkpoints, but savepoints: {', '.join(savepoints[:8])}",
                hint=f"name one of them, for example {folder / savepoints[0]}",
            )
        return StateError(f"'{folder}' has no complete checkpoint or savepoint; there is: {shown}")
    siblings = [e.name for e in folder.parent.entries() if e.is_folder and e.name != folder.name]
    close = near_matches(folder.name, siblings)
    hint = f"did you mean {' or '.join(str(folder.parent / c) for c in close)}?" if close else None
    return StateError(f"there is no checkpoint or savepoint at '{folder}': no such folder, or it is empty", hint=hint)
