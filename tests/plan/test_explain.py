"""How plans are shown: stable text, JSON and mermaid."""

from __future__ import annotations

import json
from dataclasses import replace
from textwrap import dedent

import pytest

from flowrun.api.changelog import ChangelogMode
from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import NullKeys
from flowrun.core.types import BIGINT, STRING
from flowrun.plan.explain import explain_plan, window_text
from flowrun.plan.expressions import AggregateCall
from flowrun.plan.nodes import NodeHints, Plan, Process, SideOutput, TableReference, walk_plan
from flowrun.plan.relational import GroupAggregate
from flowrun.plan.windows import (
    CountWindow,
    CumulativeWindow,
    EvictorSpec,
    GlobalWindow,
    SessionWindow,
    TriggerSpec,
    TumblingWindow,
    WindowSpec,
)
from tests.plan.plans import ORDERS, calc, plan, scan, window


def example() -> Plan:
    table = TableReference("orders", "socket", {"port": 1, "token": "t0p"}, "csv", secret_options=frozenset({"token"}))
    orders = replace(scan(event_time=True), table=table)
    some = calc(orders, "*", where="id > 5", name="some")
    totals = window(some, "SUM(amount) AS total", keys=("user",), late="late", uid="t")
    late = SideOutput(schema=ORDERS, hints=NodeHints(name="late"), input=totals, tag="late")
    return plan(totals, late)


def test_process_functions_show_function_arguments_keys_and_side_outputs() -> None:
    process = Process(
        schema=ORDERS.select(["id"]),
        hints=NodeHints(name="alerts"),
        input=scan(),
        function="m:Alerts",
        arguments={"limit": 5},
        keys=(1,),
        null_keys=NullKeys.DROP,
        side_outputs={"late": ORDERS.select(["id", "user"])},
    )
    assert explain_plan(plan(process)).splitlines()[3:9] == [
        "└─ #2 Process alerts",
        "   │  function: m:Alerts",
        "   │  with: limit = 5",
        "   │  keys: user",
        "   │  null_keys: drop",
        "   │  columns_out: id BIGINT",
    ]
    assert "side_outputs: late = (id BIGINT, user STRING)" in explain_plan(plan(process))


def test_text_shows_each_sink_with_what_it_reads_and_shared_nodes_once() -> None:
    assert explain_plan(example()) == dedent(
        """\
        #4 Sink out
        │  connector: blackhole
        │  writes: user, window_start, window_end, total
        └─ #3 WindowAggregate window [uid=t]
           │  keys: user
           │  window: tumbling 1m of event time
           │  aggregates: SUM(amount) AS total
           │  late_output: late
           │  null_keys: fail
           └─ #2 Calc some
              │  where: (id > 5)
              │  select: id, user, amount, status, ts
              └─ #1 Scan orders
                    connector: socket
                    format: csv
                    options: port = 1, token = ***
                    reads: id BIGINT, user STRING, amount DECIMAL(10, 2), status STRING, ts TIMESTAMP(3)
                    watermark: ts - 5s
        #6 Sink out1
        │  connector: blackhole
        │  writes: id, user, amount, status, ts
        └─ #5 SideOutput late
           │  tag: late
           └─ #3 WindowAggregate window [uid=t] (above)"""
    )


def test_json_lists_nodes_with_their_inputs_and_columns() -> None:
    shown = json.loads(explain_plan(example(), "json"))
    assert shown["name"] == "test"
    assert [(n["id"], n["kind"], n["inputs"]) for n in shown["nodes"]] == [
        (1, "Scan", []),
        (2, "Calc", [1]),
        (3, "WindowAggregate", [2]),
        (4, "Sink", [3]),
        (5, "SideOutput", [3]),
        (6, "Sink", [5]),
    ]
    assert shown["nodes"][2]["columns"][0] == {"name": "user", "type": "STRING", "nullable": True}
    assert shown["nodes"][0]["options"] == {"port": "1", "token": "***"}


def test_mermaid_escapes_what_would_break_the_chart() -> None:
    text = explain_plan(plan(calc(scan(), where="status <> 'a\"b' AND id < 5")), "mermaid")
    assert text.splitlines()[0] == "flowchart LR"
    assert "&lt;&gt; 'a#quot;b'" in text
    assert "  n1 --> n2" in text


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(ValueError, match="text, json or mermaid, not xml"):
        explain_plan(plan(scan()), "xml")


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (TumblingWindow(60_000, -5_000), "tumbling 1m offset -5s"),
        (CumulativeWindow(180_000, 30_000), "cumulative 3m by 30s"),
        (SessionWindow(500), "session with gap 500ms"),
        (CountWindow(5, 5), "count 5"),
        (CountWindow(5, 2), "count 5 every 2"),
        (GlobalWindow(), "global"),
    ],
)
def test_windows_in_words(spec: WindowSpec, text: str) -> None:
    assert window_text(spec) == text


def test_triggers_and_evictors_are_shown() -> None:
    node = replace(
        window(scan(), "COUNT(*) AS n", of=GlobalWindow()),
        trigger=TriggerSpec(count=5, every_ms=1_000, late_count=2, purge=True),
        evictor=EvictorSpec(time_ms=60_000),
        allowed_lateness_ms=1_000,
    )
    text = explain_plan(plan(node))
    assert "trigger: count 5, every 1s, late count 2, purge" in text
    assert "evictor: last 1m" in text
    assert "allowed_lateness: 1s" in text


def test_changes_are_shown_where_there_are_any() -> None:
    counted = GroupAggregate(
        Schema((Field("user", STRING), Field("n", BIGINT))),
        NodeHints(name="counts"),
        scan(),
        (1,),
        (AggregateCall("COUNT", (), BIGINT, "n"),),
    )
    shown = plan(counted)
    modes = {id(node): ChangelogMode.APPEND for node in walk_plan(shown)}
    assert "changes" not in explain_plan(shown, modes=modes)
    modes[id(counted)] = modes[id(shown.sinks[0])] = ChangelogMode.UPDATE
    assert explain_plan(shown, modes=modes).count("changes: [+I, -U, +U]") == 2
    assert [n.get("changes") for n in json.loads(explain_plan(shown, "json", modes))["nodes"]] == [
        None,
        "[+I, -U, +U]",
        "[+I, -U, +U]",
    ]
