"""What the outputs of a job know of commits, for a job whose own record of commits is somewhere else or lost.

A run that begins at a snapshot of another one leaves a note in its outputs, and so does one that takes back what others committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from flowrun.api.sink import CommitTelling
from flowrun.core.record import record
from flowrun.errors import ConnectorError, StateError
from flowrun.graph.job_graph import JobGraph
from flowrun.state.commit_log import Fork, LineageLog, LoggedCommit, WentBack
from flowrun.state.storage.commit_log_files import decoded_note, encoded_note, merged_logs


@record
class TellingOutput:
    """A sink of the job whose output knows what was committed to it."""

    name: str
    committer: CommitTelling

    def leave_note(self, content: bytes) -> None:
        """Leave a note. Raises StateError."""
        try:
            self.committer.leave_note(content)
        except ConnectorError as error:
            raise StateError(f"sink '{self.name}': {error.message}", hint=error.hint) from error


def telling_outputs(job_graph: JobGraph) -> tuple[TellingOutput, ...]:
    """The sinks of a job whose outputs know what was committed to them."""
    found = []
    for vertex in job_graph.vertices:
        for operator in vertex.operators:
            committer: object = None if operator.sink is None else operator.sink.create_committer()
            if isinstance(committer, CommitTelling):
                found.append(TellingOutput(operator.name.removeprefix("Sink: "), committer))
    return tuple(found)


def silent_sinks(job_graph: JobGraph) -> list[str]:
    """Names of sinks that commit, and whose outputs do not tell what."""
    sinks = [(o.name, o.sink.create_committer()) for v in job_graph.vertices for o in v.operators if o.sink is not None]
    return [n.removeprefix("Sink: ") for n, c in sinks if c is not None and not isinstance(c, CommitTelling)]


def note_beginning(job_graph: JobGraph, lineage: str, ancestors: Sequence[Fork]) -> None:
    """A run begins at a snapshot of another one: leave a note in its outputs. Blocks on I/O; raises StateError."""
    for output in telling_outputs(job_graph):
        output.leave_note(encoded_note(lineage, ancestors))


def note_taken_back(outputs: Sequence[TellingOutput], lineage: str, event: WentBack) -> None:
    """What a lineage committed is taken back: leave a note in the outputs. Blocks on I/O; raises StateError."""
    for output in outputs:
        output.leave_note(encoded_note(lineage, event=event))


def with_told(lineage: str, logs: Mapping[str, LineageLog], outputs: Sequence[TellingOutput]) -> dict[str, LineageLog]:
    """Logs with what outputs tell beyond them of one lineage, and of those that restored from it. Blocks on I/O.

    Raises:
        StateError: an output cannot be read, or a note in it is damaged.
    """
    try:
        notes = [decoded_note(note.place, note.content) for o in outputs for note in o.committer.notes()]
        told = [(o.name, commit) for o in outputs for commit in o.committer.told()]
    except ConnectorError as error:
        raise StateError(error.message, hint=error.hint) from error
    found = merged_logs([*logs.values(), *notes, LineageLog(lineage, "")])
    for name, log in found.items():
        if name != lineage and log.fork_of(lineage) is None:
            continue
        known = {c.commit_id for entry in log.commits for c in entry.committables}
        new = {}
        for sink, commit in told:
            commit_id = commit.committables[0].commit_id
            if name.startswith(commit.owner) and commit_id not in known:
                new[commit_id] = LoggedCommit(commit.checkpoint_id, "", sink, commit.committables)
        found[name] = replace(log, commits=(*log.commits, *new.values()))
    return found
