"""Chains Python functions: the next one takes the batches of the one before in the same call, so that they do not go through Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from flowrun.core.record import record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BatchFunction: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function for `mapInArrow`, which can be pickled."""


@record(eq=False)
class Pipe:
    """How Python makes rows.

    Attributes:
        source: the rows that go to Python.
        function: makes the new rows of them.
        rows: the new rows as Spark has them: the columns that the function gives, or the first of them, perhaps under other names.
    """

    source: DataFrame
    function: BatchFunction
    rows: DataFrame

    def then(self, following: BatchFunction, columns: int) -> BatchFunction:
        """This function followed by another one, which gets the first `columns` columns that this one gives."""
        return partial(_one_behind_the_other, self.function, following, columns)


def _one_behind_the_other(
    first: BatchFunction, second: BatchFunction, columns: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    chosen = list(range(columns))
    return second(batch.select(chosen) for batch in first(batches))
