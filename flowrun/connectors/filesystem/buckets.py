"""Buckets of DISTRIBUTED BY: rows whose columns have one hash are in files of one folder `bucket-N`, whoever wrote them."""

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
    """Into how many buckets rows are dealt, and by which columns: their positions."""

    columns: tuple[int, ...]
    count: int

    def split(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
        """(folder of a bucket, positions of its rows in their order), for each bucket that has rows."""
        numbers = key_groups([rows.column(c) for c in self.columns], self.count)
        order = np.argsort(numbers, kind="stable")
        counts = np.bincount(numbers, minlength=self.count)
        ends = np.cumsum(counts)
        for number in np.flatnonzero(counts).tolist():
            yield f"bucket-{number}", pa.array(order[ends[number] - counts[number] : ends[number]])


def buckets_of(table: TableDefinition, *, by_key: bool) -> Buckets | None:
    """The buckets of a table's files; None if nothing was said of them.

    Without columns rows are dealt by the primary key, else by all columns. `by_key`: the sink keeps one row a key, in buckets of its own.

    Raises:
        OptionError: columns by which a table of one row a key cannot be dealt.
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
    """Into how many files a table of one row a key is dealt."""
    told = None if table.distribution is None else table.distribution.buckets
    return told or table.options.integer("sink.upsert.buckets")


def _count(distribution: Distribution) -> int:
    return distribution.buckets or DEFAULT_BUCKETS
