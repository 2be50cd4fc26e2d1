"""Files that earlier runs left in a sink's folder, and what a run without restored state does with them: option `sink.mode`.

Files that are to be replaced stay until the run's own files become visible. The run lists them in a hidden file in the folder, so that a
job that restores from its first checkpoint still knows them.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

import orjson

from flowrun.connectors.filesystem.output_files import OutputFolder
from flowrun.connectors.filesystem.table_path import TablePath
from flowrun.core.options import Option, OptionType
from flowrun.errors import ConnectorError, SetupError

MODE = "sink.mode"


class SinkMode(Enum):
    """What happens to files that are there when a run begins."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    ERROR = "error"


MODE_OPTION = Option(
    MODE,
    OptionType.ENUM,
    "When a run begins afresh and the folder has files: append adds to them, overwrite removes them once the run shows its own, error (the "
    "default) does not begin. In batch mode the default is to replace what earlier batches of the pipeline wrote, and nothing else.",
    choices=tuple(m.value for m in SinkMode),
)


class EarlierOutput:
    """The visible files that a run finds in a folder. Every method blocks on I/O, and raises ConnectorError if the folder cannot be used.

    Args:
        location: the folder.
        mark: the name of the files that mark complete partitions; empty: there are no such files.
    """

    def __init__(self, location: TablePath, mark: str = "") -> None:
        self._location = location
        self._folder = OutputFolder(location)
        self._mark = mark

    def describe(self, mode: SinkMode) -> str | None:
        """A text for the user: what will happen to the files that are there; None: there are none, or the run will not begin."""
        try:
            count = len(self._folder.visible_files())
        except ConnectorError:  # `begin` reports it
            return None
        if not count or mode is SinkMode.ERROR:
            return None
        done = "adds to" if mode is SinkMode.APPEND else "replaces"
        which = "that is" if count == 1 else "that are"
        return f"{done} {_files(count)} {which} in {self._location.text} already ({MODE} is {mode.value})"

    def begin(self, mode: SinkMode, run: str) -> None:
        """Begin a run without restored state: check that the folder can be written, and note the files in it that are to be replaced.

        Args:
            mode: what happens to the files.
            run: the id of the run.

        Raises:
            SetupError: the folder cannot be written, or there are files in it and the mode does not allow any.
        """
        try:
            self._folder.prepare()
        except ConnectorError as error:  # a restart would fail for the same reason
            raise SetupError(error.message, hint=error.hint) from error
        if mode is SinkMode.APPEND:
            return
        files = self._folder.visible_files()
        if files and mode is SinkMode.ERROR:
            raise SetupError(
                f"{self._location.text} has {_files(len(files))} already, from an earlier run or somebody else ({files[0]}): a run from "
                "the beginning would add its rows to theirs",
                hint=f"set the sink's option {MODE}: overwrite replaces these files, append adds to them; to go on where an earlier run "
                "stopped, use flowrun resume; or name another folder",
            )
        marks = self._folder.marks(self._mark) if self._mark else []
        if files or marks:
            self._folder.write_whole(self._note(run), orjson.dumps([*files, *marks]))

    def replace(self, run: str, keep: Collection[str]) -> None:
        """Remove the files that the run found, except those in `keep`: its own files are visible now. It may be called again."""
        note = self._folder.read(self._note(run))
        if note is None:
            return
        paths = self._noted(note, run)
        for path in paths:
            if path not in keep and self._folder.holds(path):
                self._folder.discard(path)
        for folder in sorted({p.rpartition("/")[0] for p in paths}, reverse=True):
            self._folder.discard_empty(folder, self._mark)
        self.forget(run)

    def forget(self, run: str) -> None:
        """Keep the files that the run found: it will show no files of its own."""
        self._folder.discard(self._note(run))

    def _note(self, run: str) -> str:
        return self._folder.path(f".replaced-by-{run}.json")

    def _noted(self, note: bytes, run: str) -> list[str]:
        try:
            paths = orjson.loads(note)
            if isinstance(paths, list) and all(isinstance(p, str) for p in paths):
                return paths
        except ValueError:
            pass
        raise ConnectorError(
            f"{self._note(run)}, which names the files that a run replaces, is damaged",
            retryable=False,
            hint="remove it, and what earlier runs left in that folder",
        )


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"
