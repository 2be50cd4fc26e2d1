"""Picklable recipes for tests: what compiled expressions look like to operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.schema import Schema


@dataclass(frozen=True)
class Column:
    """A ValueFunction: one column."""

    name: str

    def compile(self):
        return lambda batch: batch.column(self.name)


@dataclass(frozen=True)
class Greater:
    """A PredicateFunction: column > bound."""

    name: str
    bound: int

    def compile(self):
        return lambda batch: pc.greater(batch.column(self.name), self.bound)


@dataclass(frozen=True)
class Positive:
    """A PredicateFunction: a BOOLEAN column as it is."""

    name: str

    def compile(self):
        return lambda batch: batch.column(self.name)


@dataclass(frozen=True)
class Computed:
    """A ColumnsFunction of a plain function."""

    schema: Schema
    function: Callable[[pa.RecordBatch], dict[str, pa.Array]]
    never_fails: bool = False

    def compile(self):
        return lambda batch: pa.RecordBatch.from_arrays(list(self.function(batch).values()), schema=self.schema.arrow)
