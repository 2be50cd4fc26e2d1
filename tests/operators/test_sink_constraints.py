"""What sinks do with values that their columns may not hold."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from flowrun.core.constraints import Lengths, Nested, NotNull, SinkConstraints
from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Field, Schema
from flowrun.core.type_parser import parse_type
from flowrun.errors import DataError
from flowrun.operators.sink_constraints import ConstraintEnforcer

DROP = SinkConstraints(NotNull.DROP)
IN_ROWS = SinkConstraints(NotNull.DROP, Nested.ROWS)
EVERYWHERE = SinkConstraints(NotNull.DROP, Nested.ROWS_AND_COLLECTIONS)
TRIM = SinkConstraints(lengths=Lengths.TRIM_PAD)
TRIM_ALL = SinkConstraints(nested=Nested.ROWS_AND_COLLECTIONS, lengths=Lengths.TRIM_PAD)
STRICT = SinkConstraints(nested=Nested.ROWS_AND_COLLECTIONS, lengths=Lengths.ERROR)


def enforced(type: str, values: list[Any], constraints: SinkConstraints, *, required: bool = False) -> list[Any]:
    """The values of a column that may be written; its third row is looked at as a slice of more, as operators do."""
    schema = Schema((Field("id", parse_type("INT")), Field("x", parse_type(type), not required)))
    column = pa.array([None, *values, None], schema.types[1].arrow)
    whole = pa.RecordBatch.from_arrays([pa.array(range(len(column)), pa.int32()), column], schema=schema.arrow)
    batch, dropped = ConstraintEnforcer(schema, constraints, "sink 'out'").enforced(
        RecordBatch(whole.slice(1, len(values)))
    )
    assert batch.num_rows + dropped == len(values)
    return batch.columns.column(1).to_pylist()


@pytest.mark.parametrize(
    ("type", "values", "constraints", "kept"),
    [
        ("INT", [1, None, 2], DROP, [1, 2]),
        ("ROW<a INT NOT NULL>", [{"a": 1}, {"a": None}], DROP, [{"a": 1}, {"a": None}]),
        ("ROW<a INT NOT NULL, b INT>", [{"a": 1, "b": None}, {"a": None, "b": 1}], IN_ROWS, [{"a": 1, "b": None}]),
        ("ROW<r ROW<a INT NOT NULL>>", [{"r": {"a": None}}, {"r": None}, None], IN_ROWS, [{"r": None}]),
        ("ARRAY<INT NOT NULL>", [[1, None], []], IN_ROWS, [[1, None], []]),
        ("ARRAY<INT NOT NULL>", [[1, None], [2], [], None, [3]], EVERYWHERE, [[2], [], [3]]),
        ("ARRAY<ROW<a INT NOT NULL>>", [[{"a": None}], [None], [{"a": 1}]], EVERYWHERE, [[None], [{"a": 1}]]),
        ("MAP<STRING, INT NOT NULL>", [[("k", 1)], [("k", 1), ("l", None)], []], EVERYWHERE, [[("k", 1)], []]),
    ],
)
def test_rows_with_null_are_dropped(
    type: str, values: list[Any], constraints: SinkConstraints, kept: list[Any]
) -> None:
    assert enforced(type, values, constraints, required=True) == kept


@pytest.mark.parametrize(
    ("type", "values", "constraints", "fitted"),
    [
        ("CHAR(3)", ["a", "äöüß", None, "abc"], TRIM, ["a  ", "äöü", None, "abc"]),
        ("VARCHAR(3)", ["a", "äöüß", None], TRIM, ["a", "äöü", None]),
        ("BINARY(2)", [b"", b"abc", None, b"x"], TRIM, [b"\0\0", b"ab", None, b"x\0"]),
        ("VARBINARY(2)", [b"", b"abc", None], TRIM, [b"", b"ab", None]),
        ("STRING", ["abcdef"], TRIM, ["abcdef"]),
        ("ROW<a CHAR(2), b INT>", [{"a": "x", "b": 1}, None], TRIM, [{"a": "x", "b": 1}, None]),
        ("ROW<a CHAR(2), b INT>", [{"a": "x", "b": 1}, None], TRIM_ALL, [{"a": "x ", "b": 1}, None]),
        ("ARRAY<VARCHAR(1)>", [["ab", None], None, [], ["cd"]], TRIM_ALL, [["a", None], None, [], ["c"]]),
        ("MAP<CHAR(2), VARCHAR(1)>", [[("k", "ab")], None, []], TRIM_ALL, [[("k ", "a")], None, []]),
    ],
)
def test_values_are_cut_and_filled_up(
    type: str, values: list[Any], constraints: SinkConstraints, fitted: list[Any]
) -> None:
    assert enforced(type, values, constraints) == fitted


@pytest.mark.parametrize(
    ("type", "good", "bad"),
    [
        ("CHAR(3)", "abc", "ab"),
        ("VARCHAR(3)", "ab", "abcd"),
        ("BINARY(2)", b"ab", b"a"),
        ("VARBINARY(2)", b"a", b"abc"),
        ("ROW<a VARCHAR(1)>", {"a": "x"}, {"a": "xy"}),
        ("ARRAY<CHAR(1)>", ["x"], ["x", ""]),
        ("MAP<STRING, CHAR(1)>", [("k", "x")], [("k", "xy")]),
    ],
)
def test_values_of_another_length_are_errors(type: str, good: Any, bad: Any) -> None:
    assert enforced(type, [good, None], STRICT) == [good, None]
    with pytest.raises(
        DataError, match=r"sink 'out': column 'x' is .*, but row 1 .* has a value of another length"
    ) as raised:
        enforced(type, [good, bad], STRICT)
    assert "TRIM_PAD" in str(raised.value.hint)


def test_null_is_an_error_unless_it_is_dropped() -> None:
    with pytest.raises(DataError, match=r"sink 'out': column 'x' is NOT NULL, but row 1 .* has no value"):
        enforced("INT", [1, None], SinkConstraints(), required=True)
    with pytest.raises(DataError, match="column 'x' is NOT NULL"):
        enforced("ROW<a INT NOT NULL>", [{"a": None}], SinkConstraints(nested=Nested.ROWS))
