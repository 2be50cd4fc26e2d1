"""Whole changes of upserts and of changes that come twice, against Flink's function for one row at a time."""

from __future__ import annotations

import pickle
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.core.elements import RowKind
from flowrun.core.schema import Field, Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.errors import DataError
from flowrun.operators.keyed import key_rows, row_store
from flowrun.operators.updating.factories import ChangelogNormalizeFactory
from flowrun.testing.harness import OperatorHarness
from tests.examples import examples
from tests.operators.ranking.oracles import Row, columns
from tests.operators.stored import stored, taken

PRICES = Schema.of(shop=STRING, item=BIGINT, price=BIGINT)
SEEDS = st.integers(0, 2**32)
Change = tuple[str, Row]


class Oracle:
    """`ProcTimeDeduplicateKeepLastRow` over a changelog behind `DropUpdateBefore`, as Flink has them."""

    def __init__(self, keys: tuple[int, ...], *, repeats: bool = False) -> None:
        self._keys = keys
        self._repeats = repeats
        self.rows: dict[Any, tuple[Row, int]] = {}

    def sent(self, kind: str, row: Row, time: int) -> list[tuple[str, Row, int]]:
        key = tuple(row[k] for k in self._keys)
        old = self.rows.get(key)
        if kind == "-U" or (kind == "-D" and old is None):
            return []
        if kind == "-D":
            assert old is not None
            del self.rows[key]
            return [("-D", *old)]
        if old is not None and old[0] == row and not self._repeats:
            return []
        self.rows[key] = (row, time)
        return [("+I", row, time)] if old is None else [("-U", *old), ("+U", row, time)]


def factory(keys: tuple[int, ...] = (0, 1), *, ttl_ms: int = 0) -> ChangelogNormalizeFactory:
    return ChangelogNormalizeFactory(PRICES, keys, ttl_ms)


def push(harness: OperatorHarness, changes: list[Change], times: list[int] | None = None) -> list[Change]:
    harness.clear()
    kinds = [int(next(k for k in RowKind if k.symbol == kind)) for kind, _ in changes]
    harness.push(columns([row for _, row in changes], PRICES), timestamps=times, row_kinds=kinds)
    return list(harness.changes())


def random_change(dice: random.Random, keys: tuple[int, ...]) -> Change:
    kind = dice.choice(["+I", "+I", "+U", "+U", "-U", "-D"])
    row: Row = (dice.choice(["a", "b", None]), dice.randrange(3), dice.choice([1, 2, None]))
    if kind == "-D" and dice.random() < 0.5:  # by key only
        row = tuple(v if i in keys else None for i, v in enumerate(row))
    return kind, row


@examples(60)
@given(SEEDS, st.sampled_from([(0,), (0, 1), (1,)]), st.sampled_from([1, 7, 1000]), st.booleans())
def test_as_flink_does_row_by_row_however_rows_come_in_batches(
    seed: int, keys: tuple[int, ...], batch_rows: int, repeats: bool
) -> None:
    dice = random.Random(seed)
    changes = [random_change(dice, keys) for _ in range(60)]
    recipe, oracle = factory(keys, ttl_ms=10**9 if repeats else 0), Oracle(keys, repeats=repeats)
    harness = OperatorHarness(recipe, schema=PRICES)
    for start in range(0, len(changes), batch_rows):
        part = changes[start : start + batch_rows]
        times = [dice.randrange(1000) for _ in part]
        wanted = [one for change, time in zip(part, times, strict=True) for one in oracle.sent(*change, time)]
        assert push(harness, part, times) == [(kind, row) for kind, row, _ in wanted]
        assert harness.timestamps() == [time for _, _, time in wanted]
        if dice.random() < 0.2:
            snapshot = stored(taken(harness), start)
            assert snapshot.keyed["rows"].num_rows == len(oracle.rows)
            harness = OperatorHarness.restore(
                pickle.loads(pickle.dumps(recipe)), [snapshot], schema=PRICES, clock=harness.clock
            )


def test_a_key_that_expired_is_new_and_its_deletion_is_dropped() -> None:
    recipe = factory(ttl_ms=1000)
    harness = OperatorHarness(recipe, schema=PRICES)
    push(harness, [("+I", ("a", 1, 5)), ("+I", ("a", 2, 5)), ("+I", ("a", 3, 5))])
    harness.advance_processing_time(999)
    assert push(harness, [("+U", ("a", 1, 5))]) == [("-U", ("a", 1, 5)), ("+U", ("a", 1, 5))], "others hear of it"
    harness.advance_processing_time(1)
    restored = OperatorHarness.restore(recipe, [harness.snapshot()], schema=PRICES, clock=harness.clock)
    for running in (harness, restored):
        assert push(running, [("-D", ("a", 2, None)), ("+U", ("a", 3, 7)), ("+U", ("a", 1, 6))]) == [
            ("+I", ("a", 3, 7)),
            ("-U", ("a", 1, 5)),
            ("+U", ("a", 1, 6)),
        ]


def test_when_a_row_was_read_does_not_tell_it_from_the_one_before() -> None:
    harness = OperatorHarness(ChangelogNormalizeFactory(PRICES, (0,), clocks=(2,)), schema=PRICES)
    assert push(harness, [("+I", ("a", 1, 5)), ("+I", ("a", 1, 6)), ("-D", ("a", 1, None))]) == [
        ("+I", ("a", 1, 5)),
        ("-D", ("a", 1, 5)),
    ]


def test_what_is_said_again_is_no_part_of_the_next_checkpoint() -> None:
    harness = OperatorHarness(factory(), schema=PRICES)
    push(harness, [("+I", ("a", 1, 5)), ("+I", ("b", 1, 5))])
    taken(harness)
    assert push(harness, [("+I", ("a", 1, 5)), ("+I", ("b", 1, 6)), ("-D", ("c", 1, None))]) == [
        ("-U", ("b", 1, 5)),
        ("+U", ("b", 1, 6)),
    ]
    (segment,) = taken(harness, 2).segmented["rows"].segments[1:]
    assert {row["shop"] for row in segment.rows().to_pylist()} == {"b"}


def test_deleted_keys_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_store, "_SPARE", 4)
    monkeypatch.setattr(key_rows, "_SPARE_SLOTS", 4)
    harness = OperatorHarness(factory(), schema=PRICES)
    oracle = Oracle((0, 1))
    for step in range(60):
        changes: list[Change] = [("+U", ("a", step, step)), ("+U", ("ever", 0, step)), ("-D", ("a", step - 2, None))]
        wanted = [(kind, row) for c in changes for kind, row, _ in oracle.sent(*c, 0)]
        assert push(harness, changes) == wanted
    assert harness.snapshot().keyed["rows"].num_rows == 3
    assert harness.operator._rows.slots < 20


@pytest.mark.parametrize("parallelism", [1, 3])
def test_keys_go_on_at_another_parallelism(parallelism: int) -> None:
    options: dict[str, Any] = {"schema": PRICES, "state_keys": [(0, 1)]}
    subtasks = [OperatorHarness(factory(), subtask=i, parallelism=2, **options) for i in range(2)]
    for harness in subtasks:
        push(harness, [("+I", ("a", i, i)) for i in range(50)])
    snapshots = [stored(taken(h)) for h in subtasks]
    changes: list[Change] = []
    for i in range(parallelism):
        harness = OperatorHarness.restore(factory(), snapshots, subtask=i, parallelism=parallelism, **options)
        changes += push(harness, [("-D", ("a", i, None)) if i % 2 else ("+I", ("a", i, i)) for i in range(60)])
    assert sorted(changes) == sorted(
        [*(("-D", ("a", i, i)) for i in range(1, 50, 2)), *(("+I", ("a", i, i)) for i in range(50, 60, 2))]
    )


def test_a_deletion_without_its_key_is_an_error() -> None:
    keyed = Schema((Field("shop", STRING, nullable=False), *PRICES.fields[1:]))
    harness = OperatorHarness(ChangelogNormalizeFactory(keyed, (0,)), schema=PRICES)
    with pytest.raises(DataError, match="column 'shop' is NOT NULL, but row 1"):
        push(harness, [("+I", ("a", 1, 1)), ("-D", (None, 1, None))])
