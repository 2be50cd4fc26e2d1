"""Regular joins: after each batch what was sent amounts to the SQL join of what came, and no prefix of it takes back too much."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.core.elements import RecordBatch, RowKind
from flowrun.core.schema import Schema
from flowrun.core.semantics import JoinKind
from flowrun.core.types import BIGINT, STRING
from flowrun.operators.joins import regular_pairs
from flowrun.operators.joins.factories import RegularJoinFactory
from flowrun.testing.harness import OperatorHarness
from tests.examples import examples
from tests.operators.stored import stored, taken

SCHEMAS = (Schema.of(k=BIGINT, a=STRING, v=BIGINT), Schema.of(w=BIGINT, k2=BIGINT))
KEYS = ((0,), (1,))
PAIRS = Schema.of(k=BIGINT, a=STRING, v=BIGINT, w=BIGINT, k2=BIGINT)
KINDS = list(JoinKind)
SIGN = {"+I": 1, "+U": 1, "-U": -1, "-D": -1}
Row = tuple[Any, ...]
Change = tuple[str, Row]


@dataclass(frozen=True)
class NotAbove:
    """v ≤ w."""

    def compile(self) -> Any:
        return lambda pairs: pc.less_equal(pairs.column(2), pairs.column(3))


def factory(kind: JoinKind = JoinKind.INNER, **options: Any) -> RegularJoinFactory:
    options.setdefault("keys", KEYS)
    output = SCHEMAS[0] if kind.left_only else PAIRS
    return RegularJoinFactory(schemas=SCHEMAS, output_schema=output, kind=kind, **options)


def harness(recipe: RegularJoinFactory, **options: Any) -> OperatorHarness:
    return OperatorHarness(recipe, schema=SCHEMAS, inputs=2, **options)


def batch(side: int, changes: list[Change]) -> RecordBatch:
    schema = SCHEMAS[side]
    columns = zip(*(row for _, row in changes), strict=True)
    arrays = [pa.array(c, t.arrow) for c, t in zip(columns, schema.types, strict=True)]
    kinds = [next(int(k) for k in RowKind if k.symbol == kind) for kind, _ in changes]
    rows = pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)
    return RecordBatch(rows, row_kinds=pa.array(kinds, pa.int8()) if any(kinds) else None)


def push(join: OperatorHarness, side: int, *changes: Change) -> list[Change]:
    """What comes out when the changes come in as one batch."""
    join.clear()
    join.push(batch(side, list(changes)), input_index=side)
    return join.changes()


def add(*rows: Row) -> list[Change]:
    return [("+I", row) for row in rows]


class Folded:
    """What a list of changes amounts to; checks every prefix of it."""

    def __init__(self) -> None:
        self.rows: Counter[Row] = Counter()

    def take(self, changes: list[Change]) -> None:
        for position, (kind, row) in enumerate(changes):
            self.rows[row] += SIGN[kind]
            assert self.rows[row] >= 0, f"change {position} of {changes} takes back what was not there"
            if kind == "-U":
                assert changes[position + 1][0] == "+U"
            if kind == "+U":
                assert changes[position - 1][0] == "-U"
        self.rows = +self.rows


def expected(
    kind: JoinKind, left: Counter[Row], right: Counter[Row], matches: Callable[[Row, Row], bool]
) -> Counter[Row]:
    """The join of two bags of rows."""
    found: Counter[Row] = Counter()
    met: Counter[Row] = Counter()
    for one, n in left.items():
        partners = Counter({other: m for other, m in right.items() if matches(one, other)})
        met += Counter(partners.keys())
        if kind.left_only:
            if bool(partners) == (kind is JoinKind.SEMI):
                found[one] += n
            continue
        for other, m in partners.items():
            found[one + other] += n * m
        if not partners and kind.keeps[0]:
            found[(*one, None, None)] += n
    if kind.keeps[1]:
        for other, m in right.items():
            if not met[other]:
                found[(None, None, None, *other)] += m
    return found


def matching(null_safe: bool, condition: bool, keyed: bool) -> Callable[[Row, Row], bool]:
    def matches(left: Row, right: Row) -> bool:
        if keyed and not (left[0] == right[1] and (left[0] is not None or null_safe)):
            return False
        return not condition or (left[2] is not None and right[0] is not None and left[2] <= right[0])

    return matches


# -- single cases --------------------------------------------------------------------------------------------------------------


def test_rows_join_with_what_came_before_on_the_other_side() -> None:
    join = harness(factory())
    assert push(join, 0, *add((1, "a", 0), (2, "b", 0))) == []
    assert push(join, 1, *add((10, 1), (11, 1), (12, 3))) == add((1, "a", 0, 10, 1), (1, "a", 0, 11, 1))
    assert push(join, 0, *add((3, "c", 0), (None, "d", 0))) == add((3, "c", 0, 12, 3))


def test_appended_rows_of_an_inner_join_carry_no_kinds() -> None:
    join = harness(factory())
    push(join, 0, *add((1, "a", 0)))
    push(join, 1, *add((10, 1)))
    assert [e.row_kinds for e in join.elements if isinstance(e, RecordBatch)] == [None]


def test_an_update_gives_adjacent_pairs_for_each_match() -> None:
    join = harness(factory())
    push(join, 0, *add((1, "a", 0)))
    push(join, 1, *add((10, 1), (11, 1)))
    assert push(join, 0, ("-U", (1, "a", 0)), ("+U", (1, "a", 5))) == [
        ("-U", (1, "a", 0, 10, 1)),
        ("+U", (1, "a", 5, 10, 1)),
        ("-U", (1, "a", 0, 11, 1)),
        ("+U", (1, "a", 5, 11, 1)),
    ]


def test_an_update_that_moves_a_row_to_another_key_is_a_removal_and_an_insertion() -> None:
    join = harness(factory())
    push(join, 1, *add((10, 1), (11, 2)))
    push(join, 0, *add((1, "a", 0)))
    assert push(join, 0, ("-U", (1, "a", 0)), ("+U", (2, "a", 0))) == [
        ("-D", (1, "a", 0, 10, 1)),
        ("+I", (2, "a", 0, 11, 2)),
    ]


def test_a_row_padded_with_nulls_gives_way_to_its_first_match_and_comes_back_after_the_last() -> None:
    join = harness(factory(JoinKind.LEFT))
    assert push(join, 0, *add((1, "a", 0))) == add((1, "a", 0, None, None))
    assert push(join, 1, *add((10, 1), (11, 1))) == [
        ("-D", (1, "a", 0, None, None)),
        *add((1, "a", 0, 10, 1), (1, "a", 0, 11, 1)),
    ]
    assert push(join, 1, ("-D", (10, 1))) == [("-D", (1, "a", 0, 10, 1))]
    assert push(join, 1, ("-D", (11, 1))) == [("-D", (1, "a", 0, 11, 1)), ("+I", (1, "a", 0, None, None))]


def test_a_row_that_loses_its_match_and_finds_another_within_a_batch_is_never_padded() -> None:
    join = harness(factory(JoinKind.FULL))
    push(join, 0, *add((1, "a", 0)))
    push(join, 1, *add((10, 1)))
    changes = push(join, 1, ("-D", (10, 1)), ("+I", (12, 1)))
    assert changes == [("-D", (1, "a", 0, 10, 1)), ("+I", (1, "a", 0, 12, 1))]


def test_an_update_of_a_row_without_match_stays_a_pair() -> None:
    for kind, tail in ((JoinKind.LEFT, (None, None)), (JoinKind.ANTI, ())):
        join = harness(factory(kind))
        push(join, 0, *add((1, "a", 0)))
        changes = push(join, 0, ("-U", (1, "a", 0)), ("+U", (2, "b", 0)))
        assert changes == [("-U", (1, "a", 0, *tail)), ("+U", (2, "b", 0, *tail))]


def test_for_readers_by_key_the_old_row_goes_before_the_new_one_comes() -> None:
    join = harness(factory(JoinKind.LEFT))
    push(join, 1, *add((10, 2)))
    push(join, 0, *add((1, "a", 0)))
    assert push(join, 0, ("-U", (1, "a", 0)), ("+U", (2, "a", 0))) == [
        ("-D", (1, "a", 0, None, None)),
        ("+I", (2, "a", 0, 10, 2)),
    ]
    assert push(join, 0, ("-U", (2, "a", 0)), ("+U", (1, "a", 0))) == [
        ("-D", (2, "a", 0, 10, 2)),
        ("+I", (1, "a", 0, None, None)),
    ]


def test_what_comes_and_goes_within_a_batch_is_not_seen() -> None:
    join = harness(factory(JoinKind.LEFT))
    push(join, 1, *add((10, 1)))
    assert push(join, 0, ("+I", (1, "a", 0)), ("-D", (1, "a", 0))) == []
    assert push(join, 0, ("+I", (1, "a", 0)), ("-U", (1, "a", 0)), ("+U", (1, "a", 1))) == add((1, "a", 1, 10, 1))
    assert push(join, 0, ("-U", (1, "a", 1)), ("+U", (1, "a", 1))) == []


def test_nothing_is_taken_back_that_was_not_sent() -> None:
    for kind in KINDS:
        join = harness(factory(kind))
        push(join, 1, *add((10, 1)))
        assert push(join, 0, ("-D", (1, "x", 0)), ("-U", (None, None, None))) == []
        assert push(join, 1, ("-D", (11, 1))) == []


def test_equal_rows_are_removed_one_at_a_time() -> None:
    join = harness(factory(JoinKind.SEMI))
    push(join, 1, *add((10, 1), (10, 1)))
    assert push(join, 0, *add((1, "a", 0), (1, "a", 0))) == add((1, "a", 0), (1, "a", 0))
    assert push(join, 0, ("-D", (1, "a", 0))) == [("-D", (1, "a", 0))]
    assert push(join, 1, ("-D", (10, 1))) == []
    assert push(join, 1, ("-D", (10, 1))) == [("-D", (1, "a", 0))]


def test_semi_and_anti_joins_of_appended_rows() -> None:
    semi, anti = harness(factory(JoinKind.SEMI)), harness(factory(JoinKind.ANTI))
    for join in (semi, anti):
        push(join, 0, *add((1, "a", 0), (None, "n", 0)))
    assert anti.changes() == add((1, "a", 0), (None, "n", 0))
    assert push(semi, 1, *add((10, 1), (11, 1), (12, None))) == add((1, "a", 0))
    assert push(anti, 1, *add((10, 1), (11, 1), (12, None))) == [("-D", (1, "a", 0))]


def test_rows_that_can_never_match_are_not_remembered() -> None:
    join = harness(factory())
    push(join, 0, *add((None, "a", 0), (1, "b", 0)))
    push(join, 1, *add((10, None)))
    snapshot = join.snapshot()
    assert snapshot.keyed["left"].num_rows == 1
    assert snapshot.keyed["right"].num_rows == 0


def test_an_update_before_without_its_after_is_a_removal() -> None:
    join = harness(factory())
    push(join, 1, *add((10, 1)))
    push(join, 0, *add((1, "a", 0)))
    assert push(join, 0, ("-U", (1, "a", 0))) == [("-D", (1, "a", 0, 10, 1))]
    assert push(join, 0, ("+U", (1, "a", 0))) == [("+I", (1, "a", 0, 10, 1))]


def test_watermarks_pass() -> None:
    join = harness(factory())
    join.watermark(5, 0)
    join.watermark(7, 1)
    assert join.watermarks() == [5]


# -- many pairs ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs are found and built few at a time."""
    monkeypatch.setattr(regular_pairs, "MAX_FOUND", 7)
    monkeypatch.setattr(regular_pairs, "MAX_PAIRS", 3)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("kind", KINDS)
def test_a_key_with_many_rows_is_joined_in_parts(kind: JoinKind) -> None:
    join, folded = harness(factory(kind)), Folded()
    left = [(1, "a", i) for i in range(12)]
    right = [(i, 1) for i in range(9)]
    folded.take(push(join, 0, *add(*left)))
    folded.take(push(join, 1, *add(*right)))
    assert max((e.num_rows for e in join.elements if isinstance(e, RecordBatch)), default=0) <= max(4, len(left))
    updates = [c for k, a, v in left for c in (("-U", (k, a, v)), ("+U", (k, a, v + 100)))]
    folded.take(push(join, 0, *updates))
    moved = Counter((k, a, v + 100) for k, a, v in left)
    matches = matching(False, False, True)
    assert folded.rows == expected(kind, moved, Counter(right), matches)
    folded.take(push(join, 1, *[("-D", r) for r in right]))
    assert folded.rows == expected(kind, moved, Counter(), matches)


# -- against the join of all rows ----------------------------------------------------------------------------------------------


class Source:
    """Random changes of one side: rows come, go and are replaced."""

    def __init__(self, random_: random.Random, side: int, appends: bool) -> None:
        self.random, self.side, self.appends = random_, side, appends
        self.rows: list[Row] = []

    def row(self) -> Row:
        value = self.random.choice([None, 0, 1, 2])
        key = self.random.choice([None, 1, 1, 2, 3])
        return (key, self.random.choice(["x", "y", None]), value) if self.side == 0 else (value, key)

    def changes(self, size: int) -> list[Change]:
        changes: list[Change] = []
        while len(changes) < size:
            action = "add" if self.appends or not self.rows else self.random.choice(["add", "add", "remove", "update"])
            if action != "add":
                row = self.rows.pop(self.random.randrange(len(self.rows)))
                changes.append(("-D" if action == "remove" else "-U", row))
            if action != "remove":
                self.rows.append(self.row())
                changes.append(("+I" if action == "add" else "+U", self.rows[-1]))
        return changes


@pytest.mark.exhaustive
@examples(120)
@given(
    seed=st.integers(0, 2**32),
    kind=st.sampled_from(KINDS),
    appends=st.tuples(st.booleans(), st.booleans()),
    null_safe=st.booleans(),
    condition=st.booleans(),
    keyed=st.booleans(),
    parts=st.sampled_from([1, 5, 1 << 20]),
)
def test_what_was_sent_is_the_join_of_what_came(
    seed: int, kind: JoinKind, appends: tuple[bool, bool], null_safe: bool, condition: bool, keyed: bool, parts: int
) -> None:
    randomly = random.Random(seed)
    sources = [Source(randomly, side, appends[side]) for side in (0, 1)]
    recipe = factory(
        kind,
        keys=KEYS if keyed else ((), ()),
        null_safe=(null_safe,) if keyed else (),
        condition=NotAbove() if condition else None,
    )
    join, folded = harness(recipe), Folded()
    matches = matching(null_safe, condition, keyed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regular_pairs, "MAX_FOUND", parts)
        patch.setattr(regular_pairs, "MAX_PAIRS", parts)
        for step in range(8):
            side = randomly.randrange(2)
            folded.take(push(join, side, *sources[side].changes(randomly.choice([1, 2, 7, 20]))))
            left, right = (Counter(s.rows) for s in sources)
            assert folded.rows == expected(kind, left, right, matches)
            if step == 4:  # goes on elsewhere
                snapshot = stored(taken(join), seed % 7)
                join = OperatorHarness.restore(recipe, [snapshot], schema=SCHEMAS, inputs=2)


def flink_changes(kind: JoinKind, changes: list[tuple[int, Change]]) -> int:
    """How many changes Apache Flink's join sends, which takes rows one by one."""
    matches = matching(False, False, True)
    sides: list[Counter[Row]] = [Counter(), Counter()]
    sent = 0
    for side, (change, row) in changes:
        before = expected(kind, sides[0], sides[1], matches)
        sides[side][row] += SIGN[change]
        sides[side] = +sides[side]
        after = expected(kind, sides[0], sides[1], matches)
        sent += ((before - after) + (after - before)).total()
    return sent


@examples(40)
@given(seed=st.integers(0, 2**32), kind=st.sampled_from(KINDS))
def test_never_sends_more_changes_than_row_by_row(seed: int, kind: JoinKind) -> None:
    randomly = random.Random(seed)
    sources = [Source(randomly, side, False) for side in (0, 1)]
    join = harness(factory(kind))
    sent, history = 0, []
    for _ in range(6):
        side = randomly.randrange(2)
        changes = sources[side].changes(12)
        history += [(side, c) for c in changes]
        sent += len(push(join, side, *changes))
    assert sent <= flink_changes(kind, history)


@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_duckdb(kind: JoinKind) -> None:
    random_ = np.random.default_rng(3)
    sides = []
    for side, rows in ((0, 3000), (1, 2000)):
        keys = pa.array(random_.integers(0, 900, rows), mask=random_.random(rows) < 0.05)
        values = pa.array(random_.integers(0, 100, rows), mask=random_.random(rows) < 0.05)
        texts = pa.array(random_.choice(["x", "y"], rows))
        columns = [keys, texts, values] if side == 0 else [values, keys]
        sides.append(pa.RecordBatch.from_arrays(columns, schema=SCHEMAS[side].arrow))
    join = harness(factory(kind, condition=NotAbove()))
    cuts = [(side, at) for side in (0, 1) for at in range(0, 3000, 250)]
    random_.shuffle(cuts)
    folded = Folded()
    for side, at in cuts:
        join.clear()
        join.push(sides[side].slice(at, 250), input_index=side)
        folded.take(join.changes())
    on = "l.k = r.k2 AND l.v <= r.w"
    exists = "" if kind is JoinKind.SEMI else "NOT"
    query = f"SELECT * FROM l {kind.value} JOIN r ON {on}"
    if kind.left_only:
        query = f"SELECT * FROM l WHERE {exists} EXISTS (SELECT 1 FROM r WHERE {on})"
    connection = duckdb.connect()
    connection.register("l", pa.Table.from_batches([sides[0]]))
    connection.register("r", pa.Table.from_batches([sides[1]]))
    assert folded.rows == Counter(connection.sql(query).fetchall())
