"""State of regular joins: recovery at any parallelism, time to live, and what the tables hold."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Schema
from flowrun.core.semantics import JoinKind
from flowrun.operators.joins.factories import RegularJoinFactory
from flowrun.operators.state_meanings import state_meanings
from flowrun.testing.harness import OperatorHarness
from tests.operators.joins.test_regular_join import (
    KEYS,
    KINDS,
    SCHEMAS,
    Folded,
    Source,
    add,
    batch,
    expected,
    factory,
    harness,
    matching,
    push,
)
from tests.operators.stored import stored, taken


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_goes_on_at_another_parallelism(kind: JoinKind, parallelism: int) -> None:
    randomly = random.Random(parallelism)
    sources = [Source(randomly, side, False) for side in (0, 1)]
    recipe = factory(kind)
    old = [harness(recipe, subtask=i, parallelism=2, state_keys=KEYS) for i in range(2)]
    folded = Folded()

    def step(subtasks: list[OperatorHarness]) -> None:
        side = randomly.randrange(2)
        pushed = batch(side, sources[side].changes(15))
        changes = []
        for subtask in subtasks:
            subtask.clear()
            subtask.push(pushed, input_index=side)
            changes += subtask.changes()
        folded.take(changes)

    for position in range(6):
        step(old)
        if position % 2:
            [taken(h) for h in old]  # checkpoints in between: the next one only adds to them
    snapshots = [stored(taken(h)) for h in old]
    new = [
        OperatorHarness.restore(
            recipe, snapshots, subtask=i, parallelism=parallelism, schema=SCHEMAS, inputs=2, state_keys=KEYS
        )
        for i in range(parallelism)
    ]
    for _ in range(6):
        step(new)
    left, right = (Counter(s.rows) for s in sources)
    assert folded.rows == expected(kind, left, right, matching(False, False, True))


def test_state_has_the_declared_columns() -> None:
    for kind in KINDS:
        for ttl_ms in ((0, 0), (1000, 1000), (0, 1000)):
            recipe = factory(kind, ttl_ms=ttl_ms)
            join = harness(recipe)
            push(join, 0, *add((1, "a", 0)))
            push(join, 1, *add((10, 1)))
            assert {n: t.schema for n, t in join.snapshot().keyed.items()} == dict(recipe.state_schemas())


def test_rows_are_forgotten_after_their_time_to_live() -> None:
    join = harness(factory(ttl_ms=(100, 100)))
    push(join, 0, *add((1, "a", 0)))
    join.advance_processing_time(60)
    push(join, 0, *add((1, "b", 0)))
    join.advance_processing_time(40)
    assert push(join, 1, *add((10, 1))) == add((1, "b", 0, 10, 1))
    assert push(join, 0, ("-U", (1, "a", 0)), ("+U", (1, "a", 1))) == add((1, "a", 1, 10, 1))


@pytest.mark.parametrize(("waited_ms", "matches"), [(99, True), (100, False)])
def test_a_row_lives_until_its_time_to_live_has_passed(waited_ms: int, matches: bool) -> None:
    join = harness(factory(ttl_ms=(100, 100)))
    push(join, 0, *add((1, "a", 0)))
    join.advance_processing_time(waited_ms)
    assert push(join, 1, *add((10, 1))) == (add((1, "a", 0, 10, 1)) if matches else [])


def test_writing_a_row_again_or_its_matches_lets_it_live_on() -> None:
    join = harness(factory(JoinKind.LEFT, ttl_ms=(100, 100)))
    push(join, 0, *add((1, "a", 0), (2, "b", 0)))
    join.advance_processing_time(60)
    push(join, 1, *add((10, 1)))
    push(join, 0, ("-U", (2, "b", 0)), ("+U", (2, "b", 0)))
    join.advance_processing_time(60)
    assert push(join, 1, *add((11, 1), (12, 2))) == [
        ("-D", (2, "b", 0, None, None)),
        *add((1, "a", 0, 11, 1), (2, "b", 0, 12, 2)),
    ]


def test_each_side_has_its_own_time_to_live() -> None:
    recipe = factory(JoinKind.FULL, ttl_ms=(0, 100))
    join = harness(recipe)
    push(join, 0, *add((1, "a", 0)))
    assert push(join, 1, *add((10, 1))) == [("-D", (1, "a", 0, None, None)), *add((1, "a", 0, 10, 1))]
    join.advance_processing_time(100)
    assert push(join, 0, *add((1, "b", 0))) == add((1, "b", 0, None, None))  # the right row is forgotten
    join = OperatorHarness.restore(recipe, [stored(taken(join))], schema=SCHEMAS, inputs=2, clock=join.clock)
    join.advance_processing_time(100_000)
    assert push(join, 1, *add((11, 1))) == [  # both left rows are there; "a" was never shown without match again
        ("-D", (1, "b", 0, None, None)),
        *add((1, "a", 0, 11, 1), (1, "b", 0, 11, 1)),
    ]


def test_the_time_to_live_goes_on_after_a_restore() -> None:
    recipe = factory(ttl_ms=(100, 100))
    join = harness(recipe)
    push(join, 0, *add((1, "a", 0)))
    join.advance_processing_time(50)
    push(join, 0, *add((1, "b", 0)))
    join = OperatorHarness.restore(recipe, [stored(taken(join))], schema=SCHEMAS, inputs=2, clock=join.clock)
    join.advance_processing_time(60)
    assert push(join, 1, *add((10, 1))) == add((1, "b", 0, 10, 1))


def test_sides_without_columns_are_joined_by_number_alone() -> None:
    nothing = Schema(())
    recipe = RegularJoinFactory(schemas=(nothing, nothing), keys=((), ()), output_schema=nothing)
    join = OperatorHarness(recipe, schema=(nothing, nothing), inputs=2)
    three = pa.record_batch({"n": [1, 2, 3]}).select([])
    join.push(RecordBatch(three), input_index=0)
    join.push(RecordBatch(three.slice(1)), input_index=1)
    assert len(join.rows()) == 6


def test_state_show_explains_the_columns() -> None:
    meanings = state_meanings(factory(JoinKind.LEFT, ttl_ms=(0, 1)))
    assert meanings["left"]["__matches"] == "how many rows of the right side match"
    assert set(meanings["right"]) == {"__row", "__written"}
