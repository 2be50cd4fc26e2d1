"""What the state columns of a group aggregation hold, in the user's words."""

from __future__ import annotations

from collections.abc import Mapping

from flowrun.api.aggregate import BoundAggregate
from flowrun.operators.state_meanings import call_text, column_texts, where_text
from flowrun.operators.updating.accumulators import accumulator_of
from flowrun.operators.updating.group_layout import GROUPS, ROWS, TOUCHED, VALUE, GroupLayout, ValueList


def group_meanings(layout: GroupLayout, aggregates: tuple[BoundAggregate, ...]) -> Mapping[str, Mapping[str, str]]:
    """Keyed table → column → what it holds."""
    texts = column_texts(layout.input_schema, aggregates)
    groups = {ROWS: "COUNT(*)", TOUCHED: "time of the last row, ms since the epoch, if state has a time to live"}
    for kept in layout.columns:
        column = kept.column
        call = call_text(column, texts)
        if kept.source is not None:
            where = where_text(layout.sets[kept.source.set].filters[kept.source.counter], texts)
            distinct = not column.partial.startswith(("min", "max"))
            call = (call.replace("(", "(DISTINCT ", 1) if distinct else call) + where
        groups[column.name] = call
        for field in accumulator_of(column).fields[1:]:
            groups[field.name] = f"{'what rounding left out' if column.type.is_approximate else 'overflow'} of {call}"
    for user in layout.users:
        distinct_text = "DISTINCT " if user.feed.source is not None else ""
        call = f"{user.user.name}({distinct_text}{texts[user.feed.argument]}){_filter(layout, user.feed, texts)}"
        groups[user.column.name] = f"accumulator of {call}, as JSON text"
    tables: dict[str, Mapping[str, str]] = {GROUPS: groups}
    for values in layout.sets:
        counters = zip(values.counters, values.filters, strict=True)
        tables[values.name] = {
            VALUE: f"different values of {texts[values.argument]}",
            **{name: f"how many rows have the value{where_text(filter_, texts)}" for name, filter_ in counters},
        }
    for listed in layout.lists:
        kept_values = "different values of" if listed.source is not None else "values of"
        tables[listed.name] = {VALUE: f"{kept_values} {texts[listed.argument]}{_filter(layout, listed, texts)}"}
    return tables


def _filter(layout: GroupLayout, values: ValueList, texts: Mapping[int, str]) -> str:
    if values.source is None:
        return where_text(values.filter, texts)
    return where_text(layout.sets[values.source.set].filters[values.source.counter], texts)
