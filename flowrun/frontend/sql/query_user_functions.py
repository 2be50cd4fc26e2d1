"""Calls of functions that a script made with CREATE FUNCTION."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from flowrun.core.types import TypeRoot
from flowrun.frontend.sql.binding_expressions import ExpressionBinder
from flowrun.frontend.sql.catalog import Catalog, FunctionKind, UserFunction
from flowrun.frontend.sql.query_nodes import fail
from flowrun.frontend.sql.spans import span_of
from flowrun.frontend.sql.syntax import Span
from flowrun.functions.coercion import implicitly_castable
from flowrun.plan.expressions import AggregateCall, Expression, PythonCall, UserAggregateReference

if TYPE_CHECKING:
    from flowrun.frontend.sql.query_expressions import QueryExpressionBinder


class UserFunctions:
    """The catalog's functions, as expressions call them. A user's function hides a built-in one of its name."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

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
        arguments = self.arguments(function, binder, node.expressions, span_of(node))
        return PythonCall(
            function.result, function.name, function.reference, arguments, function.vectorised, function.deterministic,
            function.search_path,
        )  # fmt: skip

    def aggregate(
        self,
        name: str,
        rows: QueryExpressionBinder,
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
        bound = self.arguments(function, rows, arguments, span_of(node))
        reference = UserAggregateReference(
            function.reference, function.search_path, function.vectorised, function.retractable
        )
        return AggregateCall(function.name, bound, function.result, "", distinct, filter, reference=reference)

    def arguments(
        self, function: UserFunction, binder: ExpressionBinder, nodes: Sequence[exp.Expression], span: Span
    ) -> tuple[Expression, ...]:
        """The arguments of a call in the types that the function declares.

        Raises:
            ExpressionError: too many or few, or types that do not convert.
        """
        declared = function.arguments
        if declared is not None and len(nodes) != len(declared):
            usage = f"{function.name}({', '.join(map(str, declared))})"
            raise fail(f"{function.name} takes {len(declared)} arguments, {len(nodes)} given", span, f"usage: {usage}")
        found = []
        for place, node in enumerate(nodes):
            if isinstance(node, exp.Star | exp.Distinct):
                binder.fail(f"{function.name} takes values", node)
            value = binder.bind(node)
            if declared is not None and value.type != declared[place]:
                if value.type.root is not TypeRoot.NULL and not implicitly_castable(value.type, declared[place]):
                    binder.fail(
                        f"argument {place + 1} of {function.name} must be {declared[place]}, this is {value.type}",
                        node,
                        f"write CAST(… AS {declared[place]})",
                    )
                value = binder.cast(value, declared[place], node)
            found.append(value)
        return tuple(found)
