"""What `flowrun explain --stage execution` shows, word for word, and the one entry for all graph stages."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from flowrun.core.resources import ResourceProfile
from flowrun.errors import InternalError
from flowrun.graph.execution_graph import ExecutionGraph, build_execution_graph
from flowrun.graph.explain import Format
from flowrun.graph.job_graph import JobSettings, ResultType
from flowrun.graph.partitioner import ForwardPartitioner, KeyGroupPartitioner, RebalancePartitioner
from flowrun.runtime.explain import Stage, render, render_execution_graph
from flowrun.runtime.worker_slots import WorkerSlots
from tests.job_graphs import Edge, Vertex, job_graph

GOLDEN = Path(__file__).parent / "golden"
FILES = {Format.TEXT: "txt", Format.JSON: "json", Format.MERMAID: "mmd"}


def graph() -> ExecutionGraph:
    vertices = [Vertex("source -> split", 2), Vertex("window", 3), Vertex("audit", 2, "audit"), Vertex("sink")]
    edges = [
        Edge("source -> split", "window", KeyGroupPartitioner((0,))),
        Edge("source -> split", "audit", ForwardPartitioner()),
        Edge("window", "sink", RebalancePartitioner(), type=ResultType.BLOCKING),
    ]
    return build_execution_graph(job_graph(vertices, edges))


@pytest.mark.parametrize("output", list(Format), ids=lambda o: o.value)
def test_the_execution_graph_reads_as_recorded(output: Format) -> None:
    path = GOLDEN / f"execution.{FILES[output]}"
    text = render_execution_graph(graph(), output) + "\n"
    if os.environ.get("FLOWRUN_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def workers(number: int, slots: int) -> list[WorkerSlots]:
    return [WorkerSlots(f"w{i}", slots, ResourceProfile()) for i in range(number)]


def tables(text: str) -> str:
    return text[text.index("\nSlots") + 1 :]


def test_slots_are_shown_with_their_processes_and_channels_by_kind() -> None:
    simple = build_execution_graph(
        job_graph([Vertex("a", 2), Vertex("b", 2)], [Edge("a", "b", KeyGroupPartitioner((0,)))])
    )
    assert tables(render_execution_graph(simple, workers=workers(2, 1))) == (
        "Slots in 2 worker processes of 1 slot each:\n"
        "  default/1  process 1  [1] [3]\n"
        "  default/2  process 2  [2] [4]\n"
        "\n"
        "Exchanges:\n"
        "  a => b\n"
        "    HASH[x]: 4 pipelined channels (2 local within a slot, 2 remote)"
    )
    shown = json.loads(render_execution_graph(simple, Format.JSON, workers(2, 1)))
    assert shown["processes"] == 2
    assert [(s["name"], s["process"], s["subtasks"]) for s in shown["slots"]] == [
        ("default/1", 1, [1, 3]),
        ("default/2", 2, [2, 4]),
    ]
    (exchange,) = shown["exchanges"]
    assert [exchange[k] for k in ("channels", "same_slot", "same_process", "remote")] == [4, 2, 0, 2]


def test_slots_that_do_not_fit_have_no_place() -> None:
    text = tables(render_execution_graph(graph(), workers=workers(1, 4)))
    assert "audit/1    no place" in text
    assert "(" not in text.partition("Exchanges")[2], "nobody knows what kinds of channels there would be"
    shown = json.loads(render_execution_graph(graph(), Format.JSON, workers(1, 4)))
    assert {s["process"] for s in shown["slots"] if s["group"] == "audit"} == {None}


def test_stages_of_batch_mode_follow_each_other_in_the_same_slots() -> None:
    batch = replace(
        job_graph([Vertex("a", 2), Vertex("b", 2)], [Edge("a", "b", RebalancePartitioner(), type=ResultType.BLOCKING)]),
        settings=JobSettings(batch_mode=True),
    )
    text = tables(render_execution_graph(build_execution_graph(batch), workers=workers(2, 1)))
    assert [line.split() for line in text.splitlines()[1:5]] == [
        ["default/1", "process", "1", "stage", "1", "[1]"],
        ["default/1", "process", "2", "stage", "1", "[2]"],
        ["default/1", "process", "1", "stage", "2", "[3]"],
        ["default/1", "process", "2", "stage", "2", "[4]"],
    ]
    assert "4 blocking channels (2 local between slots, 2 remote)" in text


def test_in_batch_mode_stages_are_shown() -> None:
    batch = replace(graph().job_graph, settings=JobSettings(batch_mode=True))
    text = render(build_execution_graph(batch), Stage.EXECUTION)
    assert text.startswith("ExecutionGraph 'job': 4 vertices, 8 subtasks, 11 channels, 2 regions, 5 slots, 2 stages")
    assert "slot default/1 · region 2 · stage 2" in text
    shown = json.loads(render(batch, Stage.JOB, Format.JSON))
    assert [v["stage"] for v in shown["vertices"]] == [1, 1, 1, 2]
    assert ": stage 2 · parallelism 1" in render(batch, Stage.JOB).replace("\n    ", ": ")


def test_one_entry_renders_every_stage() -> None:
    execution = graph()
    assert render(execution, Stage.EXECUTION).startswith("ExecutionGraph 'job': 4 vertices, 8 subtasks")
    assert json.loads(render(execution.job_graph, Stage.JOB, Format.JSON))["name"] == "job"
    assert render([], Stage.TRANSFORMATIONS, name="empty") == (
        "Transformations of 'empty': 0 transformations, 0 physical, 0 virtual"
    )


def test_a_value_of_another_stage_is_refused() -> None:
    with pytest.raises(InternalError, match="a ExecutionGraph is no value of stage job"):
        render(graph(), Stage.JOB)
