"""What names mean inside an expression: columns of the input, and the errors for names that mean nothing."""

from __future__ import annotations

from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.types import TypeRoot
from flowrun.errors import did_you_mean
from flowrun.plan.expressions import ColumnRef, Expression, FieldAccess


class UnknownNameError(Exception):
    """A name is not known in a scope; `part` is the index of the wrong part of a dotted name."""

    def __init__(self, message: str, part: int, hint: str | None) -> None:
        super().__init__(message)
        self.part = part
        self.hint = hint


@record
class Scope:
    """Column names of the rows that an expression reads.

    Attributes:
        schema: the rows' columns; names are case-sensitive.
        what: what the rows are called in messages, e.g. `the input`.
    """

    schema: Schema
    what: str = "the input"

    def knows(self, name: str) -> bool:
        """Whether a column has this name."""
        return name in self.schema

    def resolve(self, parts: tuple[str, ...]) -> Expression:
        """The expression of a dotted name: a column, then fields of ROWs.

        Raises:
            UnknownNameError: no such column or field.
        """
        name = parts[0]
        if name not in self.schema:
            folded = [n for n in self.schema.names if n.casefold() == name.casefold()]
            hint = (
                f"names are case-sensitive: did you mean '{folded[0]}'?"
                if folded
                else did_you_mean(name, self.schema.names)
            )
            raise UnknownNameError(f"column '{name}' does not exist in {self.what}", 0, hint)
        index = self.schema.index(name)
        return access_fields(ColumnRef(self.schema.types[index], index, name), parts[1:], 1)


def access_fields(expression: Expression, names: tuple[str, ...], part: int) -> Expression:
    """The expression followed by field accesses.

    Raises:
        UnknownNameError: something is not a ROW, or has no such field; `part` counts on from the given number.
    """
    for offset, name in enumerate(names):
        if expression.type.root is not TypeRoot.ROW:
            hint = (
                f"write {expression}['{name}'] for a value of a MAP" if expression.type.root is TypeRoot.MAP else None
            )
            raise UnknownNameError(f"{expression} is {expression.type}, it has no field '{name}'", part + offset, hint)
        field = expression.type.field(name)
        if field is None:
            hint = did_you_mean(name, expression.type.names)
            raise UnknownNameError(f"{expression} has no field '{name}'", part + offset, hint)
        expression = FieldAccess(field, expression, name)
    return expression
