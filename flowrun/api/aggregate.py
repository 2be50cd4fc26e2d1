"""Aggregates as operators see them: partial columns, how they merge, and how a result is read from them.

The functions layer resolves a SQL aggregate to an `AggregateKernel`; lowering binds it to columns as a `BoundAggregate`; operators
know nothing of SQL. All callables are module-level functions, or `WithArguments` of them, so everything here pickles and compares by value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from flowrun.core.record import record
from flowrun.core.types import DataType

if TYPE_CHECKING:
    from flowrun.api.accumulators import AccumulatorForm


@record
class WithArguments:
    """A module-level function with its first arguments; unlike a `functools.partial` it compares by value.

    >>> WithArguments(max, (3,))(2), WithArguments(max, (3,)) == WithArguments(max, (3,))
    (3, True)
    """

    function: Callable[..., Any]
    arguments: tuple[object, ...]

    def __call__(self, *rest: object) -> Any:
        """What the function gives for all of them."""
        return self.function(*self.arguments, *rest)


@record
class Accumulator:
    """One column of an aggregate's partial result.

    Attributes:
        name: suffix of the column, e.g. `sum`.
        partial: what is computed over the argument's non-NULL values: count_all, count, sum, sum_of_squares, min, max, first, last.
        merge: how partial columns of one group combine: sum, min, max, first, last.
        type: type of the partial column. Sums of integers are kept as BIGINT and checked against overflow by the operator.
    """

    name: str
    partial: str
    merge: str
    type: DataType


FinishKernel = Callable[[Sequence[pa.Array], DataType], pa.Array]
"""(accumulator columns in order, result type) → result column. Raises `DataError` on overflow."""

CollectKernel = Callable[[pa.ListArray, DataType], pa.Array]
"""(list array: a group's values in arrival order, result type) → result column."""


@record
class UserAggregate:
    """A user's Python aggregate (see `flowrun.api.user_functions.Aggregate`): `reference` is `module:name`.

    Attributes:
        name: of the function in SQL, for messages.
        search_path: folders that are looked in first.
        arguments: types of its arguments. Of several the aggregate's argument column is a ROW, of none it holds anything.
        result: type of its value.
        vectorised: it takes Arrow arrays, the rows of one group, else the values of one row.
        retractable: it can take rows back.
        accumulator: what its accumulators are; None: nobody has looked.
    """

    name: str
    reference: str
    search_path: tuple[str, ...]
    arguments: tuple[DataType, ...]
    result: DataType
    vectorised: bool = False
    retractable: bool = False
    accumulator: AccumulatorForm | None = None


@record
class AggregateKernel:
    """A resolved aggregate: either `accumulators` with `finish`, or `collect` for those that need their values (LISTAGG).

    Attributes:
        function: canonical SQL name, for messages.
        argument: type that the argument column has; None for COUNT(*).
        result: result type.
        retractable: subtracting a value from the accumulators is exact (count, sum, avg, variance).
        order_sensitive: the result depends on arrival order (FIRST_VALUE, LAST_VALUE, LISTAGG).
        keeps_nulls: NULL arguments are collected too (ARRAY_AGG); all others leave them out.
        user: the user's aggregate that `collect` calls; an operator may keep its accumulators instead of the values.
    """

    function: str
    argument: DataType | None
    result: DataType
    accumulators: tuple[Accumulator, ...] = ()
    finish: FinishKernel | None = None
    collect: CollectKernel | None = None
    retractable: bool = False
    order_sensitive: bool = False
    keeps_nulls: bool = False
    user: UserAggregate | None = None


@record
class BoundAggregate:
    """An aggregate over columns of the operator's input.

    Attributes:
        name: output column.
        argument: position of the argument column; None for COUNT(*).
        filter: position of a BOOLEAN column; only rows where it is true count. None: all rows.
        distinct: equal values of one group count once.
        argument_text: the argument as the user wrote it, to explain state; empty: the column's name says it.
        filter_text: the same of the filter.
    """

    name: str
    kernel: AggregateKernel
    argument: int | None
    filter: int | None = None
    distinct: bool = False
    argument_text: str = ""
    filter_text: str = ""
