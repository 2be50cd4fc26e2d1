"""Execution attempts: who runs a subtask now, at which state each attempt is, and who ran before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from flowrun.errors import InternalError
from flowrun.graph.execution_graph import ExecutionGraph, ExecutionVertexId
from flowrun.runtime.lifecycle import ExecutionState, check_transition


def attempt_id(job_id: str, vertex: ExecutionVertexId, number: int) -> str:
    """The id of one attempt, unique over jobs; temporary names may contain it.

    >>> attempt_id("j1", ExecutionVertexId("c0ffee0123456789", 1), 0)
    'j1_c0ffee012345_1_0'
    """
    return f"{job_id}_{vertex.vertex_id[:12]}_{vertex.subtask}_{number}"


class Execution:
    """One attempt to run one subtask. Not thread-safe: owned by the job master's thread.

    Args:
        job_id: the run.
        vertex: the subtask.
        number: of the attempt.
        now_ms: processing time.
        counts: how many attempts are at which state, which is kept up to date.
    """

    __slots__ = ("_counts", "attempt_id", "failure", "is_lost", "number", "state", "state_times_ms", "vertex", "worker")

    def __init__(
        self,
        job_id: str,
        vertex: ExecutionVertexId,
        number: int,
        now_ms: int,
        counts: Counter[ExecutionState] | None = None,
    ) -> None:
        self.attempt_id = attempt_id(job_id, vertex, number)
        self.vertex = vertex
        self.worker: str | None = None
        """The process that it was deployed to; kept when its slot is given back, as its blocking partitions stay there."""
        self.is_lost = False
        """Its process is gone as far as is known: what it still says does not count."""
        self.number = number
        self.state = ExecutionState.CREATED
        self.failure: BaseException | None = None
        self._counts = Counter() if counts is None else counts
        self._counts[self.state] += 1
        self.state_times_ms: dict[ExecutionState, int] = {ExecutionState.CREATED: now_ms}

    @property
    def is_terminal(self) -> bool:
        """Whether the attempt is over."""
        return self.state.is_terminal

    def transition(self, target: ExecutionState, now_ms: int, failure: BaseException | None = None) -> None:
        """Move on to `target`, remembering when, and why if it failed.

        Raises:
            InternalError: `target` may not follow the present state.
        """
        check_transition(self.state, target)
        self._counts[self.state] -= 1
        self._counts[target] += 1
        self.state = target
        self.state_times_ms[target] = now_ms
        if failure is not None:
            self.failure = failure

    def __repr__(self) -> str:
        return f"Execution({self.attempt_id}, {self.state.name})"


_TERMINAL = tuple(state for state in ExecutionState if state.is_terminal)
REMEMBERED_ATTEMPTS = 6
"""Of each subtask: a job may be restarted for months, and a failed attempt holds its error."""


class Executions:
    """The attempts of every subtask of one job, newest last. Not thread-safe: owned by the job master's thread."""

    def __init__(self, graph: ExecutionGraph, job_id: str, now_ms: int) -> None:
        self._job_id = job_id
        self._counts: Counter[ExecutionState] = Counter()
        """Of the current attempts: to look at all subtasks for each message of one would cost the square of their number."""
        self._attempts = {v.id: [Execution(job_id, v.id, 0, now_ms, self._counts)] for v in graph.all_vertices()}
        self._current = {e.attempt_id: e for e in self}

    def __iter__(self) -> Iterator[Execution]:
        """The current attempt of every subtask, in topological order."""
        return (attempts[-1] for attempts in self._attempts.values())

    def in_order(self, vertices: Collection[ExecutionVertexId]) -> list[ExecutionVertexId]:
        """These subtasks in topological order."""
        return [vertex for vertex in self._attempts if vertex in vertices]

    def current(self, vertex: ExecutionVertexId) -> Execution:
        """The newest attempt of a subtask. Raises KeyError for an unknown one."""
        return self._attempts[vertex][-1]

    def history(self, vertex: ExecutionVertexId) -> tuple[Execution, ...]:
        """The last attempts of a subtask, oldest first; at most `REMEMBERED_ATTEMPTS`."""
        return tuple(self._attempts[vertex])

    def by_attempt(self, attempt: str) -> Execution | None:
        """The current attempt with this id; None if it is unknown or an older one: its messages are to be ignored."""
        return self._current.get(attempt)

    def restart(self, vertex: ExecutionVertexId, now_ms: int) -> Execution:
        """A new attempt of a subtask whose last one is over; only the last few attempts are remembered.

        Raises:
            InternalError: the last attempt is not over.
        """
        last = self.current(vertex)
        if not last.is_terminal:
            raise InternalError(f"cannot start a new attempt of {vertex}: {last.attempt_id} is {last.state.name}")
        self._counts[last.state] -= 1
        execution = Execution(self._job_id, vertex, last.number + 1, now_ms, self._counts)
        self._attempts[vertex].append(execution)
        del self._attempts[vertex][:-REMEMBERED_ATTEMPTS]
        del self._current[last.attempt_id]
        self._current[execution.attempt_id] = execution
        return execution

    def counts(self) -> Counter[ExecutionState]:
        """How many subtasks are at which state."""
        return +self._counts

    def all_in(self, states: Collection[ExecutionState]) -> bool:
        """Whether every subtask is at one of these states."""
        return sum(self._counts[state] for state in states) == len(self._attempts)

    @property
    def all_finished(self) -> bool:
        """Whether every subtask ended well."""
        return self.all_in((ExecutionState.FINISHED,))

    @property
    def all_terminal(self) -> bool:
        """Whether every subtask's current attempt is over."""
        return self.all_in(_TERMINAL)
