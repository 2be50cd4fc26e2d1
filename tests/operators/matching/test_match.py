"""MATCH_RECOGNIZE against an oracle that follows one partial match at a time, a row at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from flowrun.api.state import OperatorSnapshot
from flowrun.core.schema import Schema
from flowrun.core.semantics import SortKey
from flowrun.core.types import BIGINT, BOOLEAN, STRING, timestamp
from flowrun.functions.registry import scalar
from flowrun.graph.transformation import OneInputTransformation, Transformation
from flowrun.lowering.inputs import Inputs
from flowrun.lowering.matching import lower_match
from flowrun.operators.matching.factories import MatchFactory
from flowrun.plan.expressions import AggregateCall, And, Call, ColumnRef, Expression, Literal
from flowrun.plan.matching import (
    AfterMatch,
    MatchRecognize,
    Navigation,
    PatternAggregate,
    PatternColumn,
    PatternVariable,
)
from flowrun.plan.nodes import NodeHints, PlanNode, Settings
from flowrun.testing import OperatorHarness
from tests.examples import examples
from tests.operators.stored import stored, taken

INPUT = Schema.from_pairs([("k", STRING), ("v", BIGINT), ("ts", timestamp(3))])
HINTS = NodeHints(name="match")
K, V = ColumnRef(STRING, 0, "k"), ColumnRef(BIGINT, 1, "v")


def column(variable: str | None, navigation: Navigation = Navigation.LAST, offset: int = 0) -> PatternColumn:
    return PatternColumn(BIGINT, 1, "v", variable, navigation, offset)


def compare(symbol: str, left: Expression, right: Expression) -> Expression:
    assert scalar(symbol) is not None
    return Call(BOOLEAN, symbol, (left, right))


def number(value: int) -> Literal:
    return Literal(BIGINT, value)


def total(variable: str | None) -> PatternAggregate:
    return PatternAggregate(BIGINT, AggregateCall("SUM", (V,), BIGINT, "s"), variable)


def count(variable: str | None) -> PatternAggregate:
    return PatternAggregate(BIGINT, AggregateCall("COUNT", (V,), BIGINT, "n"), variable)


def variable(name: str, quantifier: str = "") -> PatternVariable:
    least, most = {"": (1, 1), "+": (1, None), "*": (0, None), "?": (0, 1), "{2}": (2, 2), "{1,3}": (1, 3)}[
        quantifier.rstrip("!")
    ]
    return PatternVariable(name, least, most, not quantifier.endswith("!"))


def recognise(
    pattern: Sequence[PatternVariable],
    defines: dict[str, Expression],
    measures: dict[str, Expression],
    **options: Any,
) -> MatchRecognize:
    source = PlanNode(INPUT, NodeHints())
    schema = Schema.from_pairs([("k", STRING), *((n, e.type) for n, e in measures.items())])
    return MatchRecognize(
        schema,
        HINTS,
        source,
        (0,),
        (SortKey(2),),
        tuple(pattern),
        tuple(defines.items()),
        tuple(measures.values()),
        **options,
    )


def harness(node: MatchRecognize, restored: OperatorSnapshot | None = None) -> OperatorHarness:
    source = Transformation(name="rows", schema=INPUT)
    lowered = lower_match(node, Inputs((source,)), Settings())
    assert isinstance(lowered, OneInputTransformation)
    assert isinstance(lowered.factory, MatchFactory)
    return OperatorHarness(lowered.factory, schema=lowered.factory.input_schema, restored=restored)


PRICES = (12, 17, 13, 16, 25, 2, 4, 10, 15, 25, 25, 30)


def push(operator: OperatorHarness, rows: Sequence[tuple[str, int | None]], first: int = 0) -> None:
    columns = operator.operator._factory.input_schema
    listed = [(k, v, first + i) for i, (k, v) in enumerate(rows)]
    arrays = [
        pa.array([r[0] for r in listed], pa.string()),
        pa.array([r[1] for r in listed], pa.int64()),
        pa.array([r[2] for r in listed], pa.timestamp("ms")),
    ]
    extra = [arrays[1]] * (len(columns) - 3)
    batch = pa.RecordBatch.from_arrays([*arrays, *extra], schema=columns.arrow)
    operator.push(batch, timestamps=[r[2] for r in listed])


def test_the_average_example_of_the_flink_documentation() -> None:
    """`PATTERN (A+ B)` with `A AS AVG(A.price) < 15`, here with a sum over a count."""
    below = compare("<", total("A"), Call(BIGINT, "*", (number(15), count("A"))))
    node = recognise(
        [variable("A", "+"), variable("B")],
        {"A": below},
        {"first": column("A", Navigation.FIRST), "last": column("A"), "n": count("A"), "s": total("A")},
    )
    with harness(node) as operator:
        push(operator, [("a", price) for price in PRICES])
        operator.watermark(100)
        assert operator.rows() == [("a", 12, 16, 4, 58), ("a", 2, 25, 6, 81)]


def test_state_without_rows_is_taken_back() -> None:
    node = recognise([variable("A")], {}, {"v": column("A")})
    with harness(node, OperatorSnapshot()) as operator:  # storage drops tables that are empty
        push(operator, [("a", 1)])
        operator.watermark(100)
        assert operator.rows() == [("a", 1)]


def test_a_row_at_the_watermark_is_late_and_the_next_one_is_not() -> None:
    node = recognise([variable("A")], {"A": compare(">", column("A"), number(0))}, {"value": column("A")})
    operator = harness(node)
    operator.watermark(5)
    push(operator, [("k", 1), ("k", 2)], first=5)
    operator.watermark(6)
    assert operator.rows() == [("k", 2)]


def test_a_greedy_variable_gives_nothing_back() -> None:
    big = compare(">", column("B"), number(10))
    bigger = compare(">", column("C"), number(20))
    rows: list[tuple[str, int | None]] = [("a", 1), ("a", 15), ("a", 25), ("a", 1)]
    greedy = recognise([variable("A"), variable("B", "+"), variable("C")], {"B": big, "C": bigger}, {"c": column("C")})
    reluctant = recognise(
        [variable("A"), variable("B", "+!"), variable("C")], {"B": big, "C": bigger}, {"c": column("C")}
    )
    with harness(greedy) as operator:
        push(operator, rows)
        operator.watermark(100)
        assert operator.rows() == []
    with harness(reluctant) as operator:
        push(operator, rows)
        operator.watermark(100)
        assert operator.rows() == [("a", 25)]


def test_a_greedy_variable_keeps_rows_that_it_may_not_take_any_more() -> None:
    """Flink puts "and not what B takes" before whatever follows B{1,3}."""
    big = compare(">", column("B"), number(10))
    bigger = compare(">", column("C"), number(20))
    rows: list[tuple[str, int | None]] = [("a", 1), ("a", 15), ("a", 15), ("a", 15), ("a", 25)]
    expected: list[tuple[str, int]]
    for quantifier, expected in (("{1,3}", []), ("{2}", [("a", 25)]), ("{1,3}!", [("a", 25)])):
        node = recognise(
            [variable("A"), variable("B", quantifier), variable("C")], {"B": big, "C": bigger}, {"c": column("C")}
        )
        with harness(node) as operator:
            push(operator, rows)
            operator.watermark(100)
            assert operator.rows() == expected


def test_within_ends_what_takes_too_long() -> None:
    node = recognise(
        [variable("A"), variable("B", "*!"), variable("C")],
        {"A": compare("=", column("A"), number(1)), "C": compare("=", column("C"), number(9))},
        {"n": count("B")},
        within_ms=4,
    )
    with harness(node) as operator:
        push(operator, [("a", 1), ("a", 5), ("a", 5), ("a", 9), ("a", 1), ("a", 5), ("a", 5), ("a", 5), ("a", 9)])
        operator.watermark(100)
        assert operator.rows() == [("a", 2)]


# ---- the oracle

PREDICATES: dict[str, tuple[Expression, Callable[[Any], bool]]] = {
    "any": (Literal(BOOLEAN, True), lambda m: True),
    "small": (compare("<", column(None), number(5)), lambda m: m.value() < 5),
    "large": (compare(">=", column(None), number(5)), lambda m: m.value() >= 5),
    "even": (compare("=", Call(BIGINT, "MOD", (column(None), number(2))), number(0)), lambda m: m.value() % 2 == 0),
    "rising": (
        compare(">", column(None), column(None, Navigation.PREV, 1)),
        lambda m: m.previous() is not None and m.value() > m.previous(),
    ),
    "above A": (
        compare(">", column(None), column("A", Navigation.FIRST)),
        lambda m: bool(m.of("A")) and m.value() > m.of("A")[0],
    ),
    "sum of B": (
        And((compare(">", column(None), number(1)), compare("<", total("B"), number(20)))),
        lambda m: m.value() > 1 and bool(m.of("B")) and sum(m.of("B")) < 20,
    ),
    "few": (compare("<", count(None), number(5)), lambda m: len(m.taken) < 5),
}


@dataclass
class Partial:
    """A partial match of the oracle: names and values of the rows taken, the last one being tried."""

    rows: list[tuple[int, int]]
    start: int
    taken: list[tuple[str, int]]
    var: int = -1
    count: int = 0

    def value(self) -> int:
        return self.taken[-1][1]

    def previous(self) -> int | None:
        at = self.start + len(self.taken) - 2
        return self.rows[at][1] if at >= 0 else None

    def of(self, name: str) -> list[int]:
        return [v for n, v in self.taken if n == name]


def oracle(
    rows: list[tuple[int, int]],
    pattern: Sequence[PatternVariable],
    conditions: dict[str, str],
    after: AfterMatch,
    skip_to: str | None,
    within: int | None,
) -> list[tuple[int, list[str]]]:
    """(start, names of the taken rows) of each match of one key."""
    found = []
    start = 0
    while start < len(rows):
        names = _complete(rows, start, pattern, conditions, within)
        if names is None:
            start += 1
            continue
        found.append((start, names))
        following = start + 1
        if after is AfterMatch.SKIP_PAST_LAST_ROW:
            following = start + len(names)
        elif after is not AfterMatch.SKIP_TO_NEXT_ROW and skip_to in names:
            at = (
                names.index(skip_to)
                if after is AfterMatch.SKIP_TO_FIRST
                else len(names) - 1 - names[::-1].index(skip_to)
            )
            following = max(following, start + at)
        start = following
    return found


def _complete(
    rows: list[tuple[int, int]],
    start: int,
    pattern: Sequence[PatternVariable],
    conditions: dict[str, str],
    within: int | None,
) -> list[str] | None:
    active = [Partial(rows, start, [])]
    for at in range(start, len(rows)):
        if within is not None and rows[at][0] - rows[start][0] >= within:
            return None
        grown: list[Partial] = []
        for partial in active:
            ways = []
            for j in range(max(partial.var, 0), len(pattern)):
                most = pattern[j].most
                if j == partial.var:
                    if most is not None and partial.count >= most:
                        tried = Partial(rows, start, [*partial.taken, (pattern[j].name, rows[at][1])], j, most + 1)
                        limited = pattern[j].greedy and pattern[j].least < most
                        if limited and PREDICATES[conditions[pattern[j].name]][1](tried):
                            break
                        continue
                else:
                    between = pattern[partial.var + 1 : j]
                    enough = partial.var < 0 or partial.count >= pattern[partial.var].least
                    if not enough or any(b.least > 0 for b in between):
                        continue
                more = partial.count + 1 if j == partial.var else 1
                tried = Partial(rows, start, [*partial.taken, (pattern[j].name, rows[at][1])], j, more)
                if PREDICATES[conditions[pattern[j].name]][1](tried):
                    ways.append(tried)
                    if pattern[j].greedy:
                        break
            grown += ways[::-1]
        for partial in grown:
            rest = pattern[partial.var + 1 :]
            if partial.count >= pattern[partial.var].least and all(r.least == 0 for r in rest):
                return [n for n, _ in partial.taken]
        active = grown
    return None


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    quantifiers = draw(
        st.lists(st.sampled_from(["", "", "+", "*", "?", "{2}", "{1,3}", "+!", "*!", "{1,3}!"]), min_size=1, max_size=3)
    )
    pattern = [variable(n, q) for n, q in zip("ABC", quantifiers, strict=False)] + [variable("Z")]
    usable = sorted(p for p in PREDICATES if p != "sum of B" or len(pattern) > 2)
    conditions = {v.name: draw(st.sampled_from(usable)) for v in pattern}
    if pattern[0].name == "A" and conditions["A"] == "any" and pattern[0].most is None:
        conditions["A"] = "small"
    after = draw(st.sampled_from(list(AfterMatch)))
    values = draw(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), max_size=40))
    return {
        "pattern": pattern,
        "conditions": conditions,
        "after": after,
        "skip_to": draw(st.sampled_from([v.name for v in pattern]))
        if "TO_FIRST" in after.name or "TO_LAST" in after.name
        else None,
        "within": draw(st.sampled_from([None, None, 6, 15])),
        "rows": [(k, t, v) for t, (k, v) in enumerate(values)],
        "cuts": draw(st.lists(st.integers(0, 40), max_size=4)),
        "restore": draw(st.booleans()),
        "shuffle": draw(st.integers(0, 99)),
    }


@examples(300)
@given(cases())
def test_finds_what_the_oracle_finds(case: dict[str, Any]) -> None:
    pattern, names = case["pattern"], [v.name for v in case["pattern"]]
    node = recognise(
        pattern,
        {n: PREDICATES[c][0] for n, c in case["conditions"].items()},
        {"first": column(None, Navigation.FIRST), **{f"n{n}": count(n) for n in names}, "last": column(None)},
        after=case["after"],
        skip_to=case["skip_to"],
        within_ms=case["within"],
    )
    wanted = []
    for key in "ab":
        own = [(t, v) for k, t, v in case["rows"] if k == key]
        args = (pattern, case["conditions"], case["after"], case["skip_to"], case["within"])
        for start, taken_names in oracle(own, *args):
            counts = [taken_names.count(n) for n in names]
            wanted.append((key, own[start][1], *counts, own[start + len(taken_names) - 1][1]))
    assert sorted(_run(node, case)) == sorted(wanted)


def _run(node: MatchRecognize, case: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Rows come in several batches, shuffled within one; between two there may be a restore."""
    operator = harness(node)
    rows: list[tuple[Any, ...]] = []
    random = np.random.default_rng(case["shuffle"])
    cuts = sorted({0, *(c for c in case["cuts"] if c < len(case["rows"])), len(case["rows"])})
    for begin, end in pairwise(cuts):
        part = [case["rows"][i] for i in begin + random.permutation(end - begin)]
        schema = operator.operator._factory.input_schema
        arrays = [
            pa.array([r[0] for r in part], pa.string()),
            pa.array([r[2] for r in part], pa.int64()),
            pa.array([r[1] for r in part], pa.timestamp("ms")),
        ]
        operator.push(pa.RecordBatch.from_arrays(arrays, schema=schema.arrow), timestamps=[r[1] for r in part])
        operator.watermark(end - 1)
        if case["restore"]:
            rows += operator.rows()
            snapshot = stored(taken(operator))
            operator.close()
            operator = harness(node, snapshot)
    rows += operator.rows()
    operator.close()
    return rows
