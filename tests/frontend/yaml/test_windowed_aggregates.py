"""Aggregates of windows are bound as queries are: what SQL can say of groups, steps can say of windows, and state keeps its names."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from flowrun.errors import PipelineError
from flowrun.frontend.pipeline import load_text
from flowrun.frontend.source_text import SourceText
from flowrun.plan.nodes import Calc, Plan, PlanNode, WindowAggregate, walk_plan
from flowrun.plan.relational import GroupAggregate, OverAggregate, WindowTableFunction
from tests.frontend.yaml.small_runs import results
from tests.frontend.yaml.test_relational_steps import HEAD, ORDERS, SINK, USERS

GENERATED = """
sources:
  orders:
    connector: datagen
    schema: {id: BIGINT, user: STRING, amount: "DECIMAL(10, 2)", small: INT, ratio: DOUBLE, ts: TIMESTAMP(3)}
    watermark: {column: ts, delay: 5s}
"""
BLACKHOLE = """
sinks:
  out: {from: s, connector: blackhole}
"""


def plan_of(step: str, before: str = "", folder: Path = Path()) -> Plan:
    text = f"{GENERATED}steps:\n{before}  s: {{from: orders, {step}}}\n{BLACKHOLE}"
    return load_text(SourceText("p.yaml", text), folder, {}, {}, {}).plan


def windowed(*aggregates: str, keys: str = "key_by: user, ", window: str = "{type: tumbling, size: 1m}") -> Plan:
    entries = ", ".join(f'"{a}"' for a in aggregates)
    return plan_of(f"{keys}window: {window}, aggregate: [{entries}]")


def aggregate_of(plan: Plan) -> WindowAggregate:
    (found,) = (n for n in walk_plan(plan) if isinstance(n, WindowAggregate))
    return found


def result_of(plan: Plan) -> PlanNode:
    return plan.sinks[0].input


def problems_of(step: str, folder: Path = Path()) -> list[tuple[str, str | None]]:
    with pytest.raises(PipelineError) as caught:
        plan_of(step, folder=folder)
    return [(d.message, d.hint) for d in caught.value.diagnostics]


# -- calls and columns -------------------------------------------------------------------------------------------------------------


def test_plain_calls_need_no_projection() -> None:
    plan = windowed("COUNT(*) AS n", "SUM(amount) AS total", "COUNT(DISTINCT id) AS ids")
    aggregate = aggregate_of(plan)
    assert result_of(plan) is aggregate
    assert [str(c) for c in aggregate.aggregates] == ["COUNT(*)", "SUM(amount)", "COUNT(DISTINCT id)"]
    assert (
        str(aggregate.schema) == "user STRING, window_start TIMESTAMP(3), window_end TIMESTAMP(3), n BIGINT NOT NULL, "
        "total DECIMAL(38, 2), ids BIGINT NOT NULL"
    )


def test_expressions_of_calls_share_equal_calls_and_these_keep_their_names_in_state() -> None:
    plan = windowed("SUM(small) / COUNT(*) AS mean", "COUNT(*) AS n", "ROUND(AVG(ratio), 2) AS r")
    calls = aggregate_of(plan).aggregates
    assert [(c.name, str(c)) for c in calls] == [
        ("__sum_0", "SUM(small)"),
        ("n", "COUNT(*)"),
        ("__avg_2", "AVG(ratio)"),
    ]
    assert [str(f) for f in result_of(plan).schema][3:] == ["mean BIGINT", "n BIGINT NOT NULL", "r DOUBLE"]


def test_a_call_listed_twice_is_one_call_with_two_columns() -> None:
    plan = windowed("SUM(small) AS x", "SUM(small) AS y")
    assert [c.name for c in aggregate_of(plan).aggregates] == ["x"]
    assert [str(f) for f in result_of(plan).schema][3:] == ["x INT", "y INT"]


def test_filters_and_keys_and_bounds() -> None:
    plan = windowed(
        "COUNT(*) FILTER (WHERE id > 5) AS big", "UPPER(user) AS name", "window_end AS until", "user", "window_time"
    )
    assert [str(c) for c in aggregate_of(plan).aggregates] == ["COUNT(*) FILTER (WHERE (id > 5))"]
    node = result_of(plan)
    assert isinstance(node, Calc)
    assert node.schema.names == ("user", "window_start", "window_end", "big", "name", "until", "window_time")
    assert str(node.projections[-1]) == "(window_end - INTERVAL 1 ms)"
    assert isinstance(node.input, Calc)
    assert [str(p) for p in node.input.projections][4:] == ["UPPER(user)", "window_end"]


def test_a_bound_named_inside_an_aggregate_is_the_column_of_the_rows() -> None:
    minutes = "  m: {from: orders, window: {type: tumbling, size: 1m}, aggregate: [COUNT(*) AS n, window_time]}\n"
    text = (
        f"{GENERATED}steps:\n{minutes}"
        "  s: {from: m, window: {type: tumbling, size: 1h}, aggregate: [MAX(window_end) AS last, window_end AS until]}\n"
    )
    plan = load_text(SourceText("p.yaml", text + BLACKHOLE), Path(), {}, {}, {}).plan
    hours = next(n for n in walk_plan(plan) if isinstance(n, WindowAggregate) and n.hints.name == "s")
    assert [str(a) for c in hours.aggregates for a in c.arguments] == ["window_end"]
    assert hours.input.schema.names == ("window_start", "window_end", "n", "window_time")
    assert result_of(plan).schema.names == ("window_start", "window_end", "last", "until")


def test_a_key_may_be_called_window_time() -> None:
    plan = plan_of("key_by: ts AS window_time, window: {type: tumbling, size: 1m}, aggregate: COUNT(*) AS n")
    assert result_of(plan).schema.names == ("window_time", "window_start", "window_end", "n")
    assert aggregate_of(plan).input.schema.names[aggregate_of(plan).keys[0]] == "window_time"


def test_the_time_of_windows_is_computed_after_the_entries_so_that_operators_keep_their_ids() -> None:
    plan = windowed("COUNT(*) AS n", "window_time", "SUM(small) / COUNT(*) AS mean")
    time = result_of(plan)
    assert isinstance(time, Calc)
    assert str(time.projections[-1]) == "(window_end - INTERVAL 1 ms)"
    assert time.input.schema.names == ("user", "window_start", "window_end", "n", "mean")
    assert isinstance(time.input, Calc)
    listed = result_of(windowed("COUNT(*) AS n", "window_time"))
    assert isinstance(listed, Calc)
    assert isinstance(listed.input, WindowAggregate)
    assert [str(p) for p in listed.projections][3:] == ["n", "(window_end - INTERVAL 1 ms)"]


def test_something_else_may_be_called_window_time() -> None:
    plan = windowed("UPPER(user) AS up", "MAX(id) + COUNT(*) AS window_time")
    node = result_of(plan)
    assert isinstance(node, Calc)
    assert node.input is aggregate_of(plan)
    assert [str(p) for p in node.projections][3:] == ["UPPER(user)", "(MAX(id) + COUNT(*))"]


@pytest.mark.parametrize("window", ["{type: count, size: 3}", "{type: global}"])
def test_windows_without_bounds_are_groups_even_without_keys_and_aggregates(window: str) -> None:
    plan = windowed("1 AS one", keys="", window=window)
    assert [str(c) for c in aggregate_of(plan).aggregates] == ["COUNT(*)"], "rows without columns could not be counted"
    assert result_of(plan).schema.names == ("one",)
    aggregate = f"window: {window}, aggregate: [id AS x]"
    assert problems_of(aggregate)[0][0] == "column 'id' is neither a key nor inside an aggregate"


def test_windows_of_rows_have_the_lengths_that_the_document_says() -> None:
    for window in (
        "{type: tumbling, size: 1500ms, offset: -200ms}",
        "{type: sliding, size: 400d, slide: 7d}",
        "{type: cumulative, size: 1h, step: 1m}",
        "{type: session, gap: 1ms}",
    ):
        keys = "key_by: [user, id % 7 AS part], " if "session" in window else ""
        plan = plan_of(f"{keys}window: {window}")
        (function,) = (n for n in walk_plan(plan) if isinstance(n, WindowTableFunction))
        aggregated = aggregate_of(windowed("COUNT(*) AS n", window=window))
        assert function.window == aggregated.window
        assert len(function.keys) == (2 if keys else 0)


# -- what only queries could say ---------------------------------------------------------------------------------------------------

FUNCTIONS = """
import flowrun

@flowrun.udf(result="STRING")
def shout(text: str) -> str:
    return None if text is None else text.upper() + "!"

@flowrun.udaf(result="STRING")
class Longest:
    def create_accumulator(self):
        return ""

    def accumulate(self, accumulator, value: str):
        return max(accumulator, value or "", key=lambda text: (len(text), text))

    def get_value(self, accumulator):
        return accumulator
"""
DECLARED = 'functions: {shout: "texts:shout", longest: "texts:Longest"}\n'


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (
            "{type: tumbling, size: 3m}",
            "2024-01-01 00:00:00 2024-01-01 00:03:00 4:cid 6:- 1:ann 2:bob 5:bob 3:ann CID! 2 ann;bob;cid",
        ),
        (
            "{type: session, gap: 40s}",
            "2024-01-01 00:00:00 2024-01-01 00:01:00 1:ann 2:bob BOB! 0 ann;bob"
            " | 2024-01-01 00:01:10 2024-01-01 00:02:00 4:cid 3:ann CID! 1 ann;cid"
            " | 2024-01-01 00:02:10 2024-01-01 00:03:00 6:- 5:bob BOB! 1 bob",
        ),
        ("{type: count, size: 6}", "4:cid 6:- 1:ann 2:bob 5:bob 3:ann CID! 2 ann;bob;cid"),
        (
            "{type: tumbling, size: 3m, trigger: {count: 6, purge: true}, evictor: {count: 2}}",
            "2024-01-01 00:00:00 2024-01-01 00:03:00 6:- 5:bob BOB! 1 bob",
        ),
    ],
)
def test_users_and_ordered_aggregates_in_windows(tmp_path: Path, window: str, expected: str, parallelism: int) -> None:
    (tmp_path / "texts.py").write_text(FUNCTIONS)
    steps = dedent(
        f"""
        steps:
          result:
            from: orders
            window: {window}
            aggregate:
              - LISTAGG(CAST(id AS STRING) || ':' || COALESCE(user, '-'), ' ') WITHIN GROUP (ORDER BY amount, id) AS by_amount
              - shout(longest(user)) AS longest
              - COUNT(*) FILTER (WHERE amount < 10) AS small
              - LISTAGG(DISTINCT user, ';') WITHIN GROUP (ORDER BY user) AS users
        """
    )
    found = results(tmp_path, DECLARED + HEAD + steps + SINK, parallelism, orders=ORDERS, users=USERS)
    assert " | ".join(found) == expected


def test_functions_are_known_in_the_keys_and_the_having_of_windows(tmp_path: Path) -> None:
    (tmp_path / "texts.py").write_text(FUNCTIONS)
    steps = """
steps:
  result:
    from: orders
    key_by: ["shout(user) AS who"]
    null_keys: drop
    window: {type: tumbling, size: 10m}
    aggregate: ["COUNT(*) AS n", "shout(MAX(user)) AS twice"]
    having: shout(who) <> 'BOB!!' AND n > 1
"""
    found = results(tmp_path, DECLARED + HEAD + steps + SINK, orders=ORDERS, users=USERS)
    assert found == ["ANN! 2024-01-01 00:00:00 2024-01-01 00:10:00 2 ANN!"]


def test_aggregates_of_windows_are_summed_up_by_over() -> None:
    plan = windowed("SUM(amount) AS total", "SUM(SUM(amount)) OVER (PARTITION BY user ORDER BY window_time) AS so_far")
    assert aggregate_of(plan).hints.stable_id == "steps.s"
    (over,) = (n for n in walk_plan(plan) if isinstance(n, OverAggregate))
    assert over.hints.stable_id == "steps.s:over-1"
    assert result_of(plan).schema.names == ("user", "window_start", "window_end", "total", "so_far")


@pytest.mark.parametrize("window", ["{type: tumbling, size: 1m}", "{type: count, size: 3}"])
def test_subqueries_beside_aggregates_read_the_rows_as_they_are(window: str) -> None:
    plan = windowed("SUM(amount) - (SELECT MAX(amount) FROM orders) AS above", keys="", window=window)
    assert aggregate_of(plan).hints.stable_id == "steps.s"
    (largest,) = (n for n in walk_plan(plan) if isinstance(n, GroupAggregate))
    assert [str(c) for c in largest.aggregates] == ["MAX(amount)"]
    assert not any(isinstance(n, WindowTableFunction) for n in walk_plan(plan))
    assert result_of(plan).schema.names[-1] == "above"


# -- what is wrong -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "message", "hint"),
    [
        (["COUNT(*)"], "the column needs a name", "write COUNT(*) AS some_name"),
        (["id AS x"], "column 'id' is neither a key nor inside an aggregate", "add it to key_by, or take one value"),
        (["SUM(id + COUNT(*)) AS x"], "COUNT stands inside another aggregate", "two steps"),
        (["SUM(*) AS x"], "SUM(*) has no meaning", "usage"),
        (["SUM() AS x"], "SUM needs an argument", "usage"),
        (["SUM(user) AS x"], "SUM", None),
        (["COUNT(*) AS user"], "'user' is already a key or window column", "choose another name"),
        (["COUNT(*) AS window_end"], "'window_end' is already a key or window column", "choose another name"),
        (["SUM(id) FILTER (WHERE id) AS x"], "the condition of FILTER must be BOOLEAN, this is BIGINT", None),
        (["COUNT(*) AS n", "SUM(id) AS n"], "column 'n' occurs more than once", None),
        (["SUM(amont) AS x"], "column 'amont' does not exist in the input", None),
        (["UPPER(usr) AS x"], "column 'usr' does not exist in the input", None),
        (["MAX(window_end) AS x"], "column 'window_end' does not exist in the input", None),
        (["COUNT(*) AS n, SUM(id) AS m"], "an entry is one column, this gives 2", "an entry of its own"),
        (["SUM(id) FILTER (WHERE id IN (SELECT small FROM orders)) AS x"], "aggregates of a window take columns", None),
    ],
)
def test_what_cannot_be_aggregated_is_an_error(entries: list[str], message: str, hint: str | None) -> None:
    listed = ", ".join(f'"{e}"' for e in entries)
    ((found, given),) = problems_of(f"key_by: user, window: {{type: tumbling, size: 1m}}, aggregate: [{listed}]")
    assert message in found
    assert hint is None or hint in (given or "")
