"""What the columns of state tables hold, in the user's words: `revenue_sum` of a window's `partials` is `SUM(amount * price)`.

Kept with each checkpoint (in its job graph), shown by `flowrun state show`, and compared when a pipeline restores from a savepoint:
columns keep their names and types when a window's size or the expression below an aggregate changes, but not what they hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from flowrun.api.aggregate import BoundAggregate
from flowrun.core.provided import provides
from flowrun.core.schema import Schema
from flowrun.operators.aggregation.layout import SLICE_END, PartialColumn

if TYPE_CHECKING:
    from flowrun.api.accumulators import AccumulatorForm

Meanings = Mapping[str, Mapping[str, str]]
"""Keyed table → column → what it holds. Columns whose names say it all are left out."""

STRUCTURAL_COLUMNS = frozenset({SLICE_END, "cell", "trigger"})
"""Columns that say what a row is part of: if they hold something else, none of the row can be used. Other columns go on with what
is new, as a running total does when prices change."""

_CALLS = {
    "count_all": "COUNT(*)",
    "count": "COUNT({0})",
    "sum": "SUM({0})",
    "sum_of_squares": "SUM({0} * {0})",
    "min": "MIN({0})",
    "max": "MAX({0})",
    "first": "FIRST_VALUE({0})",
    "last": "LAST_VALUE({0})",
}


@runtime_checkable
class ExplainsState(Protocol):
    """A factory that says itself what the columns of its state tables hold."""

    def state_meanings(self) -> Meanings:
        """Keyed table → column → what it holds."""
        ...


@runtime_checkable
class KeepsAccumulators(Protocol):
    """A factory whose state tables hold accumulators of users' aggregates."""

    def state_accumulators(self) -> Mapping[str, Mapping[str, AccumulatorForm]]:
        """Keyed table → column → what its accumulators are; those without a known form are left out."""
        ...


def state_accumulators(factory: object) -> Mapping[str, Mapping[str, AccumulatorForm]]:
    """The accumulators in the state tables of the operators that a factory makes."""
    return factory.state_accumulators() if provides(factory, KeepsAccumulators) else {}


def state_meanings(factory: object) -> Meanings:
    """What the state tables of the operators that a factory makes hold; empty for operators whose columns speak for themselves."""
    return factory.state_meanings() if provides(factory, ExplainsState) else {}


def column_texts(schema: Schema, aggregates: tuple[BoundAggregate, ...]) -> dict[int, str]:
    """The columns that aggregates read, by position, as the user wrote them."""
    texts = dict(enumerate(schema.names))
    for aggregate in aggregates:
        if aggregate.argument is not None and aggregate.argument_text:
            texts[aggregate.argument] = bare_text(aggregate.argument_text)
        if aggregate.filter is not None and aggregate.filter_text:
            texts[aggregate.filter] = bare_text(aggregate.filter_text)
    return texts


def call_text(partial: PartialColumn, texts: Mapping[int, str]) -> str:
    """What a partial column computes: `SUM(amount) FILTER (WHERE paid)`."""
    argument = "" if partial.argument is None else texts[partial.argument]
    return _CALLS[partial.partial].format(argument) + where_text(partial.filter, texts)


def bare_text(text: str) -> str:
    """An expression without the parentheses around all of it.

    >>> bare_text("((a + b) * c)"), bare_text("(a) + (b)")
    ('(a + b) * c', '(a) + (b)')
    """
    depth = 0
    for i, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 and i < len(text) - 1:
            return text
    return text[1:-1] if text.startswith("(") and text.endswith(")") else text


def where_text(position: int | None, texts: Mapping[int, str]) -> str:
    """The filter at a position as it follows a call; empty without one."""
    return "" if position is None else f" FILTER (WHERE {texts[position]})"
