"""What a join asks beyond equal keys: pairs of rows as one batch, and the condition evaluated over them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from flowrun.api.functions import MaskKernel, PredicateFunction
from flowrun.api.operator import OperatorContext, Output
from flowrun.core.arrays import Bools, Integers
from flowrun.core.elements import RecordBatch
from flowrun.core.row_errors import FAIL, RowErrors, RowFault
from flowrun.errors import DataError, is_from_outside
from flowrun.operators.data_errors import evaluate
from flowrun.operators.row_failures import RowFailures

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

    A pair that the condition fails on does not match where rows that fail are left out: it is counted, and kept aside as a dead letter
    with the columns of both rows.

    Args:
        predicate: a recipe over the columns of a pair; None: no condition.
        name: of the operator, for messages.
        errors: what becomes of pairs that it fails on.
    """

    def __init__(self, predicate: PredicateFunction | None, name: str, errors: RowErrors = FAIL) -> None:
        self._predicate = predicate
        self._errors = errors
        self._failures: RowFailures | None = None
        self._place = f"condition of '{name}'"
        self._kernel: MaskKernel | None = None

    @property
    def is_trivial(self) -> bool:
        """Whether there is nothing to check."""
        return self._predicate is None

    def open(self, context: OperatorContext, output: Output) -> None:
        """Compile the predicate; once, before the first call of `mask`. Dead letters go to a side output of `output`."""
        if self._predicate is not None:
            self._kernel = self._predicate.compile()
            self._failures = RowFailures(self._errors, context, output)

    def mask(self, pairs: pa.RecordBatch, told: Bools | bool = True) -> Bools | None:
        """For each pair whether the condition is true (NULL counts as false); None: it is for all of them.

        Args:
            pairs: left columns, then right columns.
            told: of which pairs it is said that the condition fails on them, if it does: of the others it was.

        Raises:
            DataError: the condition cannot be computed; names the values of the first pair that fails.
        """
        if self._kernel is None or pairs.num_rows == 0:
            return None
        assert self._failures is not None
        try:
            return self._passed(pairs)
        except DataError as error:
            if not self._failures.isolates or is_from_outside(error):
                raise
        return self._isolated(pairs, self._failures, np.broadcast_to(told, pairs.num_rows))

    def _isolated(self, pairs: pa.RecordBatch, failures: RowFailures, told: Bools) -> Bools:
        """The mask of pairs of which the condition fails on some: halved until those stand alone."""
        passed = np.zeros(pairs.num_rows, np.bool_)
        waiting = [(0, pairs.num_rows)]
        while waiting:
            start, stop = waiting.pop()
            piece = pairs.slice(start, stop - start)
            try:
                found = self._passed(piece)
            except DataError as error:
                if is_from_outside(error):
                    raise
                if stop - start > 1:
                    middle = (start + stop) // 2
                    waiting += [(middle, stop), (start, middle)]
                elif told[start]:
                    failures.add(RecordBatch(piece), RowFault.EXPRESSION, error)
                continue
            passed[start:stop] = True if found is None else found
        failures.send()
        return passed

    def _passed(self, pairs: pa.RecordBatch) -> Bools | None:
        assert self._kernel is not None
        found = evaluate(self._kernel, pairs, self._place)
        if found.null_count == 0 and found.true_count == len(found):
            return None
        passed: Bools = found.fill_null(False).to_numpy(zero_copy_only=False)
        return passed

    def passing(self, pairs: pa.RecordBatch) -> Integers:
        """Positions of the pairs that pass, ascending.

        Raises:
            DataError: as for `mask`.
        """
        found = self.mask(pairs)
        return np.arange(pairs.num_rows) if found is None else np.flatnonzero(found)
