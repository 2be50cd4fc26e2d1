"""Arrow columns as PostgreSQL writes their values."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from flowrun.connectors.jdbc.postgres.texts import array_literal, copy_lines, texts


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([b"\x00\xff", None, b"", b"abc"], pa.binary(), ["\\x00ff", None, "\\x", "\\x616263"]),
        ([[1], None, [2, None], []], pa.list_(pa.int64()), ["{1}", None, "{2,NULL}", "{}"]),
        ([['a"\\', None, "NULL"], None], pa.list_(pa.string()), ['{"a\\"\\\\",NULL,"NULL"}', None]),
        ([[b"\x01"], []], pa.list_(pa.binary()), ['{"\\\\x01"}', "{}"]),
        ([[[1, 2], []]], pa.list_(pa.list_(pa.int64())), ["{{1,2},{}}"]),
        ([True, None], pa.bool_(), ["true", None]),
        ([dt.datetime(2020, 1, 1)], pa.timestamp("ms", "UTC"), ["2020-01-01 00:00:00.000Z"]),
        ([-1], pa.timestamp("ns"), ["1969-12-31 23:59:59.999999"]),
        ([], pa.binary(), []),
    ],
)
def test_values_and_slices_of_them(values: list[Any], kind: pa.DataType, expected: list[str | None]) -> None:
    column = pa.array(values, kind)
    assert texts(column).to_pylist() == expected
    for start in range(len(values)):
        assert texts(column.slice(start, 2)).to_pylist() == expected[start : start + 2]


def test_lines_tell_null_from_nothing() -> None:
    rows = pa.record_batch({"t": pa.array([1, None], pa.timestamp("us")), "s": pa.array(["", None])})
    assert copy_lines(rows, np.array([True, False])) == b'true,1970-01-01 00:00:00.000001,""\nfalse,,\n'


def test_an_array_of_keys() -> None:
    assert array_literal(pa.array([1, None, 3])) == "{1,NULL,3}"
    assert array_literal(pa.array(["it's", "{}"])) == '{"it\'s","{}"}'
    assert array_literal(pa.array([], pa.int64())) == "{}"
