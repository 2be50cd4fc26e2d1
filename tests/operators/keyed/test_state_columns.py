"""Columns of state: what was captured stays, whatever happens to the entries before it is read."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.operators.keyed import state_columns
from flowrun.operators.keyed.state_columns import CapturedColumn, CapturedEntries, StateColumn
from tests.examples import examples

ENTRIES = 8
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(st.integers(0, ENTRIES - 1), min_size=1, max_size=ENTRIES, unique=True)),
        st.tuples(st.sampled_from(["capture", "read", "forget", "grow", "own", "keep", "begin"]), st.just([0])),
    ),
    max_size=60,
)
Values = npt.NDArray[Any]


def _put(column: StateColumn, numbers: list[int], value: int, *, told: bool = True) -> None:
    at = np.array(numbers)
    before = column.get(at)
    column.put(at, np.full(before.shape, value, before.dtype), before if told else None)


@examples(200)
@given(STEPS, st.sampled_from([np.int64(-1), np.array([0, -1]), np.bool_(False)]), st.booleans())
def test_captured_entries_are_those_of_the_moment(
    steps: list[tuple[str, list[int]]], fill: Values, searches: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_columns, "_SEARCHED_SHARE", 0 if searches else 1 << 20)
        patch.setattr(state_columns, "_ASIDE_BYTES", 8)
        _check_steps(steps, fill)


def _check_steps(steps: list[tuple[str, list[int]]], fill: Values) -> None:
    column = StateColumn(fill)
    column.reserve(ENTRIES)
    everything = np.arange(ENTRIES)
    model = column.get(everything)
    waiting: list[tuple[CapturedColumn, Values]] = []
    used = ENTRIES
    for number, (step, numbers) in enumerate(steps):
        value = number % 2 if model.dtype == np.bool_ else number
        match step:
            case "put":
                _put(column, numbers, value, told=number % 2 == 0)
                model[numbers] = value
            case "capture":
                waiting.append((column.capture(), model.copy()))
            case "read":
                for capture, expected in waiting:
                    chosen = everything[:: 1 + number % 3]
                    assert np.array_equal(capture.read(chosen), expected[chosen])
                waiting = []
            case "forget":  # a snapshot that was given up
                waiting = waiting[:-1]
            case "grow":
                column.reserve(min(2 * len(column) + 64, 4096))
                assert (column.get(np.arange(used, len(column))) == fill).all()
            case "begin":
                if used < len(column):
                    column.begin(used, used + 1, value)
                    used += 1
            case "own":
                column.own()[:ENTRIES] = value
                model[:] = value
            case "keep":
                column.keep(everything[::-1])
                model, used = model[::-1].copy(), ENTRIES
        assert np.array_equal(column.get(everything), model)
        assert np.array_equal(column.values[:ENTRIES], model)
    for capture, expected in waiting:
        assert np.array_equal(capture.read(everything), expected)


@examples(100)
@given(STEPS, st.sampled_from([0, 40, 1 << 20]))
def test_entries_of_several_columns_are_captured_together(steps: list[tuple[str, list[int]]], copied: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_columns, "_COPIED_BYTES", copied)
        columns = [StateColumn(np.int64(0)), StateColumn(np.bool_(False))]
        for column in columns:
            column.reserve(ENTRIES)
        waiting = []
        for number, (step, numbers) in enumerate(steps):
            if step == "put":
                _put(columns[number % 2], numbers, number, told=False)
            elif step == "capture":
                chosen = np.arange(ENTRIES) % 3 != number % 3
                expected = [c.get(np.flatnonzero(chosen)) for c in columns]
                waiting.append((CapturedEntries(columns, chosen), np.flatnonzero(chosen), expected))
        for captured, expected_numbers, expected in waiting:
            numbers_read, entries = captured.read()
            assert captured.count == len(numbers_read)
            assert numbers_read.tolist() == expected_numbers.tolist()
            assert [e.tolist() for e in entries] == [e.tolist() for e in expected]


def test_a_capture_that_nobody_reads_does_not_grow_for_ever() -> None:
    column = StateColumn(np.array([0, 0]))
    column.reserve(ENTRIES)
    _put(column, [0], 7)
    capture = column.capture()
    for value in range(1000):
        _put(column, list(range(ENTRIES)), value)
    assert len(capture._aside) < 100
    assert capture.read(np.arange(2)).tolist() == [[7, 7], [0, 0]]


def test_what_is_read_by_all_cannot_be_changed() -> None:
    column = StateColumn(np.int64(0))
    column.reserve(1)
    with pytest.raises(ValueError, match="read-only"):
        column.values[0] = 1


def test_a_writer_reads_the_moment_while_the_owner_goes_on() -> None:
    """Each capture is taken when all entries are equal, and read by another thread while they become unequal."""
    size, found = 20_000, list[bool]()
    column, random = StateColumn(np.int64(0)), np.random.default_rng(1)
    column.reserve(size)
    everything = np.arange(size)
    for moment in range(30):
        column.put(everything, moment)
        capture = column.capture()

        def read(capture: CapturedColumn = capture, moment: int = moment) -> None:
            found.append(bool((capture.read(everything) == moment).all()))

        writer = threading.Thread(target=read)
        writer.start()
        while writer.is_alive():
            column.put(random.integers(0, size, 500), -1)
        writer.join()
    assert found == [True] * 30
