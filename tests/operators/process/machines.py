"""One small machine as a function on rows, as a function on batches, and as a plain model: every row is a command to its key's state.

Commands: see `COMMANDS`. `show` sends everything that the key has; a timer that fires shows too, after adding its time to the list, and
registers another one if the value is odd.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.co_process_function import KeyedCoProcessFunction
from flowrun.api.process_function import (
    KeyedProcessFunction,
    TimeToLive,
    TtlUpdate,
    aggregating_state,
    list_state,
    map_state,
    reducing_state,
    value_state,
)
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING, array

COMMANDS = (
    "set", "unset", "brief", "append", "empty", "replace", "put", "remove", "forget", "add", "zero", "count", "text",
    "event", "no_event", "processing", "no_processing", "show",
)  # fmt: skip
VALUE_TTL, MAP_TTL = 40, 60
COLUMNS = Schema.of(command=STRING, m=BIGINT, v=BIGINT)
SHOWN = Schema.of(
    why=STRING, value=BIGINT, brief=BIGINT, items=array(BIGINT), entries=array(BIGINT), total=BIGINT, mean=BIGINT, text=STRING
)  # fmt: skip


class Mean:
    """Of whole numbers, rounded down; the accumulator is [sum, count]."""

    def create_accumulator(self):
        return {"sum": 0, "n": 0}

    def add(self, value, accumulator):
        return {"sum": accumulator["sum"] + value, "n": accumulator["n"] + 1}

    def merge(self, left, right):
        return {"sum": left["sum"] + right["sum"], "n": left["n"] + right["n"]}

    def get_result(self, accumulator):
        return accumulator["sum"] // accumulator["n"]


class MeanOfColumns(Mean):
    """The same over columns."""

    def add(self, values, accumulators):
        sums, counts = accumulators.flatten()
        return self._both(pc.add(sums, values), pc.add(counts, 1))

    def merge(self, left, right):
        return self._both(*(pc.add(a, b) for a, b in zip(left.flatten(), right.flatten(), strict=True)))

    def get_result(self, accumulators):
        sums, counts = (c.to_numpy() for c in accumulators.flatten())
        return pa.array(sums // counts)

    def _both(self, sums, counts):
        return pa.StructArray.from_arrays([sums, counts], names=["sum", "n"])


ACCUMULATOR = "ROW<`sum` BIGINT, n BIGINT>"
READ_TOO = TimeToLive(MAP_TTL, TtlUpdate.ON_READ_AND_WRITE)


class RowCommands:
    """On rows."""

    value = value_state("BIGINT")
    brief = value_state("BIGINT", ttl=VALUE_TTL)
    items = list_state("BIGINT")
    entries = map_state("BIGINT", "BIGINT", ttl=READ_TOO)
    total = reducing_state("sum", "BIGINT")
    mean = aggregating_state(Mean(), ACCUMULATOR)
    text = value_state("STRING")

    def process_element(self, row, context):
        v, m = row["v"], row["m"]
        match row["command"]:
            case "set":
                self.value.update(v)
            case "unset":
                self.value.clear()
            case "brief":
                self.brief.update(v)
            case "append":
                self.items.add(v)
            case "empty":
                self.items.clear()
            case "replace":
                self.items.update([m, v])
            case "put":
                self.entries.put(m, v)
            case "remove":
                self.entries.remove(m)
            case "forget":
                self.entries.clear()
            case "add":
                self.total.add(v)
            case "zero":
                self.total.clear()
                self.mean.clear()
            case "count":
                self.mean.add(v)
            case "text":
                self.text.update(f"t{v}" if m else None)
            case "event":
                context.register_event_time_timer(v)
            case "no_event":
                context.delete_event_time_timer(v)
            case "processing":
                context.register_processing_time_timer(v)
            case "no_processing":
                context.delete_processing_time_timer(v)
            case "show":
                yield self._shown({"k": row.get("k", row.get("key2"))}, "row")

    def on_timer(self, timestamp, context):
        self.items.add(timestamp)
        event = context.time_domain == "event"
        if (self.value.value() or 0) % 2 and timestamp < 200:
            register = context.register_event_time_timer if event else context.register_processing_time_timer
            register(timestamp + 7)
        key = context.current_key
        return [self._shown(dict(zip(self.key_names, key, strict=True)), f"{context.time_domain} {timestamp}")]

    key_names = ("k",)

    def _shown(self, row, why):
        entries = [x for e in sorted(self.entries.items()) for x in e]
        return {
            **{k: row[k] for k in self.key_names},
            "why": why,
            "value": self.value.value(),
            "brief": self.brief.value(),
            "items": list(self.items.get()),
            "entries": entries,
            "total": self.total.get(),
            "mean": self.mean.get(),
            "text": self.text.value(),
        }


class RowMachine(RowCommands, KeyedProcessFunction):
    """Of one stream."""


class RowCoMachine(RowCommands, KeyedCoProcessFunction):
    """Of two streams, which do the same."""

    process_element1 = process_element2 = RowCommands.process_element


class BatchCommands:
    """On batches: the first row of each key at once, then the second of each, and so on."""

    value = value_state("BIGINT")
    brief = value_state("BIGINT", ttl=VALUE_TTL)
    items = list_state("BIGINT")
    entries = map_state("BIGINT", "BIGINT", ttl=READ_TOO)
    total = reducing_state("sum", "BIGINT")
    mean = aggregating_state(MeanOfColumns(), ACCUMULATOR)
    text = value_state("STRING")

    def process_batch(self, batch, context):
        occurrences = context.occurrences
        for turn in range(int(occurrences.max()) + 1):
            for command in COMMANDS:
                chosen = np.flatnonzero(
                    (occurrences == turn) & pc.equal(batch.column("command"), command).to_numpy(zero_copy_only=False)
                )
                if len(chosen):
                    rows = pa.array(chosen)
                    self._do(
                        command,
                        batch.column("m").take(rows),
                        batch.column("v").take(rows),
                        context.key_index[chosen],
                        chosen,
                        context,
                    )

    def _do(self, command, m, v, keys, rows, context):
        match command:
            case "set":
                self.value.update(v, keys)
            case "unset":
                self.value.clear(keys)
            case "brief":
                self.brief.update(v, keys)
            case "append":
                self.items.add(v, keys)
            case "empty":
                self.items.clear(keys)
            case "replace":
                self.items.update([list(p) for p in zip(m.to_pylist(), v.to_pylist(), strict=True)], keys)
            case "put":
                self.entries.put(m, v, keys)
            case "remove":
                self.entries.remove(m, keys)
            case "forget":
                self.entries.clear(keys)
            case "add":
                self.total.add(v, keys)
            case "zero":
                mask = np.zeros(context.num_keys, bool)
                mask[keys] = True
                self.total.clear(mask)
                self.mean.clear(mask)
            case "count":
                self.mean.add(v, keys)
            case "text":
                texts = [f"t{y}" if x else None for x, y in zip(m.to_pylist(), v.to_pylist(), strict=True)]
                self.text.update(texts, keys)
            case "event":
                context.register_event_time_timers(v, keys)
            case "no_event":
                context.delete_event_time_timers(v, keys)
            case "processing":
                context.register_processing_time_timers(v, keys)
            case "no_processing":
                context.delete_processing_time_timers(v, keys)
            case "show":
                self._show(context, keys, ["row"] * len(keys), rows)

    def on_timers(self, timestamps, context):
        self.items.add(timestamps)
        odd = (self.value.numpy(0) % 2 == 1) & (timestamps.to_numpy() < 200)
        event = context.time_domain == "event"
        register = context.register_event_time_timers if event else context.register_processing_time_timers
        register(pc.add(timestamps, 7).filter(pa.array(odd)), odd)
        why = [f"{context.time_domain} {t}" for t in timestamps.to_pylist()]
        self._show(context, context.key_index, why, np.arange(len(timestamps)))

    def _show(self, context, keys, why, rows):
        taken = pa.array(keys)
        found: list[list[tuple[int, int]]] = [[] for _ in range(context.num_keys)]
        for position, m, v in zip(*(c.tolist() for c in self.entries.items(keys)), strict=True):
            found[position].append((m, v))
        entries = pa.array([[x for e in sorted(found[k]) for x in e] for k in keys.tolist()], pa.list_(pa.int64()))
        items = self.items.get().take(taken)
        columns = {
            **dict(zip(context.keys.schema.names, context.keys.take(taken).columns, strict=True)),
            "why": pa.array(why),
            "value": self.value.get().take(taken),
            "brief": self.brief.get().take(taken),
            "items": pa.array([i or [] for i in items.to_pylist()], pa.list_(pa.int64())),
            "entries": entries,
            "total": self.total.get().take(taken),
            "mean": self.mean.get().take(taken),
            "text": self.text.get().take(taken),
        }
        context.collect(pa.record_batch(columns), rows)


class BatchMachine(BatchCommands, KeyedProcessFunction):
    """Of one stream."""


class BatchCoMachine(BatchCommands, KeyedCoProcessFunction):
    """Of two streams, which do the same."""

    process_batch1 = process_batch2 = BatchCommands.process_batch


class Model:
    """What one key should show: plain Python, written from the documentation."""

    def __init__(self):
        self.value = self.total = self.text = None
        self.brief = None  # (value, written)
        self.items = []
        self.entries = {}  # m -> (v, touched)
        self.numbers = []
        self.timers = {"event": set(), "processing": set()}

    def do(self, command, m, v, now):
        match command:
            case "set":
                self.value = v
            case "unset":
                self.value = None
            case "brief":
                self.brief = (v, now)
            case "append":
                self.items.append(v)
            case "empty":
                self.items = []
            case "replace":
                self.items = [m, v]
            case "put":
                self.entries[m] = (v, now)
            case "remove":
                self.entries.pop(m, None)
            case "forget":
                self.entries = {}
            case "add":
                self.total = v if self.total is None else self.total + v
            case "zero":
                self.total, self.numbers = None, []
            case "count":
                self.numbers.append(v)
            case "text":
                self.text = f"t{v}" if m else None
            case "event" | "processing":
                self.timers[command].add(v)
            case "no_event" | "no_processing":
                self.timers[command.removeprefix("no_")].discard(v)
            case "show":
                return self.shown("row", now)
        return None

    def fire(self, domain, until, now, pending_only=False):
        """Shows of the timers that are due, in order."""
        shown, pending = [], set(self.timers[domain])
        while due := [t for t in self.timers[domain] if t <= until and (not pending_only or t in pending)]:
            timestamp = min(due)
            self.timers[domain].remove(timestamp)
            pending.discard(timestamp)
            self.items.append(timestamp)
            if (self.value or 0) % 2 and timestamp < 200:
                self.timers[domain].add(timestamp + 7)
            shown.append(self.shown(f"{domain} {timestamp}", now))
        return shown

    def shown(self, why, now):
        brief = self.brief[0] if self.brief is not None and now < self.brief[1] + VALUE_TTL else None
        self.entries = {m: (v, now) for m, (v, touched) in self.entries.items() if now < touched + MAP_TTL}
        return (
            why,
            self.value,
            brief,
            list(self.items),
            [x for m in sorted(self.entries) for x in (m, self.entries[m][0])],
            self.total,
            sum(self.numbers) // len(self.numbers) if self.numbers else None,
            self.text,
        )
