from __future__ import annotations

import pickle
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.core.schema import Field, Schema
from flowrun.core.types import BIGINT, STRING, timestamp
from flowrun.errors import InternalError
from flowrun.operators.keyed import key_rows, row_store
from flowrun.operators.ranking.factories import DeduplicateFactory
from flowrun.testing.harness import OperatorHarness
from tests.examples import examples
from tests.operators.ranking.oracles import Row, columns, fold
from tests.operators.stored import stored, taken

VISITS = Schema.of(user=STRING, page=BIGINT, ts=timestamp(3))
SEEDS = st.integers(0, 2**32)
FEW = examples(40)


def factory(*, last: bool, by_time: bool, **options: Any) -> DeduplicateFactory:
    ranked = options.get("rank_column", False)
    output = Schema((*VISITS.fields, Field("rn", BIGINT))) if ranked else VISITS
    keys = options.pop("keys", (0,))
    return DeduplicateFactory(VISITS, output, keys, 2 if by_time else None, last, **options)


def push(harness: OperatorHarness, *rows: Row) -> list[tuple[str, Row]]:
    harness.clear()
    times = [int(r[2].timestamp() * 1000) for r in instants(rows)]
    harness.push(columns(rows, VISITS), timestamps=times)
    return [(kind, (row[0], row[1], at(row[2]), *row[3:])) for kind, row in harness.changes()]


def instants(rows: Any) -> Any:
    import datetime as dt

    return [(*r[:2], dt.datetime.fromtimestamp(r[2] / 1000, dt.UTC)) for r in rows]


def at(value: Any) -> int:
    import datetime as dt

    return round(value.replace(tzinfo=dt.UTC).timestamp() * 1000)


def better(old: Row | None, new: Row, *, last: bool, by_time: bool) -> bool:
    """Flink's `DeduplicateFunctionHelper`."""
    if old is None:
        return True
    if not by_time:
        return last
    return bool(new[2] >= old[2]) if last else bool(new[2] < old[2])


@FEW
@given(SEEDS, st.sampled_from([(True, True), (True, False), (False, False)]), st.sampled_from([(0,), (0, 1), ()]))
def test_each_key_has_its_best_row(seed: int, form: tuple[bool, bool], keys: tuple[int, ...]) -> None:
    dice = random.Random(seed)
    last, by_time = form
    recipe = factory(last=last, by_time=by_time, keys=keys, rank_column=dice.random() < 0.3)
    harness = OperatorHarness(recipe, schema=VISITS)
    best: dict[Any, Row] = {}
    held: Counter[Row] = Counter()
    for step in range(8):
        rows = [
            (dice.choice(["a", "b", None]), dice.randrange(3), dice.randrange(20))
            for _ in range(dice.choice([1, 4, 30]))
        ]
        before = dict(best)
        for row in rows:
            key = tuple(row[k] for k in keys)
            if better(best.get(key), row, last=last, by_time=by_time):
                best[key] = row
        changes = push(harness, *rows)
        held = fold(held, changes)
        assert held == Counter((*r, 1) if recipe.rank_column else r for r in best.values())
        assert len(changes) == sum(1 if k not in before else 2 for k in best if best[k] != before.get(k))
        if dice.random() < 0.3:
            snapshot = stored(taken(harness), step)
            harness = OperatorHarness.restore(pickle.loads(pickle.dumps(recipe)), [snapshot], schema=VISITS)


@FEW
@given(SEEDS, st.sampled_from([(0,), (0, 1), ()]))
def test_the_first_by_event_time_is_sent_once_when_the_watermark_reaches_it(seed: int, keys: tuple[int, ...]) -> None:
    dice = random.Random(seed)
    recipe = factory(last=False, by_time=True, keys=keys, rank_column=dice.random() < 0.3)
    harness = OperatorHarness(recipe, schema=VISITS)
    best: dict[Any, Row] = {}
    sent: set[Any] = set()
    watermark = 0
    harness.watermark(watermark)
    for step in range(10):
        rows = [
            (dice.choice(["a", "b", None]), step * 100 + i, watermark - 4 + dice.randrange(20))
            for i in range(dice.choice([1, 4, 30]))
        ]
        for row in rows:
            key = tuple(row[k] for k in keys)
            if row[2] >= watermark and key not in sent and (key not in best or row[2] < best[key][2]):
                best[key] = row
        assert push(harness, *rows) == [], "nothing is sent before the watermark"
        watermark += 1 + dice.randrange(12)
        harness.watermark(watermark)
        got = [(kind, (row[0], row[1], at(row[2]))) for kind, row in harness.changes()]
        due = [k for k in best if k not in sent and best[k][2] <= watermark]
        assert Counter(got) == Counter(("+I", best[k]) for k in due)
        assert harness.timestamps() == sorted(best[k][2] for k in due)
        sent |= set(due)
        if dice.random() < 0.3:
            snapshot = stored(taken(harness), step)
            harness = OperatorHarness.restore(pickle.loads(pickle.dumps(recipe)), [snapshot], schema=VISITS)
            harness.watermark(watermark)
            assert harness.changes() == []


def test_rows_keep_their_event_times() -> None:
    harness = OperatorHarness(factory(last=True, by_time=True), schema=VISITS)
    push(harness, ("ann", 1, 100))
    push(harness, ("ann", 2, 200))
    assert harness.timestamps() == [100, 200]


def test_the_first_by_processing_time_never_updates_and_remembers_keys_only() -> None:
    harness = OperatorHarness(factory(last=False, by_time=False), schema=VISITS)
    assert push(harness, ("ann", 1, 100), ("ann", 2, 50)) == [("+I", ("ann", 1, 100))]
    assert push(harness, ("ann", 3, 10), ("bob", 4, 10)) == [("+I", ("bob", 4, 10))]
    assert "page" not in harness.snapshot().keyed["rows"].schema.names


def test_of_equal_times_the_first_row_is_kept_for_first_and_the_last_for_last() -> None:
    for last, kept in ((False, 1), (True, 2)):
        harness = OperatorHarness(factory(last=last, by_time=True), schema=VISITS)
        changes = push(harness, ("ann", 1, 100), ("ann", 2, 100))
        if not last:
            harness.watermark(100)
            changes = [(kind, (row[0], row[1], at(row[2]))) for kind, row in harness.changes()]
        assert changes == [("+I", ("ann", kept, 100))]


def test_an_equal_row_is_sent_again_only_if_state_may_expire() -> None:
    for ttl_ms, sent in ((0, []), (1000, ["-U", "+U"])):
        harness = OperatorHarness(factory(last=True, by_time=True, ttl_ms=ttl_ms), schema=VISITS)
        push(harness, ("ann", 1, 100))
        assert [kind for kind, _ in push(harness, ("ann", 1, 100))] == sent


def test_a_key_that_expired_is_new() -> None:
    for last in (False, True):
        recipe = factory(last=last, by_time=False, ttl_ms=1000)
        harness = OperatorHarness(recipe, schema=VISITS)
        push(harness, ("ann", 1, 100))
        harness.advance_processing_time(1000)
        restored = OperatorHarness.restore(recipe, [harness.snapshot()], schema=VISITS, clock=harness.clock)
        for running in (harness, restored):
            assert push(running, ("ann", 2, 200)) == [("+I", ("ann", 2, 200))]


def test_a_key_is_known_until_its_time_to_live_has_passed() -> None:
    harness = OperatorHarness(factory(last=True, by_time=False, ttl_ms=1000), schema=VISITS)
    push(harness, ("ann", 1, 100))
    harness.advance_processing_time(999)
    assert [kind for kind, _ in push(harness, ("ann", 2, 200))] == ["-U", "+U"]
    harness.advance_processing_time(1000)
    assert [kind for kind, _ in push(harness, ("ann", 3, 300))] == ["+I"]


def test_replaced_rows_and_expired_keys_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_store, "_SPARE", 4)
    monkeypatch.setattr(key_rows, "_SPARE_SLOTS", 4)
    harness = OperatorHarness(factory(last=True, by_time=False, ttl_ms=100), schema=VISITS)
    held: Counter[Row] = Counter()
    for step in range(40):
        harness.advance_processing_time(90)
        held = fold(held, push(harness, ("ann", step, step), (f"guest{step}", 0, 0)))
    assert held[("ann", 39, 39)] == 1
    assert harness.snapshot().keyed["rows"].num_rows <= 14  # expired rows stay until the next sweep


def test_keys_go_on_at_another_parallelism() -> None:
    recipe = factory(last=True, by_time=True)
    options: dict[str, Any] = {"schema": VISITS, "state_keys": [(0,)]}
    subtasks = [OperatorHarness(recipe, subtask=i, parallelism=2, **options) for i in range(2)]
    for harness in subtasks:
        push(harness, *((f"u{i}", i, 100) for i in range(50)))
    snapshots = [stored(taken(h)) for h in subtasks]
    changes = []
    for i in range(3):
        harness = OperatorHarness.restore(recipe, snapshots, subtask=i, parallelism=3, **options)
        changes += push(harness, *((f"u{i}", -1, 50 if i % 2 else 150) for i in range(50)))
    assert sorted(row for kind, row in changes if kind == "+U") == sorted((f"u{i}", -1, 150) for i in range(0, 50, 2))
    assert len(changes) == 50


def test_rows_that_take_others_back_are_refused() -> None:
    harness = OperatorHarness(factory(last=True, by_time=True), schema=VISITS)
    with pytest.raises(InternalError, match="take others back"):
        harness.push(columns([("ann", 1, 100)], VISITS), row_kinds=[1])
