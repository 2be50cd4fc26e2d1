"""Watermark specifications of a plan as strategies of source operators."""

from __future__ import annotations

from dataclasses import replace

from flowrun.operators.watermark_strategy import WatermarkStrategy
from flowrun.plan.compiled import Value
from flowrun.plan.nodes import WatermarkKind, WatermarkSpec


def watermark_strategy(spec: WatermarkSpec | None) -> WatermarkStrategy | None:
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
