"""Expressions as the picklable recipes that operators carry: columns, masks and single values."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.types import TypeRoot
from flowrun.plan.compiler import compile_columns, compile_value
from flowrun.plan.expressions import ColumnRef, Expression, FieldAccess


@record(slots=False)
class Projection:
    """Rows → the same number of rows with one column an expression. Implements `ColumnsFunction`.

    Raises:
        ValueError: expressions and schema do not match in number or Arrow type.
    """

    expressions: tuple[Expression, ...]
    schema: Schema

    def __post_init__(self) -> None:
        given = [e.type.arrow for e in self.expressions]
        wanted = [t.arrow for t in self.schema.types]
        if given != wanted:
            raise ValueError(f"expressions of types {given} do not give columns of types {wanted}")

    @property
    def unnamed(self) -> Mapping[str, str]:
        """By name of a column that the user gave none, its expression for people."""
        return {name: str(e) for name, e in zip(self.schema.names, self.expressions, strict=True) if "$" in name}

    @property
    def never_fails(self) -> bool:
        """Whether all columns are columns of the input, or fields of them."""
        return all(_is_reference(e) for e in self.expressions)

    def compile(self) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
        """The kernel; raises `DataError` naming the row."""
        columns = compile_columns(self.expressions)
        schema = self.schema.arrow

        def kernel(batch: pa.RecordBatch) -> pa.RecordBatch:
            if not schema:  # a batch without columns cannot say its length in any other way
                return batch.select([])
            return pa.RecordBatch.from_arrays(columns(batch), schema=schema)

        return kernel


def _is_reference(expression: Expression) -> bool:
    while isinstance(expression, FieldAccess):
        expression = expression.operand
    return isinstance(expression, ColumnRef)


@record(slots=False)
class Predicate:
    """Rows → a mask; NULL counts as false. Implements `PredicateFunction`.

    Raises:
        ValueError: the expression is not BOOLEAN.
    """

    expression: Expression

    def __post_init__(self) -> None:
        if self.expression.type.root is not TypeRoot.BOOLEAN:
            raise ValueError(f"a predicate is BOOLEAN, {self.expression} is {self.expression.type}")

    @property
    def text(self) -> str:
        """The condition for people."""
        return str(self.expression)

    def compile(self) -> Callable[[pa.RecordBatch], pa.BooleanArray]:
        """The kernel; raises `DataError` naming the row."""
        return compile_value(self.expression)


def predicate_of(condition: Expression | None) -> Predicate | None:
    """The predicate of an optional condition."""
    return None if condition is None else Predicate(condition)


@record(slots=False)
class Value:
    """Rows → one array. Implements `ValueFunction`."""

    expression: Expression

    def compile(self) -> Callable[[pa.RecordBatch], pa.Array]:
        """The kernel; raises `DataError` naming the row."""
        return compile_value(self.expression)
