"""Arrays of state: what was put in stays, new entries are as asked for, and room grows so that copies are few."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.operators.keyed.state_arrays import allocated, extended, resized, room_for

SIZES = st.lists(st.integers(0, 3000), min_size=1, max_size=8)


@given(SIZES, st.integers(-3, 3), st.sampled_from([np.int64, np.int32, np.bool_]))
def test_entries_stay_and_new_ones_are_the_fill(sizes: list[int], fill: int, kind: type) -> None:
    values = np.zeros(0, kind)
    model: list[object] = []
    for step, size in enumerate(sizes):
        values = extended(values, size, fill)
        assert len(values) >= size
        assert values.dtype == kind
        assert values[: len(model)].tolist() == model
        assert (values[len(model) :] == np.array(fill).astype(kind)).all()
        values[:size] = np.array(step).astype(kind)
        model = values.tolist()


@given(SIZES)
def test_the_entries_of_a_matrix_are_its_rows(sizes: list[int]) -> None:
    fill = np.array([7, -1, 0])
    rows = np.zeros((0, 3), np.int64)
    for size in sizes:
        before = rows.copy()
        rows = extended(rows, size, fill)
        assert rows.shape[0] >= size
        assert np.array_equal(rows[: len(before)], before)
        assert (rows[len(before) :] == fill).all()


def test_what_has_room_is_the_very_array() -> None:
    values = extended(np.zeros(0, np.int64), 10)
    assert extended(values, len(values)) is values
    assert extended(values, 1) is values


def test_what_has_been_captured_does_not_change_with_what_grew_out_of_it() -> None:
    captured = np.array([1, 2, 3])
    grown = extended(captured, 100)
    grown[0] = 9
    assert captured.tolist() == [1, 2, 3]


@pytest.mark.parametrize("entry_bytes", [1, 8, 40])
def test_copies_stay_few(entry_bytes: int) -> None:
    room, copied = 0, 0
    for size in range(1, 40_000_000, 65_536):
        if size > room:
            copied += room
            room = room_for(size, room, entry_bytes)
    assert copied <= 5 * room


def test_resized_gives_exactly_the_room_and_allocated_zeros_of_the_kind() -> None:
    assert resized(np.array([True]), 3).tolist() == [True, False, False]
    assert allocated(2, np.zeros((0, 3), np.int32)).shape == (2, 3)
    assert allocated(2, np.zeros(0, np.bool_)).dtype == np.bool_
