"""Python functions one behind the other: those that follow go on in the same call, with no way back through Spark between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from flowrun.core.record import record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BatchFunction: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What `mapInArrow` takes; picklable."""


@record(eq=False)
class Pipe:
    """How Python makes rows.

    Attributes:
        source: what goes to Python.
        function: what makes the rows of it.
        rows: what Spark has of them: the columns that the function gives, perhaps under other names, or the first of them.
    """

    source: DataFrame
    function: BatchFunction
    rows: DataFrame

    def then(self, following: BatchFunction, columns: int) -> BatchFunction:
        """This function, and another that gets the first so many columns of what it gives."""
        return partial(_one_behind_the_other, self.function, following, columns)


def _one_behind_the_other(
    first: BatchFunction, second: BatchFunction, columns: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    chosen = list(range(columns))
    return second(batch.select(chosen) for batch in first(batches))
