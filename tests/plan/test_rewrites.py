"""Rules on plans: what each makes of a plan, and that none of them changes a row."""

from __future__ import annotations

import random
from dataclasses import replace
from textwrap import dedent

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.api.connector import Comparison, PushedFilter
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, DATE, DOUBLE, INT, STRING, TINYINT, decimal, row, timestamp
from flowrun.errors import InternalError
from flowrun.plan.compiled import Predicate, Projection
from flowrun.plan.explain import plan_text
from flowrun.plan.nodes import Calc, NodeHints, Plan, PlanNode, Scan, SideOutput, Split, Union, walk_plan
from flowrun.plan.rewrites import RULES, optimise
from flowrun.plan.rewrites.calcs import merge_calcs, remove_identity_calcs
from flowrun.plan.rewrites.constants import fold_plan_constants
from flowrun.plan.rewrites.filters import push_filter_hints
from flowrun.plan.rewrites.projections import prune_columns
from flowrun.plan.rewrites.traversal import with_inputs
from tests.examples import examples
from tests.plan.plans import ORDERS, calc, plan, scan, sink, window
from tests.plan.recognition.queries import planned


def shown(before: Plan) -> str:
    """The plan below its first sink, without what every scan says."""
    lines = [line for line in plan_text(before).splitlines() if "connector:" not in line and "writes:" not in line]
    return "\n".join(line.rstrip() for line in lines[1:])


def same(actual: Plan, expected: str) -> None:
    assert shown(actual) == dedent(expected).strip("\n")


# -- folding --------------------------------------------------------------------------------------------------------


def test_constants_are_computed_once_and_conditions_that_are_always_true_go() -> None:
    before = plan(calc(scan(), "id + (1 + 2) AS x", where="1 < 2"))
    same(
        fold_plan_constants(before),
        """
        └─ #2 Calc calc
           │  select: (id + 3) AS x
           └─ #1 Scan orders
                 reads: id BIGINT, user STRING, amount DECIMAL(10, 2), status STRING, ts TIMESTAMP(3)
        """,
    )


def test_a_constant_that_fails_stays_until_a_row_reaches_it() -> None:
    folded = fold_plan_constants(plan(calc(scan(), "1 / 0 AS x", where="id > 1")))
    assert "(1 / 0) AS x" in shown(folded)


# -- calcs ----------------------------------------------------------------------------------------------------------


def test_neighbouring_calcs_become_one_whose_first_condition_guards_the_second() -> None:
    below = calc(scan(), "user", "amount + 1 AS more", where="status = 'paid'", name="paid")
    same(
        merge_calcs(plan(calc(below, "more", "user", where="user <> 'x'", name="big"))),
        """
        └─ #2 Calc paid, big
           │  where: ((status = 'paid') AND (user <> 'x'))
           │  select: (amount + 1) AS more, user
           └─ #1 Scan orders
                 reads: id BIGINT, user STRING, amount DECIMAL(10, 2), status STRING, ts TIMESTAMP(3)
        """,
    )


def test_a_long_chain_of_calcs_becomes_one() -> None:
    node: PlanNode = scan()
    for number in range(1500):
        node = calc(node, "id", "user", where=f"id <> {number}", name=f"c{number}")
    assert [type(n).__name__ for n in walk_plan(optimise(plan(node)))] == ["Scan", "Calc", "Sink"]


@pytest.mark.parametrize(
    ("why", "above", "condition"),
    [
        ("the condition and a projection would both compute it", ("twice",), "twice > 5"),
        ("a random value would be drawn twice", ("dice AS a", "dice AS b"), None),
        ("a random value would be drawn for other rows", ("dice",), "id > 5"),
        ("a random value would be drawn again to project it", ("id",), "dice > 0.5"),
    ],
)
def test_calcs_stay_apart_where_merging_would_compute_more(
    why: str, above: tuple[str, ...], condition: str | None
) -> None:
    below = calc(scan(), "id", "amount * 2 AS twice", "RAND() AS dice")
    before = plan(calc(below, *above, where=condition))
    assert shown(merge_calcs(before)) == shown(before), why


def test_an_expression_used_twice_by_projections_alone_is_merged_since_they_share_it() -> None:
    below = calc(scan(), "amount * 2 AS twice")
    assert len(list(walk_plan(merge_calcs(plan(calc(below, "twice + 1 AS a", "twice + 2 AS b")))))) == 3


def test_a_calc_that_two_others_read_is_computed_once_for_both() -> None:
    shared = calc(scan(), "id", where="id > 5", name="shared")
    before = plan(calc(shared, "id + 1 AS a"), calc(shared, "id + 2 AS b"))
    assert plan_text(merge_calcs(before)) == plan_text(before)


@pytest.mark.parametrize("hints", [{"parallelism": 3}, {"slot_sharing_group": "own"}, {"chaining": False}])
def test_what_the_user_separated_stays_separate(hints: dict[str, object]) -> None:
    before = plan(calc(calc(scan(), "id", where="id > 1", **hints), "id", where="id > 2"))
    assert plan_text(merge_calcs(before)) == plan_text(before)


def test_calcs_that_do_nothing_go_but_not_those_that_rename_or_set_parallelism() -> None:
    assert len(list(walk_plan(remove_identity_calcs(plan(calc(scan(), "*")))))) == 2
    assert len(list(walk_plan(remove_identity_calcs(plan(calc(scan(), "*", parallelism=4)))))) == 3
    renamed = calc(scan(), "id AS key", "user", "amount", "status", "ts")
    assert len(list(walk_plan(remove_identity_calcs(plan(renamed))))) == 3


# -- columns --------------------------------------------------------------------------------------------------------


def test_only_columns_that_somebody_uses_are_read() -> None:
    paid = calc(scan(event_time=True), "*", where="status = 'paid'", name="paid")
    same(
        prune_columns(plan(window(paid, "SUM(amount) AS total", keys=("user",)))),
        """
        └─ #3 WindowAggregate window
           │  keys: user
           │  window: tumbling 1m of event time
           │  aggregates: SUM(amount) AS total
           │  null_keys: fail
           └─ #2 Calc paid
              │  where: (status = 'paid')
              │  select: user, amount
              └─ #1 Scan orders
                    reads: user STRING, amount DECIMAL(10, 2), status STRING, ts TIMESTAMP(3)
                    select: user, amount, status
                    watermark: ts - 5s
        """,
    )


def test_a_scan_keeps_its_declared_columns_for_formats_that_go_by_position() -> None:
    (read, *_) = walk_plan(prune_columns(plan(calc(scan(), "user"))))
    assert isinstance(read, Scan)
    assert read.physical.names == ("user",)
    assert read.declared == ORDERS


def test_counting_rows_reads_the_cheapest_column() -> None:
    schema = Schema.of(text=STRING, nested=row(("a", BIGINT)), flag=BIGINT)
    (read, *_) = walk_plan(prune_columns(plan(window(scan(schema), "COUNT(*) AS n"))))
    assert isinstance(read, Scan)
    assert read.physical.names == ("flag",)


def test_rows_of_over_can_be_counted_without_its_results() -> None:
    summed = "SELECT user_id, SUM(amount) OVER (PARTITION BY user_id ORDER BY ts) AS s FROM orders"
    query = f"SELECT user_id, COUNT(*) AS n FROM ({summed}) AS o GROUP BY user_id"
    assert optimise(planned(query)).sinks[0].schema.names == ("user_id", "n")


def test_nested_columns_are_read_whole() -> None:
    schema = Schema.of(device=row(("os", STRING), ("version", BIGINT)), other=STRING)
    (read, *_) = walk_plan(prune_columns(plan(calc(scan(schema), "device.os AS os"))))
    assert isinstance(read, Scan)
    assert read.physical == schema.select(["device"])


def test_late_rows_leave_with_every_column_that_went_in() -> None:
    aggregate = window(scan(event_time=True), "COUNT(*) AS n", keys=("user",), late="late")
    late = SideOutput(schema=ORDERS, hints=NodeHints(name="late"), input=aggregate, tag="late")
    (read, *_) = walk_plan(prune_columns(plan(aggregate, late)))
    assert read.schema == ORDERS


def test_each_reader_of_a_shared_node_finds_its_columns_where_they_went() -> None:
    shared = calc(scan(), "*", where="id > 5", name="shared")
    pruned = prune_columns(plan(calc(shared, "status"), calc(shared, "amount + id AS x")))
    text = plan_text(pruned)
    assert "reads: id BIGINT, amount DECIMAL(10, 2), status STRING" in text
    assert text.count("Scan") == 1


def test_members_of_a_union_are_brought_to_the_same_columns() -> None:
    a, b = scan(name="a"), scan(name="b")
    union = Union(schema=ORDERS, hints=NodeHints(name="u"), members=(a, b))
    same(
        prune_columns(plan(calc(union, "user", where="id > 1"), calc(a, "status"))),
        """
        └─ #5 Calc calc
           │  where: (id > 1)
           │  select: user
           └─ #4 Union u
              ├─ #2 Calc u
              │  │  select: id, user
              │  └─ #1 Scan a
              │        reads: id BIGINT, user STRING, status STRING
              └─ #3 Scan b
                    reads: id BIGINT, user STRING
        #8 Sink out1
        └─ #7 Calc calc
           │  select: status
           └─ #1 Scan a (above)
        """,
    )


# -- filters --------------------------------------------------------------------------------------------------------


def hints_of(where: str, *, event_time: bool = False) -> tuple[PushedFilter, ...]:
    more = {
        "ratio": DOUBLE,
        "whole": decimal(10, 0),
        "tenths": decimal(10, 1),
        "early": timestamp(1),
        "day": DATE,
        "small": INT,
        "tiny": TINYINT,
    }
    schema = Schema.of(**{f.name: f.type for f in ORDERS}, **more)
    (read, *_) = walk_plan(
        push_filter_hints(fold_plan_constants(plan(calc(scan(schema, event_time=event_time), where=where))))
    )
    assert isinstance(read, Scan)
    return read.filters


@pytest.mark.parametrize(
    ("where", "hints"),
    [
        ("id > 5", [PushedFilter("id", Comparison.GT, 5)]),
        ("5 >= id", [PushedFilter("id", Comparison.LE, 5)]),
        (
            "status = 'paid' AND id <> 3",
            [PushedFilter("status", Comparison.EQ, "paid"), PushedFilter("id", Comparison.NE, 3)],
        ),
        ("user IS NOT NULL", [PushedFilter("user", Comparison.IS_NOT_NULL)]),
        ("ts >= TIMESTAMP '1970-01-01 00:00:01.500'", [PushedFilter("ts", Comparison.GE, 1500)]),
        ("id IN (4, 9, 2)", [PushedFilter("id", Comparison.GE, 2), PushedFilter("id", Comparison.LE, 9)]),
        ("user IN ('ann')", [PushedFilter("user", Comparison.EQ, "ann")]),
        ("user IN ('ann', NULL)", [PushedFilter("user", Comparison.EQ, "ann")]),
        ("id IN (CAST(NULL AS BIGINT))", []),
        ("UPPER(user) IN ('ANN', 'BOB')", []),
        ("id NOT IN (4, 9)", []),
        ("id > 1 OR id < 0", []),
        ("id + 1 > 5", []),
        ("UPPER(user) = 'A' AND id = 1", [PushedFilter("id", Comparison.EQ, 1)]),
        ("ratio < 0.5e0", []),
        ("id = NULL", []),
        ("id > 99999999999999999999", []),
    ],
)
def test_comparisons_of_a_column_with_a_constant_are_hints_for_the_source(
    where: str, hints: list[PushedFilter]
) -> None:
    assert list(hints_of(where)) == hints


@pytest.mark.parametrize(
    ("where", "pushed"),
    [
        ("CAST(amount AS DECIMAL(20, 2)) = 3", True),
        ("CAST(amount AS DECIMAL(11, 3)) = 3.125", True),
        ("CAST(amount AS DECIMAL(10, 3)) = 3.125", False),  # 10000000.00 would fail
        ("CAST(amount AS DECIMAL(20, 1)) = 3.1", False),  # of 3.06 and 3.14, too
        ("CAST(whole AS DECIMAL(11, 0)) = CAST(3 AS DECIMAL(11, 0))", True),
        ("CAST(whole AS DECIMAL(9, 0)) = CAST(3 AS DECIMAL(9, 0))", False),
        ("CAST(whole AS DECIMAL(11, 1)) = 3.5", True),
        ("CAST(tenths AS DECIMAL(20, 0)) = CAST(3 AS DECIMAL(20, 0))", False),
        ("CAST(ts AS TIMESTAMP(6)) = TIMESTAMP '1970-01-01 00:00:01'", True),
        ("CAST(ts AS TIMESTAMP(0)) = TIMESTAMP '1970-01-01 00:00:01'", False),
        ("CAST(early AS TIMESTAMP(0)) = TIMESTAMP '1970-01-01 00:00:01'", False),
        ("CAST(day AS TIMESTAMP(3)) = TIMESTAMP '1970-01-01 00:00:00'", False),
        ("CAST(small AS BIGINT) = 3", True),
        ("CAST(id AS INT) = 3", False),  # 4294967299 would fail
        ("CAST(small AS DECIMAL(20, 0)) = 3", False),
        ("CAST(id AS STRING) = '3'", False),
    ],
)
def test_a_column_is_compared_below_a_cast_that_keeps_its_values_apart(where: str, pushed: bool) -> None:
    assert bool(hints_of(where)) is pushed


@pytest.mark.parametrize(("value", "pushed"), [(127, True), (128, False), (64, True), (-128, True), (-129, False)])
def test_a_constant_that_the_column_could_not_hold_is_no_hint(value: int, pushed: bool) -> None:
    assert hints_of(f"tiny <= {value}") == ((PushedFilter("tiny", Comparison.LE, value),) if pushed else ())
    among = PushedFilter("tiny", Comparison.GE, min(0, value)), PushedFilter("tiny", Comparison.LE, max(0, value))
    assert hints_of(f"tiny IN (0, {value})") == (among if pushed else ())


def test_decimals_are_pushed_as_text() -> None:
    (hint,) = hints_of("amount > 5")
    assert (hint.column, hint.comparison) == ("amount", Comparison.GT)
    assert isinstance(hint.value, str)


def test_below_a_watermark_that_something_goes_by_only_lower_bounds_of_the_time_are_pushed() -> None:
    where = "id > 5 AND ts >= TIMESTAMP '1970-01-01 00:00:01' AND ts < TIMESTAMP '1970-01-01 00:00:09'"
    timed = plan(window(calc(scan(event_time=True), where=where), "COUNT(*) AS n"))
    (read, *_) = walk_plan(push_filter_hints(timed))
    assert isinstance(read, Scan)
    assert read.filters == (PushedFilter("ts", Comparison.GE, 1000),)


def test_a_watermark_that_nothing_goes_by_is_no_reason_to_read_all() -> None:
    assert hints_of("id > 5", event_time=True) == (PushedFilter("id", Comparison.GT, 5),)


def test_a_sink_that_marks_complete_partitions_goes_by_the_watermark() -> None:
    below = sink(calc(scan(event_time=True), where="id > 5"))
    commit = {"sink.partition-commit.trigger": "partition-time"}
    (read, *_) = walk_plan(push_filter_hints(plan(replace(below, table=replace(below.table, options=commit)))))
    assert isinstance(read, Scan)
    assert not read.filters


def test_nothing_is_pushed_into_a_scan_that_others_read_too() -> None:
    shared = scan()
    (read, *_) = walk_plan(push_filter_hints(plan(calc(shared, where="id > 5"), calc(shared))))
    assert isinstance(read, Scan)
    assert not read.filters


# -- all of them ----------------------------------------------------------------------------------------------------


def test_nodes_cannot_be_given_inputs_they_do_not_have() -> None:
    with pytest.raises((InternalError, ValueError)):
        with_inputs(scan(), (scan(),))


def test_optimising_twice_changes_nothing_more() -> None:
    once = optimise(plan(calc(calc(scan(), "id", "amount", where="id > 1 + 1"), "amount", where="id < 5")))
    assert plan_text(optimise(once)) == plan_text(once)


def rows_of(node: PlanNode, table: pa.RecordBatch, memo: dict[int, pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of a plan of scans, calcs, unions and splits, computed the obvious way."""
    if id(node) not in memo:
        memo[id(node)] = _compute(node, table, memo)
    return memo[id(node)]


def _compute(node: PlanNode, table: pa.RecordBatch, memo: dict[int, pa.RecordBatch]) -> pa.RecordBatch:
    inputs = [rows_of(i, table, memo) for i in node.inputs]
    match node:
        case Scan():
            return Projection(node.projections, node.schema).compile()(table.select(list(node.physical.names)))
        case Calc():
            kept = (
                inputs[0]
                if node.condition is None
                else inputs[0].filter(Predicate(node.condition).compile()(inputs[0]))
            )
            return Projection(node.projections, node.schema).compile()(kept)
        case Union():
            return pa.concat_batches([i.cast(node.schema.arrow) for i in inputs])
        case Split():
            masks = [
                Predicate(e).compile()(inputs[0]).fill_null(False).to_numpy(zero_copy_only=False)
                for _, e in node.branches
            ]
            return inputs[0].filter(pa.array(~np.logical_or.reduce(masks)))
        case SideOutput(input=Split() as split):
            below = rows_of(split.input, table, memo)
            return below.filter(Predicate(dict(split.branches)[node.tag]).compile()(below))
        case _:
            return inputs[0]


def random_plan(draw: random.Random) -> Plan:
    schema = Schema.of(a=BIGINT, b=BIGINT, s=STRING)
    nodes: list[PlanNode] = [scan(schema, name="x"), scan(schema, name="y")]
    conditions = ["a > b", "a > 3", "s = 'k'", "s IS NULL OR b < 5", "1 < 2", "a <> 0 AND 10 / a > 2", "b IS NOT NULL"]
    selects = [
        ("*",),
        ("a + b AS a", "b", "s"),
        ("b AS a", "a AS b", "s"),
        ("a", "b * 2 AS b", "COALESCE(s, 'n') AS s"),
    ]
    for _ in range(draw.randint(1, 7)):
        node = draw.choice(nodes)
        match draw.randint(0, 4):
            case 0 | 1 | 2:
                nodes.append(calc(node, *draw.choice(selects), where=draw.choice([*conditions, None])))
            case 3:
                other = draw.choice(nodes)
                nodes.append(Union(schema=node.schema, hints=NodeHints(name="u"), members=(node, other)))
            case 4:
                condition = calc(node, where=draw.choice(conditions[:4])).condition
                assert condition is not None
                split = Split(schema=node.schema, hints=NodeHints(name="s"), input=node, branches=(("t", condition),))
                nodes += [split, SideOutput(schema=node.schema, hints=NodeHints(name="t"), input=split, tag="t")]
    last = [calc(n, *draw.choice([("a",), ("s", "b"), ("*",)])) for n in draw.sample(nodes, min(2, len(nodes)))]
    return plan(*last)


@examples(150)
@given(st.integers(0, 2**32))
def test_no_rule_changes_what_a_sink_gets(seed: int) -> None:
    draw = random.Random(seed)
    values = [[draw.choice([None, *range(-2, 8)]) for _ in range(20)] for _ in range(2)]
    texts = [draw.choice([None, "k", "l"]) for _ in range(20)]
    table = pa.record_batch({"a": pa.array(values[0], pa.int64()), "b": pa.array(values[1], pa.int64()), "s": texts})
    before = random_plan(draw)
    expected = [rows_of(s, table, {}).to_pylist() for s in before.sinks]
    after = before
    for rule in RULES:
        after = rule(after)
        memo: dict[int, pa.RecordBatch] = {}
        actual = [rows_of(s, table, memo).to_pylist() for s in after.sinks]
        assert actual == expected, f"{rule.__name__} changed rows of\n{plan_text(before)}\nto\n{plan_text(after)}"
