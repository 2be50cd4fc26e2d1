"""Expressions outside of queries: computed columns, watermarks and constants of a script."""

from __future__ import annotations

from sqlglot import exp

from flowrun.core.schema import Schema
from flowrun.core.types import DataType
from flowrun.errors import ExpressionError
from flowrun.frontend.sql.catalog import Catalog
from flowrun.frontend.sql.expressions.binder import ExpressionBinder
from flowrun.frontend.sql.expressions.scope import Scope
from flowrun.frontend.sql.expressions.user_functions import UserFunctions
from flowrun.frontend.sql.grammar.expressions import parse_text
from flowrun.frontend.sql.script.statement_reader import Slice
from flowrun.frontend.sql.spans import FlinkSyntaxError
from flowrun.functions.coercion import implicitly_castable
from flowrun.plan.expressions import Expression
from flowrun.plan.folding import fold_constants


class ColumnExpressions:
    """Binds expressions that may call the functions of a script."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def bind(self, text: Slice, schema: Schema) -> Expression:
        """The tree of an expression over rows of `schema`.

        Raises:
            ExpressionError: it is wrong; with its place in the script.
        """
        try:
            return self._bound(text, schema)[0]
        except ExpressionError as error:
            raise text.moved(error) from None

    def constant(self, text: Slice, wanted: DataType) -> Expression:
        """The value of a constant expression, as `wanted`.

        Raises:
            ExpressionError: it is wrong, no constant, or of another type; with its place in the script.
        """
        try:
            bound, binder, node = self._bound(text, Schema(()))
            if not implicitly_castable(bound.type, wanted):
                binder.fail(f"expected {wanted}, this is {bound.type}", node)
            return fold_constants(binder.cast(bound, wanted, node))
        except ExpressionError as error:
            raise text.moved(error) from None

    def _bound(self, text: Slice, schema: Schema) -> tuple[Expression, ExpressionBinder, exp.Expression]:
        binder = _ColumnBinder(Scope(schema, "the table"), self._catalog)
        try:
            node = parse_text(text.text)
            return binder.bind(node), binder, node
        except FlinkSyntaxError as error:
            raise ExpressionError(error.message, offset=error.offset, length=error.length) from None
        except RecursionError:
            raise ExpressionError("the expression is nested too deeply", length=max(1, len(text.text))) from None


class _ColumnBinder(ExpressionBinder):
    """Knows the script's functions as well."""

    def __init__(self, scope: Scope, catalog: Catalog) -> None:
        super().__init__(scope)
        self._functions = UserFunctions(catalog)

    @property
    def current_database(self) -> str:
        """That of the script."""
        return self._functions.current_database

    def function(self, node: exp.Expression) -> Expression:
        """A call by name: a function of the script hides a built-in one."""
        found = self._functions.find(str(node.this))
        call = None if found is None else self._functions.scalar(found, self, node)
        if found is not None and call is None:
            self.fail(f"{found.name} is an aggregate function; a column needs a scalar one", node)
        return super().function(node) if call is None else call
