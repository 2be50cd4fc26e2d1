"""Windows of programs: by name, with triggers and evictors, into window functions; run on the embedded runner."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from test_datastream import CLICKS, TOTAL
from test_running_programs import clicks, expected_totals, program, taken

from flowrun.api.operator import OutputTag
from flowrun.api.process_function import reducing_state, value_state
from flowrun.api.window_function import ProcessWindowFunction, Window
from flowrun.api.windowing import Evictor, Trigger, TriggerResult, WindowAssigner
from flowrun.connectors import memory
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.datastream import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountTrigger,
    CumulativeEventTimeWindows,
    DeltaEvictor,
    DeltaTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    PurgingTrigger,
    SessionGap,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeEvictor,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from flowrun.errors import PipelineError
from flowrun.operators.timed.assigners import SlidingSlices, TumblingSlices
from flowrun.operators.windows.general.factories import GeneralWindowFactory
from flowrun.operators.windows.sessions.factories import SessionWindowFactory
from flowrun.runners.embedded import run_embedded

SUMS = Schema.of(user=STRING, start=BIGINT, end=BIGINT, total=BIGINT)
MANY = OutputTag("many", Schema.of(user=STRING))


@pytest.fixture(autouse=True)
def clean_memory() -> Any:
    memory.clear()
    yield
    memory.clear()


class Sums(ProcessWindowFunction):
    shown = value_state("BIGINT")

    def process(self, key: Any, context: Any, rows: Any) -> Any:
        self.shown.update((self.shown.value() or 0) + 1)
        if self.shown.value() == 4:
            context.side_output("many", {"user": key[0]})
        window = context.window
        yield {"user": key[0], "start": window.start, "end": window.end, "total": sum(r["amount"] for r in rows)}


class BatchSums(ProcessWindowFunction):
    shown = value_state("BIGINT")

    def process_batch(self, windows: pa.RecordBatch, rows: pa.RecordBatch, context: Any) -> Any:
        seen = self.shown.numpy(default=0) + 1
        self.shown.update(seen)
        fourth = np.flatnonzero(seen == 4)
        context.side_output("many", windows.select(["user"]).take(pa.array(fourth)), fourth)
        totals = np.add.reduceat(rows.column("amount").to_numpy(), context.offsets[:-1])
        bounds = [windows.column(n).cast(pa.int64()) for n in ("window_start", "window_end")]
        return pa.record_batch([windows.column("user"), *bounds, pa.array(totals)], names=list(SUMS.names))


@pytest.mark.parametrize("function", [Sums, BatchSums])
@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("batch_rows", [1, 1000])
def test_window_functions_over_keys(function: Any, parallelism: int, batch_rows: int) -> None:
    env, stream = program(parallelism)
    windowed = stream.key_by("user").window(TumblingEventTimeWindows.of(1000))
    sums = windowed.process(function, SUMS, side_outputs=[MANY])
    sums.sink_to(memory.MemorySink("sums", SUMS))
    sums.get_side_output("many").sink_to(memory.MemorySink("many", MANY.schema), name="many")
    env.execute(run_embedded)
    assert taken("sums") == expected_totals(200, 1000)
    assert taken("many") == Counter({(f"user {'x' * i}",): 1 for i in range(5)})


@pytest.mark.parametrize("function", [Sums, BatchSums])
def test_window_functions_over_all_rows(function: Any) -> None:
    class All(function):  # type: ignore[misc]
        """No window of the whole stream has a user."""

        def process(self, key: Any, context: Any, rows: Any) -> Any:
            assert key == ()
            return super().process(("all",), context, rows)

        def process_batch(self, windows: pa.RecordBatch, rows: pa.RecordBatch, context: Any) -> Any:
            users = pa.array(["all"] * windows.num_rows)
            return super().process_batch(windows.add_column(0, "user", users), rows, context)

    delattr(All, "process_batch" if function is Sums else "process")
    env, stream = program(2)
    sums = stream.window_all(TumblingEventTimeWindows.of(5000)).apply(All(), SUMS, side_outputs=[MANY])
    sums.sink_to(memory.MemorySink("sums", SUMS))
    env.execute(run_embedded)
    expected: dict[int, int] = defaultdict(int)
    for (_, start, _, total), count in expected_totals(200, 5000).items():
        expected[start] += total * count
    assert taken("sums") == Counter({("all", s, s + 5000, t): 1 for s, t in expected.items()})


def test_triggers_and_evictors_by_name() -> None:
    env, stream = program(1)
    windowed = stream.key_by("user").window(GlobalWindows.create())
    last = windowed.trigger(CountTrigger.of(10)).evictor(CountEvictor.of(2)).process(Sums, SUMS, side_outputs=[MANY])
    last.sink_to(memory.MemorySink("sums", SUMS))
    env.execute(run_embedded)
    amounts: dict[str, list[int]] = defaultdict(list)
    for batch in (*clicks(200)[::2], *clicks(200)[1::2]):
        for row in batch.to_pylist():
            amounts[row["user"]].append(row["amount"])
    wanted = Counter((user, sum(rows[n - 2 : n])) for user, rows in amounts.items() for n in (10, 20, 30, 40))
    assert Counter({(r[0], r[3]): n for r, n in taken("sums").items()}) == wanted


@pytest.mark.parametrize(
    ("windows", "domain", "assigner"),
    [
        (TumblingEventTimeWindows.of(10, 3), "EVENT", TumblingSlices(10, 3)),
        (TumblingProcessingTimeWindows.of(10), "PROCESSING", TumblingSlices(10)),
        (SlidingEventTimeWindows.of(10, 5), "EVENT", SlidingSlices(10, 5)),
        (SlidingProcessingTimeWindows.of(10, 5, 1), "PROCESSING", SlidingSlices(10, 5, 1)),
    ],
)
def test_aligned_windows_by_name(windows: Any, domain: str, assigner: Any) -> None:
    _, stream = program(1, local_aggregation=False)
    factory: Any = stream.key_by("user").window(windows).aggregate(TOTAL).transformation.factory  # type: ignore[attr-defined]
    assert (factory.assigner, factory.domain.name) == (assigner, domain)


def test_sessions_by_name() -> None:
    _, stream = program(1)
    for windows in (EventTimeSessionWindows.with_gap(7), ProcessingTimeSessionWindows.with_gap(7), SessionGap(7)):
        factory: Any = stream.key_by("user").window(windows).aggregate(TOTAL).transformation.factory  # type: ignore[attr-defined]
        assert isinstance(factory, SessionWindowFactory)
        assert factory.gap_ms == 7


@pytest.mark.parametrize(
    ("trigger", "text"),
    [
        (EventTimeTrigger.create(), "EventTimeTrigger()"),
        (ProcessingTimeTrigger.create(), "ProcessingTimeTrigger()"),
        (CountTrigger.of(3), "CountTrigger(count=3)"),
        (ContinuousEventTimeTrigger.of(7), "EarlyLateTrigger(early_ms=7, late_count=1)"),
        (ContinuousProcessingTimeTrigger.of(7), "ContinuousProcessingTimeTrigger(every_ms=7)"),
        (
            PurgingTrigger.of(DeltaTrigger.of(2.0, "amount")),
            "PurgingTrigger(trigger=DeltaTrigger(column=1, threshold=2.0))",
        ),
    ],
)
def test_triggers_by_name(trigger: Any, text: str) -> None:
    _, stream = program(1)
    windowed = stream.key_by("user").window(CumulativeEventTimeWindows.of(20, 10)).trigger(trigger)
    factory: Any = windowed.aggregate(TOTAL).transformation.factory  # type: ignore[attr-defined]
    assert isinstance(factory, GeneralWindowFactory)
    assert repr(factory.trigger).replace("can_merge=False, ", "").replace(", can_merge=False", "") == text


def test_evictors_by_name() -> None:
    _, stream = program(1)
    texts = []
    for evictor in (TimeEvictor.of(5, True), DeltaEvictor.of(2.0, "amount")):
        windowed = stream.key_by("user").window(TumblingEventTimeWindows.of(10)).evictor(evictor)
        factory: Any = windowed.aggregate(TOTAL).transformation.factory  # type: ignore[attr-defined]
        texts.append(repr(factory.evictor))
    assert texts == [
        "TimeEvictor(time_ms=5, after=True)",
        "DeltaEvictor(column=1, threshold=2.0, after=False)",
    ]


def test_what_does_not_go_together_is_refused_when_the_program_is_built() -> None:
    _, stream = program(1)
    keyed = stream.key_by("user")
    with pytest.raises(PipelineError, match="cannot be used with session windows"):
        keyed.window(SessionGap(5)).trigger(DeltaTrigger.of(1.0, "amount")).aggregate(TOTAL)
    with pytest.raises(PipelineError, match="DeltaTrigger: there is no column 'amuont'"):
        keyed.window(SessionGap(5)).trigger(DeltaTrigger.of(1.0, "amuont"))
    with pytest.raises(PipelineError, match="window: 5 is of type int"):
        keyed.window(SessionGap(5)).process(5, SUMS)  # type: ignore[arg-type]
    with pytest.raises(PipelineError, match="'many' is the output of late rows already"):
        keyed.window(SessionGap(5)).side_output_late_data("many").process(Sums, CLICKS, side_outputs=[MANY])


class Hours(WindowAssigner):
    """Windows of `hours` seconds from each full one."""

    def __init__(self, hours: int = 1) -> None:
        self.size = hours * 1000

    def assign_windows_batch(self, rows: pa.RecordBatch, timestamps: Any, context: Any) -> Any:
        starts = timestamps.to_numpy() // self.size * self.size
        return np.arange(rows.num_rows), starts, starts + self.size


class Every(Trigger):
    """Fires with every so many rows, and forgets them."""

    seen = reducing_state("sum", "BIGINT")

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def on_element(self, row: Any, timestamp: int, window: Window, context: Any) -> TriggerResult:
        self.seen.add(1)
        return TriggerResult.FIRE if self.seen.get() % self.rows == 0 else TriggerResult.CONTINUE


class Odd(Evictor):
    def evict_before(self, elements: Any, window: Window, context: Any) -> Any:
        return [e for e in elements if e.value["amount"] % 2]


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("way", ["object", "class", "reference"])
def test_assigners_triggers_and_evictors_of_users(parallelism: int, way: str) -> None:
    env, stream = program(parallelism)
    keyed = stream.key_by("user")
    windows: Any = {"object": Hours(5), "class": Hours, "reference": f"{__name__}:Hours"}[way]
    trigger: Any = {"object": Every(1000), "class": Every, "reference": f"{__name__}:Every"}[way]
    evictor: Any = {"object": Odd(), "class": Odd, "reference": f"{__name__}:Odd"}[way]
    hours = {} if way == "object" else {"arguments": {"hours": 5}}
    rows = {} if way == "object" else {"arguments": {"rows": 1000}}
    sums = keyed.window(windows, **hours).process(Sums, SUMS, side_outputs=[MANY])
    sums.sink_to(memory.MemorySink("sums", SUMS))
    never = keyed.window(windows, **hours).trigger(trigger, **rows).aggregate(TOTAL)
    never.sink_to(memory.MemorySink("never", never.schema), name="never")
    odd = keyed.window(windows, **hours).evictor(evictor).aggregate(TOTAL)
    odd.sink_to(memory.MemorySink("odd", odd.schema), name="odd")
    env.execute(run_embedded)
    assert taken("sums") == expected_totals(200, 5000)
    assert taken("never") == Counter()
    assert sum(r[3] for r in taken("odd").elements()) == sum(n for n in range(200) if n % 2)


def half_a_second(row: Any) -> int:
    return 501 if row["user"] == "user " else 1


@pytest.mark.parametrize("gap", ["gap", half_a_second])
def test_sessions_with_gaps_of_the_rows(gap: Any) -> None:
    env, stream = program(2)
    if gap == "gap":
        schema = Schema((*CLICKS, *Schema.of(gap=BIGINT)))
        stream = stream.map(lambda row: {**row, "gap": half_a_second(row)}, schema)
    sessions = stream.key_by("user").window(EventTimeSessionWindows.with_dynamic_gap(gap)).aggregate(TOTAL)
    sessions.sink_to(memory.MemorySink("sessions", sessions.schema))
    env.execute(run_embedded)
    found = taken("sessions")
    assert {r[1:] for r in found if r[0] == "user "} == {(0, 19_500 + 501, sum(range(0, 200, 5)))}
    assert sum(1 for r in found if r[0] == "user x") == 40


def add_amounts(total: Any, row: Any) -> Any:
    return {**total, "amount": total["amount"] + row["amount"]}


class Mean:
    """An `AggregateFunction`."""

    def create_accumulator(self) -> Any:
        return (0, 0)

    def add(self, row: Any, accumulator: Any) -> Any:
        return (accumulator[0] + row["amount"], accumulator[1] + 1)

    def get_result(self, accumulator: Any) -> Any:
        return {"user": "", "mean": accumulator[0] / accumulator[1]}

    def merge(self, one: Any, other: Any) -> Any:
        return (one[0] + other[0], one[1] + other[1])


class WithKey(ProcessWindowFunction):
    """Adds the key and how many windows it had."""

    shown = value_state("BIGINT")

    def process(self, key: Any, context: Any, rows: Any) -> Any:
        (row,) = rows
        self.shown.update((self.shown.value() or 0) + 1)
        yield {"user": key[0], "mean": row["mean"], "windows": self.shown.value()}


def test_aggregates_of_windows_by_name_and_by_functions() -> None:
    env, stream = program(2)
    keyed = stream.key_by("user")
    results = {
        "sum": keyed.time_window(1000).sum("amount"),
        "most": keyed.time_window(1000).max("amount"),
        "least": keyed.time_window(1000).min("amount"),
        "count": keyed.time_window(1000, 500).count(),
        "reduced": keyed.time_window(1000).reduce(add_amounts),
        "mean": keyed.time_window(20_000).aggregate_rows(Mean, "user STRING, mean DOUBLE, windows BIGINT", WithKey),
        "rows": keyed.count_window(10).sum("amount"),
        "last": keyed.count_window(3, 10).count(),
    }
    for name, result in results.items():
        result.sink_to(memory.MemorySink(name, result.schema), name=name)
    env.execute(run_embedded)
    expected = expected_totals(200, 1000)
    found = {name: taken(name) for name in results}
    assert found["sum"] == expected
    assert Counter({(r[0], r[1]): n for r, n in found["reduced"].items()}) == Counter(
        {(r[0], r[3]): 1 for r in expected}
    )
    assert all(m[:3] in {lo[:3] for lo in found["least"]} for m in found["most"])
    assert sum(r[3] * n for r, n in found["count"].items()) == 400
    assert found["mean"] == Counter({(f"user {'x' * i}", 97.5 + i, 1): 1 for i in range(5)})
    assert sum(found["rows"].values()) == 20
    assert sum(r[1] * n for r, n in found["rows"].items()) == sum(range(200))
    assert {r[1] for r in found["last"]} == {3}
    assert sum(found["last"].values()) == 20


def test_aggregates_that_cannot_be_are_refused() -> None:
    _, stream = program(1)
    windowed = stream.key_by("user").time_window(1000)
    with pytest.raises(PipelineError, match="SUM cannot take 'user'"):
        windowed.sum("user")
    with pytest.raises(PipelineError, match="size and slide must be positive"):
        stream.key_by("user").count_window(0)
    with pytest.raises(PipelineError, match="sees one row a window, by 'process'"):
        windowed.reduce(add_amounts, BatchSums)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_output_modes_of_windows(parallelism: int) -> None:
    env, stream = program(parallelism)
    keyed = stream.key_by("user")
    for mode in ("append", "update", "complete"):
        windowed = keyed.time_window(1000).trigger(CountTrigger.of(1)).allowed_lateness(100)
        sums = windowed.side_output_late_data("late").output_mode(mode).sum("amount")
        sums.sink_to(memory.MemorySink(mode, sums.schema), name=mode)
        late = sums.get_side_output("late")
        late.sink_to(memory.MemorySink(f"late {mode}", CLICKS), name=f"late {mode}")
    env.execute(run_embedded)
    expected = expected_totals(200, 1000)
    assert taken("append") == expected
    assert expected.keys() <= taken("complete").keys()  # the last table; earlier ones are parts of it
    last: dict[Any, Any] = {}
    for batch in memory.take("update"):
        kinds = [0] * batch.num_rows if batch.row_kinds is None else batch.row_kinds.to_pylist()
        for kind, row in zip(kinds, batch.columns.to_pylist(), strict=True):
            window = (row["user"], row["window_start"])
            if kind in (1, 3):
                assert last.pop(window) == row["amount"]
            else:
                assert window not in last
                last[window] = row["amount"]
    assert sorted(last.values()) == sorted(r[3] for r in expected.elements())


def test_output_modes_that_cannot_be_are_refused() -> None:
    _, stream = program(1)
    keyed = stream.key_by("user")
    with pytest.raises(PipelineError, match="there is no mode 'updte'"):
        keyed.time_window(1000).output_mode("updte")
    with pytest.raises(PipelineError, match="output modes are for aggregates"):
        keyed.time_window(1000).output_mode("update").process(Sums, SUMS)
    for windows, why in (
        (keyed.count_window(3), "the global window has no end"),
        (keyed.window(TumblingProcessingTimeWindows.of(5)), "windows of processing time are never final"),
        (keyed.time_window(5).trigger(PurgingTrigger.of(CountTrigger.of(2))), "lets windows forget their rows"),
    ):
        with pytest.raises(PipelineError, match=why):
            windows.output_mode("update").sum("amount")
