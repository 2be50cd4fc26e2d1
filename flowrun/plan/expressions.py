"""The typed expression tree: frozen values, bound to columns by position, already type-checked and explicitly cast.

The binder (front end) makes these trees; rewrites transform them; `flowrun.plan.compiler` turns them into Arrow kernels and the
Spark translation into SQL text. Everything a node needs is inside it, so trees pickle and compare by value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from flowrun.core.record import record
from flowrun.core.types import BOOLEAN, DataType
from flowrun.plan.description import expressions, label, parameter, part

if TYPE_CHECKING:
    from flowrun.api.accumulators import AccumulatorForm


@part
class Expression:
    """A value per row. `type` is its SQL type; NULL may always occur."""

    type: DataType = parameter()

    @property
    def children(self) -> tuple[Expression, ...]:
        """Sub-expressions, in evaluation order."""
        return ()


@record
class ColumnRef(Expression):
    """An input column, by position; `name` is for reading only."""

    index: int
    name: str = field(compare=False)

    def __str__(self) -> str:
        return self.name


@record
class Literal(Expression):
    """A constant. `value` is None or the Python value that `pa.scalar(value, type.arrow)` accepts
    (timestamps and dates as datetime objects, decimals as `decimal.Decimal`, day-time intervals as int ms, year-month as int months).
    """

    value: Any

    def __str__(self) -> str:
        if self.value is None:
            return "NULL"
        if self.type.is_character:
            return "'" + str(self.value).replace("'", "''") + "'"
        if isinstance(self.value, bool):
            return str(self.value).upper()
        if self.type.is_temporal:
            return f"{self.type.root.value} '{self.value}'"
        if self.type.is_interval:
            unit = "ms" if self.type.arrow.bit_width == 64 else "months"
            return f"INTERVAL {self.value} {unit}"
        return str(self.value)


@record
class Call(Expression):
    """A call of a registered scalar function; operators are functions too (`+`, `=`, `LIKE` …).

    `function` is the canonical name in `flowrun.functions`; arguments already have the types that its signature asks for.
    """

    function: str
    arguments: tuple[Expression, ...]

    @property
    def children(self) -> tuple[Expression, ...]:
        return self.arguments

    def __str__(self) -> str:
        if not self.function[0].isalpha() and len(self.arguments) == 2:
            return f"({self.arguments[0]} {self.function} {self.arguments[1]})"
        return f"{self.function}({', '.join(map(str, self.arguments))})"


@record
class And(Expression):
    """Three-valued conjunction of two or more operands, guarded left to right."""

    operands: tuple[Expression, ...]
    type: DataType = field(default=BOOLEAN, kw_only=True)

    @property
    def children(self) -> tuple[Expression, ...]:
        return self.operands

    def __str__(self) -> str:
        return "(" + " AND ".join(map(str, self.operands)) + ")"


@record
class Or(Expression):
    """Three-valued disjunction of two or more operands, guarded left to right."""

    operands: tuple[Expression, ...]
    type: DataType = field(default=BOOLEAN, kw_only=True)

    @property
    def children(self) -> tuple[Expression, ...]:
        return self.operands

    def __str__(self) -> str:
        return "(" + " OR ".join(map(str, self.operands)) + ")"


@record
class Case(Expression):
    """The result of the first branch whose condition is true, else `otherwise`; branches already share `type`.

    COALESCE, NULLIF and IF are bound to this too. A branch is evaluated only on the rows that reach it if it is fallible.
    """

    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression

    @property
    def children(self) -> tuple[Expression, ...]:
        return (*(e for b in self.branches for e in b), self.otherwise)

    def __str__(self) -> str:
        whens = " ".join(f"WHEN {c} THEN {r}" for c, r in self.branches)
        return f"CASE {whens} ELSE {self.otherwise} END"


@record
class Cast(Expression):
    """A conversion to `type`; `safe` (TRY_CAST) gives NULL where plain CAST would fail."""

    operand: Expression
    safe: bool = False

    @property
    def children(self) -> tuple[Expression, ...]:
        return (self.operand,)

    def __str__(self) -> str:
        return f"{'TRY_CAST' if self.safe else 'CAST'}({self.operand} AS {self.type})"


@record
class InList(Expression):
    """Membership in a list of constants of the operand's type, three-valued: a NULL in the list makes a miss NULL."""

    operand: Expression
    values: tuple[Any, ...]
    negated: bool = False
    type: DataType = field(default=BOOLEAN, kw_only=True)

    @property
    def children(self) -> tuple[Expression, ...]:
        return (self.operand,)

    def __str__(self) -> str:
        inner = ", ".join(str(Literal(self.operand.type, v)) for v in self.values)
        return f"({self.operand} {'NOT IN' if self.negated else 'IN'} ({inner}))"


@record
class FieldAccess(Expression):
    """A field of a ROW; NULL if the row is NULL."""

    operand: Expression
    name: str

    @property
    def children(self) -> tuple[Expression, ...]:
        return (self.operand,)

    def __str__(self) -> str:
        return f"{self.operand}.{self.name}"


@record
class PythonCall(Expression):
    """A call of a user's Python function; arguments already have the types that it declares.

    Attributes:
        name: of the function in SQL.
        reference: `module:name`, looked up in the folders of `search_path` before Python's own path.
        vectorised: it takes and gives Arrow arrays, else the values of one row.
        deterministic: same arguments, same result.
    """

    name: str
    reference: str
    arguments: tuple[Expression, ...]
    vectorised: bool = False
    deterministic: bool = True
    search_path: tuple[str, ...] = ()

    @property
    def children(self) -> tuple[Expression, ...]:
        return self.arguments

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.arguments))})"


@record
class UserAggregateReference:
    """A user's Python aggregate: `reference` is `module:name`, looked up in the folders of `search_path` first.

    Attributes:
        vectorised: its accumulate and retract take Arrow arrays, the rows of one group, else the values of one row.
        retractable: it can take rows back.
        accumulator: what its accumulators are; None: nobody has looked.
    """

    reference: str
    search_path: tuple[str, ...] = ()
    vectorised: bool = False
    retractable: bool = False
    accumulator: AccumulatorForm | None = None


@part
class AggregateCall:
    """One aggregate of a grouping: function, arguments over the input row, and which rows count.

    Attributes:
        function: canonical name in `flowrun.functions`; of a user's aggregate its name in SQL.
        arguments: already cast as the aggregate's signature asks; empty for COUNT(*).
        type: result type.
        distinct: equal values of one group count once.
        filter: rows for which it is not true are left out.
        name: output column.
        argument_text: the first argument as it was before it became a column of a prepared input; empty: it did not.
        filter_text: the same of the filter.
        reference: the user's Python aggregate; None: a built-in one.
    """

    function: str = parameter()
    arguments: tuple[Expression, ...] = expressions()
    type: DataType = parameter()
    name: str = label()
    distinct: bool = parameter(default=False)
    filter: Expression | None = expressions(default=None)
    argument_text: str = parameter(default="")
    filter_text: str = parameter(default="")
    reference: UserAggregateReference | None = parameter(default=None)

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.arguments)) or "*"
        distinct = "DISTINCT " if self.distinct else ""
        where = f" FILTER (WHERE {self.filter})" if self.filter is not None else ""
        return f"{self.function}({distinct}{inner}){where}"


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and everything below it, parents first."""
    yield expression
    for child in expression.children:
        yield from walk(child)


def columns_used(expression: Expression) -> frozenset[int]:
    """Positions of the input columns that the expression reads."""
    return frozenset(e.index for e in walk(expression) if isinstance(e, ColumnRef))


def transform(expression: Expression, rule: Callable[[Expression], Expression]) -> Expression:
    """The tree rebuilt bottom-up, `rule` applied to every node after its children."""
    match expression:
        case Call() | PythonCall():
            rebuilt: Expression = replace(expression, arguments=tuple(transform(a, rule) for a in expression.arguments))
        case And() | Or():
            rebuilt = replace(expression, operands=tuple(transform(o, rule) for o in expression.operands))
        case Case():
            rebuilt = replace(
                expression,
                branches=tuple((transform(c, rule), transform(r, rule)) for c, r in expression.branches),
                otherwise=transform(expression.otherwise, rule),
            )
        case Cast() | InList() | FieldAccess():
            rebuilt = replace(expression, operand=transform(expression.operand, rule))
        case _:
            rebuilt = expression
    return rule(rebuilt)


def remap_columns(expression: Expression, positions: dict[int, int]) -> Expression:
    """The expression with every column position replaced as `positions` says."""

    def move(node: Expression) -> Expression:
        return replace(node, index=positions[node.index]) if isinstance(node, ColumnRef) else node

    return transform(expression, move)


def substitute(expression: Expression, columns: tuple[Expression, ...]) -> Expression:
    """The expression with each column reference replaced by `columns[index]`: composes two projections."""

    def inline(node: Expression) -> Expression:
        return columns[node.index] if isinstance(node, ColumnRef) else node

    return transform(expression, inline)
