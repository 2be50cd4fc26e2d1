"""What `flowrun explain` shows of transformations, stream graph and job graph, word for word.

The expected texts are in `golden/`; to accept new ones, run with FLOWRUN_UPDATE_GOLDEN=1 and read the difference.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import graph_fakes as f
import pytest

from flowrun.api.operator import ChainingStrategy
from flowrun.core.resources import ResourceSpec
from flowrun.graph.explain import Format, render_job_graph, render_stream_graph, render_transformations
from flowrun.graph.explain.drawing import Arrow, Box, boxes_as_mermaid
from flowrun.graph.job_graph_generator import build_job_graph
from flowrun.graph.stream_graph import GraphSettings
from flowrun.graph.stream_graph_generator import build_stream_graph
from flowrun.graph.transformation import FeedbackTransformation, Transformation

GOLDEN = Path(__file__).parent / "golden"
FILES = {Format.TEXT: "txt", Format.JSON: "json", Format.MERMAID: "mmd"}


class SplitFactory(f.FakeFactory):
    pass


class SliceWindowFactory(f.FakeFactory):
    pass


def pipeline() -> list[Transformation]:
    """A union, a split, two parallelisms and a keyed window with late rows."""
    web, app = f.source("web", uid="web"), f.source("app", parallelism=1)
    split = f.one("split", f.union(web, app, name="clicks"), uid="split", factory=SplitFactory())
    window = f.one(
        "per_minute",
        f.keyed(split),
        state_keys=(0,),
        uid="per-minute",
        factory=SliceWindowFactory(),
        min_resources=ResourceSpec(0.5, 64 << 20),
    )
    audit = f.one("format", f.side(split, f.BIG), chaining=ChainingStrategy.HEAD, slot_sharing_group="audit")
    return [f.sink("out", window), f.sink("late", f.side(window, f.LATE)), f.sink("big", audit, parallelism=1)]


def render(stage: str, output: Format) -> str:
    graph = build_stream_graph("clicks", pipeline(), GraphSettings(parallelism=2))
    match stage:
        case "transformations":
            return render_transformations("clicks", pipeline(), output)
        case "stream":
            return render_stream_graph(graph, output)
        case _:
            return render_job_graph(build_job_graph(graph), output)


@pytest.mark.parametrize("output", list(Format), ids=lambda o: o.value)
@pytest.mark.parametrize("stage", ["transformations", "stream", "job"])
def test_each_stage_reads_as_recorded(stage: str, output: Format) -> None:
    path = GOLDEN / f"{stage}.{FILES[output]}"
    text = render(stage, output) + "\n"
    if os.environ.get("FLOWRUN_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_ids_do_not_depend_on_what_was_built_before() -> None:
    before = render("job", Format.JSON)
    for _ in range(3):
        build_stream_graph("other", [f.sink("x", f.source())])
    assert render("job", Format.JSON) == before


def test_the_execution_plan_has_flinks_fields() -> None:
    plan: dict[str, Any] = json.loads(render("stream", Format.JSON))
    by_type = {node["type"]: node for node in plan["nodes"]}
    assert [n["id"] for n in plan["nodes"]] == list(range(1, 9))
    assert by_type["web"]["pact"] == "Data Source"
    assert "predecessors" not in by_type["web"]
    window = by_type["per_minute"]
    assert (window["pact"], window["contents"], window["parallelism"]) == ("Operator", "SliceWindow", 2)
    (edge,) = window["predecessors"]
    assert (edge["ship_strategy"], edge["side"]) == ("HASH[user_id]", "first")
    assert by_type["late"]["predecessors"][0]["side_output"] == "late"


def test_iterations_show_their_feedback() -> None:
    loop = FeedbackTransformation(name="loop", schema=f.ROWS, input=f.source(), wait_ms=5)
    body = f.one("body", loop)
    loop.feedback_edges.append(f.side(body, f.BIG))
    sinks = [f.sink("out", body)]
    text = render_transformations("i", sinks)
    assert "feedback     loop\n    wait ms 5\n    <- [1]\n    <- [5] feedback" in text
    assert [t["name"] for t in json.loads(render_transformations("i", sinks, Format.JSON))["transformations"]] == [
        "source",
        "loop",
        "body",
        "out",
        "big",
    ]
    stream = render_stream_graph(build_stream_graph("i", sinks))
    assert "iteration head  loop (head)" in stream
    assert "co-located iteration-1" in stream


def test_two_input_operators_show_inputs_and_keys_by_name() -> None:
    join = f.two("join", f.keyed(f.source("a")), f.keyed(f.source("b"), 1), state_keys=((0,), (1,)))
    graph = build_stream_graph("j", [f.sink("out", join)])
    assert "keyed by user_id · keyed by amount" in render_transformations("j", [join])
    assert "<- [2] HASH[amount], input 1, pipelined, not chained: " in render_stream_graph(graph)
    job = render_job_graph(build_job_graph(graph))
    assert "keyed by user_id · keyed by amount" in job
    assert "<- [2] HASH[amount], input 1, pipelined" in job


def test_names_cannot_break_a_mermaid_chart() -> None:
    chart = boxes_as_mermaid([Box(1, 'a "quoted" <name>\n#1'), Box(2, "b", arrows=(Arrow(1, 'x|"y"'),))])
    assert chart.splitlines() == [
        "flowchart LR",
        '  n1["a &quot;quoted&quot; &lt;name&gt; &num;1"]',
        '  n2["b"]',
        '  n1 -->|"x|&quot;y&quot;"| n2',
    ]


def test_a_chart_with_very_many_arrows_shows_those_between_groups() -> None:
    left = [Box(n, f"a{n}", group="a") for n in range(1, 21)]
    right = [Box(n, f"b{n}", arrows=tuple(Arrow(b.number, "HASH") for b in left), group="b") for n in range(21, 41)]
    chart = boxes_as_mermaid([*left, *right]).splitlines()
    assert [line for line in chart if "-->" in line] == ['  g1 -->|"HASH"| g2']
