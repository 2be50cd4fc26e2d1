"""Which files of a job's folder are needed, and which may go.

Pure but for listing and deleting: a file is needed while any metadata in the folder names it, of whatever lineage. A checkpoint
that is under way may refer to files of checkpoints that were there when it began, so what ceased to be needed since then stays
until it is over.
"""

from __future__ import annotations

from collections.abc import Iterable

from flowrun.core.record import record
from flowrun.errors import StateError
from flowrun.state.storage.documents import document_at, named_paths
from flowrun.state.storage.names import METADATA_FILE, VIEWS_FILE, checkpoint_folder, checkpoint_number
from flowrun.state.storage.other_checkpoints import has_metadata
from flowrun.state.storage.state_path import TEMPORARY_SUFFIX, StatePath


@record
class Complete:
    """A checkpoint that exists: its lineage, and the paths that it needs."""

    lineage: str
    paths: frozenset[str]


class Inventory:
    """The checkpoints of a job's folder. Not thread-safe; belongs to the owner of the folder."""

    def __init__(self, folder: StatePath) -> None:
        self._folder = folder
        self._complete: dict[int, Complete] = {}
        self._unreadable = 0
        self._under_way: dict[int, int] = {}
        self._moment = 0
        self._unneeded_since: dict[str, int] = {}
        for number in self._numbers():
            place = folder / checkpoint_folder(number)
            if has_metadata(place):
                self._look_at(number, place)

    def _look_at(self, number: int, place: StatePath) -> None:
        try:
            document = document_at(place)
        except StateError:
            # What it needs is unknown, but nothing younger than itself: all up to it is left alone.
            self._unreadable = max(self._unreadable, number)
            return
        self._complete[number] = Complete(document["lineage"], named_paths(document, checkpoint_folder(number)))

    @property
    def highest(self) -> int:
        """The highest number that has a folder, complete or not; 0 if there is none."""
        return max(self._numbers(), default=0)

    @property
    def complete(self) -> dict[int, Complete]:
        """Checkpoints that exist and can be read."""
        return dict(self._complete)

    def _numbers(self) -> list[int]:
        found = (checkpoint_number(e.name) for e in self._folder.entries() if e.is_folder)
        return sorted(n for n in found if n is not None)

    def needed(self) -> frozenset[str]:
        """All paths that some metadata names."""
        return frozenset().union(*(c.paths for c in self._complete.values()))

    def begin(self, number: int) -> None:
        """A checkpoint is under way from now on."""
        self._moment += 1
        self._under_way[number] = self._moment

    def is_under_way(self, number: int) -> bool:
        """Whether it began and is not over."""
        return number in self._under_way

    def completed(self, number: int, lineage: str, paths: frozenset[str]) -> None:
        """A checkpoint exists from now on."""
        self._under_way.pop(number, None)
        self._complete[number] = Complete(lineage, paths)

    def over(self, number: int) -> None:
        """A checkpoint will never exist."""
        self._under_way.pop(number, None)

    def missing(self, number: int, paths: Iterable[str]) -> list[str]:
        """Of the paths that checkpoint `number` is about to name, those that are neither in its own folder nor needed or kept by now."""
        own = checkpoint_folder(number)
        there = {f"{own}/{e.name}" for e in (self._folder / own).entries()}
        kept = self.needed() | self._unneeded_since.keys()
        return sorted(p for p in paths if p not in there and p not in kept)

    def forget(self, number: int) -> None:
        """Delete the metadata of a checkpoint: it exists no more. Its files go with `sweep`."""
        (self._folder / checkpoint_folder(number) / METADATA_FILE).remove_file()
        del self._complete[number]

    def sweep(self) -> None:
        """Delete the files that nothing needs, and folders that are left empty.

        Raises:
            StateError: something cannot be deleted.
        """
        needed = self.needed()
        self._moment += 1
        began = min(self._under_way.values(), default=self._moment + 1)
        for number in self._numbers():
            if number > self._unreadable and number not in self._under_way:
                self._sweep_folder(number, needed, began)

    def _sweep_folder(self, number: int, needed: frozenset[str], began: int) -> None:
        name = checkpoint_folder(number)
        left = 0
        for entry in (self._folder / name).entries():
            path = f"{name}/{entry.name}"
            if entry.is_folder or path in needed or not _is_ours(entry.name):
                left += 1
            elif self._unneeded_since.setdefault(path, self._moment) < began:
                (self._folder / path).remove_file()
                del self._unneeded_since[path]
            else:
                left += 1
        if not left:
            (self._folder / name).remove_folder()

    def drop(self, number: int, names: Iterable[str]) -> None:
        """Delete files of a checkpoint's folder that no metadata names; the folder too, if it is left empty."""
        needed = self.needed()
        name = checkpoint_folder(number)
        for file in names:
            if f"{name}/{file}" not in needed and _is_ours(file):
                (self._folder / name / file).remove_file()
        if number not in self._under_way and not (self._folder / name).entries():
            (self._folder / name).remove_folder()


def _is_ours(name: str) -> bool:
    """Whether a file in a checkpoint's folder was made by flowrun; others are left alone."""
    return name in (METADATA_FILE, VIEWS_FILE) or name.endswith((".parquet", TEMPORARY_SUFFIX))
