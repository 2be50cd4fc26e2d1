"""Which spans a job has had, from one look at it to the next."""

from __future__ import annotations

from dataclasses import replace

from flowrun.errors import ConnectorError
from flowrun.runners.traces.spans import EndedSpans, JobSpan
from flowrun.runtime.checkpoint.records import CheckpointedVertex, CheckpointRecord
from flowrun.runtime.job_details import FailureRecord, JobDetails, RestartedSubtasks
from flowrun.runtime.lifecycle import ExecutionState, JobState
from flowrun.runtime.rpc.error_values import error_to_value
from tests.rest.control_fakes import FakeJob

VERTEX = CheckpointedVertex("s", 1, 500, 100, 7, synchronous_ms=2.0, asynchronous_ms=30.0, alignment_ms=1.0)


def job(**changed: object) -> JobDetails:
    """A job that runs since 1 s, of which it is 2 s, without checkpoints and failures."""
    status = replace(FakeJob().details().status, restarts=0, running_ms=1_500)
    return replace(FakeJob().details(), status=status, checkpoints=(), **changed)  # type: ignore[arg-type]


def checkpoint(number: int, status: str = "completed", failure: str | None = None) -> CheckpointRecord:
    path = f"/state/chk-{number}" if status == "completed" else None
    return CheckpointRecord(number, "checkpoint", status, number * 1_000, 40.0, 2, 2, path, failure, (VERTEX,))


def with_state(details: JobDetails, state: ExecutionState, since_ms: int) -> JobDetails:
    def changed(vertex: object) -> object:
        return replace(vertex, subtasks=tuple(replace(s, state=state, since_ms=since_ms) for s in vertex.subtasks))  # type: ignore

    return replace(details, vertices=tuple(map(changed, details.vertices)))  # type: ignore[arg-type]


def failure(at_ms: int, delay_ms: int = 100) -> FailureRecord:
    error = error_to_value(ConnectorError("no answer", retryable=True))
    restarted = (RestartedSubtasks("s", (0,)), RestartedSubtasks("k", (0,)))
    return FailureRecord(
        at_ms,
        "operator 'x' failed",
        error,
        "x",
        "s",
        0,
        None,
        "restarted",
        restarted=restarted,
        restart_delay_ms=delay_ms,
    )


def names(spans: list[JobSpan]) -> list[str]:
    return [span.name for span in spans]


def test_a_start_ends_when_all_subtasks_run() -> None:
    spans = EndedSpans()
    starting = with_state(job(), ExecutionState.INITIALIZING, 600)
    assert spans.since_last(starting) == []
    (start,) = spans.since_last(with_state(starting, ExecutionState.RUNNING, 900))
    assert (start.name, start.start_ms, start.end_ms) == ("JobInitialization", 500, 900)
    assert [(c.name, c.attributes["vertexId"]) for c in start.children] == [
        ("JobInitialization_Task", "s"),
        ("JobInitialization_Task", "k"),
    ]
    assert all(start.start_ms <= c.start_ms <= c.end_ms <= start.end_ms for c in start.children)
    assert spans.since_last(with_state(starting, ExecutionState.RUNNING, 900)) == [], "once"


def test_a_checkpoint_is_told_once_it_has_ended() -> None:
    spans = EndedSpans()
    spans.since_last(job())
    under_way = replace(job(), checkpoints=(checkpoint(1), replace(checkpoint(2), status="in progress")))
    (first,) = spans.since_last(under_way)
    assert (first.name, first.start_ms, first.end_ms, first.error) == ("Checkpoint", 1_000, 1_040, None)
    assert first.attributes["checkpointStatus"] == "COMPLETED"
    assert (first.attributes["fullSize"], first.attributes["checkpointedSize"]) == (500, 100)
    (task,) = first.children
    assert (task.name, task.end_ms, task.attributes["vertex"]) == ("Checkpoint_Task", 1_033, "source")
    failed = replace(job(), checkpoints=(checkpoint(1), checkpoint(2, "failed", "the disk is full")))
    (second,) = spans.since_last(failed)
    assert (second.error, second.attributes["checkpointStatus"]) == ("the disk is full", "FAILED")
    assert spans.since_last(failed) == []
    forgotten = replace(job(), checkpoints=(checkpoint(2, "failed"), checkpoint(3, "abandoned", "a newer one")))
    (third,) = spans.since_last(forgotten)
    assert (third.error, third.attributes["reason"]) == (None, "a newer one")


def test_a_restart_lasts_from_the_failure_until_all_run_again() -> None:
    spans = EndedSpans()
    spans.since_last(with_state(job(), ExecutionState.RUNNING, 900))
    down = replace(job(), failures=(failure(1_200),))
    down = with_state(
        replace(down, status=replace(down.status, restarts=1, state=JobState.RESTARTING)), ExecutionState.CREATED, 1_250
    )
    assert spans.since_last(down) == []
    up = with_state(replace(down, status=replace(down.status, state=JobState.RUNNING)), ExecutionState.RUNNING, 1_900)
    (restart,) = spans.since_last(up)
    assert (restart.name, restart.start_ms, restart.end_ms, restart.error) == ("Restart", 1_200, 1_900, "no answer")
    assert (restart.attributes["restartedTasks"], restart.attributes["operator"], restart.attributes["succeeded"]) == (
        2,
        "x",
        True,
    )
    (begun,) = restart.children
    assert (begun.name, begun.start_ms, begun.end_ms) == ("JobInitialization", 1_300, 1_900)
    assert spans.since_last(up) == []


def test_restarts_between_two_looks_are_told_one_by_one() -> None:
    spans = EndedSpans()
    spans.since_last(with_state(job(), ExecutionState.RUNNING, 900))
    up = replace(job(), failures=(failure(1_200), failure(1_500)))
    up = with_state(replace(up, status=replace(up.status, restarts=2)), ExecutionState.RUNNING, 1_900)
    first, second = spans.since_last(up)
    assert (first.end_ms, first.attributes["succeeded"], first.children) == (1_500, False, ())
    assert (second.end_ms, names(list(second.children))) == (1_900, ["JobInitialization"])


def test_a_job_that_ended_before_anybody_looked_has_its_start_and_its_checkpoints() -> None:
    over = replace(job(), checkpoints=(checkpoint(1),))
    over = with_state(
        replace(over, status=replace(over.status, state=JobState.FINISHED)), ExecutionState.FINISHED, 1_900
    )
    assert names(EndedSpans().since_last(over)) == ["Checkpoint", "JobInitialization"]
