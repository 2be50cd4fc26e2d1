# ruff: noqa: ARG001 - kernels and texts share one signature
"""IPv4 addresses as texts and as numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.types import BIGINT, STRING, DataType
from flowrun.functions.contract import Datum, ScalarFunction
from flowrun.functions.rules import LONG, TEXT, Rule
from flowrun.functions.spark_text import quote_text
from flowrun.functions.vectors import as_array

_PARTS = "abcd"
_NUMBER = "0*(?P<{}>[0-9]{{1,3}})"
_ADDRESS = r"\A" + _NUMBER.format("a") + "".join(rf"(?:\.{_NUMBER.format(p)})?" for p in _PARTS[1:]) + r"\z"
_SPARK_ADDRESS = quote_text(r"\A" + r"0*([0-9]{1,3})" + r"(?:\.0*([0-9]{1,3}))?" * 3 + r"\z")
_SHIFTS = np.array([(0, 0, 0, 0), (0, 0, 0, 0), (24, 0, 0, 0), (24, 16, 0, 0), (24, 16, 8, 0)])
"""Number of parts that an address has → by how many bits each is moved: the last one is always the lowest byte."""
_GREATEST, _GREATEST_PART = 2**32 - 1, 255


def _inet_aton(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    found = pc.extract_regex(as_array(arguments[0], rows), _ADDRESS)
    texts = [pc.fill_null(pc.struct_field(found, part), "") for part in _PARTS]
    count = sum(pc.not_equal(text, "").to_numpy(zero_copy_only=False).astype(np.int64) for text in texts)
    numbers = [pc.if_else(pc.equal(text, ""), "0", text).cast(pa.int64()).to_numpy() for text in texts]
    missing = (count == 0) | (np.max(numbers, axis=0) > _GREATEST_PART)
    shifts = _SHIFTS[count]
    return pa.array(sum(number << shifts[:, i] for i, number in enumerate(numbers)), mask=missing)


def _inet_ntoa(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    column = as_array(arguments[0], rows)
    numbers = pc.fill_null(column, -1).to_numpy()
    bytes_of = [pa.array((numbers >> shift) & _GREATEST_PART).cast(pa.string()) for shift in _SHIFTS[-1]]
    known = pa.array((numbers >= 0) & (numbers <= _GREATEST))
    return pc.if_else(known, pc.binary_join_element_wise(*bytes_of, "."), pa.scalar(None, pa.string()))


def _aton_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
    groups = [f"regexp_extract({texts[0]}, {_SPARK_ADDRESS}, {i + 1})" for i in range(4)]
    numbers = [f"CAST(CASE WHEN {g} = '' THEN '0' ELSE {g} END AS BIGINT)" for g in groups]
    sums = [" + ".join(f"{n} * {2**s}" for n, s in zip(numbers, shifts, strict=True)) for shifts in _SHIFTS[1:]]
    cases = " ".join(f"WHEN {group} = '' THEN {text}" for group, text in zip(groups[1:], sums, strict=False))
    fits = " AND ".join(f"{n} <= {_GREATEST_PART}" for n in numbers)
    return f"CASE WHEN {groups[0]} <> '' AND {fits} THEN CASE {cases} ELSE {sums[3]} END END"


def _ntoa_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
    number = texts[0]
    parts = ", ".join(f"CAST(shiftright({number}, {s}) & {_GREATEST_PART} AS STRING)" for s in _SHIFTS[-1])
    return f"CASE WHEN {number} BETWEEN 0 AND {_GREATEST} THEN concat_ws('.', {parts}) END"


ADDRESSES = (
    ScalarFunction(
        "INET_ATON", Rule("INET_ATON(address)", BIGINT, (TEXT,)), _inet_aton, "INET_ATON(address)",
        "The number of an IPv4 address; `a.b` is `a.0.0.b`, and `a.b.c` is `a.b.0.c`. NULL if it is none.", _aton_text,
    ),
    ScalarFunction(
        "INET_NTOA", Rule("INET_NTOA(number)", STRING, (LONG,)), _inet_ntoa, "INET_NTOA(number)",
        "The IPv4 address of a number; NULL if it is below 0 or above 4294967295.", _ntoa_text,
    ),
)  # fmt: skip
"""Functions of IPv4 addresses."""
