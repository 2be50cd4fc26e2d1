"""The document's settings as the plan's."""

from __future__ import annotations

from typing import TypeVar

from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.yaml.spec import Section
from flowrun.plan.nodes import CheckpointSettings, RestartSettings, Settings

T = TypeVar("T")


def read_settings(section: Section | None, diagnostics: Diagnostics) -> Settings:
    """Settings with defaults for what is absent; reports settings that contradict each other or have no effect yet."""
    if section is None:
        return Settings()
    default = Settings()
    parallelism = section.integer("parallelism") or default.parallelism
    max_parallelism = section.integer("max_parallelism")
    if max_parallelism is not None and max_parallelism < parallelism:
        diagnostics.error(
            f"'max_parallelism' ({max_parallelism}) is less than 'parallelism' ({parallelism})",
            section.value_at("max_parallelism"),
        )
    for key in ("checkpoint", "restart"):
        if section.has(key):
            diagnostics.warning(
                f"'{key}' is not in effect yet in this version: a failed job ends",
                section.at(key),
                hint="the rest runs as written",
            )
    return Settings(
        parallelism=parallelism,
        max_parallelism=max_parallelism,
        buffer_timeout_ms=_or(section.integer("buffer_timeout"), default.buffer_timeout_ms),
        object_reuse=_or(section.flag("object_reuse"), default.object_reuse),
        chaining=_or(section.flag("chaining"), default.chaining),
        mode=section.text("mode") or default.mode,
        batch_rows=section.integer("batch_rows") or default.batch_rows,
        latency_interval_ms=section.integer("latency_interval"),
        local_aggregation=_or(section.flag("local_aggregation"), default.local_aggregation),
        checkpoint=_checkpoint(section.section("checkpoint")),
        restart=_restart(section.section("restart")),
    )


def _or(value: T | None, default: T) -> T:
    return default if value is None else value


def _checkpoint(section: Section | None) -> CheckpointSettings | None:
    interval = None if section is None else section.integer("interval")
    if section is None or interval is None:
        return None
    default = CheckpointSettings(interval)
    return CheckpointSettings(
        interval_ms=interval,
        mode=section.text("mode") or default.mode,
        directory=section.text("dir"),
        retain=section.integer("retain") or default.retain,
        unaligned=bool(section.flag("unaligned")),
        timeout_ms=section.integer("timeout") or default.timeout_ms,
        min_pause_ms=section.integer("min_pause") or 0,
    )


def _restart(section: Section | None) -> RestartSettings | None:
    if section is None:
        return None
    default = RestartSettings(section.variant)
    return RestartSettings(
        strategy=section.variant,
        attempts=section.integer("attempts") or default.attempts,
        delay_ms=_or(section.integer("delay"), default.delay_ms),
        max_failures=section.integer("max_failures") or default.max_failures,
        interval_ms=section.integer("interval") or default.interval_ms,
        initial_delay_ms=section.integer("initial_delay") or default.initial_delay_ms,
        max_delay_ms=section.integer("max_delay") or default.max_delay_ms,
        multiplier=section.number("multiplier") or default.multiplier,
    )
