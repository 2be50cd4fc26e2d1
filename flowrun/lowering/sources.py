"""Scans as sources: the connector's, with the watermarks and the projection that the plan asks for."""

from __future__ import annotations

from dataclasses import replace

from flowrun.api.functions import ColumnsFunction
from flowrun.api.source import Source
from flowrun.errors import Diagnostic, OptionError, PipelineError
from flowrun.graph.transformation import SourceTransformation
from flowrun.operators.factories import SourceOperatorFactory
from flowrun.operators.watermark_strategy import WatermarkStrategy
from flowrun.plan.compiled import Projection, Value
from flowrun.plan.expressions import ColumnRef
from flowrun.plan.nodes import Calc, Scan, Settings, WatermarkKind, WatermarkSpec
from flowrun.plan.row_errors import decoding_of, row_errors_of
from flowrun.plan.tables import create_source


def source_of(node: Scan) -> Source:
    """The connector's source, made without I/O.

    Raises:
        PipelineError: the table's options do not fit after all.
    """
    try:
        return create_source(node.table, node.physical, node.declared, node.filters)
    except OptionError as error:
        problem = Diagnostic(
            f"source '{node.table.name}': {error.message}", location=node.hints.location, hint=error.hint
        )
        raise PipelineError([problem]) from error


def lower_scan(node: Scan, source: Source, settings: Settings) -> SourceTransformation:
    """A source operator around the source of the scan."""
    name = node.hints.name or type(node).__name__
    factory = SourceOperatorFactory(
        source=source,
        strategy=_watermark_strategy(node.watermark),
        projection=changing_projection(node, node.physical.names),
        batch_rows=settings.batch_rows,
        name=name,
        errors=row_errors_of(node, settings),
        decoding=decoding_of(node, settings),
        letter_limit=node.hints.letter_limit or settings.letter_limit,
    )
    return SourceTransformation(name=f"Source: {name}", schema=node.schema, factory=factory, source=source)


def changing_projection(node: Scan | Calc, names: tuple[str, ...]) -> ColumnsFunction | None:
    """The node's projection; None if columns and names stay as they are, and what may be NULL (of upserts more than in their table)."""
    same_nulls = not isinstance(node, Scan) or node.physical.arrow.equals(node.schema.arrow)
    unchanged = (
        same_nulls
        and names == node.schema.names
        and all(isinstance(p, ColumnRef) and p.index == i for i, p in enumerate(node.projections))
    )
    return None if unchanged else Projection(node.projections, node.schema)


def _watermark_strategy(spec: WatermarkSpec | None) -> WatermarkStrategy | None:
    """The strategy; None without a specification: the source itself may then know its event time."""
    if spec is None:
        return None
    strategy = _generator(spec)
    if spec.emit is None:
        return strategy
    return replace(strategy, emit=spec.emit, emit_interval_ms=spec.emit_interval_ms)


def _generator(spec: WatermarkSpec) -> WatermarkStrategy:
    time = Value(spec.time)
    column = spec.column or str(spec.time)
    match spec.kind:
        case WatermarkKind.BOUNDED:
            return WatermarkStrategy.bounded(spec.delay_ms, time, column=column, idle_timeout_ms=spec.idle_timeout_ms)
        case WatermarkKind.MONOTONOUS:
            return WatermarkStrategy.monotonous(
                time,
                column=column,
                on_disorder=spec.on_disorder,
                idle_timeout_ms=spec.idle_timeout_ms,
            )
        case WatermarkKind.PUNCTUATED if spec.punctuation is not None:
            return WatermarkStrategy.punctuated(
                Value(spec.punctuation), time, column=column, idle_timeout_ms=spec.idle_timeout_ms
            )
        case WatermarkKind.SOURCE:
            return WatermarkStrategy.from_source(time, column=column, idle_timeout_ms=spec.idle_timeout_ms)
        case _:
            return WatermarkStrategy.none(time, column=column)
