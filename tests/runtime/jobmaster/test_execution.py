"""Attempts go through their states in one direction only."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.errors import InternalError
from flowrun.graph.execution_graph import ExecutionGraph, ExecutionVertexId, build_execution_graph
from flowrun.graph.partitioner import RebalancePartitioner
from flowrun.runtime.jobmaster.execution import Execution, Executions, attempt_id
from flowrun.runtime.lifecycle import TRANSITIONS, ExecutionState, check_transition
from tests.job_graphs import Edge, Vertex, job_graph

S = ExecutionState
NORMAL = [S.SCHEDULED, S.DEPLOYING, S.INITIALIZING, S.RUNNING, S.FINISHED]
A0, A1, B0 = ExecutionVertexId("a", 0), ExecutionVertexId("a", 1), ExecutionVertexId("b", 0)


def graph() -> ExecutionGraph:
    return build_execution_graph(job_graph([Vertex("a", 2), Vertex("b")], [Edge("a", "b", RebalancePartitioner())]))


def test_an_attempt_goes_the_normal_way_and_remembers_when() -> None:
    execution = Execution("job", A0, 0, now_ms=1)
    for now, state in enumerate(NORMAL, start=2):
        assert not execution.is_terminal
        execution.transition(state, now)
    assert execution.is_terminal
    assert execution.state_times_ms == dict(zip([S.CREATED, *NORMAL], range(1, 7), strict=True))


@pytest.mark.parametrize(("source", "target"), list(itertools.product(S, S)), ids=lambda s: s.name)
def test_what_the_table_does_not_allow_is_an_error(source: S, target: S) -> None:
    if target in TRANSITIONS[source]:
        check_transition(source, target)
    else:
        with pytest.raises(InternalError, match=f"cannot go from {source.name} to {target.name}"):
            check_transition(source, target)


def test_terminal_states_are_final_and_every_other_state_may_fail() -> None:
    assert {s for s in S if s.is_terminal} == {S.FINISHED, S.CANCELED, S.FAILED}
    assert all(S.FAILED in TRANSITIONS[s] for s in S if not s.is_terminal)


@given(st.lists(st.sampled_from(S), max_size=12))
def test_no_way_leads_back_to_a_state(steps: list[S]) -> None:
    execution = Execution("job", A0, 0, now_ms=0)
    seen = [S.CREATED]
    for step in steps:
        if step in TRANSITIONS[execution.state]:
            execution.transition(step, 1)
            seen.append(step)
    assert len(set(seen)) == len(seen)


def test_a_failed_attempt_keeps_its_cause() -> None:
    execution = Execution("job", A0, 0, now_ms=0)
    cause = ValueError("broken")
    execution.transition(S.FAILED, 1, cause)
    assert execution.failure is cause
    assert repr(execution) == "Execution(job_a_0_0, FAILED)"


def test_a_restart_is_a_new_attempt_with_the_next_number() -> None:
    executions = Executions(graph(), "job", now_ms=0)
    first = executions.current(A1)
    assert executions.by_attempt(first.attempt_id) is first
    with pytest.raises(InternalError, match="job_a_1_0 is CREATED"):
        executions.restart(A1, 1)
    first.transition(S.FAILED, 1)
    second = executions.restart(A1, 2)
    assert (second.number, second.state, second.state_times_ms) == (1, S.CREATED, {S.CREATED: 2})
    assert executions.history(A1) == (first, second)
    assert executions.by_attempt(second.attempt_id) is second
    assert executions.by_attempt(first.attempt_id) is None


def test_the_job_is_over_when_every_current_attempt_is() -> None:
    executions = Executions(graph(), "job", now_ms=0)
    assert [e.vertex for e in executions] == [A0, A1, B0]
    for execution in executions:
        assert not executions.all_finished
        for state in NORMAL:
            execution.transition(state, 1)
    assert executions.all_finished
    assert executions.all_terminal
    assert executions.counts() == {S.FINISHED: 3}


def test_attempt_ids_differ_by_job_vertex_subtask_and_number() -> None:
    ids = {attempt_id(j, v, n) for j in ("j1", "j2") for v in (A0, A1, B0) for n in (0, 1)}
    assert len(ids) == 12
