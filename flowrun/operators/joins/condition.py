"""What a join asks beyond equal keys: pairs of rows as one batch, and the condition evaluated over them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flowrun.api.functions import MaskKernel, PredicateFunction
from flowrun.operators.data_errors import evaluate
from flowrun.operators.keyed.integers import Integers

Mask = npt.NDArray[np.bool_]

MAX_PAIRS = 64 * 1024
"""Pairs that are built at a time: a batch may match any number of rows, what it needs of memory stays bounded."""


def paired(left: pa.RecordBatch, right: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows of two batches of equal length side by side: left columns, then right columns, named as in `schema`.

    >>> rows = pa.record_batch({"a": [1, 2]}), pa.record_batch({"b": ["x", None]})
    >>> paired(*rows, pa.schema([("l", pa.int64()), ("r", pa.string())])).to_pylist()
    [{'l': 1, 'r': 'x'}, {'l': 2, 'r': None}]
    """
    if not schema:  # a batch without columns cannot say its length in any other way
        return left
    return pa.RecordBatch.from_arrays([*left.columns, *right.columns], schema=schema)


def pair_chunks(pairs: int, most: int = MAX_PAIRS) -> Iterator[slice]:
    """Slices of at most `most` that cover 0 … pairs − 1 in order.

    >>> list(pair_chunks(5, 3))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    for start in range(0, pairs, most):
        yield slice(start, min(start + most, pairs))


class PairCondition:
    """The residual condition of a join over pairs (left columns, then right columns); without one every pair passes.

    Args:
        predicate: a recipe over the columns of a pair; None: no condition.
        name: of the operator, for messages.
    """

    def __init__(self, predicate: PredicateFunction | None, name: str) -> None:
        self._predicate = predicate
        self._place = f"condition of '{name}'"
        self._kernel: MaskKernel | None = None

    @property
    def is_trivial(self) -> bool:
        """Whether there is nothing to check."""
        return self._predicate is None

    def open(self) -> None:
        """Compile the predicate; once, before the first call of `mask`."""
        if self._predicate is not None:
            self._kernel = self._predicate.compile()

    def mask(self, pairs: pa.RecordBatch) -> Mask | None:
        """For each pair whether the condition is true (NULL counts as false); None: it is for all of them.

        Raises:
            DataError: the condition cannot be computed; names the values of the first pair that fails.
        """
        if self._kernel is None or pairs.num_rows == 0:
            return None
        found = evaluate(self._kernel, pairs, self._place)
        if found.null_count == 0 and found.true_count == len(found):
            return None
        passed: Mask = found.fill_null(False).to_numpy(zero_copy_only=False)
        return passed

    def passing(self, pairs: pa.RecordBatch) -> Integers:
        """Positions of the pairs that pass, ascending.

        Raises:
            DataError: as for `mask`.
        """
        found = self.mask(pairs)
        return np.arange(pairs.num_rows) if found is None else np.flatnonzero(found)
