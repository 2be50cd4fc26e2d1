"""What a job tells of itself in full: its subtasks, its checkpoints and its failures."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from checkpoint_fakes import MemoryStorage, Numbers, Once, Table, pipeline
from runtime_fakes import until
from test_recovery import AT_ONCE, BY_HAND, NEVER, TOTAL, checkpoint, running

from flowrun.runtime.job_details import JobDetails
from flowrun.runtime.lifecycle import ExecutionState
from flowrun.runtime.rpc.codec import decode, encode


def test_figures_of_subtasks_add_up_to_those_of_their_vertices() -> None:
    source, table = Numbers(TOTAL, released=20), Table()
    with running(pipeline(source, table, parallelism=3), MemoryStorage()) as job_master:
        until(lambda: job_master.status().vertices[2].records_in == 80)
        details = job_master.details()
    assert [v.status.name for v in details.vertices] == ["numbers", "middle", "table"]
    for vertex in details.vertices:
        assert [s.subtask for s in vertex.subtasks] == [0, 1, 2]
        assert {s.state for s in vertex.subtasks} == {ExecutionState.RUNNING}
        assert sum(s.records_in for s in vertex.subtasks) == vertex.status.records_in == 80
        assert sum(s.records_out for s in vertex.subtasks) == vertex.status.records_out
        assert sum(s.bytes_in for s in vertex.subtasks) == vertex.status.bytes_in
    assert [(e.source, e.target, e.kind) for e in details.exchanges] == [
        (details.vertices[0].status.vertex_id, details.vertices[1].status.vertex_id, "pipelined"),
        (details.vertices[1].status.vertex_id, details.vertices[2].status.vertex_id, "pipelined"),
    ]
    assert all(e.partitioner.startswith("HASH[") for e in details.exchanges)
    assert [e.operator_id for e in details.exchanges] == [v.operators[-1].operator_id for v in details.vertices[:2]]
    assert details.parallelism == 3
    assert decode(encode(details, JobDetails), JobDetails) == details


def test_checkpoints_tell_what_each_vertex_took() -> None:
    source, table = Numbers(TOTAL, released=20), Table()
    with running(pipeline(source, table, checkpoint=BY_HAND), MemoryStorage()) as job_master:
        until(lambda: job_master.status().vertices[2].records_in == 80)
        path = checkpoint(job_master)
        done = job_master.details()
        [first] = done.checkpoints
    assert (first.status, first.path, first.failure) == ("completed", path, None)
    assert first.acknowledged == first.subtasks == 6
    assert {v.vertex_id for v in first.vertices} == {v.status.vertex_id for v in done.vertices}
    assert {v.acknowledged for v in first.vertices} == {2}
    assert done.settings["checkpoint.interval_ms"] == BY_HAND.interval_ms


def test_a_failure_tells_its_place_its_cause_and_what_was_restarted() -> None:
    source, table, once = Numbers(TOTAL), Table(), Once(40)
    graph = pipeline(source, table, between=once.create, checkpoint=BY_HAND, restart=AT_ONCE)
    with running(graph, MemoryStorage()) as job_master:
        assert job_master.wait() is not None
        details = job_master.details()
    [failure] = details.failures
    assert failure.outcome == "restarted"
    assert failure.place.startswith("operator 'middle'")
    assert failure.vertex_id == details.vertices[1].status.vertex_id
    assert failure.error.links[0].kind == "builtins.OSError"
    assert "raise" in failure.error.traceback
    assert {r.vertex_id: r.subtasks for r in failure.restarted} == {
        v.status.vertex_id: (0, 1) for v in details.vertices
    }
    assert {s.attempt for v in details.vertices for s in v.subtasks} == {1}


def test_the_failure_that_ends_a_job_tells_why_nothing_was_restarted() -> None:
    source, table, once = Numbers(TOTAL), Table(), Once(40)
    graph = pipeline(source, table, between=once.create, checkpoint=BY_HAND, restart=NEVER)
    with running(graph, MemoryStorage()) as job_master:
        until(lambda: job_master.status().state.is_terminal)
        details = job_master.details()
    assert details.failures[0].outcome == "failed"
    assert details.failures[0].restarted == ()
