"""The settings of a pipeline as its graphs and its runtime take them."""

from __future__ import annotations

from flowrun.graph.job_graph import JobSettings
from flowrun.graph.stream_graph import ExecutionMode, GraphSettings
from flowrun.plan.nodes import NodeHints, Settings


def graph_settings(settings: Settings) -> GraphSettings:
    """The settings of a pipeline that shape its graphs and its runtime."""
    return GraphSettings(
        parallelism=settings.parallelism,
        max_parallelism=settings.max_parallelism,
        chaining=settings.chaining,
        mode=ExecutionMode(settings.embedded_mode),
        job=JobSettings(
            buffer_timeout_ms=settings.buffer_timeout_ms,
            object_reuse=settings.object_reuse,
            batch_rows=settings.batch_rows,
            latency_interval_ms=settings.latency_interval_ms,
            cancellation_timeout_ms=settings.cancellation_timeout_ms,
            memory_watch=settings.memory_watch,
            traces=settings.traces,
            checkpoint=settings.checkpoint,
            restart=settings.restart,
            slots=settings.slots,
        ),
        slot_sharing_groups=settings.slot_sharing_groups,
    )


def state_ttl_ms(hints: NodeHints, settings: Settings, input: int = 0) -> int:
    """How long what a node keeps of one of its inputs lives, ms; 0: for ever. What the user said of the node comes before the settings.

    >>> state_ttl_ms(NodeHints(state_ttl_ms=(None, 5)), Settings(state_ttl_ms=9), 1)
    5
    """
    own = hints.state_ttl_ms[input] if hints.state_ttl_ms else None
    return settings.state_ttl_ms if own is None else own
