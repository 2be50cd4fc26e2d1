"""The keys that most rows of an exchange have, from a look at a few of them now and then."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from flowrun.core.clock import ManualClock
from flowrun.runtime.network.key_sample import EVERY_MS, LOOKS, ROWS, KeySample, key_text


def rows(keys: list[str | None]) -> pa.RecordBatch:
    return pa.record_batch({"v": pa.array(range(len(keys))), "k": pa.array(keys, pa.string())})


def test_a_heavy_key_is_found_with_its_part() -> None:
    clock, random = ManualClock(), np.random.default_rng(1)
    sample = KeySample((1,), clock)
    for _ in range(LOOKS):
        keys = np.where(random.random(5_000) < 0.4, "bob", random.integers(1_000, size=5_000).astype(str))
        sample.look(rows(keys.tolist()))
        clock.advance(EVERY_MS)
    heaviest = sample.heaviest()
    name, share = next(iter(heaviest.items()))
    assert (name, share) == ("k = 'bob'", pytest.approx(0.4, abs=0.03))
    assert all(share < 0.01 for name, share in heaviest.items() if name != "k = 'bob'")


def test_no_more_than_a_few_rows_are_looked_at_and_only_now_and_then() -> None:
    clock = ManualClock()
    sample = KeySample((1,), clock)
    sample.look(rows(["a"] * 10_000))
    sample.look(rows(["b"] * 10_000))
    assert sample.heaviest() == {"k = 'a'": 1.0}
    clock.advance(EVERY_MS)
    sample.look(rows(["b"] * ROWS))
    assert sample.heaviest() == {"k = 'a'": 0.5, "k = 'b'": 0.5}


def test_old_looks_are_forgotten() -> None:
    clock = ManualClock()
    sample = KeySample((1,), clock)
    for key in ["a", *["b"] * LOOKS]:
        sample.look(rows([key, key]))
        clock.advance(EVERY_MS)
    assert sample.heaviest() == {"k = 'b'": 1.0}


def test_keys_of_all_types_have_a_text() -> None:
    sample = KeySample((0, 1), ManualClock())
    lists = pa.array([[1, 2], [1, 2]], pa.list_(pa.int64()))
    sample.look(pa.record_batch({"many": lists, "none": pa.nulls(2, pa.string())}))
    assert sample.heaviest() == {"many = [1, 2], none = NULL": 1.0}
    assert len(key_text(["k"], ["x" * 500])) == 80
