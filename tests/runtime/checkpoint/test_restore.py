"""What each subtask goes on from: key groups, operator state and finished vertices, at the same and at another parallelism."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1]))
from runtime_fakes import Count, Vertex, job, vertex

from flowrun.api.state import KEY_GROUP_COLUMN, OperatorState, Redistribution
from flowrun.core.elements import CheckpointKind
from flowrun.errors import StateError
from flowrun.graph.execution_graph import ExecutionGraph, ExecutionVertexId, build_execution_graph
from flowrun.graph.partitioner import KeyGroupPartitioner
from flowrun.runtime.checkpoint.restore import finished_vertices, restored_operators, restored_tasks
from flowrun.state.checkpoints import (
    CheckpointMetadata,
    FileReference,
    KeyedTableState,
    OperatorMetadata,
    OperatorSubtaskState,
    StateFile,
)
from flowrun.state.key_groups import key_group_range

SCHEMA = pa.schema([(KEY_GROUP_COLUMN, pa.int32()), ("k", pa.int64())])


def metadata(*operators: OperatorMetadata) -> CheckpointMetadata:
    return CheckpointMetadata(
        7, CheckpointKind.CHECKPOINT, 0, 1, "test", "l", "/jobs/test", "0", None, None,
        {o.operator_id: o for o in operators},
    )  # fmt: skip


def keyed(subtask: int) -> OperatorSubtaskState:
    table = KeyedTableState(SCHEMA, (FileReference(StateFile(f"chk-7/{subtask}", 1, 1, "")),))
    return OperatorSubtaskState("sink-0", {"windows": table})


def saved(parallelism: int, subtasks: dict[int, OperatorSubtaskState], **more: object) -> OperatorMetadata:
    return replace(OperatorMetadata("sink-0", None, "sink", "sink-0", parallelism, 128, subtasks), **more)  # type: ignore[arg-type]


def graph(parallelism: int, max_parallelism: int = 128) -> ExecutionGraph:
    source = vertex("source", Count)
    sink = vertex("sink", Count, parallelism=parallelism).read(source, KeyGroupPartitioner((0,)))
    sink.max_parallelism = max_parallelism
    return build_execution_graph(job(source, sink))


def rows(*values: int, mode: Redistribution = Redistribution.SPLIT) -> OperatorState:
    return OperatorState(pa.table({"v": pa.array(values, pa.int64())}), mode)


@given(old=st.integers(1, 20), new=st.integers(1, 20))
def test_every_key_group_is_restored_from_the_one_old_subtask_that_held_it(old: int, new: int) -> None:
    operator = saved(old, {s: keyed(s) for s in range(old)})
    target = graph(new).job_vertex("sink-0").job_vertex
    for subtask, restored in enumerate(restored_operators(operator, target)):
        files = restored.keyed["windows"]
        from_subtasks = [int(t.files[0].file.path.rpartition("/")[2]) for t in files]
        mine = set(range(key_group_range(subtask, new, 128).start, key_group_range(subtask, new, 128).stop))
        held = [set(range(r.start, r.stop)) for r in (key_group_range(s, old, 128) for s in from_subtasks)]
        assert mine <= set().union(*held)
        assert all(h & mine for h in held), "it is given files that it needs nothing of"
        assert from_subtasks == sorted(from_subtasks)


def test_operator_state_stays_where_it_was_at_the_same_parallelism_and_is_dealt_out_at_another() -> None:
    state = {s: OperatorSubtaskState("sink-0", operator={"splits": rows(s, s + 10)}) for s in range(2)}
    operator = saved(2, state)
    same = restored_operators(operator, graph(2).job_vertex("sink-0").job_vertex)
    assert [r.operator["splits"].rows["v"].to_pylist() for r in same] == [[0, 10], [1, 11]]
    dealt = restored_operators(operator, graph(3).job_vertex("sink-0").job_vertex)
    assert [r.operator["splits"].rows["v"].to_pylist() for r in dealt] == [[0, 11], [10], [1]]


def test_union_state_goes_whole_to_all_and_broadcast_state_once() -> None:
    union, broadcast = Redistribution.UNION, Redistribution.BROADCAST
    state = {
        s: OperatorSubtaskState("sink-0", operator={"u": rows(s, mode=union), "b": rows(9, mode=broadcast)})
        for s in range(2)
    }
    for restored in restored_operators(saved(2, state), graph(3).job_vertex("sink-0").job_vertex):
        assert restored.operator["u"].rows["v"].to_pylist() == [0, 1]
        assert restored.operator["b"].rows["v"].to_pylist() == [9]


def test_state_of_a_subtask_that_had_finished_is_no_state() -> None:
    operator = saved(2, {1: OperatorSubtaskState("sink-0", operator={"splits": rows(5)})})
    restored = restored_operators(operator, graph(2).job_vertex("sink-0").job_vertex)
    assert [r.operator["splits"].rows["v"].to_pylist() for r in restored] == [[], [5]]


def test_operator_state_that_differs_between_subtasks_names_the_operator() -> None:
    other = OperatorState(pa.table({"w": [1]}))
    state = {
        0: OperatorSubtaskState("sink-0", operator={"s": rows(1)}),
        1: OperatorSubtaskState("sink-0", operator={"s": other}),
    }
    with pytest.raises(StateError, match=r"operator 'sink': state 's' has different columns"):
        restored_tasks(metadata(saved(2, state)), "/jobs/test", graph(3))


def test_operators_that_are_new_start_empty_and_others_know_their_checkpoint() -> None:
    restored = restored_tasks(metadata(saved(1, {0: keyed(0)})), "/jobs/test", graph(1))
    assert restored[ExecutionVertexId("source-0", 0)].operators == {}
    sink = restored[ExecutionVertexId("sink-0", 0)]
    assert (sink.checkpoint_id, sink.root, sink.finished) == (7, "/jobs/test", False)
    assert list(sink.operators["sink-0"].keyed) == ["windows"]


def test_keyed_state_under_another_number_of_key_groups_is_refused() -> None:
    with pytest.raises(StateError, match=r"'sink' has 256 key groups \(max parallelism\), its state has 128") as raised:
        restored_tasks(metadata(saved(1, {0: keyed(0)})), "/jobs/test", graph(1, max_parallelism=256))
    assert raised.value.hint == "set max_parallelism to 128, or leave it out"


def test_operator_state_does_not_care_about_key_groups() -> None:
    operator = saved(1, {0: OperatorSubtaskState("sink-0", operator={"splits": rows(5)})})
    restored = restored_tasks(metadata(operator), "/jobs/test", graph(1, max_parallelism=256))
    assert restored[ExecutionVertexId("sink-0", 0)].operators["sink-0"].operator["splits"].rows.num_rows == 1


def ended(name: str, finished: bool = True) -> OperatorMetadata:
    return OperatorMetadata(f"{name}-0", None, name, f"{name}-0", 1, 128, finished=finished)


def diamond(*extra: Vertex) -> ExecutionGraph:
    a, b = vertex("a", Count), vertex("b", Count)
    c = vertex("c", Count).read(a)
    c.read(b)
    return build_execution_graph(job(a, b, *extra, c))


def test_a_vertex_is_finished_with_all_its_operators_and_inputs() -> None:
    both = metadata(ended("a"), ended("b"), ended("c"))
    assert finished_vertices(both, diamond()) == {"a-0", "b-0", "c-0"}
    one = metadata(ended("a"), ended("b", finished=False), ended("c", finished=False))
    assert finished_vertices(one, diamond()) == {"a-0"}


def test_a_finished_vertex_with_a_new_input_runs_again() -> None:
    new = vertex("new", Count)
    source = vertex("a", Count)
    sink = vertex("c", Count).read(source)
    sink.read(new)
    graph = build_execution_graph(job(source, new, sink))
    assert finished_vertices(metadata(ended("a"), ended("c")), graph) == {"a-0"}


def test_an_operator_that_was_chained_to_a_finished_one_does_not_keep_it_alive() -> None:
    source = vertex("a", Count, Count)
    graph = build_execution_graph(job(source))
    assert finished_vertices(metadata(ended("a")), graph) == {"a-0"}
    alive = OperatorMetadata("a-1", None, "a.1", "a-1", 1, 128)
    assert finished_vertices(metadata(ended("a"), alive), graph) == frozenset()
