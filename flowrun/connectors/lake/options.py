"""Options that sinks of all lake tables have."""

from __future__ import annotations

from flowrun.core.options import Option, OptionType

SINK_OPTIONS = (
    Option(
        "sink.rolling-policy.file-size",
        OptionType.MEMORY,
        "A data file that has reached this size is closed and the next one begun; each checkpoint closes all of them.",
        default=128 << 20,
        minimum=1,
    ),
    Option(
        "sink.rolling-policy.rollover-interval",
        OptionType.DURATION,
        "How often a job commits that takes no checkpoints and does not end.",
        default=60_000,
        minimum=1,
    ),
    Option(
        "parquet.compression",
        OptionType.ENUM,
        "How data files are compressed.",
        default="zstd",
        choices=("zstd", "snappy", "gzip", "lz4", "none"),
    ),
)
