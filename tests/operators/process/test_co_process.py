"""Functions of two streams: state that both inputs share, the smaller watermark, timers, restore, co-map and co-flat-map."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from flowrun.api.co_process_function import CoFlatMapFunction, CoMapFunction, CoProcessFunction, KeyedCoProcessFunction
from flowrun.api.operator import OutputTag
from flowrun.api.process_function import operator_state, reducing_state, value_state
from flowrun.core.elements import MAX_TIMESTAMP, PassingWatermarks, RecordBatch
from flowrun.core.row_errors import OnError, RowErrors
from flowrun.core.schema import Schema
from flowrun.core.semantics import NullKeys
from flowrun.core.types import BIGINT, STRING
from flowrun.errors import DataError, PipelineError
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.operators.process.factories import CoProcessFunctionFactory
from flowrun.operators.process.function_kinds import FunctionInputs
from flowrun.testing import OperatorHarness
from tests.examples import examples
from tests.operators.process.machines import COLUMNS, SHOWN
from tests.operators.process.test_against_model import KEY_TYPES, KEYS, STEPS, Job

ORDERS = Schema.of(k=STRING, n=BIGINT)
RATES = Schema.of(name=STRING, rate=BIGINT)
OUT = Schema.of(k=STRING, n=BIGINT, rate=BIGINT)
KEYED = ((0,), (0,))
OTHER = OutputTag("other", RATES)


class Enrich(KeyedCoProcessFunction):
    """Orders with the last rate of their key; a timer 10 ms after each rate forgets it."""

    rate = value_state("BIGINT")

    def process_element1(self, row, context):
        return {**row, "rate": self.rate.value()}

    def process_element2(self, row, context):
        self.rate.update(row["rate"])
        if row["rate"] < 0:
            context.side_output("other", row)
        if context.timestamp is not None:
            context.register_event_time_timer(context.timestamp + 10)

    def on_timer(self, timestamp, context):
        self.rate.clear()
        yield {"k": context.current_key[0], "n": -timestamp, "rate": None}


class BatchEnrich(KeyedCoProcessFunction):
    """The same by batches."""

    rate = value_state("BIGINT")

    def process_batch1(self, batch, context):
        return batch.append_column("rate", self.rate.get().take(pa.array(context.key_index)))

    def process_batch2(self, batch, context):
        self.rate.update(batch.column("rate").take(pa.array(context.last_rows)))
        negative = np.flatnonzero(batch.column("rate").to_numpy() < 0)
        context.side_output("other", batch.take(pa.array(negative)), negative)
        if context.timestamps is not None:
            context.register_event_time_timers(context.timestamps.to_numpy() + 10, context.key_index)

    def on_timers(self, timestamps, context):
        self.rate.clear()
        nothing = pa.nulls(len(timestamps), pa.int64())
        negative = -timestamps.to_numpy()
        return pa.record_batch({"k": context.keys.column(0), "n": negative, "rate": nothing})


class Tagged(CoMapFunction):
    def map1(self, row):
        return {"k": row["k"], "n": row["n"], "rate": 0}

    def map2(self, row):
        return {"k": row["name"], "n": 0, "rate": row["rate"]}


class BatchTagged(CoMapFunction):
    def map_batch1(self, batch):
        return batch.append_column("rate", pa.array(np.zeros(batch.num_rows, np.int64)))

    def map_batch2(self, batch):
        zeros = pa.array(np.zeros(batch.num_rows, np.int64))
        return pa.record_batch([batch.column(0), zeros, batch.column(1)], names=["k", "n", "rate"])


class Copies(CoFlatMapFunction):
    """Each row of the first input as often as `n` says; with keys also how many rates of its key there were."""

    rates = reducing_state("sum", "BIGINT")

    def flat_map1(self, row):
        for copy in range(row["n"]):
            yield {"k": row["k"], "n": copy, "rate": self.rates.get()}

    def flat_map2(self, row):
        self.rates.add(row["rate"])


class BatchCopies(CoFlatMapFunction):
    def flat_map_batch1(self, batch):
        parents = np.repeat(np.arange(batch.num_rows), batch.column("n").to_numpy())
        return batch.take(pa.array(parents)).append_column("rate", pa.nulls(len(parents), pa.int64())), parents

    def flat_map_batch2(self, batch):
        return None


class Half(CoProcessFunction):
    def process_element1(self, row, context): ...


class TimedMap(Tagged):
    def on_timer(self, timestamp, context): ...


class Skips(CoProcessFunction):
    """Fails on 0 of either input; remembers how many rows it saw."""

    seen = operator_state("BIGINT", redistribution="union")

    def process_element1(self, row, context):
        return {"k": row["k"], "n": 12 // row["n"], "rate": None}

    def process_element2(self, row, context):
        self.seen.add(1)
        return {"k": row["name"], "n": len(self.seen.get()), "rate": 12 // row["rate"]}


def factory_of(name: str, keys: object = KEYED, **more: object) -> CoProcessFunctionFactory:
    recipe = FunctionRecipe(f"{__name__}:{name}")
    more.setdefault("side_outputs", (OTHER,))
    return CoProcessFunctionFactory(recipe, FunctionInputs.TWO, (ORDERS, RATES), OUT, keys, name="s", **more)  # type: ignore[arg-type]


def run(name: str, keys: object = KEYED, **more: object) -> OperatorHarness:
    return OperatorHarness(factory_of(name, keys, **more), schema=[ORDERS, RATES], inputs=2)


@pytest.mark.parametrize("name", ["Enrich", "BatchEnrich"])
def test_both_inputs_share_state_and_timers_wait_for_the_slower_one(name: str) -> None:
    harness = run(name)
    harness.push({"name": ["a", "b"], "rate": [5, -6]}, [10, 12], 1)
    harness.push({"k": ["a", "b", "c"], "n": [1, 2, 3]}, [11, 11, 11])
    assert harness.rows() == [("a", 1, 5), ("b", 2, -6), ("c", 3, None)]
    assert harness.side_rows("other") == [("b", -6)]
    harness.clear()
    harness.watermark(100)
    assert harness.log() == []
    harness.watermark(20, 1)
    assert harness.rows() == [("a", -20, None)]
    assert harness.watermarks() == [20]
    harness.push({"k": ["a", "b"], "n": [1, 2]}, [21, 21])
    assert harness.rows()[1:] == [("a", 1, None), ("b", 2, -6)]
    harness.clear()
    harness.end_input()
    assert harness.rows() == [("b", -22, None)]
    assert harness.watermarks() == [MAX_TIMESTAMP]


def test_an_idle_input_does_not_hold_time_back() -> None:
    harness = run("Enrich")
    harness.push({"name": ["a"], "rate": [5]}, [10], 1)
    harness.watermark(30)
    harness.idle(1)
    assert harness.rows() == [("a", -20, None)]


@pytest.mark.parametrize("name", ["Enrich", "BatchEnrich"])
def test_null_keys_of_either_input_go_as_the_policy_says(name: str) -> None:
    harness = run(name, null_keys=NullKeys.DROP)
    harness.push({"name": [None, "a"], "rate": [5, 6]}, input_index=1)
    harness.push({"k": [None, "a"], "n": [1, 2]})
    assert harness.rows() == [("a", 2, 6)]
    assert harness.metrics.count("numNullKeyRecordsDropped") == 2
    with pytest.raises(DataError, match="key column 'name' is NULL in row 0"):
        run(name, null_keys=NullKeys.FAIL).push({"name": [None], "rate": [5]}, input_index=1)


@pytest.mark.parametrize("name", ["Tagged", "BatchTagged"])
@pytest.mark.parametrize("keys", [KEYED, (None, None)])
def test_a_co_map_gives_a_row_for_each(name: str, keys: object) -> None:
    harness = run(name, keys)
    harness.push({"k": ["a", "b"], "n": [1, 2]}, [3, 4])
    harness.push({"name": ["c"], "rate": [5]}, [6], 1)
    assert harness.rows() == [("a", 1, 0), ("b", 2, 0), ("c", 0, 5)]
    assert harness.timestamps() == [3, 4, 6]


def test_a_co_flat_map_gives_any_number_and_may_have_state() -> None:
    harness = run("Copies")
    harness.push({"name": ["a", "a"], "rate": [5, 2]}, input_index=1)
    harness.push({"k": ["a", "b", "c"], "n": [2, 1, 0]})
    assert harness.rows() == [("a", 0, 7), ("a", 1, 7), ("b", 0, None)]
    harness = run("BatchCopies")
    harness.push({"name": ["a"], "rate": [5]}, [1], 1)
    harness.push({"k": ["a", "b", "c"], "n": [2, 1, 0]}, [1, 2, 3])
    assert harness.rows() == [("a", 2, None), ("a", 2, None), ("b", 1, None)]
    assert harness.timestamps() == [1, 1, 2]


@pytest.mark.parametrize("mode", [OnError.SKIP, OnError.DEAD_LETTER])
def test_rows_of_either_input_are_left_out(mode: OnError) -> None:
    harness = run("Skips", (None, None), errors=RowErrors(mode, "step 's'"))
    harness.push({"k": ["a", "b", "c"], "n": [4, 0, 6]})
    harness.push({"name": ["a", "b"], "rate": [0, 3]}, input_index=1)
    assert harness.rows() == [("a", 3, None), ("c", 2, None), ("b", 2, 4)]
    counter = "numRecordsSkipped" if mode is OnError.SKIP else "numRecordsDeadLettered"
    assert harness.metrics.count(counter) == 2
    with pytest.raises(DataError, match=r"'s': process_element2 raised ZeroDivisionError.*the row is"):
        run("Skips", (None, None)).push({"name": ["a"], "rate": [0]}, input_index=1)


def test_rows_have_event_time_or_none_has() -> None:
    harness = run("Tagged")
    harness.push({"k": ["a"], "n": [1]}, [3])
    with pytest.raises(DataError, match="one of its inputs has event time, the other has none"):
        harness.push({"name": ["c"], "rate": [5]}, input_index=1)


REFUSED = [
    ("Half", KEYED, "has keys, but is no KeyedCoProcessFunction"),
    ("Half", (None, None), "has process_element1, but no process_element2"),
    ("Enrich", (None, None), "is a KeyedCoProcessFunction, but its input has no keys"),
    ("Copies", (None, None), "declares the state 'rates' of a key, but its input has no keys"),
    ("TimedMap", KEYED, "has on_timer, but a CoMapFunction has no timers"),
]


@pytest.mark.parametrize(("name", "keys", "message"), REFUSED)
def test_functions_that_do_not_keep_to_the_rules(name: str, keys: object, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        run(name, keys)


def test_functions_of_one_stream_do_not_get_two() -> None:
    recipe = FunctionRecipe("tests.operators.process.functions:Counter")
    factory = CoProcessFunctionFactory(recipe, FunctionInputs.TWO, (ORDERS, RATES), OUT, KEYED)
    with pytest.raises(PipelineError, match="a function of one stream, but it is given two connected streams"):
        OperatorHarness(factory, inputs=2)


class CoJob(Job):
    """Two inputs; which one rows and watermarks come by follows from what they are."""

    def __init__(self, machine: str, kind: str) -> None:
        self.watermarks = [-1, -1]
        super().__init__(machine, kind)

    def make_factory(self, machine: str, kind: str) -> CoProcessFunctionFactory:
        other = Schema.from_pairs([("key2", KEY_TYPES[kind]), *((f.name, f.type) for f in COLUMNS)])
        self.inputs = [self.schema, other]
        shown = Schema.from_pairs([("k", KEY_TYPES[kind]), *((f.name, f.type) for f in SHOWN)])
        recipe = FunctionRecipe(f"tests.operators.process.machines:{machine}")
        return CoProcessFunctionFactory(recipe, FunctionInputs.TWO, (self.schema, other), shown, KEYED)

    def options(self) -> dict[str, object]:
        return {"schema": self.inputs, "state_keys": KEYED, "inputs": 2}

    def push(self, rows: list[tuple[int, str, int, int]]) -> None:
        self.input = sum(r[3] for r in rows) % 2
        super().push(rows)

    def advance_watermark(self, timestamp: int) -> None:
        self.input = timestamp % 2
        if timestamp <= self.watermarks[self.input]:
            return
        self.watermarks[self.input] = timestamp
        for harness in self.subtasks:
            harness.watermark(timestamp, self.input)
        if min(self.watermarks) > self.watermark:
            self.watermark = min(self.watermarks)
            self._fire("event", self.watermark)

    def restore_watermarks(self) -> None:
        for index, timestamp in enumerate(self.watermarks):
            if timestamp >= 0:
                for harness in self.subtasks:
                    harness.watermark(timestamp, index)


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("machine", ["RowCoMachine", "BatchCoMachine"])
@examples(30)
@given(steps=STEPS)
def test_the_machine_of_two_inputs_shows_what_the_model_shows(machine: str, kind: str, steps: list[object]) -> None:
    job = CoJob(machine, kind)
    job.do(steps)
    job.end()
    assert job.shown() == job.wanted()


def _elements(seed: int) -> list[tuple[int, str, tuple[str, int] | None, int]]:
    """(input, row or watermark, row, time): in the order in which they come."""
    rng = np.random.default_rng(seed)
    watermarks, elements = [0, 0], []
    for _ in range(120):
        index = int(rng.integers(0, 2)) if rng.random() < 0.3 or not elements else elements[-1][0]
        if rng.random() < 0.5:
            watermarks[index] += int(rng.integers(1, 9))
            elements.append((index, "watermark", None, watermarks[index]))
        else:
            time = watermarks[index] + int(rng.integers(-3, 12))
            elements.append((index, "row", (str(rng.choice(["a", "b", "c"])), int(rng.integers(0, 50))), time))
    return elements


def _fed(name: str, seed: int, batch_rows: int) -> tuple[list[tuple[object, ...]], list[int | None]]:
    harness = run(name)
    waiting: list[tuple[int, str, tuple[str, int] | None, int]] = []

    def send() -> None:
        if not waiting:
            return
        index = waiting[0][0]
        rows = [e for e in waiting if e[1] == "row"]
        seen, marks = 0, []
        for element in waiting:
            if element[1] == "row":
                seen += 1
            else:
                marks.append((seen, element[3]))
        schema = (ORDERS, RATES)[index]
        columns = pa.record_batch(
            [pa.array([r[2][i] for r in rows], t.arrow) for i, t in enumerate(schema.types)],  # type: ignore[index]
            schema=schema.arrow,
        )
        passing = PassingWatermarks(*(np.array(c, np.int64) for c in zip(*marks, strict=True))) if marks else None
        batch = RecordBatch(columns, pa.array([r[3] for r in rows], pa.int64()), None, passing)
        harness.operator.process_batch(batch, index)
        waiting.clear()

    for element in _elements(seed):
        if waiting and (waiting[0][0] != element[0] or len(waiting) >= batch_rows):
            send()
        if batch_rows == 1 and element[1] == "watermark":
            harness.watermark(element[3], element[0])
        else:
            waiting.append(element)
    send()
    assert harness.watermarks()[-1] == harness.operator.current_watermark
    harness.end_input()
    return harness.rows(), harness.timestamps()


@pytest.mark.parametrize("seed", range(8))
def test_batch_size_never_changes_a_result(seed: int) -> None:
    wanted = _fed("Enrich", seed, 1)
    for batch_rows in (7, 131_072):
        assert _fed("Enrich", seed, batch_rows) == wanted
        rows, times = _fed(
            "BatchEnrich", seed, batch_rows
        )  # timers of several keys that one watermark lets fire have no order
        assert sorted(zip(rows, times, strict=True), key=str) == sorted(zip(*wanted, strict=True), key=str)
