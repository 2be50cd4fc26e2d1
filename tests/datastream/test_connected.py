"""Programs with connected streams: functions of both, with the same rows at any parallelism and batch size."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from flowrun.api.broadcast_function import KeyedBroadcastProcessFunction, broadcast_state
from flowrun.api.co_process_function import CoFlatMapFunction, CoMapFunction, KeyedCoProcessFunction
from flowrun.api.process_function import KeyedProcessFunction, list_state, reducing_state, value_state
from flowrun.connectors import memory
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING, timestamp
from flowrun.datastream import ColumnValue, DataStream, StreamExecutionEnvironment
from flowrun.errors import PipelineError
from flowrun.graph.stream_graph import ExecutionMode
from flowrun.operators.watermark_strategy import WatermarkStrategy
from flowrun.runners.embedded import run_embedded
from flowrun.testing import rows_of

ORDERS = Schema.of(user=STRING, amount=BIGINT, ts=timestamp(3))
PAYMENTS = Schema.of(payer=STRING, paid=BIGINT, ts=timestamp(3))
BALANCE = Schema.of(user=STRING, ordered=BIGINT, paid=BIGINT)
END = 10**9


class Balance(KeyedCoProcessFunction):
    """What each user ordered and paid, at the end."""

    ordered = reducing_state("sum", "BIGINT")
    paid = reducing_state("sum", "BIGINT")

    def process_element1(self, row: Any, context: Any) -> None:
        self.ordered.add(row["amount"])
        context.register_event_time_timer(END)

    def process_element2(self, row: Any, context: Any) -> None:
        self.paid.add(row["paid"])
        context.register_event_time_timer(END)

    def on_timer(self, timestamp: int, context: Any) -> Any:
        yield {"user": context.current_key[0], "ordered": self.ordered.get() or 0, "paid": self.paid.get() or 0}


class BatchBalance(KeyedCoProcessFunction):
    ordered = reducing_state("sum", "BIGINT")
    paid = reducing_state("sum", "BIGINT")

    def process_batch1(self, batch: pa.RecordBatch, context: Any) -> None:
        self.ordered.add(batch.column("amount"))
        context.register_event_time_timers([END] * context.num_keys)

    def process_batch2(self, batch: pa.RecordBatch, context: Any) -> None:
        self.paid.add(batch.column("paid"))
        context.register_event_time_timers([END] * context.num_keys)

    def on_timers(self, timestamps: pa.Array, context: Any) -> Any:
        sums = [state.get().fill_null(0) for state in (self.ordered, self.paid)]
        return pa.record_batch([context.keys.column(0), *sums], names=BALANCE.names)


class Both(CoMapFunction):
    def map1(self, row: Any) -> Any:
        return {"user": row["user"], "ordered": row["amount"], "paid": 0}

    def map2(self, row: Any) -> Any:
        return {"user": row["payer"], "ordered": 0, "paid": row["paid"]}


class Some(CoFlatMapFunction):
    def flat_map1(self, row: Any) -> Any:
        if row["amount"] % 2:
            yield {"user": row["user"], "ordered": row["amount"], "paid": 0}

    def flat_map2(self, row: Any) -> Any: ...


class One(KeyedProcessFunction):
    seen = value_state("BIGINT")

    def process_element(self, row: Any, context: Any) -> None: ...


class Flags(KeyedBroadcastProcessFunction):
    """At the end, each user's orders that a limit is below, whichever came first."""

    limits = broadcast_state("STRING", "BIGINT")
    amounts = list_state("BIGINT")

    def process_element(self, row: Any, context: Any) -> None:
        self.amounts.add(row["amount"])
        context.register_event_time_timer(END)

    def process_broadcast_element(self, row: Any, context: Any) -> None:
        self.limits.put(row["payer"], max(row["paid"], self.limits.get(row["payer"]) or 0))

    def on_timer(self, timestamp: int, context: Any) -> Any:
        limit = self.limits.get(context.current_key[0])
        yield {"user": context.current_key[0], "ordered": sum(a > limit for a in self.amounts.get()), "paid": limit}


def _rows(names: list[str], values: range) -> pa.RecordBatch:
    users = [f"u{i % 7}" for i in values]
    times = pa.array([i * 10 for i in values], pa.timestamp("ms"))
    return pa.record_batch([pa.array(users), pa.array(values, pa.int64()), times], names=names)


def program(parallelism: int, **options: Any) -> tuple[StreamExecutionEnvironment, DataStream, DataStream]:
    memory.clear()
    memory.put("orders", [_rows(ORDERS.names, range(i, i + 20)) for i in range(0, 200, 20)])
    memory.put("payments", [_rows(PAYMENTS.names, range(i, i + 15)) for i in range(0, 150, 15)])
    env = StreamExecutionEnvironment("job", parallelism=parallelism, **options)
    strategy = WatermarkStrategy.bounded(1_000_000, ColumnValue("ts"))
    orders = env.from_source(memory.MemorySource("orders", ORDERS), name="orders", watermarks=strategy)
    payments = env.from_source(memory.MemorySource("payments", PAYMENTS), name="payments", watermarks=strategy)
    return env, orders, payments


def is_even(batch: pa.RecordBatch) -> pa.BooleanArray:
    return pa.array(batch.column("paid").to_numpy() % 2 == 0)


def taken(name: str) -> Counter[tuple[Any, ...]]:
    return Counter(row for batch in memory.take(name) for row in rows_of(batch.columns))


@pytest.mark.parametrize("function", [Balance, BatchBalance])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_rows_of_both_streams_meet_by_key(function: Any, parallelism: int) -> None:
    env, orders, payments = program(parallelism)
    balance = orders.connect(payments).key_by("user", "payer").process(function, BALANCE, name="balance")
    balance.sink_to(memory.MemorySink("balance", BALANCE))
    env.execute(run_embedded)
    sums = {f"u{k}": (sum(range(k, 200, 7)), sum(range(k, 150, 7))) for k in range(7)}
    assert taken("balance") == Counter((user, *both) for user, both in sums.items())


def test_streams_that_have_keys_already_are_connected_by_them() -> None:
    env, orders, payments = program(2)
    both = orders.key_by("user").connect(payments.key_by("payer")).process(Balance, BALANCE)
    both.sink_to(memory.MemorySink("balance", BALANCE))
    env.execute(run_embedded)
    assert len(taken("balance")) == 7


def test_co_map_and_co_flat_map() -> None:
    env, orders, payments = program(2)
    connected = orders.connect(payments)
    connected.map(Both(), BALANCE).sink_to(memory.MemorySink("both", BALANCE), name="both")
    connected.flat_map(Some, BALANCE).sink_to(memory.MemorySink("some", BALANCE), name="some")
    env.execute(run_embedded)
    ordered = [(f"u{i % 7}", i, 0) for i in range(200)]
    assert taken("both") == Counter([*ordered, *((f"u{i % 7}", 0, i) for i in range(150))])
    assert taken("some") == Counter(r for r in ordered if r[1] % 2)


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("mode", [ExecutionMode.STREAMING, ExecutionMode.BATCH])
def test_every_subtask_has_the_broadcast_state(parallelism: int, mode: ExecutionMode) -> None:
    env, orders, payments = program(parallelism, mode=mode)
    limits = payments.filter_batches(is_even).broadcast("limits")
    orders.key_by("user").connect(limits).process(Flags(), BALANCE).sink_to(memory.MemorySink("flags", BALANCE))
    env.execute(run_embedded)
    limit = {k: max(i for i in range(k, 150, 7) if i % 2 == 0) for k in range(7)}
    assert taken("flags") == Counter((f"u{k}", sum(i > limit[k] for i in range(k, 200, 7)), limit[k]) for k in range(7))


def test_broadcast_streams_name_the_states_that_the_function_declares() -> None:
    _, orders, payments = program(1)
    keyed = orders.key_by("user")
    keyed.connect(payments.broadcast(broadcast_state("STRING", "BIGINT"))).process(Flags, BALANCE)
    with pytest.raises(PipelineError, match=r"broadcast was given 'limit', which.*\n.*did you mean 'limits'"):
        keyed.connect(payments.broadcast("limit")).process(Flags, BALANCE)
    with pytest.raises(PipelineError, match="broadcast was given a broadcast state DOUBLE, which"):
        keyed.connect(payments.broadcast(broadcast_state("STRING", "DOUBLE"))).process(Flags, BALANCE)
    with pytest.raises(PipelineError, match="broadcast takes broadcast states, got StateDeclaration"):
        payments.broadcast(value_state("BIGINT"))
    with pytest.raises(PipelineError, match=r"but it is given two connected streams\n.*other.broadcast"):
        keyed.connect(payments.key_by("payer")).process(Flags, BALANCE)


def test_mistakes_are_said_when_the_program_is_built() -> None:
    _, orders, payments = program(1)
    connected = orders.connect(payments)
    with pytest.raises(PipelineError, match="is a KeyedCoProcessFunction, but its input has no keys"):
        connected.process(Balance, BALANCE)
    with pytest.raises(PipelineError, match="a function of one stream, but it is given two connected streams"):
        connected.key_by("user", "payer").process(One, BALANCE)
    with pytest.raises(PipelineError, match="a function of two connected streams, but it is given one stream"):
        orders.key_by("user").process(Balance, BALANCE)
    with pytest.raises(PipelineError, match="the first of the connected streams has keys, the second has none"):
        orders.key_by("user").connect(payments).process(Balance, BALANCE)
    with pytest.raises(PipelineError, match=r"the keys have the types \(STRING\) and \(BIGINT\)"):
        orders.key_by("user").connect(payments.key_by("paid")).process(Balance, BALANCE)
    with pytest.raises(PipelineError, match="got builtin_function_or_method"):
        connected.map(len, BALANCE)  # type: ignore[arg-type]
