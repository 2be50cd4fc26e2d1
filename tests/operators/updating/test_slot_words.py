"""Words by slot: what was captured stays, whatever happens to the slots before it is read."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flowrun.operators.updating.slot_words import CapturedWords, SlotWords, Words

SLOTS = 8
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(st.integers(0, SLOTS - 1), min_size=1, max_size=SLOTS, unique=True)),
        st.tuples(st.sampled_from(["capture", "read", "grow", "column", "keep"]), st.just([0])),
    ),
    max_size=60,
)


def written(words: SlotWords, slots: list[int], value: int) -> None:
    at = np.array(slots)
    words.put(at, words.get(at), np.full((len(at), 2), value, np.int64))


@given(STEPS)
def test_captured_words_are_those_of_the_moment(steps: list[tuple[str, list[int]]]) -> None:
    words = SlotWords((0, -1))
    words.make_room(SLOTS)
    everything = np.arange(SLOTS)
    waiting: list[tuple[CapturedWords, Words]] = []
    room = SLOTS
    for number, (step, slots) in enumerate(steps):
        match step:
            case "put":
                written(words, slots, number)
            case "capture":
                waiting.append((words.capture(), words.get(everything)))
            case "read":
                for capture, expected in waiting:
                    chosen = everything[:: 1 + number % 3]
                    assert np.array_equal(capture.read(chosen), expected[chosen])
                waiting = []
            case "grow":
                room = min(2 * room + 64, 4096)
                words.make_room(room)
            case "column":
                words.set_column(1, np.full(SLOTS, number))
            case "keep":
                words.keep(everything[::-1])
                room = SLOTS
    for capture, expected in waiting:
        assert np.array_equal(capture.read(everything), expected)


def test_only_what_changed_since_the_last_capture_counts_as_changed() -> None:
    words = SlotWords((0, 0))
    words.make_room(SLOTS)
    written(words, [1, 3], 5)
    assert np.flatnonzero(words.dirty(SLOTS)).tolist() == [1, 3]
    capture = words.capture()
    assert not words.dirty(SLOTS).any()
    assert capture.read(np.array([3])).tolist() == [[5, 5]]


def test_a_capture_that_nobody_reads_does_not_grow_for_ever() -> None:
    words = SlotWords((0, 0))
    words.make_room(SLOTS)
    written(words, [0], 7)
    capture = words.capture()
    for value in range(1000):
        written(words, list(range(SLOTS)), value)
    assert len(capture._aside) < 100
    assert capture.read(np.arange(2)).tolist() == [[7, 7], [0, 0]]
