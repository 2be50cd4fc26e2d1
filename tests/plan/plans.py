"""Small plans for tests, made as the front end makes them: expressions from text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import NullKeys
from flowrun.core.types import BIGINT, STRING, decimal, timestamp
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.sql.catalog import Catalog, CatalogView
from flowrun.frontend.sql.expressions.from_text import bind_expression, bind_predicate
from flowrun.frontend.sql.queries.from_text import BoundQuery, bind_query
from flowrun.frontend.sql.queries.statement_context import QueryContext
from flowrun.plan.expressions import AggregateCall, ColumnRef, Expression
from flowrun.plan.nodes import (
    Calc,
    NodeHints,
    Plan,
    PlanNode,
    Scan,
    Settings,
    Sink,
    TableReference,
    WatermarkKind,
    WatermarkSpec,
    WindowAggregate,
    window_aggregate_schema,
)
from flowrun.plan.relational import GroupAggregate
from flowrun.plan.windows import TumblingWindow, WindowSpec

ORDERS = Schema.of(id=BIGINT, user=STRING, amount=decimal(10, 2), status=STRING, ts=timestamp(3))


def scan(schema: Schema = ORDERS, *, name: str = "orders", event_time: bool = False, **hints: object) -> Scan:
    mark = None
    if event_time:
        mark = WatermarkSpec(WatermarkKind.BOUNDED, bind_expression("ts", schema), 5_000, column="ts")
    return Scan(
        schema=schema,
        hints=NodeHints(name=name, **hints),  # type: ignore[arg-type]
        table=TableReference(name, "datagen", {}),
        physical=schema,
        projections=tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(schema)),
        watermark=mark,
    )


def calc(node: PlanNode, *select: str, where: str | None = None, name: str = "calc", **hints: object) -> Calc:
    entries = projections(node, *(select or ("*",)))
    return Calc(
        schema=Schema(tuple(Field(n, e.type) for n, e in entries)),
        hints=NodeHints(name=name, **hints),  # type: ignore[arg-type]
        input=node,
        projections=tuple(e for _, e in entries),
        condition=bind_predicate(where, node.schema) if where else None,
    )


def aggregate_calls(node: PlanNode, *aggregates: str) -> tuple[AggregateCall, ...]:
    """The calls of aggregates over the rows of a node, named as they are after AS."""
    if not aggregates:
        return ()
    group = selected(node, aggregates).node
    assert isinstance(group, GroupAggregate)
    return group.aggregates


def projections(node: PlanNode, *select: str) -> list[tuple[str, Expression]]:
    """Names and expressions of a select list over the rows of a node."""
    bound = selected(node, select)
    if isinstance(bound.node, Calc) and bound.node is not node:
        columns = bound.node.projections
    else:
        columns = tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(node.schema))
    return list(zip(bound.names, columns, strict=True))


def selected(node: PlanNode, select: Sequence[str]) -> BoundQuery:
    """The query of a select list over the rows of a node."""
    text = f"SELECT {', '.join(select)} FROM t"
    context = QueryContext("t", SourceText("t.sql", text), Diagnostics(), no_scan)
    return bind_query(text, 0, Catalog({"t": CatalogView("t", node)}), context)


def no_scan(table: object, span: object) -> NoReturn:
    raise AssertionError(f"{table} is no table of a script")


def window(
    node: PlanNode,
    *aggregates: str,
    keys: tuple[str, ...] = (),
    of: WindowSpec | None = None,
    name: str = "window",
    late: str | None = None,
    **hints: object,
) -> WindowAggregate:
    positions = tuple(node.schema.index(k) for k in keys)
    spec = of or TumblingWindow(60_000)
    calls = aggregate_calls(node, *aggregates)
    return WindowAggregate(
        schema=window_aggregate_schema(node.schema, positions, spec, calls),
        hints=NodeHints(name=name, **hints),  # type: ignore[arg-type]
        input=node,
        keys=positions,
        window=spec,
        aggregates=calls,
        late_tag=late,
        null_keys=NullKeys.FAIL,
    )


def sink(node: PlanNode, name: str = "out") -> Sink:
    return Sink(schema=node.schema, hints=NodeHints(name=name), input=node, table=TableReference(name, "blackhole", {}))


def plan(*nodes: PlanNode, settings: Settings | None = None) -> Plan:
    sinks = tuple(n if isinstance(n, Sink) else sink(n, f"out{i or ''}") for i, n in enumerate(nodes))
    return Plan("test", sinks, settings or Settings())
