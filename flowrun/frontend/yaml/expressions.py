"""SQL expressions in YAML scalars: bound to typed trees, with every problem shown at its place inside the scalar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from flowrun.core.schema import Schema
from flowrun.errors import ExpressionError
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.sql.expressions.aggregate_binder import AggregateBinding
from flowrun.frontend.sql.expressions.from_text import (
    ListedExpressionError,
    bind_aggregates,
    bind_expression,
    bind_predicate,
)
from flowrun.frontend.trees.nodes import YamlScalar
from flowrun.plan.expressions import Expression

T = TypeVar("T")


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

    def aggregates(
        self, texts: Sequence[YamlScalar], schema: Schema, keys: Sequence[int], bounds: Sequence[str]
    ) -> AggregateBinding | None:
        """Aggregates over rows of `schema` grouped by `keys` and a window with these bound columns."""
        try:
            return bind_aggregates([t.text for t in texts], schema, keys, bounds)
        except ListedExpressionError as first:
            self._report(texts[first.index], first)
            # Binding stops at the first problem; each later entry is looked at alone, so that users see all of them.
            for text in texts[first.index + 1 :]:
                self._bound(text, lambda t=text: bind_aggregates([t.text], schema, keys, bounds))  # type: ignore[misc]
            return None

    def _bound(self, text: YamlScalar, bind: Callable[[], T]) -> T | None:
        try:
            return bind()
        except ExpressionError as error:
            self._report(text, error)
            return None

    def _report(self, text: YamlScalar, error: ExpressionError) -> None:
        self._diagnostics.error(error.message, text.locate(error.offset, error.length), hint=error.hint)
