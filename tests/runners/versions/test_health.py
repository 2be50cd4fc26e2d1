"""When a version on trial is healthy, and why it is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowrun.core.elements import CheckpointKind
from flowrun.runners.versions.health import HealthWatch, Judgement, Verdict
from flowrun.runners.versions.records import HealthRules
from flowrun.runtime.checkpoint.events import CheckpointFigures, CheckpointsStatus
from flowrun.runtime.job_status import JobStatus, VertexStatus
from flowrun.runtime.lifecycle import ExecutionState, JobState

SOURCE = VertexStatus("s", "rows", 1, {ExecutionState.RUNNING: 1}, records_in=3, watermark=10)
SINK = VertexStatus("k", "out", 2, {ExecutionState.RUNNING: 2})
LAST = CheckpointFigures(7, CheckpointKind.CHECKPOINT, "/state/chk-7", 1_000, 12.5, 2_000, 100, 1.0, 2.0)
WELL = JobStatus("j", "orders", JobState.RUNNING, 0, 2_000, (SOURCE, SINK), CheckpointsStatus(completed=1, last=LAST))
RULES = HealthRules(within_ms=10_000, steady_ms=0, reads=True)


def judged(*statuses: tuple[int, JobStatus], rules: HealthRules = RULES) -> Judgement:
    watch = HealthWatch(rules, frozenset({"s"}), 0)
    found = Judgement(Verdict.OPEN)
    for at, status in statuses:
        found = watch.look(status, at)
    return found


def test_it_runs_reads_and_has_a_checkpoint() -> None:
    assert judged((100, WELL)) == Judgement(Verdict.HEALTHY)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (replace(WELL, checkpoints=CheckpointsStatus(failed=1, last_failure="the disk is full")), "the disk is full"),
        (replace(WELL, vertices=(replace(SOURCE, records_in=0), SINK)), "no row was read"),
        (
            replace(WELL, vertices=(SOURCE, replace(SINK, states={ExecutionState.DEPLOYING: 2}))),
            "'out' does not run yet",
        ),
        (replace(WELL, state=JobState.CREATED, waits_for="slots: needs 2"), "it waits for slots: needs 2"),
    ],
)
def test_what_is_missing_is_waited_for_and_is_the_reason_then(status: JobStatus, reason: str) -> None:
    assert judged((9_999, status)).verdict is Verdict.OPEN
    late = judged((9_999, status), (10_000, status))
    assert late.verdict is Verdict.UNHEALTHY
    assert late.reason.startswith("after 10s: ")
    assert reason in late.reason


def test_a_single_failure_is_enough() -> None:
    found = judged((1, replace(WELL, restarts=1, last_failure="division by zero")))
    assert found == Judgement(Verdict.UNHEALTHY, "it failed: division by zero")


def test_all_has_to_be_well_for_a_while_without_a_break() -> None:
    rules = replace(RULES, steady_ms=500)
    unwell = replace(WELL, checkpoints=CheckpointsStatus())
    assert judged((100, WELL), (599, WELL), rules=rules).verdict is Verdict.OPEN
    assert judged((100, WELL), (600, WELL), rules=rules).verdict is Verdict.HEALTHY
    assert judged((100, WELL), (300, unwell), (600, WELL), rules=rules).verdict is Verdict.OPEN
    late = judged((9_900, WELL), (10_000, WELL), rules=rules)
    assert late == Judgement(Verdict.UNHEALTHY, "after 10s: it was well for less than 500ms")


def test_the_watermark_has_to_move_only_if_it_moved_before() -> None:
    moved = replace(WELL, vertices=(replace(SOURCE, watermark=11), SINK))
    rules = replace(RULES, moves_watermark=True)
    assert judged((1, WELL), (2, WELL), rules=rules).verdict is Verdict.OPEN
    assert judged((1, WELL), (2, moved), rules=rules).verdict is Verdict.HEALTHY


def test_a_job_that_has_come_to_its_end_is_healthy() -> None:
    done = tuple(replace(v, states={ExecutionState.FINISHED: v.parallelism}) for v in WELL.vertices)
    finished = replace(WELL, state=JobState.FINISHED, vertices=done, checkpoints=None)
    assert judged((1, finished), rules=replace(RULES, steady_ms=5_000)).verdict is Verdict.HEALTHY
