"""The committer of a lake table: one commit of the table for all that a checkpoint holds, in the same commit as its record.

The record says up to which number the committables of each writer are in the table. So a commit that is repeated finds what is in already,
whoever was killed when.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from flowrun.api.sink import Committable, CommittedPiece
from flowrun.connectors.lake.changes import ChangesGoneError
from flowrun.connectors.lake.committables import Content, Handed, file_origin, in_order, owner_digits
from flowrun.connectors.lake.storage import TableStorage
from flowrun.errors import ConnectorError, StateError

_log = logging.getLogger(__name__)

_ATTEMPTS = 12
_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 5.0


class ConflictError(Exception):
    """Somebody else committed meanwhile, or it is not known whether the commit arrived: look again, then try again."""


class TableVersion(Protocol):
    """A table as it was when it was opened. All methods block on I/O; those that commit are called once, as the last."""

    @property
    def storage(self) -> TableStorage:
        """The folder of the table."""
        ...

    def is_committed(self, given: Handed) -> bool:
        """Whether a committable is in the table, as its record says.

        Raises:
            ConnectorError: it cannot be known any more.
        """
        ...

    def holds_sequence(self, writer: str, sequence: int, since_ms: int) -> bool | None:
        """Whether the record names this committable of a writer, or a later one.

        Args:
            writer: its name.
            sequence: number of the committable.
            since_ms: it was not committed before this time, in ms since the epoch.

        Returns:
            None if it is not known: the record of that time is gone.
        """
        ...

    def add(self, given: Sequence[Handed]) -> None:
        """Commit files of rows, and their record.

        Raises:
            ConflictError: nothing was committed, or it is not known.
            ConnectorError: it cannot be done.
        """
        ...

    def apply(self, given: Sequence[Handed]) -> None:
        """Commit changes by key, and their record; raises as `add`."""
        ...

    def live(self, paths: Collection[str]) -> set[str]:
        """Those of the data files that are part of the table."""
        ...

    def remove(self, paths: Collection[str]) -> None:
        """Commit the table without these data files, which are part of it; raises as `add`."""
        ...


class LakeCommitter:
    """Commits what the writers of a sink wrote.

    Args:
        open_table: opens the newest version of the table.
        sleep: waits for so many seconds before a commit is tried again.
    """

    def __init__(self, open_table: Callable[[], TableVersion], sleep: Callable[[float], None] = time.sleep) -> None:
        self._open = open_table
        self._sleep = sleep
        self._known: dict[str, int] = {}
        """Writer → the number up to which this committer knows its committables to be in the table."""

    commits_long = True
    """A commit may rewrite files, or have to be tried again; and it gets what a checkpoint holds in one call."""

    def commit(self, committables: Sequence[Committable]) -> None:
        """Commit what is not in the table yet, at once.

        Raises:
            ConnectorError: the table cannot be read or written, or others changed it in each try.
            StateError: a committable names files that are not in the table's folder; then nothing is committed.
        """
        wanted = [h for h in in_order(committables) if h.sequence > self._known.get(h.writer, 0)]
        if not wanted:
            return
        table = self._tried(lambda table: self._commit(table, wanted))
        for one in wanted:
            self._known[one.writer] = one.sequence
            for file in one.files if one.content is Content.CHANGES else ():
                table.storage.discard(str(file["path"]))

    def _commit(self, table: TableVersion, wanted: Sequence[Handed]) -> None:
        self._check(table, wanted)
        left = [h for h in wanted if not table.is_committed(h)]
        if not left:
            return
        if any(h.content is Content.CHANGES for h in left):
            table.apply(left)
        else:
            table.add(left)

    def _tried(self, act: Callable[[TableVersion], None]) -> TableVersion:
        """Act on the newest version of the table, again and again while others change it; gives that version."""
        wait = _FIRST_WAIT_S
        for attempt in range(1, _ATTEMPTS + 1):
            table = self._open()
            try:
                act(table)
            except ChangesGoneError:
                if attempt > 1:
                    raise
            except ConflictError as error:
                if attempt == _ATTEMPTS:
                    raise ConnectorError(
                        f"the table could not be committed to in {_ATTEMPTS} tries, since others changed it meanwhile: {error}",
                        hint="take checkpoints less often, or have fewer jobs write the same table",
                    ) from error
                _log.info("the table was changed meanwhile (%s): try %d of the commit follows", error, attempt + 1)
                self._sleep(wait * random.uniform(0.5, 1))
                wait = min(wait * 2, _LONGEST_WAIT_S)
            else:
                return table
        raise AssertionError

    @staticmethod
    def _check(table: TableVersion, given: Sequence[Handed]) -> None:
        for one in given:
            for file in one.files:
                origin = file_origin(str(file["path"]))
                if not table.storage.holds(file["path"]) or origin is None or origin.commit_id != one.commit_id:
                    raise StateError(
                        f"the state asks to commit '{file['path']}', which no writer of this sink wrote below '{table.storage.base}'",
                        hint="if the sink's table was changed, go on once with the old one; else somebody altered the state: use "
                        "another checkpoint",
                    )

    def abort(self, committables: Sequence[Committable]) -> None:
        """Remove the files of committables that are not in the table.

        Raises:
            StateError: a committable names files that are not in the table's folder.
        """
        given = in_order(committables)
        if not given:
            return
        table = self._open()
        self._check(table, given)
        for one in given:
            if table.holds_sequence(one.writer, one.sequence, one.written_ms) is False:
                for file in one.files:
                    table.storage.discard(str(file["path"]))

    def discard_orphans(self, owner: str, keep: Collection[str]) -> int:
        """Remove the files of this owner that no commit of the table named and none will; gives how many they were."""
        digits = owner_digits(owner)
        table = self._open()
        kept = set(keep)
        count = 0
        for path, written_ms in table.storage.files():
            origin = file_origin(path)
            if origin is None or origin.owner != digits or origin.commit_id in kept:
                continue
            if table.holds_sequence(origin.writer, origin.sequence, written_ms) is False:
                table.storage.discard_path(path)
                count += 1
        return count


class AppendCommitter(LakeCommitter):
    """A committer of rows, which can also take back what it committed: the files leave the table in a new version of it."""

    def committed(self, committables: Sequence[Committable]) -> Sequence[CommittedPiece]:
        """The data files among the committables that are in the table, or were: somebody may have rewritten or removed them."""
        rows = [h for h in in_order(committables) if h.content is Content.ROWS]
        table = self._open()
        rows = [h for h in rows if all(table.storage.holds(f["path"]) for f in h.files)]
        live = table.live({str(f["path"]) for h in rows for f in h.files})
        return [
            CommittedPiece(h.commit_id, _shown(h), all(str(f["path"]) in live for f in h.files))
            for h in rows
            if any(str(f["path"]) in live for f in h.files) or table.holds_sequence(h.writer, h.sequence, h.written_ms)
        ]

    def revert(self, committables: Sequence[Committable]) -> None:
        """Take data files out of the table."""
        rows = [h for h in in_order(committables) if h.content is Content.ROWS]

        def remove(table: TableVersion) -> None:
            paths = {str(f["path"]) for h in rows for f in h.files if table.storage.holds(f["path"])}
            live = table.live(paths)
            if live:
                table.remove(live)

        self._tried(remove)


def _shown(given: Handed) -> str:
    first = str(given.files[0]["path"])
    return first if len(given.files) == 1 else f"{first} and {len(given.files) - 1} more"
