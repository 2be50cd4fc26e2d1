"""SQL expressions in YAML scalars: bound to typed trees, with every problem shown at its place inside the scalar."""

from __future__ import annotations

from collections.abc import Callable

from flowrun.core.schema import Schema
from flowrun.errors import ExpressionError
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.sql.expressions.from_text import (
    bind_expression,
    bind_predicate,
)
from flowrun.frontend.trees.nodes import YamlScalar
from flowrun.plan.expressions import Expression


class ExpressionReader:
    """Binds scalars to expressions over the columns of a schema. None stands for what could not be bound and was reported."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics

    def scalar(self, text: YamlScalar, schema: Schema) -> Expression | None:
        """Any expression."""
        return self._bound(text, lambda: bind_expression(text.text, schema))

    def condition(self, text: YamlScalar, schema: Schema) -> Expression | None:
        """A BOOLEAN expression."""
        return self._bound(text, lambda: bind_predicate(text.text, schema))

    def _bound(self, text: YamlScalar, bind: Callable[[], Expression]) -> Expression | None:
        try:
            return bind()
        except ExpressionError as error:
            self._diagnostics.error(error.message, text.locate(error.offset, error.length), hint=error.hint)
            return None
