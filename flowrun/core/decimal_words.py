"""The whole numbers that Arrow stores for decimals: for each row two words of 64 bits, the low one first."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.arrays import Bools, Integers, Words


def decimal_words(column: pa.Array) -> Words:
    """The numbers of a decimal128 column without their scale, as rows × (low, high); anything where NULL. Copies nothing.

    >>> from decimal import Decimal
    >>> decimal_words(pa.array([Decimal("1.50"), Decimal("-0.01")], pa.decimal128(5, 2))).tolist()
    [[150, 0], [-1, -1]]
    """
    words = np.frombuffer(column.buffers()[1], np.int64)[2 * column.offset : 2 * (column.offset + len(column))]
    return words.reshape(-1, 2)


def decimal_words_or_zero(column: pa.Array) -> Words:
    """As `decimal_words`, with 0 where NULL."""
    if column.null_count:
        column = pc.if_else(column.is_valid(), column, pa.scalar(0, pa.int8()).cast(column.type))
    return decimal_words(column)


def fit_low_word(words: Words) -> Bools:
    """Which numbers are their low word alone.

    >>> fit_low_word(np.array([[5, 0], [-5, -1], [5, 1]])).tolist()
    [True, True, False]
    """
    fits: Bools = words[:, 1] == words[:, 0] >> 63
    return fits


def decimals_of(numbers: Integers, kind: pa.Decimal128Type, missing: Bools | None = None) -> pa.Decimal128Array:
    """Decimals whose numbers without their scale these are, which must have no more digits than `kind`; NULL where `missing`.

    >>> decimals_of(np.array([150, -1]), pa.decimal128(5, 2)).to_pylist()
    [Decimal('1.50'), Decimal('-0.01')]
    """
    words = np.empty((len(numbers), 2), np.int64)
    words[:, 0] = numbers
    words[:, 1] = numbers >> 63
    validity = None if missing is None or not missing.any() else pa.array(~missing).buffers()[1]
    return pa.Array.from_buffers(kind, len(numbers), [validity, pa.py_buffer(words)])
