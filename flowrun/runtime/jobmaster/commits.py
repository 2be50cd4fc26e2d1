"""Commits what sinks wrote: the job's side of `Committer`. Used by the job master's thread only.

A committer that takes long (`LongCommitter`) runs on a thread beside it. What it was given stays pending, and so is part of the checkpoints
that are completed meanwhile, until it has returned.

With checkpoints, what a running sink submits belongs to a completed checkpoint and is committed at once. What a sink submits at its
end waits here until it is part of a completed checkpoint. Without checkpoints, what was rolled while an unbounded job runs is
committed at once, and what was closed at the end when every subtask of the job has finished. What a completed checkpoint
holds is never aborted: it is committed when the job ends, whoever had to submit it; everything else is aborted then.

A job that is on trial (`CommitHold`) commits nothing but what the snapshot holds that it restored from. All else is part of its
checkpoints, as if nobody had been told that they are complete, until the hold is released; if that does not come to pass, the end of the
job commits none of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field

from flowrun.api.sink import ClosableCommitter, Committable, Committer, LongCommitter, OrphanDiscarding, Replacing, Sink
from flowrun.core.provided import provides
from flowrun.core.record import record
from flowrun.errors import InternalError
from flowrun.graph.execution_graph import ExecutionVertexId
from flowrun.graph.job_graph import JobGraph
from flowrun.runtime.jobmaster.commit_hold import CommitHold
from flowrun.runtime.jobmaster.long_commits import LongCommits
from flowrun.runtime.messages import CommittablesReport
from flowrun.state.commit_log import LoggedCommit

_log = logging.getLogger(__name__)


@record(frozen=False)
class _SinkCommits:
    """One sink of the job."""

    name: str
    vertex_id: str
    sink: Sink
    committer: Committer | None = None
    pending: list[tuple[int, Committable]] = field(default_factory=list)
    """(subtask, committable), in order of arrival."""
    ended: set[str] = field(default_factory=set)
    """Commit ids of what subtasks handed over at their ends."""
    shows: bool = False
    """It has shown something, in place of what was there before."""
    covered: dict[str, Committable] = field(default_factory=dict)
    """Commit id → what the last completed checkpoint holds."""
    owed: dict[str, Committable] = field(default_factory=dict)
    """The part of `covered` that was not committed since."""

    @property
    def takes_long(self) -> bool:
        committer: object = self.created()
        return isinstance(committer, LongCommitter) and committer.commits_long

    def created(self) -> Committer:
        if self.committer is None:
            self.committer = self.sink.create_committer()
        if self.committer is None:
            raise InternalError(f"sink '{self.name}' handed over committables but has no committer")
        return self.committer


class CommitError(Exception):
    """Committing or aborting failed for one sink; `__cause__` says why."""

    def __init__(self, sink: str) -> None:
        super().__init__(sink)
        self.sink = sink


class CommitCoordinator:
    """The committers of one job.

    Args:
        job_graph: with its sinks.
        checkpoints: whether the job takes periodic checkpoints. If not, it can still have gone on from a savepoint, or have taken one.
        run: the lineage; what sinks found when it began is replaced when they show something; empty: nothing is.
        log: notes what is about to be committed; what checkpoints hold is noted when they are stored.
        long: runs committers that take long; None: they run here.
        discard_staged: removes rows that wait in files of a lineage, but those of these commit ids; gives how many files.
        hold: nothing is committed until this has accepted it; None: the job is not on trial.
        before_hold: commit ids that are not held back: of the snapshot that the job restores from.
    """

    def __init__(
        self,
        job_graph: JobGraph,
        *,
        checkpoints: bool,
        run: str = "",
        log: Callable[[Sequence[LoggedCommit]], None] | None = None,
        long: LongCommits | None = None,
        discard_staged: Callable[[str, Collection[str]], int] | None = None,
        hold: CommitHold | None = None,
        before_hold: Collection[str] = (),
    ) -> None:
        self._hold = hold
        self._before_hold = frozenset(before_hold)
        self._held_at: int | None = None
        """The last checkpoint that was completed while commits were held back."""
        self._run = run
        self._long = long
        self._discard_staged = discard_staged
        self._checkpoints = checkpoints
        self._log = log
        self._numbers: dict[str, int] = {}
        """Commit id → the first snapshot that could know it, of what no checkpoint holds."""
        self._sinks = {
            operator.operator_id: _SinkCommits(operator.name, vertex.vertex_id, operator.sink)
            for vertex in job_graph.vertices
            for operator in vertex.operators
            if operator.sink is not None
        }
        self._protected: set[str] = set()
        self._has_snapshots = False
        """Whether somebody can restore from this run."""

    def report(self, report: CommittablesReport, *, running: bool) -> None:
        """A subtask handed something over: commit it, or keep it for the end.

        Args:
            report: what.
            running: whether the job runs, so that a job without checkpoints shows what it has rolled.

        Raises:
            CommitError: the committer failed; the committables stay pending.
        """
        known = self._sinks[report.operator_id]
        covered = [c for c in report.committables if c.commit_id in known.covered]
        entries = [(report.vertex.subtask, c) for c in report.committables]
        if report.after_snapshot and not self._checkpoints:
            self._numbers.update((c.commit_id, report.after_snapshot + 1) for c in report.committables)
        held_back = len(self._free(report.committables)) < len(report.committables)
        if report.at_end or held_back or not (self._checkpoints or running or len(covered) == len(report.committables)):
            known.pending += entries
            if report.at_end:
                known.ended.update(c.commit_id for c in report.committables)
            return
        if self._long is not None and known.takes_long:
            known.pending += entries
            self._begin(known, report.committables)
            return
        try:
            self._commit(known, report.committables)
        except CommitError:
            known.pending += entries
            raise

    def held(self, acknowledged: Collection[ExecutionVertexId] = ()) -> dict[tuple[str, int], tuple[Committable, ...]]:
        """(operator id, subtask) → what waits for the end of the job or the next checkpoint.

        Args:
            acknowledged: subtasks that have acknowledged a checkpoint which is to hold it. What they handed over at their ends since is not
                part of it: its rows came behind the barrier.
        """
        held: dict[tuple[str, int], tuple[Committable, ...]] = {}
        for operator_id, known in self._sinks.items():
            behind = known.ended - known.covered.keys()
            for subtask, committable in known.pending:
                if committable.commit_id in behind and ExecutionVertexId(known.vertex_id, subtask) in acknowledged:
                    continue
                held[operator_id, subtask] = (*held.get((operator_id, subtask), ()), committable)
        return held

    def checkpoint_completed(self, covered: Mapping[str, Sequence[Committable]]) -> None:
        """A checkpoint exists: commit what waited here and is part of it. Running sinks submit their part of it themselves.

        A committer that takes long gets all of it in one call, whoever wrote it: it can make one transaction of it.

        Args:
            covered: operator id → all committables that the checkpoint holds.

        Raises:
            CommitError: a committer failed.
        """
        self.go_back_to(covered)
        for known in self._sinks.values():
            if known.owed and self._long is not None and known.takes_long:
                self._begin(known, list(known.owed.values()))
                continue
            now = [c for _, c in known.pending if c.commit_id in known.covered]
            known.pending = [entry for entry in known.pending if entry[1].commit_id not in known.covered]
            self._commit(known, now)
        self._replace_earlier()

    @property
    def is_held(self) -> bool:
        """Whether nothing that the job writes is committed for now."""
        return self._hold is not None

    def hold_back(self, checkpoint_id: int, covered: Mapping[str, Sequence[Committable]]) -> None:
        """A checkpoint exists, and what it holds is not committed for now."""
        self.go_back_to(covered)
        self._held_at = checkpoint_id

    def accept(self) -> None:
        """Hold nothing back any more; whoever held back is asked, and what the last checkpoint holds is noted before it is committed.

        Raises:
            StateError: it must not be, or cannot be noted: all is held back as before.
        """
        if self._hold is None:
            return
        self._hold.accept()
        if self._held_at is not None and self._log is not None:
            fresh = [
                (i, s, [c for c in s.covered.values() if c.commit_id not in self._before_hold])
                for i, s in self._sinks.items()
            ]
            self._log([LoggedCommit(self._held_at, i, s.name, tuple(cs)) for i, s, cs in fresh if cs])
        self._hold = None

    def protect(self, held: Mapping[str, Sequence[Committable]]) -> None:
        """A savepoint of the user holds these: they are never deleted, whatever becomes of this run."""
        self._has_snapshots = True
        self._protected.update(c.commit_id for committables in held.values() for c in committables)

    def go_back_to(self, covered: Mapping[str, Sequence[Committable]]) -> None:
        """What counts from now on is this checkpoint, whatever was completed before."""
        self._has_snapshots = True
        for operator_id, known in self._sinks.items():
            known.covered = {c.commit_id: c for c in covered.get(operator_id, ())}
            known.owed = dict(known.covered)

    def commit_owed(self, vertices: Collection[str]) -> None:
        """Commit what the last completed checkpoint holds and nobody has submitted yet, in sinks of these vertices.

        Where a committer takes long it is done in all sinks, in the order of what was written: subtasks that restore from the checkpoint
        submit it too, but each only its part, and at another parallelism in no order.

        Raises:
            CommitError: a committer failed.
        """
        self._wait_for_long()
        for known in self._sinks.values():
            owed = self._free(known.owed.values())
            if owed and (known.vertex_id in vertices or known.takes_long):
                self._commit(known, owed)
                self._drop_pending(known)

    def commit_all(self, done: Callable[[], None], failed: Callable[[Exception], None]) -> None:
        """Commit what is owed or pending, then call `done`: at once, or as a later mail if some committer takes long.

        Those that take long come first, as they are likelier to fail; then sink by sink. Each has the order of subtasks and of arrival.

        Args:
            done: everything is committed.
            failed: gets the CommitError of a committer; its committables, and those of the sinks after it, stay pending.

        Raises:
            StateError: commits are held back, and may not be made; see `accept`.
        """
        self.accept()
        for known in self._sinks.values():
            known.pending.sort(key=lambda entry: entry[0])
        if self._long is None:
            self._commit_rest(done, failed)
            return
        for known in self._sinks.values():
            if (known.owed or known.pending) and known.takes_long:
                self._begin(known, [*known.owed.values(), *(c for _, c in known.pending)])
        self._long.when_quiet(lambda error: failed(error) if error is not None else self._commit_rest(done, failed))

    def _commit_rest(self, done: Callable[[], None], failed: Callable[[Exception], None]) -> None:
        try:
            for known in self._sinks.values():
                self._commit(known, list(known.owed.values()))
                self._commit(known, [c for _, c in known.pending])
                known.pending.clear()
            self._replace_earlier()
        except CommitError as error:
            failed(error)
        else:
            done()

    def settle(self) -> list[str]:
        """The job ends without success: commit what the last completed checkpoint holds, abort the rest.

        Gives what went wrong, one text a sink and step. What could not be committed stays in the checkpoint.
        """
        self._wait_for_long()
        problems = []
        for known in self._sinks.values():
            try:
                self._commit(known, self._free(known.owed.values()))
            except CommitError as error:
                problems.append(
                    f"sink '{known.name}' could not commit what the last checkpoint holds: {error.__cause__}; "
                    "resuming from it tries again"
                )
            problems += self._abort(known, known.pending)
            known.pending = []
            if self._run and not (known.shows or self._has_snapshots):
                committer: object = known.committer or known.sink.create_committer()
                if provides(committer, Replacing):
                    committer.keep_earlier(self._run)
        return problems

    def close(self) -> None:
        """End the thread of committers that take long, and close all committers. Idempotent."""
        if self._long is not None:
            self._long.close()
        for known in self._sinks.values():
            committer: object = known.committer
            if not isinstance(committer, ClosableCommitter):
                continue
            try:
                committer.close()
            except Exception as error:  # everything is committed or aborted: it is no failure of the job
                _log.warning("the committer of sink '%s' cannot be closed: %s", known.name, error)

    def abort_uncovered(self, vertices: Iterable[ExecutionVertexId]) -> list[str]:
        """These subtasks go back to the last completed checkpoint: abort what they handed over and it does not hold."""
        self._wait_for_long()
        problems = []
        going_back = set(vertices)
        for known in self._sinks.values():
            back = [e for e in known.pending if ExecutionVertexId(known.vertex_id, e[0]) in going_back]
            known.pending = [e for e in known.pending if ExecutionVertexId(known.vertex_id, e[0]) not in going_back]
            problems += self._abort(known, back)
        return problems

    def discard_orphans(self, owner: str, keep: Collection[str]) -> None:
        """Delete what earlier attempts of this lineage wrote and nothing can commit any more. No sink may be writing.

        Args:
            owner: the lineage.
            keep: commit ids of checkpoints that could be resumed.

        Raises:
            CommitError: a committer failed.
        """
        self._wait_for_long()
        # Of all sinks: several may write below one folder.
        waiting = {c.commit_id for known in self._sinks.values() for _, c in known.pending}
        covered = {commit_id for known in self._sinks.values() for commit_id in known.covered}
        needed = frozenset({*keep, *self._protected, *covered, *waiting})
        for known in self._sinks.values():
            try:
                if known.committer is None:
                    known.committer = known.sink.create_committer()
                committer: object = known.committer
                if not isinstance(committer, OrphanDiscarding):
                    continue
                count = committer.discard_orphans(owner, needed)
            except Exception as error:
                raise CommitError(known.name) from error
            if count:
                _log.info("sink '%s': deleted what earlier attempts had left, %d pieces", known.name, count)
        if self._discard_staged is not None:
            count = self._discard_staged(owner, needed)
            if count:
                _log.info("deleted rows of earlier attempts that waited for their commit, %d files", count)

    def _abort(self, known: _SinkCommits, entries: Iterable[tuple[int, Committable]]) -> list[str]:
        dropped = [c for _, c in entries if c.commit_id not in known.covered and c.commit_id not in self._protected]
        if not dropped:
            return []
        try:
            known.created().abort(dropped)
        except Exception as error:
            return [f"sink '{known.name}' could not discard what it had written: {error}"]
        return []

    def _commit(self, known: _SinkCommits, committables: Sequence[Committable]) -> None:
        if not committables:
            return
        try:
            self._note(known, committables)
            known.created().commit(committables)
        except Exception as error:
            raise CommitError(known.name) from error
        self._committed(known, committables)

    def _committed(self, known: _SinkCommits, committables: Sequence[Committable]) -> None:
        for committable in committables:
            known.owed.pop(committable.commit_id, None)
        self._replace_earlier(known)

    def _drop_pending(self, known: _SinkCommits) -> None:
        """What the last checkpoint holds is committed, unless it is held back: it does not wait here any more."""
        done = known.covered.keys() - known.owed.keys()
        known.pending = [entry for entry in known.pending if entry[1].commit_id not in done]

    def _free(self, committables: Iterable[Committable]) -> list[Committable]:
        """Those that are not held back."""
        return [c for c in committables if self._hold is None or c.commit_id in self._before_hold]

    def _begin(self, known: _SinkCommits, committables: Sequence[Committable]) -> None:
        """Have a committer that takes long commit what it was not given yet; what it has committed is not pending any more."""
        assert self._long is not None
        fresh = {c.commit_id: c for c in committables if not self._long.is_under_way(c.commit_id)}
        if not fresh:
            return
        self._note(known, list(fresh.values()))

        def done() -> None:
            known.pending = [entry for entry in known.pending if entry[1].commit_id not in fresh]
            self._committed(known, list(fresh.values()))

        self._long.submit(known.created(), list(fresh.values()), done, lambda: CommitError(known.name))

    def _wait_for_long(self) -> None:
        """Until nothing is being committed beside this thread. What has failed there stays pending."""
        if self._long is not None:
            self._long.wait()

    def _replace_earlier(self, *sinks: _SinkCommits) -> None:
        """These sinks (none given: all) show something: what they were to replace goes."""
        for known in sinks or tuple(self._sinks.values()):
            if known.shows or not self._run:
                continue
            if known.committer is None:
                known.committer = known.sink.create_committer()
            committer: object = known.committer
            try:
                if provides(committer, Replacing):
                    committer.replace_earlier(self._run)
            except Exception as error:
                raise CommitError(known.name) from error
            known.shows = True

    def _note(self, known: _SinkCommits, committables: Sequence[Committable]) -> None:
        numbered: dict[int, list[Committable]] = {}
        for committable in committables:
            number = self._numbers.pop(committable.commit_id, None)
            if number is not None:
                numbered.setdefault(number, []).append(committable)
        if self._log is not None and numbered:
            operator_id = next(i for i, sink in self._sinks.items() if sink is known)
            self._log([LoggedCommit(n, operator_id, known.name, tuple(cs)) for n, cs in sorted(numbered.items())])
