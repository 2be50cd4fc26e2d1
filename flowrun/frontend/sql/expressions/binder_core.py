"""What every binder does: mark places in errors, call functions by their type rules, and make conversions explicit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NoReturn

import pyarrow as pa
from sqlglot import exp

from flowrun.core.type_parser import TypeTextError, parse_type
from flowrun.core.types import BOOLEAN, DataType, TypeRoot
from flowrun.errors import DataError, ExpressionError
from flowrun.frontend.sql.catalog import DEFAULT_DATABASE
from flowrun.frontend.sql.expressions.scope import Scope, UnknownNameError
from flowrun.frontend.sql.spans import error_at, span_of
from flowrun.functions.casts.casts import cast_datum, is_relabelling
from flowrun.functions.coercion import castable, common_type
from flowrun.functions.contract import Argument, ScalarFunction
from flowrun.functions.registry import scalar
from flowrun.plan.expressions import And, Call, Case, Cast, Expression, Literal, Or
from flowrun.plan.folding import literal_value


def as_argument(expression: Expression) -> Argument:
    """What a type rule may know of an argument."""
    if isinstance(expression, Literal):
        return Argument(expression.type, expression.value, True)
    return Argument(expression.type)


def _constructed_pairs(left: Expression, right: Expression) -> list[tuple[Expression, Expression]] | None:
    """The fields of two ROW constructors of the same width, which compare one by one; None: other values."""
    one, other = _constructed(left), _constructed(right)
    if one is None or other is None or not 0 < len(one) == len(other):
        return None
    return list(zip(one, other, strict=True))


def _constructed(expression: Expression) -> list[Expression] | None:
    """The fields of a ROW constructor, also of one that is cast to another ROW."""
    if isinstance(expression, Cast) and not expression.safe and expression.type.root is TypeRoot.ROW:
        inner = _constructed(expression.operand)
        types = expression.type.children
        return None if inner is None else [f if f.type == t else Cast(t, f) for f, t in zip(inner, types, strict=True)]
    return list(expression.arguments) if isinstance(expression, Call) and expression.function == "ROW" else None


class BinderCore(ABC):
    """The parts of a binder that do not depend on the kinds of syntax nodes."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    @property
    def current_database(self) -> str:
        """What CURRENT_DATABASE() gives."""
        return DEFAULT_DATABASE

    @abstractmethod
    def bind(self, node: exp.Expression) -> Expression:
        """The typed tree of a node.

        Raises:
            ExpressionError: unknown names, wrong types, or syntax that has no meaning here; marks the place.
        """

    # -- errors --------------------------------------------------------------------------------------------------------------

    def fail(self, message: str, node: exp.Expression, hint: str | None = None) -> NoReturn:
        """Raise an `ExpressionError` that marks the node."""
        raise error_at(message, span_of(node), hint)

    def fail_unknown(self, error: UnknownNameError, parts: Sequence[exp.Expression]) -> NoReturn:
        """Raise for the wrong part of a dotted name."""
        self.fail(str(error), parts[min(error.part, len(parts) - 1)], error.hint)

    def operator(self, symbol: str, operands: Sequence[exp.Expression], node: exp.Expression) -> Expression:
        """A call of an operator."""
        return self.apply(symbol, [self.bind(o) for o in operands], operands, node)

    def apply(
        self, name: str, arguments: Sequence[Expression], nodes: Sequence[exp.Expression], node: exp.Expression
    ) -> Expression:
        """A call of a known function on bound arguments, cast as its signature says."""
        if name in ("=", "<>") and (pairs := _constructed_pairs(*arguments)) is not None:
            parts = tuple(self.apply(name, pair, nodes, node) for pair in pairs)
            return And(parts) if name == "=" else Or(parts)
        function = scalar(name)
        assert function is not None, name
        return self.call(function, arguments, nodes, node)

    def call(
        self,
        function: ScalarFunction,
        arguments: Sequence[Expression],
        nodes: Sequence[exp.Expression],
        node: exp.Expression,
    ) -> Expression:
        """The call node of a function; type errors mark the argument, or the call."""
        try:
            signature = function.type_rule([as_argument(a) for a in arguments])
        except ExpressionError as error:
            self.fail(error.message, node, error.hint)
        given = list(arguments)
        cast = tuple(self.cast(a, t, n) for a, t, n in zip(given, signature.arguments, nodes, strict=True))
        return Call(signature.result, function.name, cast)

    def cast(self, expression: Expression, target: DataType, node: exp.Expression) -> Expression:
        """The expression as `target`: unchanged, a converted literal, or a cast node."""
        if expression.type == target:
            return expression
        if isinstance(expression, Literal):
            return self._cast_literal(expression, target, node)
        if not castable(expression.type, target):
            self.fail(f"{expression.type} does not convert to {target}", node, "use CAST(… AS STRING) or other columns")
        return Cast(target, expression)

    def _cast_literal(self, literal: Literal, target: DataType, node: exp.Expression) -> Expression:
        if literal.value is None or (is_relabelling(literal.type, target) and not target.is_nested):
            return Literal(target, literal.value)
        if not castable(literal.type, target):
            self.fail(f"{literal.type} does not convert to {target}", node)
        try:
            value = cast_datum(pa.scalar(literal.value, literal.type.arrow), literal.type, target)
        except DataError as error:
            self.fail(error.message, node)
        if (literal.type.root is TypeRoot.TIMESTAMP_LTZ) is not (target.root is TypeRoot.TIMESTAMP_LTZ):
            return Cast(target, literal)  # by the session's zone, which is put in later
        return Literal(target, literal_value(value, target))

    def boolean(self, node: exp.Expression, where: str) -> Expression:
        """A condition."""
        bound = self.bind(node)
        if bound.type.root is TypeRoot.NULL:
            return Literal(BOOLEAN, None)
        if bound.type.root is not TypeRoot.BOOLEAN:
            self.fail(
                f"{where} must be BOOLEAN, this is {bound.type}", node, "compare it, e.g. x <> 0 or x IS NOT NULL"
            )
        return bound

    def unify(self, expressions: Sequence[Expression], nodes: Sequence[exp.Expression], what: str) -> list[Expression]:
        """The expressions cast to their common type."""
        common = common_type([e.type for e in expressions])
        if common is None:
            given = ", ".join(dict.fromkeys(str(e.type) for e in expressions))
            first = expressions[0].type
            odd = (
                next(i for i, e in enumerate(expressions) if common_type([first, e.type]) is None)
                if len(expressions) > 1
                else 0
            )
            self.fail(f"{what} have no common type: {given}", nodes[odd], "CAST them to one type")
        return [self.cast(e, common, n) for e, n in zip(expressions, nodes, strict=True)]

    def choice(
        self,
        conditions: Sequence[Expression],
        results: Sequence[Expression],
        nodes: Sequence[exp.Expression],
        what: str,
    ) -> Expression:
        """A CASE whose results (one more than conditions) share a type."""
        unified = self.unify(results, nodes, what)
        return Case(unified[0].type, tuple(zip(conditions, unified[:-1], strict=True)), unified[-1])

    def type_of(self, node: exp.Expression) -> DataType:
        """The type that a text inside the expression spells."""
        try:
            return parse_type(node.this)
        except TypeTextError as error:
            raise ExpressionError(
                error.reason, offset=span_of(node)[0] + error.offset, length=error.length, hint=error.hint
            ) from None
