"""The commit of staged rows: which file, whose, and in what order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, runtime_checkable

import pyarrow as pa

from flowrun.api.sink import Committable, DeclaresCommittables, Sink
from flowrun.api.source import Delivery
from flowrun.core.record import record
from flowrun.core.shapes import Shape, integer, members, text
from flowrun.errors import ConnectorError, StateError
from flowrun.state.storage.names import STAGED_FOLDER
from flowrun.state.storage.staged_files import (
    StagedFile,
    is_staged_name,
    read_staged,
    remove_staged,
    staging_folder,
)
from flowrun.state.storage.state_path import StatePath

STAGED_SHAPE: Shape = members(
    {"folder": text, "rows": integer(), "bytes": integer(), "checksum": integer(), "writer": text, "number": integer()}
)
"""What a sink with a `StagedWriter` declares as its `committable_shape`."""


def waits_for_checkpoints(sink: Sink) -> bool:
    """Whether a sink's rows wait beside checkpoints: where there are none they are written as they come, and cannot be taken back."""
    declared: object = sink
    shape = declared.committable_shape if isinstance(declared, DeclaresCommittables) else None
    return shape is STAGED_SHAPE and sink.delivery is Delivery.EXACTLY_ONCE


@record
class StagedCommit:
    """One commit, as the outside system records it.

    Attributes:
        writer: who wrote the rows, the same over restarts; at most 200 ASCII characters.
        number: is higher in every later commit of the writer; at least 1.
        commit_id: unique.
        rows: how many.
    """

    writer: str
    number: int
    commit_id: str
    rows: int


class TransactionalTarget(Protocol):
    """The outside system of a staged sink, for its committer.

    It is used by one thread at a time. Every call ends by itself, by time-outs if need be.
    """

    def committed_number(self, writer: str) -> int:
        """The number that is recorded for a writer; 0 if there is none.

        An earlier transaction whose outcome is unknown must be over: what this gives cannot change but by `write`.

        Raises:
            ConnectorError: the system cannot be reached or refuses.
        """
        ...

    def write(self, commit: StagedCommit, batches: Iterator[pa.RecordBatch]) -> None:
        """Write all rows, and record the commit's number for its writer, in one transaction. If it raises, a later call may try again.

        Raises:
            ConnectorError: the system cannot be reached or refuses; it is unknown whether the transaction took place.
            DataError: it cannot take a row.
        """
        ...

    def close(self) -> None:
        """Release everything; idempotent, never raises. Another call opens it again."""
        ...


@runtime_checkable
class JointTarget(Protocol):
    """A `TransactionalTarget` that writes the rows of several writers in one transaction, where each transaction costs time of its own."""

    def write_together(self, commits: Sequence[tuple[StagedCommit, Iterator[pa.RecordBatch]]]) -> None:
        """`TransactionalTarget.write` for commits of different writers: all of them take place, or none."""
        ...


class StagedCommitter:
    """A `Committer` (`LongCommitter`, `ClosableCommitter`) that writes staged rows. What is recorded already is not written again.

    Args:
        create_target: makes the outside system's side when it is first needed.
    """

    commits_long = True

    def __init__(self, create_target: Callable[[], TransactionalTarget]) -> None:
        self._create_target = create_target
        self._target: TransactionalTarget | None = None
        self._owed: dict[str, set[int]] = defaultdict(set)
        """Writer → numbers of its commits that failed. Nothing later is written before those: they would be taken for written."""

    def commit(self, committables: Sequence[Committable]) -> None:
        """Write what is not recorded yet, in order: each in a transaction of its own, or, for a `JointTarget`, one of each writer together.
        Then the files are removed.

        Raises:
            ConnectorError: the outside system cannot be reached or refuses, or an earlier commit has failed and is not among these.
            StateError: a file is gone or damaged, or a committable is not one of this sink.
        """
        staged = sorted((_staged(c) for c in committables), key=lambda s: s[2].number)
        if not staged:
            return
        if self._target is None:
            self._target = self._create_target()
        recorded: dict[str, int] = {}
        done = 0
        try:
            for group in _of_one_transaction(staged, together=isinstance(self._target, JointTarget)):
                self._write(self._target, group, recorded)
                for folder, file, commit in group:
                    remove_staged(folder, file.name)
                    done += 1
                    self._owed[commit.writer].discard(commit.number)
        except BaseException:
            for _, _, commit in staged[done:]:
                self._owed[commit.writer].add(commit.number)
            target, self._target = self._target, None  # the next attempt begins with a connection of its own
            target.close()
            raise

    def _write(self, target: TransactionalTarget, group: Sequence[_Staged], recorded: dict[str, int]) -> None:
        """Write what of a group is not recorded, and note it in `recorded`, writer → number."""
        missing = []
        for folder, file, commit in group:
            self._check_order(commit)
            if commit.writer not in recorded:
                recorded[commit.writer] = target.committed_number(commit.writer)
            if recorded[commit.writer] < commit.number:
                missing.append((commit, read_staged(folder, file)))
        if len(missing) > 1 and isinstance(target, JointTarget):
            target.write_together(missing)
        else:
            for commit, batches in missing:
                target.write(commit, batches)
        recorded.update((commit.writer, commit.number) for commit, _ in missing)

    def abort(self, committables: Sequence[Committable]) -> None:
        """Remove the files. Raises StateError."""
        for folder, file, commit in map(_staged, committables):
            remove_staged(folder, file.name)
            self._owed[commit.writer].discard(commit.number)

    def close(self) -> None:
        """Close the connection. Idempotent."""
        target, self._target = self._target, None
        if target is not None:
            target.close()

    def _check_order(self, commit: StagedCommit) -> None:
        first = min(self._owed[commit.writer], default=commit.number)
        if commit.number > first:
            raise ConnectorError(f"commit {commit.number} has to wait for commit {first}, which failed", retryable=True)


_Staged = tuple[StatePath, StagedFile, StagedCommit]
"""A file, its folder, and the commit of its rows."""


def _of_one_transaction(staged: Sequence[_Staged], *, together: bool) -> Iterator[list[_Staged]]:
    """Cut commits, in order, into those that one transaction holds: a single one, or as many as are of different writers."""
    group: list[_Staged] = []
    for each in staged:
        if group and (not together or any(each[2].writer == other[2].writer for other in group)):
            yield group
            group = []
        group.append(each)
    if group:
        yield group


def committable_of(folder: str, file: StagedFile, writer: str, number: int) -> Committable:
    """What a writer hands over for a complete file in a folder."""
    return Committable(
        file.name,
        {
            "folder": folder,
            "rows": file.rows,
            "bytes": file.bytes,
            "checksum": file.checksum,
            "writer": writer,
            "number": number,
        },
    )


def _staged(committable: Committable) -> _Staged:
    """The parts of a committable, which come from state that somebody may have altered: only files of staged rows are read or removed."""
    payload, name = committable.payload, committable.commit_id
    STAGED_SHAPE(dict(payload), "payload")
    folder = staging_folder(str(payload["folder"]))
    if folder.name != STAGED_FOLDER or not is_staged_name(name):
        raise StateError(
            f"the state asks to commit '{folder / name}', which is no file of rows that wait for their commit",
            hint="somebody altered the state: use another checkpoint or savepoint",
        )

    def number_of(key: str) -> int:
        value = payload[key]
        assert isinstance(value, int)
        return value

    file = StagedFile(name, number_of("rows"), number_of("bytes"), number_of("checksum"))
    return folder, file, StagedCommit(str(payload["writer"]), number_of("number"), name, file.rows)
