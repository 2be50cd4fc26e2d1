"""State whose columns changed between two versions of a pipeline."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from flowrun.errors import StateError
from flowrun.state.schema_migration import differences, migrate

OLD_ROW = pa.struct([("a", pa.int64())])
NEW_ROW = pa.struct([("b", pa.string()), ("a", pa.int64())])


@pytest.mark.parametrize(
    ("old", "new", "values", "expected"),
    [
        (OLD_ROW, NEW_ROW, [{"a": 0}, {"a": 1}, None], [{"b": None, "a": 1}, None]),
        (
            pa.list_(OLD_ROW),
            pa.list_(NEW_ROW),
            [[{"a": 0}], [{"a": 1}, None], None, []],
            [[{"b": None, "a": 1}, None], None, []],
        ),
        (pa.large_list(OLD_ROW), pa.large_list(NEW_ROW), [None, [{"a": 1}]], [[{"b": None, "a": 1}]]),
        (pa.list_(OLD_ROW, 1), pa.list_(NEW_ROW, 1), [[None], [{"a": 1}], None], [[{"b": None, "a": 1}], None]),
        (
            pa.map_(pa.string(), OLD_ROW),
            pa.map_(pa.string(), NEW_ROW),
            [[], [("k", {"a": 1})], None],
            [[("k", {"b": None, "a": 1})], None],
        ),
        (
            pa.struct([("r", pa.list_(OLD_ROW))]),
            pa.struct([("r", pa.list_(NEW_ROW))]),
            [None, {"r": [{"a": 1}]}, {"r": None}],
            [{"r": [{"b": None, "a": 1}]}, {"r": None}],
        ),
    ],
    ids=lambda v: str(v) if isinstance(v, pa.DataType) else "",
)
def test_added_nullable_fields_are_null_at_any_depth(
    old: pa.DataType, new: pa.DataType, values: list[Any], expected: list[Any]
) -> None:
    table = pa.table({"x": pa.array(values, old).slice(1)})  # sliced: offsets must be heeded
    migrated = migrate(table, pa.schema([("x", new)]))
    migrated.validate(full=True)
    assert migrated["x"].to_pylist() == expected
    assert migrated["x"].type == new


def test_columns_come_in_the_order_and_with_the_metadata_of_the_new_schema() -> None:
    new = pa.schema([("z", pa.float64()), pa.field("k", pa.int64(), nullable=False)], {b"flowrun.key_columns": b"1"})
    old = pa.table({"k": [1, 2]}, schema=pa.schema([pa.field("k", pa.int64(), nullable=False)]))
    migrated = migrate(old, new)
    assert migrated.schema.equals(new, check_metadata=True)
    assert migrated.to_pylist() == [{"z": None, "k": 1}, {"z": None, "k": 2}]


def test_rows_of_an_equal_schema_are_not_copied() -> None:
    table = pa.table({"k": [1, 2]})
    assert migrate(table, table.schema)["k"].chunk(0).buffers()[1].address == table["k"].chunk(0).buffers()[1].address


def test_no_rows_are_migrated_too() -> None:
    table = pa.schema([("x", OLD_ROW)]).empty_table()
    assert migrate(table, pa.schema([("x", NEW_ROW), ("y", pa.int8())])).num_rows == 0


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (pa.field("x", pa.int64()), pa.field("x", pa.int32()), "column 'x' was int64, is int32 now"),
        (
            pa.field("x", pa.int64()),
            pa.field("x", pa.int64(), nullable=False),
            "column 'x' could be NULL, may not be any more",
        ),
        (pa.field("x", NEW_ROW), pa.field("x", OLD_ROW), "field 'x.b' string was removed"),
        (
            pa.field("x", pa.list_(pa.int8())),
            pa.field("x", pa.list_(pa.int16())),
            "element 'x[]' was int8, is int16 now",
        ),
        (
            pa.field("x", pa.map_(pa.string(), pa.int8())),
            pa.field("x", pa.map_(pa.string(), pa.int16())),
            "value of 'x' was int8",
        ),
        (
            pa.field("x", pa.map_(pa.int8(), pa.int8())),
            pa.field("x", pa.map_(pa.int16(), pa.int8())),
            "key of 'x' was int8",
        ),
        (
            pa.field("x", pa.timestamp("ms")),
            pa.field("x", pa.timestamp("us")),
            "was timestamp[ms], is timestamp[us] now",
        ),
        (
            pa.field("x", pa.list_(pa.int8(), 2)),
            pa.field("x", pa.list_(pa.int8(), 3)),
            "column 'x' was fixed_size_list",
        ),
    ],
)
def test_other_changes_are_named(old: pa.Field, new: pa.Field, expected: str) -> None:
    (found,) = differences(pa.schema([old]), pa.schema([new]))
    assert expected in found


def test_removed_columns_and_added_ones_that_must_have_values_are_named_together() -> None:
    old = pa.schema([("n", pa.int64())])
    new = pa.schema([pa.field("m", pa.int64(), nullable=False)])
    with pytest.raises(
        StateError, match="'n' int64 was removed; column 'm' int64 was added but may not be NULL"
    ) as error:
        migrate(old.empty_table(), new)
    assert "uid" in (error.value.hint or "")


def test_columns_of_one_name_cannot_be_told_apart() -> None:
    twice = pa.schema([("n", pa.int64()), ("n", pa.int64())])
    assert differences(twice, pa.schema([("n", pa.int64())])) == ["column 'n' was there more than once"]
    assert differences(pa.schema([("n", pa.int64())]), twice) == ["column 'n' is now there more than once"]
