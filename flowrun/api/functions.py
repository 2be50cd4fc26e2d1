"""Functions that operators call on batches: compiled expressions and user functions alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from flowrun.core.schema import Schema

ColumnsKernel = Callable[[pa.RecordBatch], pa.RecordBatch]
MaskKernel = Callable[[pa.RecordBatch], pa.BooleanArray]
ArrayKernel = Callable[[pa.RecordBatch], pa.Array]


class ColumnsFunction(Protocol):
    """A picklable recipe: rows in → the same number of rows out, other columns."""

    @property
    def schema(self) -> Schema:
        """Columns that come out."""
        ...

    @property
    def never_fails(self) -> bool:
        """Whether it can be computed over any rows, also such as a condition before it leaves out."""
        ...

    def compile(self) -> ColumnsKernel:
        """The kernel; called once a subtask, in `open`."""
        ...


class PredicateFunction(Protocol):
    """A picklable recipe: rows in → a boolean mask (NULL counts as false)."""

    def compile(self) -> MaskKernel: ...


class ValueFunction(Protocol):
    """A picklable recipe: rows in → one array of the same length."""

    def compile(self) -> ArrayKernel: ...
