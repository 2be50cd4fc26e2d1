"""Buckets of DISTRIBUTED BY: rows whose columns have the same hash are in the same folder `bucket-N`, whatever subtask wrote them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from flowrun.api.connector import Distribution, TableDefinition
from flowrun.core.record import record
from flowrun.errors import OptionError
from flowrun.state.key_groups import key_groups

DEFAULT_BUCKETS = 16


@record
class Buckets:
    """How many buckets rows are distributed to, and the positions of the columns whose hash chooses the bucket."""

    columns: tuple[int, ...]
    count: int

    def split(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
        """(the folder of a bucket, the positions of its rows in their order), for each bucket that has rows."""
        numbers = key_groups([rows.column(c) for c in self.columns], self.count)
        order = np.argsort(numbers, kind="stable")
        counts = np.bincount(numbers, minlength=self.count)
        ends = np.cumsum(counts)
        for number in np.flatnonzero(counts).tolist():
            yield f"bucket-{number}", pa.array(order[ends[number] - counts[number] : ends[number]])


def buckets_of(table: TableDefinition, *, by_key: bool) -> Buckets | None:
    """The buckets of a table's files; None: the table is not distributed.

    If the table names no columns, rows are distributed by the primary key, or, without one, by all columns.

    Args:
        table: the table.
        by_key: whether the sink keeps one row for each key, in buckets of its own.

    Raises:
        OptionError: a table with one row for each key cannot be distributed by these columns.
    """
    distribution = table.distribution
    if distribution is None:
        return None
    names = distribution.columns or table.primary_key or table.schema.names
    if by_key:
        if set(names) != set(table.primary_key):
            raise OptionError(
                "distribution",
                f"'{table.name}' keeps one row a key, so its buckets go by the key: {', '.join(table.primary_key)}",
                hint=f"DISTRIBUTED BY ({', '.join(table.primary_key)}) INTO {_count(distribution)} BUCKETS",
            )
        return None
    return Buckets(tuple(table.schema.index(n) for n in names), _count(distribution))


def key_buckets(table: TableDefinition) -> int:
    """How many files a table with one row for each key is distributed to."""
    told = None if table.distribution is None else table.distribution.buckets
    return told or table.options.integer("sink.upsert.buckets")


def _count(distribution: Distribution) -> int:
    return distribution.buckets or DEFAULT_BUCKETS
