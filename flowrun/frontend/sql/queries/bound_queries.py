"""What the steps of query binding hand to each other."""

from __future__ import annotations

from dataclasses import field

from flowrun.core.record import record
from flowrun.core.semantics import NullOrder, SortKey
from flowrun.frontend.sql.expressions.pending import OuterColumn, PendingAggregate, PendingGrouping, PendingWindowBound
from flowrun.frontend.sql.expressions.relations import Named, Relation
from flowrun.frontend.sql.expressions.trees import has
from flowrun.frontend.sql.grammar.syntax import Select
from flowrun.frontend.sql.spans import Span
from flowrun.plan.expressions import Expression
from flowrun.plan.nodes import PlanNode
from flowrun.plan.windows import WindowSpec


class FailedError(Exception):
    """Something below was wrong and is in the list of errors; what depends on it is not looked at."""


@record
class Bound:
    """A planned query: its node, and its columns as they may be named."""

    node: PlanNode
    names: tuple[str, ...]


@record
class Planned:
    """A planned query whose rows are still to be sorted: columns of `node` beyond `names` serve only `order`."""

    node: PlanNode
    names: tuple[str, ...]
    order: tuple[SortKey, ...] = ()


@record
class SortItem:
    """A bound entry of ORDER BY."""

    expression: Expression
    descending: bool
    nulls: NullOrder
    span: Span


@record
class GroupWindow:
    """A window in GROUP BY: TUMBLE, HOP or SESSION over the time `arguments[0]`."""

    name: str
    spec: WindowSpec
    arguments: tuple[Expression, ...]
    span: Span


@record
class Groups:
    """A bound GROUP BY: its keys, the grouping sets as positions of keys, and its window if it has one."""

    keys: tuple[Expression, ...]
    sets: tuple[tuple[int, ...], ...]
    window: GroupWindow | None
    span: Span


@record
class SelectParts:
    """A bound SELECT, before its nodes are made.

    Attributes:
        relation: FROM, filtered by the conditions that read nothing else.
        correlated: conditions that read columns of the query around too.
        items: name and expression of each output column, over `relation`.
        spans: of the items.
        is_source_correlated: FROM reads columns of the query around.
        lifetime_ms: what a hint says of how long groups of the relation's rows are kept; None: nothing.
    """

    syntax: Select
    relation: Relation
    correlated: tuple[Expression, ...]
    items: tuple[Named, ...]
    spans: tuple[Span, ...]
    groups: Groups | None
    having: tuple[Expression, ...]
    qualify: tuple[Expression, ...]
    order: tuple[SortItem, ...] = field(default=())
    lifetime_ms: int | None = None
    is_source_correlated: bool = False

    @property
    def lifetimes(self) -> tuple[int | None, ...]:
        """The same as hints of a node take it."""
        return () if self.lifetime_ms is None else (self.lifetime_ms,)

    @property
    def outputs(self) -> tuple[Expression, ...]:
        """All expressions over the groups, or over the rows if nothing is grouped."""
        return (*(e for _, e in self.items), *self.having, *self.qualify, *(o.expression for o in self.order))

    @property
    def is_grouped(self) -> bool:
        """Whether the rows are groups."""
        pending = (PendingAggregate, PendingWindowBound, PendingGrouping)
        return self.groups is not None or bool(self.having) or any(has(e, *pending) for e in self.outputs)

    @property
    def is_one_group(self) -> bool:
        """Whether all rows are one group, so that one row comes out."""
        return self.is_grouped and self.groups is None

    @property
    def is_correlated(self) -> bool:
        """Whether anything reads the query around."""
        return bool(self.correlated) or self.is_correlated_beyond_where

    @property
    def is_correlated_beyond_where(self) -> bool:
        """Whether anything but WHERE reads the query around."""
        groups = () if self.groups is None else self.groups.keys
        return self.is_source_correlated or any(has(e, OuterColumn) for e in (*self.outputs, *groups))
