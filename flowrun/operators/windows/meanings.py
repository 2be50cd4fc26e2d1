"""What the columns of the state tables of windows hold, in the user's words; see `operators.state_meanings`."""

from __future__ import annotations

from collections.abc import Mapping

from flowrun.api.aggregate import BoundAggregate
from flowrun.operators.aggregation.engine import SEQ, VALUE
from flowrun.operators.aggregation.layout import PartialLayout
from flowrun.operators.state_meanings import Meanings, call_text, column_texts, where_text


def partial_meanings(
    layout: PartialLayout, aggregates: tuple[BoundAggregate, ...], fixed: Mapping[str, str]
) -> Meanings:
    """Of the tables of partial results.

    Args:
        layout: of the partial results.
        aggregates: that they are of, with the texts that the user wrote.
        fixed: what those columns hold that say what a row is part of.
    """
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
