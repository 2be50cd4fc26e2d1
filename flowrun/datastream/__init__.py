"""Programmatic API: streams built in Python become the same transformations that YAML and SQL become."""

from flowrun.core.row_errors import OnError
from flowrun.datastream.connected import ConnectedStreams
from flowrun.datastream.environment import StreamExecutionEnvironment
from flowrun.datastream.functions import ColumnValue
from flowrun.datastream.stream import (
    DataStream,
    DataStreamSink,
    IterativeStream,
    KeyedStream,
)
from flowrun.datastream.window_aggregation import SessionGap
from flowrun.datastream.windowed import WindowedStream

__all__ = [
    "ColumnValue",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "IterativeStream",
    "KeyedStream",
    "OnError",
    "SessionGap",
    "StreamExecutionEnvironment",
    "WindowedStream",
]
