"""Functions of two streams that give the same rows however the rows of both streams are mixed: results wait for event time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from flowrun.api.broadcast_function import BroadcastProcessFunction, KeyedBroadcastProcessFunction, broadcast_state
from flowrun.api.co_process_function import CoFlatMapFunction, CoMapFunction, KeyedCoProcessFunction
from flowrun.api.process_function import map_state

PRICED = pa.schema({"k": pa.string(), "id": pa.int64(), "rate": pa.int64()})


class Priced(KeyedCoProcessFunction):
    """Each order with the newest rate of its key that is not younger than it; orders without a rate go to `unpriced`.

    Orders with the id `bad` fail, and rates of that value.
    """

    orders = map_state("BIGINT", "BIGINT")
    rates = map_state("BIGINT", "BIGINT")

    def __init__(self, bad: int = -1) -> None:
        self.bad = bad

    def process_element1(self, row: dict[str, Any], context: Any) -> None:
        if row["id"] == self.bad:
            raise ValueError(f"order {self.bad} is bad")
        self.orders.put(row["id"], context.timestamp)
        context.register_event_time_timer(context.timestamp)

    def process_element2(self, row: dict[str, Any], context: Any) -> None:
        if row["rate"] == self.bad:
            raise ValueError(f"rate {self.bad} is bad")
        self.rates.put(context.timestamp, max(row["rate"], self.rates.get(context.timestamp) or 0))

    def on_timer(self, timestamp: int, context: Any) -> Iterator[dict[str, Any]]:
        known = [time for time, _ in self.rates.items() if time <= timestamp]
        rate = self.rates.get(max(known)) if known else None
        for id, time in list(self.orders.items()):
            if time == timestamp:
                self.orders.remove(id)
                priced = {"k": context.current_key[0], "id": id, "rate": rate}
                if rate is None:
                    context.side_output("unpriced", priced)
                else:
                    yield priced


class PricedBatches(KeyedCoProcessFunction):
    """The same by batch; orders without a rate are dropped."""

    orders = map_state("BIGINT", "BIGINT")
    rates = map_state("BIGINT", "BIGINT")

    def process_batch1(self, batch: pa.RecordBatch, context: Any) -> None:
        self.orders.put(batch["id"], context.timestamps)
        context.register_event_time_timers(context.timestamps, keys=context.key_index)

    def process_batch2(self, batch: pa.RecordBatch, context: Any) -> None:
        self.rates.put(context.timestamps, batch["rate"])

    def on_timers(self, timestamps: pa.Array, context: Any) -> tuple[pa.RecordBatch, list[int]]:
        due, names = timestamps.to_pylist(), context.keys.column(0).to_pylist()
        newest: dict[int, tuple[int, int]] = {}
        for key, time, rate in zip(*map(list, self.rates.items()), strict=True):
            if time.as_py() <= due[key]:
                newest[key] = max(newest.get(key, (0, 0)), (time.as_py(), rate.as_py()))
        orders = [
            (k, i.as_py()) for k, i, t in zip(*map(list, self.orders.items()), strict=True) if t.as_py() == due[k]
        ]
        self.orders.remove([i for _, i in orders], keys=[k for k, _ in orders])
        sent = [(k, i) for k, i in orders if k in newest]
        rows = [{"k": names[k], "id": i, "rate": newest[k][1]} for k, i in sent]
        return pa.RecordBatch.from_pylist(rows, schema=PRICED), [k for k, _ in sent]


class Tagged(CoMapFunction):
    """Rows of either stream with the name of the stream."""

    def map1(self, row: dict[str, Any]) -> dict[str, Any]:
        return {"k": row["k"], "n": row["id"], "stream": "orders"}

    def map2(self, row: dict[str, Any]) -> dict[str, Any]:
        return {"k": row["k"], "n": row["rate"], "stream": "rates"}


class Repeated(CoFlatMapFunction):
    """Rows of the first stream twice, those of the second not at all; by batch."""

    def flat_map_batch1(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, np.ndarray]:
        rows = np.repeat(np.arange(batch.num_rows), 2)
        return batch.select(["k", "id"]).take(pa.array(rows)), rows

    def flat_map_batch2(self, batch: pa.RecordBatch) -> None:
        return None


class PricedByAll(KeyedBroadcastProcessFunction):
    """Each order with the newest rate that is not younger than it, whatever its key; orders without a rate go to `unpriced`.

    Orders with the id `bad` fail, and rates of that value.
    """

    rates = broadcast_state("BIGINT", "BIGINT")
    orders = map_state("BIGINT", "BIGINT")

    def __init__(self, bad: int = -1) -> None:
        self.bad = bad

    def process_element(self, row: dict[str, Any], context: Any) -> None:
        if row["id"] == self.bad:
            raise ValueError(f"order {self.bad} is bad")
        self.orders.put(row["id"], context.timestamp)
        context.register_event_time_timer(context.timestamp)

    def process_broadcast_element(self, row: dict[str, Any], context: Any) -> None:
        if row["rate"] == self.bad:
            raise ValueError(f"rate {self.bad} is bad")
        self.rates.put(context.timestamp, max(row["rate"], self.rates.get(context.timestamp) or 0))

    def on_timer(self, timestamp: int, context: Any) -> Iterator[dict[str, Any]]:
        known = [time for time, _ in self.rates.items() if time <= timestamp]
        rate = self.rates.get(max(known)) if known else None
        for id, time in list(self.orders.items()):
            if time == timestamp:
                self.orders.remove(id)
                priced = {"k": context.current_key[0], "id": id, "rate": rate}
                if rate is None:
                    context.side_output("unpriced", priced)
                else:
                    yield priced


class PricedByAllBatches(KeyedBroadcastProcessFunction):
    """The same by batch; orders without a rate are dropped. No two rates have the same time."""

    rates = broadcast_state("BIGINT", "BIGINT")
    orders = map_state("BIGINT", "BIGINT")

    def process_batch(self, batch: pa.RecordBatch, context: Any) -> None:
        self.orders.put(batch["id"], context.timestamps)
        context.register_event_time_timers(context.timestamps, keys=context.key_index)

    def process_broadcast_batch(self, batch: pa.RecordBatch, context: Any) -> None:
        self.rates.put(context.timestamps, batch["rate"])

    def on_timers(self, timestamps: pa.Array, context: Any) -> tuple[pa.RecordBatch, list[int]]:
        due, names = timestamps.to_pylist(), context.keys.column(0).to_pylist()
        rates = sorted(zip(*(column.to_pylist() for column in self.rates.items()), strict=True))
        orders = [
            (k, i.as_py()) for k, i, t in zip(*map(list, self.orders.items()), strict=True) if t.as_py() == due[k]
        ]
        self.orders.remove([i for _, i in orders], keys=[k for k, _ in orders])
        priced = [(k, i, [rate for time, rate in rates if time <= due[k]]) for k, i in orders]
        rows = [{"k": names[k], "id": i, "rate": known[-1]} for k, i, known in priced if known]
        return pa.RecordBatch.from_pylist(rows, schema=PRICED), [k for k, _, known in priced if known]


class Told(BroadcastProcessFunction):
    """Orders as they come; each subtask tells each rate to `told`."""

    rates = broadcast_state("BIGINT", "STRING")

    def process_element(self, row: dict[str, Any], context: Any) -> Iterator[dict[str, Any]]:
        yield {"k": row["k"], "id": row["id"]}

    def process_broadcast_element(self, row: dict[str, Any], context: Any) -> None:
        self.rates.put(row["rate"], row["name"] or "")
        context.side_output("told", {"k": row["name"], "id": len(self.rates)})
