"""SQL inside of documents: functions of the user's, time attributes, where state is found again, and lookups."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from flowrun.errors import PipelineError
from flowrun.frontend.pipeline import load_text
from flowrun.frontend.source_text import SourceText
from flowrun.plan.joins import IntervalJoin, Join, LookupJoin, WindowJoin
from flowrun.plan.nodes import Plan, PlanNode, walk_plan
from flowrun.plan.relational import (
    Deduplicate,
    GroupAggregate,
    OverAggregate,
    Rank,
    TemporalSort,
    WindowRank,
    WindowTableFunction,
)
from flowrun.runners.compile import compile_pipeline
from tests.frontend.yaml.small_runs import results, write_json
from tests.frontend.yaml.test_relational_steps import HEAD, ORDERS, SINK, USERS

GENERATED = """
sources:
  orders:
    connector: datagen
    schema: {id: BIGINT, user: STRING, amount: INT, ts: TIMESTAMP(3)}
    computed: {at: PROCTIME()}
    watermark: {column: ts, delay: 5s}
"""
BLACKHOLE = """
sinks:
  out: {from: s, connector: blackhole}
"""


def plan_of(steps: str, folder: Path = Path()) -> Plan:
    return load_text(
        SourceText("p.yaml", GENERATED + (steps if steps.startswith("  ") else dedent(steps)) + BLACKHOLE),
        folder,
        {},
        {},
        {},
    ).plan


def only(plan: Plan, kind: type[PlanNode]) -> PlanNode:
    found = [n for n in walk_plan(plan) if isinstance(n, kind)]
    assert len(found) == 1, f"expected one {kind.__name__}, got {len(found)}"
    return found[0]


# -- where state is found again ------------------------------------------------------------------------------------------------

OTHER = "steps:\n  other: {from: orders, filter: amount > 3}\n"


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        ("{from: orders, key_by: user, aggregate: COUNT(*) AS n}", GroupAggregate),
        ("{from: orders, distinct: true}", GroupAggregate),
        ("{from: orders, key_by: user, deduplicate: {keep: last}}", Deduplicate),
        ("{from: orders, key_by: user, deduplicate: {keep: first, order_by: at}}", Deduplicate),
        ("{from: orders, top_n: {partition_by: user, order_by: amount, n: 3}}", Rank),
        ("{from: orders, order_by: amount, limit: 3}", Rank),
        ("{from: orders, order_by: ts}", TemporalSort),
        ('{from: orders, over: "SUM(amount) OVER (PARTITION BY user ORDER BY ts) AS s"}', OverAggregate),
        ("{from: orders, join: {with: other, on: orders.id = other.id}}", Join),
        ("{from: orders, join: {with: other, type: semi, on: orders.id = other.id}}", Join),
        (
            "{from: orders, join: {with: other, on: orders.id = other.id AND orders.ts BETWEEN other.ts AND other.ts + INTERVAL '1' HOUR}}",
            IntervalJoin,
        ),
        ("{from: orders, window: {type: session, gap: 1m}, key_by: user}", WindowTableFunction),
    ],
)
def test_state_is_found_again_by_the_name_of_its_step_or_by_its_uid(step: str, kind: type[PlanNode]) -> None:
    node = only(plan_of(f"{OTHER}  s: {step}"), kind)
    assert node.hints.stable_id == "steps.s"
    with_uid = only(plan_of(f"{OTHER}  s: {step[:-1]}, uid: mine, parallelism: 3, slot_sharing_group: g}}"), kind)
    assert (with_uid.hints.stable_id, with_uid.hints.parallelism) == ("mine", 3)
    assert with_uid.hints.slot_sharing_group == "g"


def test_nodes_of_a_query_are_parts_of_its_step() -> None:
    steps = """
        steps:
          s:
            uid: mine
            sql: "SELECT user, COUNT(*) AS n FROM (SELECT DISTINCT user, id FROM orders) GROUP BY user"
    """
    found = [n.hints.stable_id for n in walk_plan(plan_of(steps)) if isinstance(n, GroupAggregate)]
    assert found == ["mine:distinct-1", "mine:aggregate-1"]


def test_several_parts_of_a_step_have_places_of_their_own() -> None:
    steps = """
        steps:
          s:
            from: orders
            key_by: user
            aggregate: SUM(amount) AS total
            top_n: {order_by: total DESC, n: 3}
    """
    plan = plan_of(steps)
    assert only(plan, GroupAggregate).hints.stable_id == "steps.s"
    assert only(plan, Rank).hints.stable_id == "steps.s:top_n"


# -- event time ----------------------------------------------------------------------------------------------------------------


def test_windows_of_a_step_are_those_of_queries_over_it() -> None:
    steps = """
        steps:
          w: {from: orders, window: {type: tumbling, size: 1m}}
          v: {from: orders, window: {type: tumbling, size: 1m}, filter: amount > 3}
          j: {sql: "SELECT w.id, w.amount, w.window_start, w.window_end FROM w JOIN v ON w.id = v.id AND w.window_start = v.window_start
              AND w.window_end = v.window_end"}
          s: {from: j, top_n: {partition_by: [window_start, window_end], order_by: amount, n: 2}}
    """
    plan = plan_of(steps)
    assert only(plan, WindowJoin)
    assert only(plan, WindowRank)


def test_a_python_function_keeps_the_time_attribute_that_it_hands_on(tmp_path: Path) -> None:
    (tmp_path / "timely.py").write_text("def same(batch):\n    return batch\n")
    steps = """
        steps:
          same: {from: orders, map: "timely:same"}
          s: {from: same, key_by: user, deduplicate: {keep: last}}
    """
    node = only(plan_of(steps, tmp_path), Deduplicate)
    assert isinstance(node, Deduplicate)
    assert node.input.schema.names[node.time] == "ts"


def test_a_window_over_processing_time_takes_the_column_of_the_clock() -> None:
    node = only(
        plan_of("steps:\n  s: {from: orders, window: {type: tumbling, size: 1m, time: processing}}"),
        WindowTableFunction,
    )
    assert isinstance(node, WindowTableFunction)
    assert node.input.schema.names[node.time] == "at"


# -- settings, functions, lookups ----------------------------------------------------------------------------------------------


def test_the_state_of_updating_steps_lives_as_long_as_the_settings_say() -> None:
    text = "settings: {state_ttl: 36h}\n" + GENERATED + "steps:\n  s: {from: orders}\n" + BLACKHOLE
    assert load_text(SourceText("p.yaml", text), Path(), {}, {}, {}).plan.settings.state_ttl_ms == 36 * 3_600_000


def test_the_state_of_a_step_lives_as_long_as_it_says() -> None:
    plan = plan_of(
        """
        steps:
          j: {from: orders, state_ttl: 1h, join: {with: orders, as: o, on: orders.id = o.id, state_ttl: 0}, filter: o.amount > 2,
              select: [orders.id, o.user, o.ts]}
          f: {from: orders, join: {with: j, on: orders.id = j.id, state_ttl: 2h}, select: [j.id, j.user, j.ts]}
          d: {from: f, key_by: id, deduplicate: {keep: last}, state_ttl: 3h}
          t: {from: d, top_n: {n: 3, order_by: id, partition_by: user}, state_ttl: 4h}
          g: {from: t, key_by: user, aggregate: COUNT(*) AS n, having: n > 1, state_ttl: 5h}
          s: {from: g, distinct: true, state_ttl: 6h}
        """
    )
    hour = 3_600_000
    assert {n.hints.name: n.hints.state_ttl_ms for n in walk_plan(plan) if n.hints.state_ttl_ms} == {
        "j": (hour, 0),
        "f": (None, 2 * hour),
        "d": (3 * hour,),
        "t": (4 * hour,),
        "g": (5 * hour,),
        "s": (6 * hour,),
    }


FUNCTIONS = """
import flowrun

@flowrun.udf(result="STRING")
def shout(text: str) -> str:
    return None if text is None else text.upper() + "!"

@flowrun.udtf(result="letter STRING")
def letters(text: str):
    for letter in text or "":
        yield letter
"""


def test_functions_of_the_document_are_known_in_all_its_sql(tmp_path: Path) -> None:
    (tmp_path / "texts.py").write_text(FUNCTIONS)
    document = (
        'functions: {shout: "texts:shout", letters: "texts:letters"}\n'
        + HEAD
        + """
steps:
  loud: {from: orders, filter: shout(user) <> 'BOB!', select: [id, shout(user) AS who]}
  letters-of-all: {sql: "SELECT id, letter FROM loud, LATERAL TABLE(letters(who))"}
  result: {from: letters-of-all, key_by: letter, aggregate: "MAX(shout(letter)) AS most", having: most > 'M'}
"""
        + SINK
    )
    assert results(tmp_path, document, orders=ORDERS, users=USERS) == ["N N!"]


def test_rows_of_a_file_are_looked_up_as_they_are_now(tmp_path: Path) -> None:
    document = (
        HEAD
        + """
  cities: {connector: filesystem, path: "${DIR}/cities", format: json, schema: {name: STRING, country: STRING}, lookup.cache: NONE}
steps:
  result: {from: users, join: {with: cities, type: left, kind: lookup, on: users.city = cities.name}, select: [users.name, country]}
"""
        + SINK
    )
    cities = [{"name": "Rome", "country": "Italy"}, {"name": "Oslo", "country": "Norway"}]
    expected = ["ann -", "ann Italy", "bob Norway", "dan -"]
    assert results(tmp_path, document, orders=ORDERS, users=USERS, cities=cities) == expected


def test_a_lookup_may_name_the_clock_that_it_follows(tmp_path: Path) -> None:
    sources = f"  cities: {{connector: filesystem, path: {tmp_path}, format: json, schema: {{name: STRING, country: STRING}}}}\n"
    step = "  s: {from: orders, join: {with: cities, kind: lookup, as_of: at, on: user = name}, select: [id, country]}"
    assert only(plan_of(f"{sources}steps:\n{step}"), LookupJoin)


def test_two_columns_of_one_name_are_told_apart(tmp_path: Path) -> None:
    document = HEAD + "steps:\n  result: {from: users, join: {with: users, as: u, on: users.since = u.since}}" + SINK
    write_json(tmp_path, "orders", ORDERS)
    assert results(tmp_path, document, users=USERS)[0].startswith("ann Bern 2024-01-01 00:01:00 ann Bern")


def test_a_primary_key_makes_a_sink_keep_the_newest_row_of_each_key(tmp_path: Path) -> None:
    write_json(tmp_path, "orders", ORDERS)
    write_json(tmp_path, "users", USERS)
    path = tmp_path / "p.yaml"
    path.write_text(
        HEAD
        + "steps:\n  s: {from: orders, key_by: user, null_keys: drop, aggregate: SUM(amount) AS total}\n"
        + 'sinks:\n  out: {from: s, connector: filesystem, path: "${DIR}/out", format: json, primary_key: user}\n'
    )
    assert compile_pipeline(path, {"DIR": str(tmp_path)}).plan.sinks[0].table.primary_key == ("user",)


def test_a_long_query_points_at_its_own_lines() -> None:
    text = GENERATED + dedent(
        """
        steps:
          s:
            sql: >-
              SELECT id,
                amount + ${BONUS} AS more, -- folded lines join
                usr
              FROM orders
        """
    )
    with pytest.raises(PipelineError) as found:
        load_text(
            SourceText("p.yaml", text.replace("-- folded lines join\n", "\n") + BLACKHOLE),
            Path(),
            {"BONUS": "100000"},
            {},
            {},
        )
    [problem] = found.value.diagnostics
    assert problem.source_line is not None
    assert problem.source_line.strip() == "usr"
    assert problem.location is not None
    assert problem.location.column == 9
