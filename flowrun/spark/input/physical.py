"""Rows as a reader delivers them, before a scan makes columns of them."""

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
"""So many files are read one after the other where order counts; of more each is in order, but not all of them."""


@record(eq=False)
class Physical:
    """Rows as read.

    Attributes:
        data: the columns that a reader delivers.
        texts: Spark SQL over `data` of each column of the source, which may be NULL, with exactly its Spark type.
        plain: columns of the source that `data` has as they are: filters on them go into the reader.
        floored: columns of times that `data` has finer than ms: what is true of them at or before a ms is true of the column.
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
        """Of a reader that delivers, and has checked, exactly the columns of the source."""
        return cls(data, tuple(quoted(n) for n in schema.names), frozenset(schema.names), checked=True, changes=changes)


def in_order(paths: Sequence[str], read: Callable[[Sequence[str]], DataFrame], ordered: bool) -> DataFrame:
    """Files read by Spark, which by itself takes great ones first; with `ordered` one behind the other."""
    if not ordered or not 1 < len(paths) <= _MOST_ORDERED:
        return read(paths)
    return reduce(lambda all_before, one: all_before.unionAll(one), (read([path]) for path in paths))
