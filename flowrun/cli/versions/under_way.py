"""Which jobs of this machine are between two versions: the folder of such a job is noted beside the jobs that run, as it may not run."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

from flowrun.cli.running_jobs import named
from flowrun.core.record import record
from flowrun.runners.registry import JobRegistry
from flowrun.runners.versions.history import VersionHistory
from flowrun.state.storage.state_path import resolve

_PREFIX = "upgrade-"


@record
class _Note:
    """The job that an upgrade stops: its id and name, and the folder of its state."""

    job_id: str
    name: str
    folder: str


def note_upgrade(job_id: str, name: str, history: VersionHistory) -> None:
    """Note that a job of this machine is to be upgraded. Raises ClusterError: it cannot be noted."""
    note = {"job_id": job_id, "name": name, "folder": history.job_folder.uri, "host": socket.gethostname()}
    JobRegistry().leave(_PREFIX + job_id, json.dumps(note).encode())


def forget_upgrade(job_id: str) -> None:
    """Note that the upgrade of a job is over."""
    JobRegistry().take(_PREFIX + job_id)


def upgrade_under_way(wanted: str) -> VersionHistory | None:
    """The versions of a job of this machine that an upgrade has in hand; None: there is none.

    Notes of upgrades that are over are deleted.

    Args:
        wanted: the job's name, or the beginning of its id.

    Raises:
        StateError: what is noted of its versions cannot be read.
    """
    for note in named(wanted, tuple(_notes())):
        history = VersionHistory(resolve(note.folder))
        upgrade = history.upgrade()
        if upgrade is not None and upgrade.phase.is_open and upgrade.job_id == note.job_id:
            return history
        forget_upgrade(note.job_id)
    return None


def _notes() -> Iterator[_Note]:
    host = socket.gethostname()
    for content in JobRegistry().left(_PREFIX):
        try:
            found = json.loads(content)
            note, its_host = _Note(found["job_id"], found["name"], found["folder"]), found["host"]
        except (ValueError, KeyError, TypeError):  # another version of flowrun wrote it
            continue
        if its_host == host:
            yield note
