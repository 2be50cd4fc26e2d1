"""Rows as a reader gives them, before a scan computes the columns of its node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.functions.spark_text import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MOST_ORDERED = 64
"""How many files are read one after the other if order matters; if there are more, rows are in order only within each file."""


@record(eq=False)
class Physical:
    """Rows as a reader gives them.

    Attributes:
        data: the columns that the reader gives.
        texts: Spark SQL over `data` of each column of the source, with exactly its Spark type; the values may be NULL.
        plain: columns of the source that are the same in `data`: filters on them are pushed into the reader.
        floored: columns of times that are finer than ms in `data`: conditions that compare with a whole ms hold for both.
        checked: whether NULL in NOT NULL columns was refused already.
        changes: whether `data` has `KIND`.
    """

    data: DataFrame
    texts: tuple[str, ...]
    plain: frozenset[str] = frozenset()
    floored: frozenset[str] = frozenset()
    checked: bool = False
    changes: bool = False

    @classmethod
    def delivered(cls, data: DataFrame, schema: Schema, *, changes: bool) -> Physical:
        """Rows of a reader that gives exactly the columns of the source, and has checked them."""
        return cls(data, tuple(quoted(n) for n in schema.names), frozenset(schema.names), checked=True, changes=changes)


def in_order(paths: Sequence[str], read: Callable[[Sequence[str]], DataFrame], ordered: bool) -> DataFrame:
    """The rows of files, with `ordered` one file behind the other; by itself Spark reads the largest ones first."""
    if not ordered or not 1 < len(paths) <= _MOST_ORDERED:
        return read(paths)
    return reduce(lambda all_before, one: all_before.unionAll(one), (read([path]) for path in paths))
