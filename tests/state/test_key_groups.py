"""Key groups: the frozen hash, and how groups are dealt to subtasks."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.errors import DataError
from flowrun.state.key_groups import (
    default_max_parallelism,
    hash_columns,
    hashable_columns,
    key_group_range,
    key_groups,
    subtask_of,
)

# The hash is part of the checkpoint format: these numbers must never change.
FROZEN = [
    ([pa.array([0, 1, -1, None], pa.int64())], [0, 6238072747940578789, 13029008266876403067, 11400714819323198485]),
    ([pa.array(["", "a", "user-1234567"])], [0, 3354935680759412333, 8566939258465813009]),
    ([pa.array([1.5])], [16657480027015623784]),
    ([pa.array([0.0, -0.0, None])], [0, 0, 11400714819323198485]),
    ([pa.array([1, 2]), pa.array(["x", "y"])], [18380564473363966175, 7976515349465516240]),
]


@pytest.mark.parametrize(("columns", "hashes"), FROZEN)
def test_hashes_are_those_of_the_checkpoint_format(columns: list[pa.Array], hashes: list[int]) -> None:
    assert hash_columns(columns).tolist() == hashes


@given(st.lists(st.one_of(st.none(), st.text(max_size=20)), min_size=1, max_size=30), st.data())
def test_a_string_hashes_alike_wherever_it_stands(texts: list[str | None], data: st.DataObject) -> None:
    whole = hash_columns([pa.array(texts, pa.string())])
    start = data.draw(st.integers(0, len(texts)))
    assert hash_columns([pa.array(texts, pa.string()).slice(start)]).tolist() == whole[start:].tolist()
    alone = [hash_columns([pa.array([t], pa.string())])[0] for t in texts]
    assert whole.tolist() == alone


@given(st.lists(st.text(max_size=24), unique=True, max_size=40))
def test_different_strings_rarely_collide(texts: list[str]) -> None:
    assert len(set(hash_columns([pa.array(texts, pa.string())]).tolist())) == len(texts)


def test_dictionaries_hash_like_their_values() -> None:
    values = pa.array(["b", None, "a", "b"])
    assert hash_columns([values.dictionary_encode()]).tolist() == hash_columns([values]).tolist()


def test_zero_has_one_hash_whatever_its_sign_and_nan_is_one_key() -> None:
    hashed = hash_columns([pa.array([0.0, -0.0, float("nan"), -float("nan")])])
    assert hashed[0] == hashed[1]
    assert hashed[2] == hashed[3]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2, None], pa.int8()),
        pa.array([True, False, None]),
        pa.array([Decimal("1.50"), Decimal("-2.25"), None], pa.decimal128(10, 2)),
        pa.array([dt.date(2024, 1, 1), None, dt.date(1960, 1, 1)]),
        pa.array([dt.datetime(2024, 1, 1), None, dt.datetime(1960, 1, 1)], pa.timestamp("ms")),
        pa.array([[1, 2], None, []], pa.list_(pa.int64())),
        pa.array([{"a": 1, "b": "x"}, None, {"a": 2, "b": None}]),
        pa.array([b"\x00", b"", None]),
    ],
    ids=lambda c: str(c.type),
)
def test_every_key_type_hashes_rows_independently(column: pa.Array) -> None:
    whole = hash_columns([column]).tolist()
    assert whole == [hash_columns([column.slice(i, 1)])[0] for i in range(len(column))]
    assert len(set(whole)) == len(column)


@pytest.mark.parametrize(
    "column",
    [
        pa.StringArray.from_buffers(0, None, pa.py_buffer(b"")),  # as other systems make them: without a single offset
        pa.array([], pa.string()),
        pa.array(["a", "b"]).slice(1, 0),
        pa.array([], pa.binary()),
        pa.array([], pa.dictionary(pa.int32(), pa.string())),
        pa.array([], pa.int64()),
        pa.array([], pa.float64()),
        pa.array([], pa.decimal128(10, 2)),
        pa.array([], pa.list_(pa.int64())),
        pa.array([], pa.struct({"a": pa.string()})),
    ],
    ids=lambda c: str(c.type),
)
def test_no_rows_have_no_hashes(column: pa.Array) -> None:
    assert hash_columns([column]).tolist() == []


def test_a_dictionary_without_values_has_keys_that_are_null() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int32()), pa.array([], pa.string()))
    assert hash_columns([column]).tolist() == hash_columns([pa.nulls(2, pa.string())]).tolist()


def test_maps_cannot_be_keys() -> None:
    with pytest.raises(DataError, match="cannot be a key"):
        hash_columns([pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))])


def test_columns_that_hold_no_map_can_be_hashed() -> None:
    tags = pa.map_(pa.string(), pa.int64())
    kinds = [
        pa.int64(),
        tags,
        pa.list_(tags),
        pa.struct({"a": pa.list_(pa.string())}),
        pa.struct({"a": tags}),
        pa.null(),
    ]
    assert hashable_columns(pa.schema([(str(i), kind) for i, kind in enumerate(kinds)])) == (0, 3)


def test_the_order_of_key_columns_matters() -> None:
    one, two = pa.array([1]), pa.array([2])
    assert hash_columns([one, two])[0] != hash_columns([two, one])[0]


@given(st.integers(1, 200), st.integers(0, 8))
def test_ranges_partition_the_groups_and_agree_with_the_routing(parallelism: int, extra: int) -> None:
    maximum = default_max_parallelism(parallelism) + extra
    groups = np.arange(maximum, dtype=np.int32)
    owners = subtask_of(groups, parallelism, maximum)
    for subtask in range(parallelism):
        owned = key_group_range(subtask, parallelism, maximum)
        assert groups[owners == subtask].tolist() == list(range(owned.start, owned.stop))


def test_groups_spread_evenly() -> None:
    counts = np.bincount(key_groups([pa.array(np.arange(128_000))], 128), minlength=128)
    assert counts.min() > 850
    assert counts.max() < 1150


@pytest.mark.parametrize(
    ("parallelism", "groups"),
    [(1, 128), (85, 128), (86, 256), (171, 256), (172, 512), (21_845, 32_768), (32_768, 32_768)],
)
def test_by_default_there_are_half_as_many_groups_again_as_subtasks_rounded_up(parallelism: int, groups: int) -> None:
    assert default_max_parallelism(parallelism) == groups
