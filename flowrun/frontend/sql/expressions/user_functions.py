"""Calls of functions that a script made with CREATE FUNCTION."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn, TypeAlias

from sqlglot import exp

from flowrun.core.types import DataType, TypeRoot
from flowrun.frontend.sql.catalog import Catalog, FunctionKind, UserFunction
from flowrun.frontend.sql.expressions.binder import ExpressionBinder
from flowrun.frontend.sql.spans import Span, error_at, span_of
from flowrun.functions.coercion import implicitly_castable
from flowrun.plan.expressions import AggregateCall, Expression, PythonCall, UserAggregateReference


class UserFunctions:
    """The catalog's functions, as expressions call them. A user's function hides a built-in one of its name."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    @property
    def current_database(self) -> str:
        """The database of names that say none."""
        return self._catalog.current[1]

    def find(self, name: str) -> UserFunction | None:
        """The function of a name."""
        return self._catalog.function(name)

    def is_aggregate(self, name: str) -> bool:
        """Whether a user's aggregate has the name."""
        function = self.find(name)
        return function is not None and function.kind is FunctionKind.AGGREGATE

    def scalar(self, function: UserFunction, binder: ExpressionBinder, node: exp.Expression) -> Expression | None:
        """The call of a scalar function; None for an aggregate, whose calls are bound as such.

        Raises:
            ExpressionError: wrong arguments, or a table function.
        """
        if function.kind is FunctionKind.AGGREGATE:
            return None
        if function.kind is FunctionKind.PROCESS:
            binder.fail(
                f"{function.name} is a process table function, it stands only in FROM",
                node,
                f"write FROM {function.name}(TABLE t …)",
            )
        if function.kind is FunctionKind.TABLE:
            hint = f"write FROM t CROSS JOIN LATERAL TABLE({function.name}(…)) AS r"
            binder.fail(f"{function.name} is a table function, it stands only in FROM", node, hint)
        function, arguments = self.called(function, binder, node.expressions, span_of(node))
        return PythonCall(
            function.result, function.name, function.reference, arguments, function.vectorised, function.deterministic,
            function.search_path,
        )  # fmt: skip

    def aggregate(
        self,
        name: str,
        rows: ExpressionBinder,
        node: exp.Expression,
        arguments: Sequence[exp.Expression],
        distinct: bool,
        filter: Expression | None,
    ) -> AggregateCall | None:
        """The call of a user's aggregate; None if the name is a built-in one.

        Raises:
            ExpressionError: wrong arguments.
        """
        function = self.find(name)
        if function is None or function.kind is not FunctionKind.AGGREGATE:
            return None
        function, bound = self.called(function, rows, arguments, span_of(node))
        reference = UserAggregateReference(
            function.reference,
            function.search_path,
            function.vectorised,
            function.retractable,
            function.accumulator,
        )
        return AggregateCall(function.name, bound, function.result, "", distinct, filter, reference=reference)

    def called(
        self, function: UserFunction, binder: ExpressionBinder, nodes: Sequence[exp.Expression], span: Span
    ) -> tuple[UserFunction, tuple[Expression, ...]]:
        """The function with the signature that a call fits, and the arguments in its types.

        Of several signatures that fit, the one counts that converts the fewest arguments; of equal ones the first.

        Raises:
            ExpressionError: too many or few, or types that do not convert.
        """
        for node in nodes:
            if isinstance(node, exp.Star | exp.Distinct):
                binder.fail(f"{function.name} takes values", node)
        values = [binder.bind(node) for node in nodes]
        if function.arguments is None:
            return function, tuple(values)
        signatures = [(function.arguments, function.result), *function.overloads]
        fitting = [s for s in signatures if _least(function, s[0]) <= len(values) <= len(s[0])]
        if not fitting:
            counts = sorted({n for a, _ in signatures for n in range(_least(function, a), len(a) + 1)})
            message = f"{function.name} takes {' or '.join(map(str, counts))} arguments, {len(nodes)} given"
            raise error_at(message, span, f"usage: {_usage(function.name, signatures)}")
        possible = [s for s in fitting if all(map(_converts, values, s[0]))]
        if not possible:
            self._reject(function, binder, values, nodes, fitting)
        chosen, result = min(possible, key=lambda s: sum(v.type != t for v, t in zip(values, s[0], strict=False)))
        converted = [v if v.type == t else binder.cast(v, t, n) for v, t, n in zip(values, chosen, nodes, strict=False)]
        return replace(function, result=result), tuple(converted)

    @staticmethod
    def _reject(
        function: UserFunction,
        binder: ExpressionBinder,
        values: Sequence[Expression],
        nodes: Sequence[exp.Expression],
        signatures: Sequence[_Signature],
    ) -> NoReturn:
        if len(signatures) > 1:
            given = ", ".join(str(v.type) for v in values)
            hint = f"usage: {_usage(function.name, signatures)}"
            binder.fail(f"{function.name} does not take ({given})", nodes[0], hint)
        wanted = signatures[0][0]
        place = next(i for i, (v, t) in enumerate(zip(values, wanted, strict=False)) if not _converts(v, t))
        binder.fail(
            f"argument {place + 1} of {function.name} must be {wanted[place]}, this is {values[place].type}",
            nodes[place],
            f"write CAST(… AS {wanted[place]})",
        )


_Signature: TypeAlias = tuple[tuple[DataType, ...], DataType]


def _least(function: UserFunction, arguments: tuple[DataType, ...]) -> int:
    return len(arguments) if function.required is None else min(function.required, len(arguments))


def _converts(value: Expression, wanted: DataType) -> bool:
    return value.type == wanted or value.type.root is TypeRoot.NULL or implicitly_castable(value.type, wanted)


def _usage(name: str, signatures: Sequence[_Signature]) -> str:
    return " or ".join(f"{name}({', '.join(map(str, arguments))})" for arguments, _ in signatures)
