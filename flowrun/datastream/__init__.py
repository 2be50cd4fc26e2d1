"""Programmatic API: streams built in Python become the same transformations that YAML and SQL become."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from flowrun.core.resources import ResourceSpec, SlotSharingGroup
from flowrun.core.row_errors import OnError
from flowrun.datastream.connected import ConnectedStreams, MultipleConnectedStreams
from flowrun.datastream.environment import StreamExecutionEnvironment
from flowrun.datastream.functions import ColumnValue
from flowrun.datastream.schemas import SchemaLike
from flowrun.datastream.settings import DataStreamSink
from flowrun.datastream.stream import (
    DataStream,
    IterativeStream,
    KeyedStream,
)
from flowrun.datastream.watermarks import WatermarkGenerator
from flowrun.datastream.windowed import WindowedStream
from flowrun.datastream.windows import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountTrigger,
    CumulativeEventTimeWindows,
    DeltaEvictor,
    DeltaTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    PurgingTrigger,
    SessionGap,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeEvictor,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from flowrun.operators.watermark_strategy import WatermarkStrategy

if TYPE_CHECKING:
    from flowrun.datastream.async_io import AsyncDataStream

__all__ = [
    "AsyncDataStream",
    "ColumnValue",
    "ConnectedStreams",
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountEvictor",
    "CountTrigger",
    "CumulativeEventTimeWindows",
    "DataStream",
    "DataStreamSink",
    "DeltaEvictor",
    "DeltaTrigger",
    "EventTimeSessionWindows",
    "EventTimeTrigger",
    "GlobalWindows",
    "IterativeStream",
    "KeyedStream",
    "MultipleConnectedStreams",
    "OnError",
    "ProcessingTimeSessionWindows",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "ResourceSpec",
    "SchemaLike",
    "SessionGap",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "SlotSharingGroup",
    "StreamExecutionEnvironment",
    "TimeEvictor",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "WatermarkGenerator",
    "WatermarkStrategy",
    "WindowedStream",
]


def __getattr__(name: str) -> object:
    """What few programs need, imported when it is first asked for."""
    if name == "AsyncDataStream":
        return import_module("flowrun.datastream.async_io").AsyncDataStream
    raise AttributeError(f"module 'flowrun.datastream' has no attribute '{name}'")
