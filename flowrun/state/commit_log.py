"""What the sinks of a job have made visible, by checkpoint: a checkpoint itself cannot know what was committed after it.

A lineage is a run with everything that was resumed from it in the same folder; a run that restores from a snapshot in another folder
begins a lineage of its own, whose ancestor is that of the snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable

from flowrun.api.sink import Committable
from flowrun.core.record import record


@record
class Fork:
    """Where a lineage began: at a checkpoint or savepoint of another one."""

    lineage: str
    checkpoint_id: int


@record
class LoggedCommit:
    """What one sink made visible with a checkpoint, or after it and before the next.

    Attributes:
        checkpoint_id: of the first snapshot that knows these rows to be visible.
        operator_id: of the sink.
        sink: its name, for people.
        committables: as the committer gets them.
    """

    checkpoint_id: int
    operator_id: str
    sink: str
    committables: tuple[Committable, ...]


@record
class WentBack:
    """A run restored from checkpoint `to`, and what had been committed after it was taken back.

    Snapshots with numbers above `to` and below `before` count on rows that are there no more.
    """

    to: int
    before: int


@record
class LineageLog:
    """The commits of one lineage.

    Attributes:
        lineage: whose.
        folder: URI or path of the job's folder that holds it.
        ancestors: where it began, the nearest first; empty for a fresh start.
        complete_from: what was committed up to this checkpoint may be missing.
        commits: in the order in which they were made.
        returns: when it was gone back.
    """

    lineage: str
    folder: str
    ancestors: tuple[Fork, ...] = ()
    complete_from: int = 0
    commits: tuple[LoggedCommit, ...] = ()
    returns: tuple[WentBack, ...] = ()

    def fork_of(self, lineage: str) -> int | None:
        """Up to which checkpoint of a lineage this one is its continuation; None: it is none.

        >>> LineageLog("b", "/f", (Fork("a", 5),)).fork_of("a"), LineageLog("b", "/f").fork_of("a")
        (5, None)
        """
        return next((f.checkpoint_id for f in self.ancestors if f.lineage == lineage), None)


@record
class CommittedAfter:
    """What was committed after a snapshot, in one lineage.

    Attributes:
        log: of the lineage.
        commits: those, less what the snapshot holds itself.
        taken_back: commit ids of those that an earlier return took back, or was about to.
        is_complete: whether the log reaches back to the snapshot.
    """

    log: LineageLog
    commits: tuple[LoggedCommit, ...]
    taken_back: frozenset[str]
    is_complete: bool


def committed_after(
    lineage: str, checkpoint_id: int, held: Iterable[str], logs: Iterable[LineageLog]
) -> list[CommittedAfter]:
    """What was committed after a snapshot: in its lineage, and in those that restored from it or from what came after it.

    Args:
        lineage: of the snapshot.
        checkpoint_id: its number.
        held: commit ids that it holds itself: to commit them again changes nothing.
        logs: of all lineages that are known, each once.

    >>> one, two = (LoggedCommit(n, "o", "out", (Committable(f"file-{n}", {}),)) for n in (4, 5))
    >>> [after] = committed_after("a", 4, (), [LineageLog("a", "/f", commits=(one, two))])
    >>> [c.checkpoint_id for c in after.commits]
    [5]
    """
    found = []
    own = set(held)
    for log in logs:
        if log.lineage == lineage:
            is_complete = checkpoint_id >= log.complete_from
        else:
            fork = log.fork_of(lineage)
            if fork is None or fork < checkpoint_id:
                continue
            is_complete = not log.complete_from
        before = {c.commit_id for e in log.commits if e.checkpoint_id <= checkpoint_id for c in e.committables}
        commits = tuple(_without(e, before | own) for e in log.commits if e.checkpoint_id > checkpoint_id)
        taken_back = frozenset(
            c.commit_id
            for entry in commits
            if any(r.to < entry.checkpoint_id < r.before for r in log.returns)
            for c in entry.committables
        )
        found.append(CommittedAfter(log, tuple(c for c in commits if c.committables), taken_back, is_complete))
    return found


def _without(entry: LoggedCommit, known: set[str]) -> LoggedCommit:
    left = tuple(c for c in entry.committables if c.commit_id not in known)
    return LoggedCommit(entry.checkpoint_id, entry.operator_id, entry.sink, left)
