"""Commits what sinks wrote: the job's side of `Committer`. Used by the job master's thread only.

Without checkpoints, what was rolled while an unbounded job runs is committed at once; what was closed at the end is committed
when every subtask of the job has finished, so a failed bounded job leaves no output. The rest is aborted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from flowrun.api.sink import Committable, Committer, Sink
from flowrun.errors import InternalError
from flowrun.runtime.messages import CommittablesReport


@dataclass(slots=True)
class _SinkCommits:
    """One sink of the job."""

    name: str
    sink: Sink
    committer: Committer | None = None
    pending: list[tuple[int, Committable]] = field(default_factory=list)
    """(subtask, committable), in order of arrival."""

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
    """The committers of one job."""

    def __init__(self) -> None:
        self._sinks: dict[str, _SinkCommits] = {}

    def add_sink(self, operator_id: str, name: str, sink: Sink) -> None:
        """Make a sink known."""
        self._sinks[operator_id] = _SinkCommits(name, sink)

    def report(self, report: CommittablesReport, *, commit_now: bool) -> None:
        """A subtask handed something over: commit it, or keep it for the end.

        Raises:
            CommitError: the committer failed; the committables stay pending.
        """
        known = self._sinks[report.operator_id]
        known.pending += ((report.vertex.subtask, committable) for committable in report.committables)
        if commit_now and not report.at_end:
            self._commit(known, [c for _, c in known.pending[-len(report.committables) :]])
            del known.pending[-len(report.committables) :]

    def commit_all(self) -> None:
        """Commit what is pending, sink by sink, each in the order of subtasks and of arrival.

        Raises:
            CommitError: a committer failed; its committables, and those of the sinks after it, stay pending.
        """
        for known in self._sinks.values():
            if known.pending:
                known.pending.sort(key=lambda entry: entry[0])
                self._commit(known, [c for _, c in known.pending])
                known.pending.clear()

    def abort_all(self) -> list[str]:
        """Abort what is pending; gives what went wrong, one text a sink."""
        problems = []
        for known in self._sinks.values():
            if not known.pending:
                continue
            try:
                known.created().abort([c for _, c in known.pending])
            except Exception as error:
                problems.append(f"sink '{known.name}' could not discard what it had written: {error}")
            known.pending.clear()
        return problems

    def _commit(self, known: _SinkCommits, committables: list[Committable]) -> None:
        try:
            known.created().commit(committables)
        except Exception as error:
            raise CommitError(known.name) from error
