"""The row of each key against a dict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.api.state import SegmentedTable
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.operators.keyed import key_rows, row_store
from flowrun.operators.keyed.key_rows import NOWHERE, WRITTEN, KeyRows, Sweeps
from flowrun.operators.keyed.key_slots import KeySlots
from tests.examples import examples
from tests.operators.stored import whole

SCHEMA = Schema.of(v=STRING, k=BIGINT)
TTL_MS = 8000
Rows = dict[int | None, tuple[str, int]]
"""Key → (value, when it was written)."""


def _batch(rows: list[tuple[str, int | None]]) -> pa.RecordBatch:
    columns = [pa.array([r[0] for r in rows], pa.string()), pa.array([r[1] for r in rows], pa.int64())]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA.arrow)


def _key_rows(ttl_ms: int = TTL_MS, **options: Any) -> KeyRows:
    return KeyRows(SCHEMA, (1,), 16, counters=(WRITTEN,), ttl_ms=ttl_ms, **options)


def _slots(rows: KeyRows, keys: list[int | None]) -> np.ndarray[Any, Any]:
    located = rows.locate([pa.array(keys, pa.int64())], len(keys))
    return located.slots[located.local]


keys_strategy = st.lists(st.sampled_from([None, *range(12)]), max_size=8, unique=True)
steps_strategy = st.lists(
    st.tuples(
        st.sampled_from(["replace", "remove", "expire", "assign", "compact", "snapshot", "restore"]),
        keys_strategy,
        st.integers(0, 4000),
    ),
    max_size=40,
)


@examples(150)
@given(steps_strategy)
def test_behaves_as_a_dict(steps: list[tuple[str, list[int | None], int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_store, "_SPARE", 2)
        patch.setattr(key_rows, "_SPARE_SLOTS", 2)
        _check_steps(steps)


def _check_steps(steps: list[tuple[str, list[int | None], int]]) -> None:
    rows, model, now = _key_rows(), Rows(), 0
    slot_of = dict[int | None, int]()  # an array beside those of `KeyRows`
    unread = list[tuple[SegmentedTable, Rows]]()
    for number, (kind, keys, step) in enumerate(steps):
        slots = _slots(rows, keys)
        slot_of.update(zip(keys, slots.tolist(), strict=True))
        if kind == "replace":
            there = np.array([(i + step) % 3 > 0 for i in range(len(keys))], np.bool_)
            new = [k for k, has in zip(keys, there, strict=True) if has]
            rows.replace(slots, _batch([(f"{k}-{number}", k) for k in new]), there, **{WRITTEN: now})
            for key in keys:
                model.pop(key, None)
            model |= {k: (f"{k}-{number}", now) for k in new}
        elif kind == "assign":  # rows that are there before they are any key's
            stored = rows.store.append(_batch([(f"{k}-{number}", k) for k in keys]), **{WRITTEN: now})
            old = rows.numbers(slots)
            rows.assign(slots, stored)
            rows.store.remove(old[old != NOWHERE])
            model |= {k: (f"{k}-{number}", now) for k in keys}
        elif kind == "remove":
            rows.remove(slots)
            for key in keys:
                model.pop(key, None)
        elif kind == "expire":
            now += step
            rows.expire(np.arange(rows.slots), now)
            model = {k: (v, written) for k, (v, written) in model.items() if written > now - TTL_MS}
        elif kind == "compact":
            kept = rows.compact().kept
            if kept is not None:
                place = {old: new for new, old in enumerate(kept.tolist())}
                slot_of = {k: place[s] for k, s in slot_of.items() if s in place}
        elif kind == "snapshot":
            unread.append((rows.snapshot(), dict(model)))
        else:
            table = whole(rows.snapshot())
            rows = _key_rows()
            rows.restore(table)
            slot_of = {}
        _check(rows, model, slot_of)
    for snapshot, expected in unread:
        written = whole(snapshot).select(["k", "v", WRITTEN]).to_pylist()
        assert {r["k"]: (r["v"], r[WRITTEN]) for r in written} == expected
        assert len(written) == len(expected)


def _check(rows: KeyRows, model: Rows, slot_of: dict[int | None, int]) -> None:
    assert len(rows) == len(model) == len(rows.store)
    keys = sorted(model, key=str)
    located = rows.locate([pa.array([*keys, 99], pa.int64())], len(keys) + 1, add=False)
    slots = located.slots[located.local]
    assert slots[-1] == -1
    assert {k: s for k, s in zip(keys, slots, strict=False) if k in slot_of} == {
        k: slot_of[k] for k in keys if k in slot_of
    }
    numbers = rows.numbers(slots[:-1])
    assert rows.store.take(numbers).column(0).to_pylist() == [model[k][0] for k in keys]
    assert rows.store.counter(WRITTEN)[numbers].tolist() == [model[k][1] for k in keys]


def test_only_now_and_then_keys_expire_that_do_not_come() -> None:
    rows = _key_rows()
    rows.expire(_slots(rows, []), 0)
    for now in (100, 900):
        rows.replace(_slots(rows, [now]), _batch([("a", now)]), **{WRITTEN: now})
    assert rows.expire(_slots(rows, [100]), 8100)  # a sweep finds nothing else
    assert not rows.expire(_slots(rows, [100]), 9000)
    assert rows.expire(_slots(rows, [900]), 9050)
    assert len(rows) == 0


def test_rows_without_time_to_live_stay() -> None:
    rows = _key_rows(ttl_ms=0)
    rows.replace(_slots(rows, [1]), _batch([("a", 1)]), **{WRITTEN: 0})
    assert not rows.expire(_slots(rows, [1]), 1 << 60)
    assert len(rows) == 1


def test_slots_of_the_caller_are_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_rows, "_SPARE_SLOTS", 2)
    slots = KeySlots.of(SCHEMA, (1,))
    rows = _key_rows(slots=slots)
    located = slots.locate([pa.array(range(100))], 100)
    assert rows.numbers(located.slots).tolist() == [NOWHERE] * 100
    assert rows.compact().kept is None
    assert len(slots) == rows.slots == 100


def test_sweeps_come_every_eighth_of_the_time_to_live_but_at_most_one_a_second() -> None:
    long, short = Sweeps(80_000), Sweeps(800)
    assert [now for now in range(0, 40_000, 500) if long.is_due(now)] == [0, 10_000, 20_000, 30_000]
    assert [now for now in range(0, 4000, 500) if short.is_due(now)] == [0, 1000, 2000, 3000]
