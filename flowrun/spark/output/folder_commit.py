"""Replaces the files of an output in one step that a crash cannot interrupt half-way.

First the replacement is written to the journal, a hidden file that appears when it is complete. From then on the commit is decided: a run
that finds the journal carries it out, if necessary again. Before that nothing is visible, and the next run removes what is left.
"""

from __future__ import annotations

import filecmp
import os
from collections.abc import Mapping, Sequence

import orjson

from flowrun.api.source import JsonValue
from flowrun.connectors.filesystem.earlier_output import SinkMode
from flowrun.connectors.filesystem.output_files import OutputFolder
from flowrun.connectors.filesystem.table_path import TablePath
from flowrun.core.record import record
from flowrun.errors import StateError
from flowrun.spark.output.names import OutputName


@record
class Replacement:
    """What a commit does.

    Attributes:
        publish: (hidden path, visible path) of each file to rename.
        remove: visible files of the run before, which are removed.
        marks: empty files to write, which say that a partition is complete.
        scratch: a hidden folder to remove at the end; empty: there is none.
        mark: the name of the files that mark partitions; empty: there are none.
    """

    publish: tuple[tuple[str, str], ...]
    remove: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    scratch: str = ""
    mark: str = ""


class CommitFolder:
    """The folder of one output. Every method blocks on I/O, and raises ConnectorError if the folder cannot be used.

    Args:
        location: the folder.
        name: the name of the run's files.
        mode: what a batch does with files that are there; None: it replaces those of earlier batches.
    """

    def __init__(self, location: TablePath, name: OutputName, mode: SinkMode | None = None) -> None:
        self._name = name
        self._mode = mode
        self.files = OutputFolder(location)
        self._is_local = location.is_local
        self._journal = self.files.path(name.journal)

    def prepare(self) -> None:
        """Create the folder, finish the commit of a run that was killed during it, and remove what runs left that were killed before."""
        self.files.prepare()
        journal = self.files.read(self._journal)
        if journal is not None:
            self._apply(_replacement(journal, self._journal))
        self.discard()

    def discard(self) -> None:
        """Remove all files of this output that are not visible."""
        for path in self.files.hidden_files(f".{self._name.owner}.inprogress"):
            self.files.discard(path)
        for path in self.files.hidden_folders(self._name.scratch_prefix):
            self.files.discard_folder(path)

    def replacement(
        self, publish: Sequence[tuple[str, str]], marks: Sequence[str] = (), scratch: str = "", mark: str = ""
    ) -> Replacement:
        """The replacement that makes the files of this run visible instead of those of the run before.

        If both wrote a file with the same bytes, the old one stays under its name: a program that watches the folder sees nothing new.
        """
        before = self._before()
        stays = self._unchanged(publish, before) if self._is_local else {}
        for hidden in stays:
            self.files.discard(hidden)
        renames = tuple(pair for pair in publish if pair[0] not in stays)
        remove = tuple(p for p in before if p not in set(stays.values()))
        return Replacement(renames, remove, tuple(marks), scratch, mark)

    def _before(self) -> list[str]:
        """The visible files that those of this run replace. A backfill replaces only the files of its own period."""
        visible = self.files.visible_files()
        if self._mode is None or not self._name.is_of_all:
            return [p for p in visible if self._name.is_replaced(p.rpartition("/")[2])]
        return visible if self._mode is SinkMode.OVERWRITE else []

    def _unchanged(self, publish: Sequence[tuple[str, str]], before: Sequence[str]) -> Mapping[str, str]:
        """Hidden file → file of the run before, in the same folder, with the same bytes. Tables by key are known by name: they change."""
        there: dict[tuple[str, int], list[str]] = {}
        for path in before:
            if self._name.is_part(path.rpartition("/")[2]):
                there.setdefault((path.rpartition("/")[0], os.path.getsize(path)), []).append(path)
        found = {}
        for hidden, final in publish:
            if not self._name.is_part(final.rpartition("/")[2]):
                continue
            alike = there.get((final.rpartition("/")[0], os.path.getsize(hidden)), [])
            same = next((path for path in alike if filecmp.cmp(hidden, path, shallow=False)), None)
            if same is not None:
                alike.remove(same)
                found[hidden] = same
        return found

    def commit(self, replacement: Replacement) -> None:
        """Carry out a replacement: write the journal first, and remove it at the end."""
        self.files.write_whole(self._journal, orjson.dumps(_document(replacement)))
        self._apply(replacement)

    def _apply(self, replacement: Replacement) -> None:
        for path in replacement.remove:
            self.files.discard(path)
        self.files.make_folders(final for _, final in replacement.publish)
        self.files.publish(replacement.publish)
        for folder in sorted({p.rpartition("/")[0] for p in replacement.remove}, reverse=True):
            self.files.discard_empty(folder, replacement.mark)
        for path in replacement.marks:
            self.files.finish(self.files.create(path), path)
        if replacement.scratch:
            self.files.discard_folder(replacement.scratch)
        self.files.discard(self._journal)


def _document(replacement: Replacement) -> Mapping[str, JsonValue]:
    return {
        "publish": [list(pair) for pair in replacement.publish],
        "remove": list(replacement.remove),
        "marks": list(replacement.marks),
        "scratch": replacement.scratch,
        "mark": replacement.mark,
    }


def _replacement(text: bytes, path: str) -> Replacement:
    try:
        document = orjson.loads(text)
        publish = tuple((str(before), str(after)) for before, after in document["publish"])
        return Replacement(
            publish,
            tuple(document["remove"]),
            tuple(document["marks"]),
            str(document["scratch"]),
            str(document["mark"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise StateError(
            f"{path} says how a former run is to be finished, but cannot be understood",
            hint="if its output is whole, remove the file",
        ) from error
