"""From a document to a plan: what each part of a document means, and that no document ever ends in a traceback."""

from __future__ import annotations

import os
import random
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.core.semantics import NullKeys
from flowrun.errors import PipelineError
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.pipeline import LoadedPipeline, load_pipeline, load_text
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.yaml.pipeline import read_pipeline
from flowrun.plan.explain import explain_plan, plan_text
from flowrun.plan.nodes import Process, PythonMap, Scan, WindowAggregate, walk_plan
from flowrun.plan.rewrites import optimise
from tests.examples import examples

SOURCES = """
sources:
  orders:
    connector: datagen
    schema: {id: BIGINT NOT NULL, user: STRING, amount: "DECIMAL(10,2)", device: "ROW<os STRING, v INT>", ts: TIMESTAMP(3)}
    computed: {big: amount > 100, bigger: big AND amount > 1000}
    watermark: {column: ts, delay: 5s, idle_timeout: 30s}
"""
SINK = """
sinks:
  out: {from: s, connector: blackhole}
"""


def load(
    steps: str, *, sources: str = SOURCES, sink: str = SINK, folder: Path = Path(), **environment: str
) -> LoadedPipeline:
    text = f"{sources}{dedent(steps)}\n{sink}"
    return load_text(SourceText("p.yaml", text), folder, {}, {}, environment)


def shown(steps: str, **kwargs: str) -> str:
    """The plan below its first sink."""
    lines = plan_text(load(steps, **kwargs).plan).splitlines()
    return "\n".join(line for line in lines[1:] if "connector:" not in line and "writes:" not in line)


SCAN = """\
{0}└─ #1 Scan orders
{0}      reads: id BIGINT NOT NULL, user STRING, amount DECIMAL(10, 2), device ROW<os STRING, v INT>, ts TIMESTAMP(3)
{0}      select: id, user, amount, device, ts, (CAST(amount AS DECIMAL(12, 2)) > 100.00) AS big, ((CAST(amount AS DECIMAL(12, 2)) > 100.00) AND (CAST(amount AS DECIMAL(12, 2)) > 1000.00)) AS bigger
{0}      watermark: ts - 5s, idle after 30s"""  # noqa: E501


def test_one_step_filters_selects_aggregates_and_filters_again_in_this_order() -> None:
    assert shown(
        """
        steps:
          s:
            having: n > 5
            aggregate: [COUNT(*) AS n, SUM(amount) AS total]
            window: {type: sliding, size: 1m, slide: 20s, offset: -5s, allowed_lateness: 10s}
            key_by: [user, UPPER(os) AS os_name]
            select: [user, amount, device.os, ts]
            filter: id > 10
            from: orders
            uid: totals
        """
    ) == dedent(
        """\
        └─ #5 Calc s.having [uid=totals:having]
           │  where: (n > 5)
           │  select: user, os_name, window_start, window_end, n, total
           └─ #4 WindowAggregate s [uid=totals]
              │  keys: user, os_name
              │  window: sliding 1m every 20s offset -5s of event time
              │  aggregates: COUNT(*) AS n, SUM(amount) AS total
              │  allowed_lateness: 10s
              │  null_keys: fail
              └─ #3 Calc s.keys [uid=totals:keys]
                 │  select: user, amount, os, ts, UPPER(os) AS os_name
                 └─ #2 Calc s.select [uid=totals:select]
                    │  where: (id > 10)
                    │  select: user, amount, device.os AS os, ts
        """
    ) + SCAN.format(" " * 12)


def test_aggregates_may_be_combined_and_keys_named_again() -> None:
    plan = load(
        """
        steps:
          s: {from: orders, key_by: user, window: {type: count, size: 5},
              aggregate: [user, SUM(amount) / COUNT(*) AS mean, COUNT(*) AS n]}
        """
    ).plan
    assert str(plan.sinks[0].schema.field("user")) == "user STRING"
    assert plan.sinks[0].schema.names == ("user", "mean", "n")


def test_late_rows_come_out_as_they_went_in_even_if_keys_were_computed() -> None:
    plan = load(
        """
        steps:
          s: {from: orders, select: [user, ts], key_by: "UPPER(user) AS u",
              window: {type: tumbling, size: 1m, late_output: late}, aggregate: COUNT(*) AS n}
        """,
        sink="sinks: {out: {from: s, connector: blackhole}, late: {from: late, connector: blackhole}}",
    ).plan
    assert plan.sinks[1].schema.names == ("user", "ts")


def test_split_sends_rows_to_branches_and_the_rest_on() -> None:
    loaded = load(
        "steps: {s: {from: orders, split: {large: big, free: amount = 0}}}",
        sink=(
            "sinks: {a: {from: s, connector: blackhole}, b: {from: large, connector: blackhole}, "
            "c: {from: free, connector: blackhole}}"
        ),
    )
    text = plan_text(loaded.plan)
    assert not loaded.diagnostics
    assert "branches: large = big, free = " in text
    assert text.count("Split s (above)") == 2


def test_a_union_takes_texts_of_different_lengths_and_a_stream_twice() -> None:
    plan = load(
        """
        steps:
          a: {from: orders, select: ["'order' AS kind", ts]}
          b: {from: orders, select: ["'shipment' AS kind", ts]}
          s: {union: [a, b, a]}
        """
    ).plan
    assert str(plan.sinks[0].schema) == "kind VARCHAR(8), ts TIMESTAMP(3)"
    assert plan.sinks[0].event_time


def test_steps_may_be_written_in_any_order_and_a_shared_one_is_one_node() -> None:
    plan = load(
        "steps: {s: {union: [b, c]}, c: {from: a, filter: big}, b: {from: a}, a: {from: orders, filter: id > 1}}"
    ).plan
    assert sum(n.hints.name == "a" for n in walk_plan(plan)) == 1


def test_a_thousand_steps_in_a_row_are_no_problem() -> None:
    steps = "\n".join(f"  s{i}: {{from: s{i - 1}, filter: id <> {i}}}" for i in range(1, 1200))
    plan = load(f"steps:\n  s0: {{from: orders}}\n{steps}\n  s: {{from: s1199}}\n").plan
    assert len(list(walk_plan(plan))) == 1201


def test_sinks_pick_reorder_and_convert_columns() -> None:
    plan = load(
        "steps: {s: {from: orders}}",
        sink="sinks: {out: {from: s, connector: blackhole, schema: {amount: DOUBLE, id: BIGINT, user: VARCHAR(7)}}}",
    ).plan
    assert str(plan.sinks[0].schema) == "amount DOUBLE, id BIGINT, user VARCHAR(7)"
    assert "select: CAST(amount AS DOUBLE) AS amount, id, CAST(user AS VARCHAR(7)) AS user" in plan_text(plan)


def test_python_functions_are_looked_up_beside_the_document(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("def clean(batch):\n    return batch\n")
    plan = load(
        "steps: {s: {from: orders, flat_map: {function: 'beside:clean', row: true, schema: {word: STRING}}}}",
        folder=tmp_path,
    ).plan
    (node,) = (n for n in walk_plan(plan) if isinstance(n, PythonMap))
    assert (node.function, node.flat, node.row, node.search_path) == ("beside:clean", True, True, (str(tmp_path),))


PROCESS = """
from flowrun.api.process_function import KeyedProcessFunction

class Alerts(KeyedProcessFunction):
    def __init__(self, limit, names=(), quoted="", nothing=1):
        self.given = (limit, names, quoted, nothing)

    def process_element(self, row, context):
        return row
"""


def test_process_functions_with_keys_arguments_and_side_outputs(tmp_path: Path) -> None:
    (tmp_path / "alerting.py").write_text(PROCESS)
    plan = load(
        """
steps:
  s:
    uid: alerts
    from: orders
    key_by: [user, id % 10 AS bucket]
    null_keys: drop
    process:
      function: alerting:Alerts
      with: {limit: 2.5, names: [a, 1, true], quoted: "5", nothing: ~}
      schema: {user: STRING, n: BIGINT}
      side_outputs: {late: {n: BIGINT}}
    split: {many: n > 5}
  t: {from: late, filter: n > 1}
  u: {union: [t, many_n]}
  many_n: {from: many, select: [n]}
""",
        sink="sinks: {out: {from: u, connector: blackhole}, rest: {from: s, connector: blackhole}}",
        folder=tmp_path,
    ).plan
    (node,) = (n for n in walk_plan(plan) if isinstance(n, Process))
    assert node.hints.uid == "alerts"
    assert node.keys is not None
    assert [node.input.schema.names[k] for k in node.keys] == ["user", "bucket"]
    assert node.null_keys is NullKeys.DROP
    assert node.arguments == {"limit": 2.5, "names": ["a", 1, True], "quoted": "5", "nothing": None}
    assert str(node.side_outputs["late"]) == "n BIGINT"
    pruned = optimise(plan)
    (kept,) = (n for n in walk_plan(pruned) if isinstance(n, Process))
    assert kept.input.schema == node.input.schema, "functions get all columns"
    assert "function: alerting:Alerts" in plan_text(pruned)


def test_hints_reach_the_nodes() -> None:
    plan = load(
        "steps: {s: {from: orders, filter: big, name: Big ones, parallelism: 3, slot_sharing_group: g, chaining: false}}"
    ).plan
    assert "Calc Big ones [parallelism=3, slot_sharing_group=g, chaining=off]" in plan_text(plan)


@pytest.mark.parametrize(
    ("mark", "text"),
    [
        ("{column: ts}", "ts - 0ms"),
        ("{time: ts - INTERVAL '1' DAY, delay: 1m}", "- 1m"),
        ("{column: ts, type: monotonous, on_disorder: warn}", "ts, monotonous, on disorder warn"),
        ("{column: ts, type: punctuated, expression: CASE WHEN id > 5 THEN ts END}", "ts, punctuated by CASE"),
        ("{column: ts, type: source, idle_timeout: 5s}", "ts, by watermarks of the source, idle after 5s"),
        ("{column: ts, type: none}", "ts, at the end of input only"),
    ],
)
def test_kinds_of_watermarks(mark: str, text: str) -> None:
    source = f"sources: {{orders: {{connector: datagen, schema: {{id: INT, ts: TIMESTAMP(3)}}, watermark: {mark}}}}}\n"
    plan = load("steps: {s: {from: orders}}", sources=source).plan
    assert f"{text}" in plan_text(plan).split("watermark: ")[1]


def test_the_columns_of_nexmark_need_not_be_declared() -> None:
    plan = load("steps: {s: {from: n, select: [bid.price]}}", sources="sources: {n: {connector: nexmark}}\n").plan
    assert plan.sinks[0].schema.names == ("price",)


def test_global_windows_and_processing_time_need_no_watermark() -> None:
    source = "sources: {orders: {connector: datagen, schema: {id: INT}}}\n"
    for window in ("{type: global}", "{type: tumbling, size: 1m, time: processing}", "{type: count, size: 5}"):
        plan = load(f"steps: {{s: {{from: orders, window: {window}, aggregate: COUNT(*) AS n}}}}", sources=source).plan
        (node,) = (n for n in walk_plan(plan) if isinstance(n, WindowAggregate))
        assert node.hints.parallelism == 1


def test_secrets_are_masked_in_every_form_of_explain() -> None:
    source = "sources: {orders: {connector: datagen, schema: {id: INT}, number-of-rows: '${secret:env:ROWS}'}}\n"
    plan = load("steps: {s: {from: orders}}", sources=source, ROWS="77123").plan
    (scan,) = (n for n in walk_plan(plan) if isinstance(n, Scan))
    assert scan.table.options == {"number-of-rows": "77123"}
    for form in ("text", "json", "mermaid"):
        assert "***" in explain_plan(plan, form)
        assert "77123" not in explain_plan(plan, form)
    assert "77123" not in plan.text


def test_anchors_under_x_keys_are_shared_by_steps() -> None:
    plan = load(
        """
        x-windows: {minute: &minute {type: tumbling, size: 1m}}
        steps:
          s: {from: orders, window: *minute, aggregate: COUNT(*) AS n}
        """
    ).plan
    assert "tumbling 1m" in plan_text(plan)


# -- files ----------------------------------------------------------------------------------------------------------


def test_the_name_is_the_files_unless_the_document_says_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "orders_per_minute.yml"
    path.write_text(SOURCES + "steps: {s: {from: orders}}" + SINK)
    assert load_pipeline(path).plan.name == "orders_per_minute"
    assert load_pipeline(path, overrides={"name": "other", "settings.parallelism": "4"}).plan.name == "other"


def test_variables_come_from_the_caller_then_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(SOURCES + "steps: {s: {from: orders, filter: 'id > ${LIMIT}'}}" + SINK)
    monkeypatch.setenv("LIMIT", "5")
    assert "(id > 5)" in plan_text(load_pipeline(path).plan)
    loaded = load_pipeline(path, {"LIMIT": "7", "LMIT": "9"})
    assert "(id > 7)" in plan_text(loaded.plan)
    assert [d.message for d in loaded.diagnostics] == ["the variable 'LMIT' is given but the pipeline does not use it"]
    assert loaded.diagnostics[0].hint == "did you mean 'LIMIT'?"


@pytest.mark.parametrize(
    ("name", "content", "message", "hint"),
    [
        ("missing.yaml", None, "there is no file", None),
        ("ordres.yaml", None, "there is no file", "orders.yaml'?"),
        ("folder.yaml", "", "cannot read", None),
        ("p.txt", "x: 1", "is no pipeline", ".sql, .yaml or .yml"),
        ("latin.yaml", b"name: caf\xe9", "is not UTF-8 text: byte 9 is 0xe9", None),
    ],
)
def test_files_that_cannot_be_pipelines(
    tmp_path: Path, name: str, content: str | bytes | None, message: str, hint: str | None
) -> None:
    (tmp_path / "orders.yaml").write_text("")
    if name == "folder.yaml":
        os.mkdir(tmp_path / name)
    elif content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(PipelineError) as caught:
        load_pipeline(tmp_path / name)
    (problem,) = caught.value.diagnostics
    assert message in problem.message
    assert hint is None or (problem.hint is not None and hint in problem.hint)


# -- any text at all ------------------------------------------------------------------------------------------------

VALID = (
    SOURCES
    + """
settings: {parallelism: 2, restart: {strategy: none}, functions: pyarrow}
x-w: &w {type: session, gap: 10s, late_output: late}
steps:
  a: {from: orders, filter: "amount > ${LIMIT:-5} AND user LIKE 'u%'", select: ["*", "amount * 2 AS twice"]}
  b: {from: a, key_by: [user], window: *w, aggregate: ["COUNT(*) AS n", "SUM(twice) AS t"], having: n > 1, uid: b}
  c: {union: [a, a], split: {x: id > 5, y: "user IS NULL"}}
  d: {sql: "SELECT user, COUNT(*) AS n, MAX(ts) AS at FROM a WHERE amount IN (SELECT amount FROM c) GROUP BY user"}
  e: {from: a, join: {with: d, as: counted, type: left, on: a.user = counted.user AND n > id}, select: [a.id, n], distinct: true}
  f: {from: orders, key_by: user, deduplicate: {keep: last}, top_n: {partition_by: user, order_by: [amount DESC], n: 2, rank: place}}
  g: {from: orders, window: {type: tumbling, size: 1m}, over: ["SUM(amount) OVER (PARTITION BY user ORDER BY ts) AS total"], order_by: ts}
  h: {from: orders, match_recognize: "PARTITION BY user ORDER BY ts MEASURES A.id AS i PATTERN (A B+ C) DEFINE B AS B.amount > A.amount"}
  s: {from: b, map: "pyarrow.compute:utf8_upper", null_keys: drop}
""".replace(", null_keys: drop", "")
    + SINK
    + "  late: {from: late, connector: print, standard-error: true, schema: {user: STRING}}\n"
    + "  x: {from: x, connector: filesystem, path: out, format: csv, partition_by: [user], sink.rolling-policy.file-size: 1mb}\n"
    + "".join(f"  {name}: {{from: {name}, connector: print}}\n" for name in "efgh")
)


def mutated(draw: random.Random) -> str:
    """The valid document with a few lines, words or characters moved, doubled, removed or replaced."""
    text = VALID
    for _ in range(draw.randint(1, 4)):
        match draw.randint(0, 4):
            case 0:
                lines = text.splitlines(keepends=True)
                lines.insert(draw.randrange(len(lines)), lines[draw.randrange(len(lines))])
                text = "".join(lines)
            case 1:
                lines = text.splitlines(keepends=True)
                del lines[draw.randrange(len(lines))]
                text = "".join(lines)
            case 2:
                words = text.split(" ")
                i, j = draw.randrange(len(words)), draw.randrange(len(words))
                words[i] = words[j]
                text = " ".join(words)
            case 3:
                position = draw.randrange(len(text))
                text = text[:position] + text[position + draw.randint(1, 6) :]
            case _:
                position = draw.randrange(len(text))
                text = (
                    text[:position]
                    + draw.choice([*"{}[]:,'\"*&!|>#%@`-0 \n\tax()", "${", "null", "~"])
                    + text[position:]
                )
        if not text.strip():
            break
    return text


def test_the_document_that_is_mutated_is_valid(tmp_path: Path) -> None:
    warnings = [d.message for d in load_text(SourceText("p.yaml", VALID), tmp_path, {}, {}, {}).diagnostics]
    assert warnings == [
        "nothing reads the split branch 'y': its rows are dropped",
    ]


@pytest.mark.exhaustive
@examples(300)
@given(st.integers(0, 2**40))
def test_any_mutation_gives_a_plan_or_problems_with_places(seed: int) -> None:
    text = mutated(random.Random(seed))
    diagnostics = Diagnostics(source := SourceText("p.yaml", text))
    plan = read_pipeline(
        source, variables={}, overrides=(), environment={}, folder=Path("/nonexistent"), diagnostics=diagnostics
    )
    assert (plan is None) == diagnostics.has_errors
    for problem in diagnostics.found:
        problem.render()
        assert problem.location is None or 1 <= problem.location.line <= text.count("\n") + text.count("\r") + 2
    for form in ("text", "json", "mermaid") if plan is not None else ():
        assert plan is not None
        explain_plan(optimise(plan), form)
