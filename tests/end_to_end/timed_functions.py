"""Process functions whose results tell when each timer fired, among which rows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from flowrun.api.process_function import (
    KeyedProcessContext,
    KeyedProcessFunction,
    OpenContext,
    ProcessContext,
    ProcessFunction,
    ValueState,
    value_state,
)


class Diary(KeyedProcessFunction):
    """Tells of each row, and of each timer, how many rows of the key came before, and the watermark. Rows set and delete timers."""

    seen: ValueState[int] = value_state("BIGINT")

    def process_element(self, row: Mapping[str, Any], context: KeyedProcessContext) -> Mapping[str, Any]:
        """Set a timer `wait` ms after the row; `wait` below 0 deletes one."""
        assert context.timestamp is not None
        seen = (self.seen.value() or 0) + 1
        self.seen.update(seen)
        if row["wait"] >= 0:
            context.register_event_time_timer(context.timestamp + row["wait"])
        else:
            context.delete_event_time_timer(context.timestamp - row["wait"])
        return {
            "k": row["k"],
            "what": "row",
            "at": context.timestamp,
            "seen": seen,
            "watermark": context.current_watermark,
        }

    def on_timer(self, timestamp: int, context: KeyedProcessContext) -> Iterator[dict[str, Any]]:
        """Tell, and set another one at times that 7 divides."""
        if timestamp % 7 == 0:
            context.register_event_time_timer(timestamp + 3)
        yield {
            "k": context.current_key[0],
            "what": "timer",
            "at": timestamp,
            "seen": self.seen.value(),
            "watermark": context.current_watermark,
        }


class SlowToOpen(ProcessFunction):
    """Passes rows on; all subtasks but the first take their time before they begin."""

    def open(self, context: OpenContext) -> None:
        """Wait."""
        if context.subtask:
            time.sleep(0.15)

    def process_element(self, row: Mapping[str, Any], context: ProcessContext) -> Mapping[str, Any]:
        """Pass it on."""
        return {"k": row["k"], "wait": row["wait"]}
