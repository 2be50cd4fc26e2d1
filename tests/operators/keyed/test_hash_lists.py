"""Lists by hash against a dict of lists: tables that grow while they are read, crowded tags, forgotten numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.operators.keyed import hash_cells
from flowrun.operators.keyed.hash_cells import TAG_BITS
from flowrun.operators.keyed.hash_lists import HashLists, SortedTags
from flowrun.operators.keyed.integers import sorted_with_places

LAST = (1 << TAG_BITS) - 1
CROWDED = [0, 1, 2, LAST, LAST - 1, LAST - 7, 1 << 30, (1 << 30) + 1]
TAGS = st.one_of(st.sampled_from(CROWDED), st.integers(0, LAST), st.integers(LAST - 60, LAST), st.integers(0, 60))


@pytest.fixture(autouse=True, params=[False, True], ids=["as it is", "small tables"])
def _small_tables(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        monkeypatch.setattr(hash_cells, "_LEAST_BITS", 1)
        monkeypatch.setattr(hash_cells, "_BEYOND", 2)
        monkeypatch.setattr(hash_cells, "_LEAST_MOVED", 1)


def numbers_by_tag(lists: HashLists, tags: list[int]) -> Iterator[list[int]]:
    pairs = lists.find(SortedTags.of(np.array(tags, np.int64)))
    for position in range(len(tags)):
        yield pairs.numbers[pairs.probe == position].tolist()


@given(st.lists(st.lists(TAGS, max_size=60), max_size=12), st.sets(st.integers(0, 300)), st.booleans())
def test_lists_are_what_was_added(batches: list[list[int]], forgotten: set[int], forgets: bool) -> None:
    lists = HashLists()
    expected: dict[int, list[int]] = {}
    alive = np.array([not forgets or n not in forgotten for n in range(720)])
    count = 0
    for tags in batches:
        numbers = np.arange(count, count + len(tags))
        lists.add(SortedTags.of(np.array(tags, np.int64)), numbers, alive if forgets else None)
        count += len(tags)
        for tag, number in zip(tags, numbers.tolist(), strict=True):
            expected.setdefault(tag, []).append(number)
        asked = [*expected, 5, LAST - 3, *tags]
        for tag, found in zip(asked, numbers_by_tag(lists, asked), strict=True):
            meant = [n for n in expected.get(tag, []) if alive[n]]
            assert [n for n in found if alive[n]] == meant


@given(st.lists(st.lists(TAGS, max_size=60), max_size=8), st.sets(st.integers(0, 200)))
def test_renumbered_lists_have_the_numbers_that_are_left(batches: list[list[int]], gone: set[int]) -> None:
    lists = HashLists()
    expected: dict[int, list[int]] = {}
    count = 0
    for tags in batches:
        lists.add(SortedTags.of(np.array(tags, np.int64)), np.arange(count, count + len(tags)))
        for number, tag in enumerate(tags, count):
            expected.setdefault(tag, []).append(number)
        count += len(tags)
        left = np.array([n not in gone for n in range(count)], np.bool_)
        renumbered = np.where(left, np.cumsum(left) - 1, -1)
        lists, count = lists.renumbered(renumbered), int(np.count_nonzero(left))
        expected = {tag: [int(renumbered[n]) for n in held if left[n]] for tag, held in expected.items()}
        asked = [*expected, 5, LAST - 3]
        assert list(numbers_by_tag(lists, asked)) == [expected.get(tag, []) for tag in asked]


@pytest.mark.parametrize("count", [0, 1, 999, 1000, 70_000])
@pytest.mark.parametrize("most", [1, 70_000, 1 << 31])
def test_sorting_keeps_the_order_of_equal_values(count: int, most: int) -> None:
    values = np.random.default_rng(count).integers(0, most, count)
    ordered, places = sorted_with_places(values)
    assert places.tolist() == np.argsort(values, kind="stable").tolist()
    assert ordered.tolist() == np.sort(values).tolist()


def test_a_table_grows_while_its_entries_move() -> None:
    lists = HashLists()
    random = np.random.default_rng(1)
    tags = random.permutation(1 << 17)[: 1 << 16] << 14
    for start in range(0, len(tags), 997):
        part = tags[start : start + 997]
        lists.add(SortedTags.of(part), np.arange(start, start + len(part)))
        pairs = lists.find(SortedTags.of(tags[: start + 2 * 997]))
        assert pairs.probe.tolist() == pairs.numbers.tolist() == list(range(start + len(part)))


def test_one_tag_may_have_many_numbers() -> None:
    lists = HashLists()
    for start in range(0, 5000, 7):
        lists.add(SortedTags.of(np.full(7, 3)), np.arange(start, start + 7))
    assert next(numbers_by_tag(lists, [3])) == list(range(5005))


def test_nothing_is_found_where_nothing_was_added() -> None:
    lists = HashLists()
    lists.add(SortedTags.of(np.zeros(0, np.int64)), np.zeros(0, np.int64))
    assert list(numbers_by_tag(lists, [0, 7])) == [[], []]
