"""Columns of Arrow files that hold a table's values in other types."""

from __future__ import annotations

import pyarrow as pa
import pytest

from flowrun.connectors.formats.arrow_fit import fit_column
from flowrun.core.types import BYTES, STRING, DataType


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (pa.array(["a", "b"]), STRING, ["b", None, "a"]),
        (pa.array(["a", "b"], pa.string_view()), STRING, ["b", None, "a"]),
        (pa.array([b"a", b"b"], pa.binary_view()), BYTES, [b"b", None, b"a"]),
    ],
    ids=str,
)
def test_dictionaries_are_read_as_their_values(values: pa.Array, kind: DataType, expected: list[object]) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([1, None, 0]), values)
    fit = fit_column(column.type, kind)
    assert fit is not None
    fitted = fit(column)
    assert fitted.type == kind.arrow
    assert fitted.to_pylist() == expected
