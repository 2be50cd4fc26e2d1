"""Functions for tests; most do one thing."""

from __future__ import annotations

import decimal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from flowrun.api.process_function import (
    KeyedProcessContext,
    KeyedProcessFunction,
    ListState,
    MapState,
    ProcessFunction,
    ValueState,
    list_state,
    map_state,
    operator_state,
    reducing_state,
    value_state,
)


class Counter(KeyedProcessFunction):
    count = value_state("BIGINT")

    def process_element(self, row, context):
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        return {"k": row["k"], "n": count}


class BatchCounter(KeyedProcessFunction):
    count = value_state("BIGINT")

    def process_batch(self, batch, context):
        before = self.count.numpy(default=0)
        self.count.update(before + np.bincount(context.key_index, minlength=context.num_keys))
        numbers = before[context.key_index] + context.occurrences + 1
        return pa.record_batch({"k": batch.column("k"), "n": numbers})


class Counter32(Counter):
    count = value_state("INT")


class RenamedCounter(Counter):
    count = value_state("BIGINT", name="counts")


class Lifecycle(KeyedProcessFunction):
    calls: ClassVar[list[str]] = []
    seen = value_state("BIGINT", ttl="1m")

    def __init__(self, names=()):
        self.names = names

    def open(self, context):
        self.calls.append(f"open {context.subtask}/{context.parallelism} {context.state('seen') is self.seen}")

    def process_element(self, row, context):
        self.calls.append(f"row {row['k']}")

    def close(self):
        self.calls.append("close")


class Router(ProcessFunction):
    """Even to the main output, odd to `odd`, without keys."""

    def process_element(self, row, context):
        if row["n"] % 2:
            context.side_output("odd", {"n": row["n"]}, context.timestamp and context.timestamp + 1)
        else:
            context.collect(row)


class BatchRouter(ProcessFunction):
    def process_batch(self, batch, context):
        odd = np.flatnonzero(batch.column("n").to_numpy() % 2)
        even = np.flatnonzero(batch.column("n").to_numpy() % 2 == 0)
        times = None if context.timestamps is None else context.timestamps.to_numpy()[odd] + 1
        context.side_output("odd", batch.select(["n"]).take(pa.array(odd)), odd, times)
        return batch.take(pa.array(even)), even


class Alarm(KeyedProcessFunction):
    """A timer in each time domain, `n` ms from now."""

    def process_element(self, row, context):
        if context.timestamp is not None:
            context.register_event_time_timer(context.timestamp + row["n"])
        context.register_processing_time_timer(context.processing_time + row["n"])

    def on_timer(self, timestamp, context):
        yield {"k": context.current_key[0], "n": timestamp}


class BatchAlarm(KeyedProcessFunction):
    def process_batch(self, batch, context):
        last = batch.column("n").to_numpy()[context.last_rows]
        if context.timestamps is not None:
            context.register_event_time_timers(context.timestamps.to_numpy()[context.last_rows] + last)
        context.register_processing_time_timers(context.processing_time + last)

    def on_timers(self, timestamps, context):
        return pa.record_batch({"k": context.keys.column(0), "n": timestamps})


class Chatty(KeyedProcessFunction):
    """Answers with whatever `value` says."""

    def __init__(self, value):
        self.value = value

    def process_element(self, row, context):
        return self.value


class BatchChatty(KeyedProcessFunction):
    def __init__(self, value):
        self.value = value

    def process_batch(self, batch, context):
        return eval(self.value, {"pa": pa, "batch": batch, "np": np})


class Raising(KeyedProcessFunction):
    def process_element(self, row, context):
        return {"k": row["k"], "n": 10 // row["n"]}


class BatchRaising(KeyedProcessFunction):
    def process_batch(self, batch, context):
        raise ValueError("no")


class Storing(KeyedProcessFunction):
    """Stores values of the wrong type."""

    number = value_state("BIGINT")
    price = value_state("DECIMAL(5, 2)")
    short = value_state("TINYINT")
    names = list_state("STRING")
    pairs = map_state("STRING", "BIGINT")

    def __init__(self, what):
        self.what = what

    def process_element(self, row, context):
        match self.what:
            case "text":
                self.number.update("five")
            case "float":
                self.number.update(5.0)
            case "big":
                self.short.update(128)
            case "digits":
                self.price.update(decimal.Decimal("1.234"))
            case "element":
                self.names.add(3)
            case "key":
                self.pairs.put(3, 3)
            case "null key":
                self.pairs.put(None, 3)
            case "timer":
                context.register_event_time_timer(5)


class BatchStoring(KeyedProcessFunction):
    number = value_state("BIGINT")
    names = value_state("STRING")
    lists = list_state("BIGINT")
    pairs = map_state("STRING", "BIGINT")
    low = reducing_state("min", "BIGINT")

    def __init__(self, what):
        self.what = what

    def process_batch(self, batch, context):
        match self.what:
            case "text":
                self.number.update(["five"] * context.num_keys)
            case "too few":
                self.number.update(np.zeros(0, np.int64))
            case "floats":
                self.number.update(np.full(context.num_keys, 0.5))
            case "scalar":
                self.number.update(5)
            case "position":
                self.number.update([1], [context.num_keys])
            case "mask":
                self.number.update([1], np.array([0.5]))
            case "numpy":
                self.names.numpy("")
            case "null key":
                self.pairs.put(pa.nulls(batch.num_rows, pa.string()), batch.column("n"))
            case "timer":
                context.register_event_time_timers(batch.column("n").take(pa.array(context.last_rows)))


class SubtaskLog(KeyedProcessFunction):
    """State of the subtask."""

    dealt = operator_state("STRING")
    everywhere = operator_state("BIGINT", redistribution="union")

    def process_element(self, row, context):
        self.dealt.add(row["k"])
        self.everywhere.update([*self.everywhere.get(), row["n"]])
        return {"k": ",".join(self.dealt.get()), "n": sum(self.everywhere.get())}


class Lasting(KeyedProcessFunction):
    """Shows state with a time to live."""

    value = value_state("BIGINT", ttl=100)
    items = list_state("BIGINT", ttl=100)
    pairs = map_state("BIGINT", "BIGINT", ttl=100)

    def process_element(self, row, context):
        n = row["n"]
        if n:
            self.value.update(n)
            self.items.add(n)
            self.pairs.put(n, n)
        return {"k": row["k"], "n": (self.value.value() or 0) * 10_000 + sum(self.items.get()) * 100 + len(self.pairs)}


class BatchLasting(KeyedProcessFunction):
    value = value_state("BIGINT", ttl=100)
    items = list_state("BIGINT", ttl=100)
    pairs = map_state("BIGINT", "BIGINT", ttl=100)

    def process_batch(self, batch, context):
        n = batch.column("n")
        given = np.flatnonzero(n.to_numpy())
        keys, values = context.key_index[given], n.take(pa.array(given))
        self.value.update(values, keys)
        self.items.add(values, keys)
        self.pairs.put(values, values, keys)
        sums = np.array([sum(i or []) for i in self.items.get().to_pylist()])
        lengths = np.bincount(self.pairs.items()[0], minlength=context.num_keys)
        shown = self.value.numpy(0) * 10_000 + sums * 100 + lengths
        return pa.record_batch({"k": batch.column("k"), "n": shown[context.key_index]})


class Neither(KeyedProcessFunction):
    def process_elements(self, row, context):
        return row


class Both(Counter):
    def process_batch(self, batch, context):
        return batch


class Mixed(Counter):
    def on_timers(self, timestamps, context):
        return None


class Narrow(KeyedProcessFunction):
    def process_element(self, row):
        return row


class Asynchronous(KeyedProcessFunction):
    async def process_element(self, row, context):
        return row


class Twins(Counter):
    other = value_state("BIGINT", name="count")


class Reserved(KeyedProcessFunction):
    timers = value_state("BIGINT")

    def process_element(self, row, context):
        return row


class UnkeyedWithState(ProcessFunction):
    count = value_state("BIGINT")

    def process_element(self, row, context):
        return row


class UnkeyedWithTimers(ProcessFunction):
    def process_element(self, row, context):
        return row

    def on_timer(self, timestamp, context):
        return None


class Fragile(KeyedProcessFunction):
    def __init__(self):
        raise OSError("no connection")

    def process_element(self, row, context):
        return row


class Dynamic(KeyedProcessFunction):
    """Declares state when it is made."""

    def __init__(self, names):
        for name in names:
            setattr(self, name, value_state("BIGINT"))

    def process_element(self, row, context):
        self.first.update(row["n"])
        return {"k": row["k"], "n": self.first.value()}


not_a_class = 5


@dataclass
class Seen:
    """What `Typed` keeps."""

    rows: int
    last: int | None = None


@dataclass
class Given:
    """A row of its input."""

    k: str | None
    n: int


class Sent(NamedTuple):
    """A row that it sends."""

    k: str | None
    n: int


class Typed(KeyedProcessFunction):
    """All by annotations: its state, its rows, and what it sends."""

    seen: ValueState[Seen] = value_state()
    values: ListState[int] = list_state()
    counts: MapState[str, Seen] = map_state()

    def process_element(self, row: Given, context: KeyedProcessContext) -> Iterator[Sent]:
        """Sends how many rows there were, and what came last."""
        before = self.seen.value() or Seen(0)
        assert isinstance(before, Seen)
        self.seen.update(Seen(before.rows + 1, row.n))
        self.values.add(row.n)
        self.counts.put(f"{row.n}", Seen(len(self.values.get()), row.n))
        yield Sent(row.k, before.rows + 1)
        kept = self.counts.get(f"{row.n}")
        assert isinstance(kept, Seen)
        if before.last is not None:
            yield Sent(row.k, 100 * before.last + kept.rows)


class Untyped(KeyedProcessFunction):
    """Its state has no type."""

    seen = value_state()

    def process_element(self, row: Any, context: KeyedProcessContext) -> None:
        """Nothing."""


class WronglyTyped(KeyedProcessFunction):
    """Its state has a type that is none of SQL's."""

    seen: ValueState[complex] = value_state()

    def process_element(self, row: Any, context: KeyedProcessContext) -> None:
        """Nothing."""
