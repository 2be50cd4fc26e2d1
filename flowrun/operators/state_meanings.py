"""What the columns of state tables hold, in the user's words: `revenue_sum` of a window's `partials` is `SUM(amount * price)`.

Kept with each checkpoint (in its job graph), shown by `flowrun state show`, and compared when a pipeline goes on from a savepoint:
columns keep their names and types when a window's size or the expression below an aggregate changes, but not what they hold.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from flowrun.api.aggregate import BoundAggregate
from flowrun.core.schema import Schema
from flowrun.core.units import format_duration
from flowrun.operators.aggregation.engine import SEQ, VALUE
from flowrun.operators.aggregation.layout import SLICE_END, PartialColumn, PartialLayout
from flowrun.operators.windows.factories import SessionWindowFactory, SliceWindowFactory
from flowrun.operators.windows.general.factories import CountWindowFactory, GeneralWindowFactory, GlobalWindowFactory

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


def state_meanings(factory: object) -> Meanings:
    """What the state tables of the operators that a factory makes hold; empty for operators whose columns speak for themselves."""
    if isinstance(factory, ExplainsState):
        return factory.state_meanings()
    for kind, describe in _DESCRIPTIONS.items():
        if isinstance(factory, kind):
            return describe(factory)
    return {}


def _slice_window(factory: SliceWindowFactory) -> Meanings:
    assigner = factory.assigner
    offset = f" at offset {format_duration(assigner.offset_ms)}" if assigner.offset_ms else ""
    end = f"end of a slice of {format_duration(assigner.slice_ms)}{offset}, ms since the epoch"
    return _aggregation(factory.layout, factory.aggregates, {SLICE_END: end})


def _session_window(factory: SessionWindowFactory) -> Meanings:
    return _aggregation(factory.layout, factory.aggregates, {})


def _count_window(factory: CountWindowFactory) -> Meanings:
    rows = factory.slide if factory.size == factory.slide else math.gcd(factory.size, factory.slide)
    cell = (
        "all rows" if factory.accumulating else f"number of a piece of {rows} row{'' if rows == 1 else 's'} of the key"
    )
    return _row_aggregation(factory.input_schema, factory.aggregates, {"cell": cell})


def _global_window(factory: GlobalWindowFactory) -> Meanings:
    return _row_aggregation(factory.input_schema, factory.aggregates, {})


def _general_window(factory: GeneralWindowFactory) -> Meanings:
    # numbers in a trigger may change, its kind may not: what it remembers would not be understood
    kinds = re.findall(r"[A-Z]\w+(?=\()", repr(factory.effective_trigger))
    return {"windows": {"trigger": f"JSON of {' of '.join(dict.fromkeys(kinds))}"}}


def _row_aggregation(schema: Schema, aggregates: tuple[BoundAggregate, ...], fixed: Mapping[str, str]) -> Meanings:
    from flowrun.operators.windows.partials.cells import with_times

    timed, newest = with_times(schema)
    return _aggregation(PartialLayout.of(timed, (), (*aggregates, newest)), aggregates, fixed)


def _aggregation(layout: PartialLayout, aggregates: tuple[BoundAggregate, ...], fixed: Mapping[str, str]) -> Meanings:
    texts = column_texts(layout.input_schema, aggregates)
    columns = dict(fixed)
    for partial in layout.partials:
        call = call_text(partial, texts)
        columns[partial.name] = call
        if partial.companion is not None:
            columns[partial.companion] = f"arrival number of {call}" if partial.is_ordered else f"overflow of {call}"
    tables = {"partials": columns}
    for name, side in zip(layout.side_names, layout.sides, strict=True):
        kept = "distinct values of" if side.distinct else "values of"
        held = f"{kept} {texts[side.argument]}{where_text(side.filter, texts)}"
        tables[name] = {**fixed, VALUE: held, SEQ: "arrival number"}
    return tables


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


_DESCRIPTIONS: Mapping[type, Callable[..., Meanings]] = {
    SliceWindowFactory: _slice_window,
    SessionWindowFactory: _session_window,
    CountWindowFactory: _count_window,
    GlobalWindowFactory: _global_window,
    GeneralWindowFactory: _general_window,
}
