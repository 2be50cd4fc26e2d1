"""The process function of the recovery matrix: every kind of state, and timers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flowrun.api.process_function import (
    KeyedProcessContext,
    KeyedProcessFunction,
    list_state,
    map_state,
    value_state,
)

QUIET_MS = 400


class Alerts(KeyedProcessFunction):
    """A row whenever a key was quiet for a while, and for every tenth row of it."""

    n = value_state("BIGINT")
    due = value_state("BIGINT")
    values = list_state("BIGINT")
    by_digit = map_state("BIGINT", "BIGINT")

    def process_element(self, row: dict[str, Any], context: KeyedProcessContext) -> Iterator[dict[str, Any]]:
        """Count, and move the timer."""
        n = (self.n.value() or 0) + 1
        self.n.update(n)
        self.values.add(row["v"])
        digit = row["v"] % 10
        self.by_digit.put(digit, (self.by_digit.get(digit) or 0) + 1)
        if self.due.value() is not None:
            context.delete_event_time_timer(self.due.value())
        due = (context.timestamp or 0) + QUIET_MS
        context.register_event_time_timer(due)
        self.due.update(due)
        if n % 10 == 0:
            yield {"k": row["k"], "n": n, "total": sum(self.values.get()), "at": context.timestamp}

    def on_timer(self, timestamp: int, context: KeyedProcessContext) -> Iterator[dict[str, Any]]:
        """The key was quiet: report and forget its values."""
        most = max(count for _, count in self.by_digit.items())
        yield {"k": context.current_key[0], "n": most, "total": sum(self.values.get()), "at": timestamp}
        self.values.clear()
        self.by_digit.clear()
        self.due.clear()
        self.by_digit.put(0, 0)


class Quiet(KeyedProcessFunction):
    """One row a key when it was quiet for five seconds; keeps every kind of state. Kept savepoints hold it: it must not change."""

    n = value_state("BIGINT")
    due = value_state("BIGINT")
    values = list_state("BIGINT")
    by_digit = map_state("BIGINT", "BIGINT")

    def process_element(self, row: dict[str, Any], context: KeyedProcessContext) -> None:
        """Count, and move the timer."""
        self.n.update((self.n.value() or 0) + 1)
        self.values.add(row["n"])
        digit = row["n"] % 10
        self.by_digit.put(digit, (self.by_digit.get(digit) or 0) + 1)
        if self.due.value() is not None:
            context.delete_event_time_timer(self.due.value())
        due = (context.timestamp or 0) + 5_000
        context.register_event_time_timer(due)
        self.due.update(due)

    def on_timer(self, timestamp: int, context: KeyedProcessContext) -> Iterator[dict[str, Any]]:
        """Report what is known of the key."""
        most = max(count for _, count in self.by_digit.items())
        total = sum(self.values.get()) + most
        yield {"k": context.current_key[0], "n": self.n.value(), "total": total, "at": timestamp}
