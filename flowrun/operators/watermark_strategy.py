"""Watermark strategies: where event time comes from and how far it lags behind the rows; values that a job graph carries."""

from __future__ import annotations

from enum import Enum

from flowrun.api.functions import ValueFunction
from flowrun.core.record import record
from flowrun.core.semantics import OnDisorder, WatermarkEmit


class WatermarkGeneration(Enum):
    """How watermarks follow from rows."""

    BOUNDED = "bounded"
    MONOTONOUS = "monotonous"
    PUNCTUATED = "punctuated"
    INGESTION = "ingestion"
    SOURCE = "source"
    NONE = "none"


EMIT_INTERVAL_MS = 200
"""Flink's default of `pipeline.auto-watermark-interval`, ms."""


@record
class WatermarkStrategy:
    """How rows get event time and what watermarks follow them. Build it with one of the class methods.

    Attributes:
        kind: the generator.
        time: event time of each row, a TIMESTAMP or TIMESTAMP_LTZ array (or int64 ms), over the rows as read; None keeps the
            timestamps that the rows already have.
        column: what messages call the event time, e.g. the column's name.
        delay_ms: bounded: how far rows may be out of order.
        on_disorder: monotonous: what happens to a row out of order.
        watermark: punctuated: the watermark that each row allows, as `time`; NULL allows none.
        idle_timeout_ms: after so much processing time without rows a split (or input) counts as idle; None: never.
        emit: None: by the rule of the DataStream API: what bounded and monotonous watermarks say is 1 ms less, so that further rows of
            the same time are not late, and punctuated ones are sent with their rows. EVENT: the watermark has exactly its value and
            is sent with each row. PERIODIC: between rows it is 1 ms lower than its value, and exact when nothing more has come for
            `emit_interval_ms`.
        emit_interval_ms: of processing time, positive.
    """

    kind: WatermarkGeneration
    time: ValueFunction | None = None
    column: str = "timestamp"
    delay_ms: int = 0
    on_disorder: OnDisorder = OnDisorder.FAIL
    watermark: ValueFunction | None = None
    idle_timeout_ms: int | None = None
    emit: WatermarkEmit | None = None
    emit_interval_ms: int = EMIT_INTERVAL_MS

    def __post_init__(self) -> None:
        if self.delay_ms < 0:
            raise ValueError(f"the delay of a watermark must not be negative, got {self.delay_ms} ms")
        if self.idle_timeout_ms is not None and self.idle_timeout_ms <= 0:
            raise ValueError(f"an idle timeout must be positive, got {self.idle_timeout_ms} ms")
        if self.emit_interval_ms <= 0:
            raise ValueError(f"the interval of watermarks must be positive, got {self.emit_interval_ms} ms")
        if (self.kind is WatermarkGeneration.PUNCTUATED) != (self.watermark is not None):
            raise ValueError("a punctuated strategy, and no other, has a watermark expression")

    @property
    def generates(self) -> bool:
        """Whether watermarks follow from the rows."""
        return self.kind not in (WatermarkGeneration.SOURCE, WatermarkGeneration.NONE)

    @property
    def follows_clock(self) -> bool:
        """Whether event time goes on by itself, as processing time does."""
        return self.kind is WatermarkGeneration.INGESTION

    @property
    def lag_ms(self) -> int:
        """How far the watermark that is sent between rows stays behind what the rows themselves allow."""
        if not self.generates:
            return 0
        if self.kind is WatermarkGeneration.PUNCTUATED:
            return self.held_back_ms
        return self.delay_ms + (0 if self.emit is WatermarkEmit.EVENT else 1)

    @property
    def held_back_ms(self) -> int:
        """How much higher the watermark is that is sent when no more rows come."""
        return 1 if self.emit is WatermarkEmit.PERIODIC else 0

    @classmethod
    def bounded(
        cls,
        delay_ms: int,
        time: ValueFunction | None = None,
        *,
        column: str = "timestamp",
        idle_timeout_ms: int | None = None,
    ) -> WatermarkStrategy:
        """Rows are at most `delay_ms` out of order: the watermark is the greatest event time − delay − 1 ms."""
        return cls(WatermarkGeneration.BOUNDED, time, column, delay_ms, idle_timeout_ms=idle_timeout_ms)

    @classmethod
    def monotonous(
        cls,
        time: ValueFunction | None = None,
        *,
        column: str = "timestamp",
        on_disorder: OnDisorder = OnDisorder.FAIL,
        idle_timeout_ms: int | None = None,
    ) -> WatermarkStrategy:
        """Event time never goes back (equal times are fine): the watermark is the greatest event time − 1 ms."""
        return cls(
            WatermarkGeneration.MONOTONOUS, time, column, on_disorder=on_disorder, idle_timeout_ms=idle_timeout_ms
        )

    @classmethod
    def punctuated(
        cls,
        watermark: ValueFunction,
        time: ValueFunction | None = None,
        *,
        column: str = "timestamp",
        idle_timeout_ms: int | None = None,
    ) -> WatermarkStrategy:
        """Each row says which watermark it allows: SQL's `WATERMARK FOR ts AS expression`."""
        return cls(WatermarkGeneration.PUNCTUATED, time, column, watermark=watermark, idle_timeout_ms=idle_timeout_ms)

    @classmethod
    def ingestion(cls) -> WatermarkStrategy:
        """Event time is the processing time at which a row was read, and goes on without rows every `emit_interval_ms`."""
        return cls(WatermarkGeneration.INGESTION, column="ingestion time")

    @classmethod
    def from_source(
        cls, time: ValueFunction | None = None, *, column: str = "timestamp", idle_timeout_ms: int | None = None
    ) -> WatermarkStrategy:
        """The source itself sends the watermarks: SQL's `WATERMARK FOR ts AS SOURCE_WATERMARK()`."""
        return cls(WatermarkGeneration.SOURCE, time, column, idle_timeout_ms=idle_timeout_ms)

    @classmethod
    def none(cls, time: ValueFunction | None = None, *, column: str = "timestamp") -> WatermarkStrategy:
        """Rows may have event time, but only the source itself, if it does, says how far time has come."""
        return cls(WatermarkGeneration.NONE, time, column)
