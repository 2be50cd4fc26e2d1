"""Deletes the savepoints with which versions of a pipeline ended, once they are old: `flowrun apply` takes one for each upgrade."""

from __future__ import annotations

import re

from flowrun.runners.versions.history import SAVEPOINTS_FOLDER, VERSIONS_FOLDER, VersionHistory
from flowrun.state.storage.leases import is_leased
from flowrun.state.storage.state_path import StatePath, resolve
from flowrun.state.storage.stop_note import read_stop_note

_OF_UPGRADE = re.compile(r"[0-9a-f]{12}")
_NUMBER = re.compile(r"savepoint-.*-(\d+)")


def forget_savepoints(history: VersionHistory, keep: int) -> int:
    """Delete the savepoints that upgrades took, but for the last ones; gives of how many upgrades.

    Kept whatever its age is what somebody may go on from: the savepoint of the last upgrade, that with which the job was stopped, and those
    from which the versions of the last upgrade and the one that runs began. Nothing is deleted while another process reads in the job's
    folder. Savepoints that users take lie elsewhere.

    Args:
        history: of the pipeline, whose last upgrade is decided.
        keep: how many are kept; at least 1.

    Raises:
        StateError: the folder cannot be read, or something cannot be deleted.
    """
    folder = history.job_folder / VERSIONS_FOLDER / SAVEPOINTS_FOLDER
    taken = [
        (_checkpoint_number(folder / entry.name), entry.name)
        for entry in folder.entries()
        if entry.is_folder and _OF_UPGRADE.fullmatch(entry.name)
    ]
    if len(taken) <= keep or is_leased(history.job_folder):
        return 0
    needed = _needed(history)
    forgotten = 0
    for _, name in sorted(taken)[:-keep]:
        old = folder / name
        if not any(uri == old.uri or uri.startswith(f"{old.uri}/") for uri in needed):
            old.remove_folder()
            forgotten += 1
    return forgotten


def _checkpoint_number(folder: StatePath) -> int:
    """The number of the savepoint in a folder: it grows within a job's folder. -1: it is not whole."""
    found = (_NUMBER.fullmatch(entry.name) for entry in folder.entries())
    return max((int(match[1]) for match in found if match is not None), default=-1)


def _needed(history: VersionHistory) -> set[str]:
    """Where what somebody may go on from lies."""
    places: list[str | None] = []
    note, upgrade, runs = read_stop_note(history.job_folder), history.upgrade(), history.latest()
    if note is not None:
        places.append(note.savepoint)
    if runs is not None:
        places.append(runs.restored_from)
    if upgrade is not None:
        kept = set(history.numbers()) & {upgrade.old, upgrade.new}
        places += [upgrade.savepoint, *(history.version(number).restored_from for number in kept)]
    return {resolve(place).uri for place in places if place}
