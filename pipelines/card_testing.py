"""The process function of `card_testing.yaml`."""

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any

from flowrun.api.process_function import (
    KeyedProcessContext,
    KeyedProcessFunction,
    MapState,
    ValueState,
    map_state,
    value_state,
)


class CardTesting(KeyedProcessFunction):
    """An alert for each large payment whose user paid something small right before: how stolen cards are tried out.

    Rows come out of order, so each waits in `waiting` until event time has reached it; its timer then looks at it.
    """

    waiting: MapState[int, dict[str, Any]] = map_state("BIGINT", "ROW<amount DOUBLE, ts TIMESTAMP(3)>")
    last: ValueState[dict[str, Any]] = value_state("ROW<order_id BIGINT, amount DOUBLE, ts TIMESTAMP(3)>")

    def __init__(self, small: float, large: float, within_seconds: int) -> None:
        self.small, self.large = small, large
        self.within = dt.timedelta(seconds=within_seconds)

    def process_element(self, row: Mapping[str, Any], context: KeyedProcessContext) -> None:
        """Let the payment wait for its time."""
        assert context.timestamp is not None
        if context.timestamp <= context.current_watermark:
            context.side_output("late_payments", row)
            return
        self.waiting.put(row["order_id"], {"amount": row["amount"], "ts": row["ts"]})
        context.register_event_time_timer(context.timestamp)

    def on_timer(self, timestamp: int, context: KeyedProcessContext) -> Iterator[dict[str, Any]]:
        """Compare payments with those before them; forget the last one when it is too old to matter."""
        now = dt.datetime.fromtimestamp(timestamp / 1000, dt.UTC).replace(tzinfo=None)
        due = sorted((p["ts"], order_id, p["amount"]) for order_id, p in self.waiting.items() if p["ts"] <= now)
        for ts, order_id, amount in due:
            self.waiting.remove(order_id)
            before = self.last.value()
            if before and before["amount"] < self.small and amount > self.large and ts - before["ts"] <= self.within:
                yield {
                    "user_id": context.current_key[0],
                    "tried": before["order_id"],
                    "order_id": order_id,
                    "amount": amount,
                    "ts": ts,
                }
            self.last.update({"order_id": order_id, "amount": amount, "ts": ts})
            context.register_event_time_timer(timestamp + round(self.within.total_seconds() * 1000) + 1)
        before = self.last.value()
        if before and now - before["ts"] > self.within:
            self.last.clear()
