"""Functions with a broadcast stream: state that is the same on all subtasks, read-only elsewhere, and restored at any parallelism."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.api.broadcast_function import BroadcastProcessFunction, KeyedBroadcastProcessFunction, broadcast_state
from flowrun.api.process_function import KeyedProcessFunction, list_state, map_state, reducing_state, value_state
from flowrun.api.state import Redistribution
from flowrun.core.elements import PassingWatermarks, RecordBatch
from flowrun.core.row_errors import OnError, RowErrors
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.errors import DataError, PipelineError, StateError
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.operators.process.factories import CoProcessFunctionFactory
from flowrun.operators.process.function_kinds import FunctionInputs
from flowrun.testing import OperatorHarness
from tests.examples import examples

ORDERS = Schema.of(k=STRING, n=BIGINT)
RULES = Schema.of(what=STRING, factor=BIGINT)
OUT = Schema.of(k=STRING, n=BIGINT, sum=BIGINT)
KEYED = ((0,), None)
PLAIN = (None, None)


class Times(KeyedBroadcastProcessFunction):
    """Sums of n × the factor of its key; `reset` sets the sums of all keys to the factor, `show` shows how many rules there are."""

    rules = broadcast_state("STRING", "BIGINT")
    sums = reducing_state("sum", "BIGINT")
    seen = map_state("BIGINT", "BIGINT", ttl=50)

    def process_element(self, row, context):
        self.sums.add(row["n"] * (self.rules.get(row["k"]) or 1))
        self.seen.put(row["n"], 1)
        context.register_event_time_timer(1000)
        yield {**row, "sum": self.sums.get()}

    def process_broadcast_element(self, row, context):
        match row["what"]:
            case "reset":
                context.apply_to_keyed_state(self.sums, lambda key, sums: (sums.clear(), sums.add(row["factor"])))
            case "show":
                yield {"k": "rules", "n": len(self.rules), "sum": sum(v for _, v in self.rules.items())}
            case "seen":
                found = []
                context.apply_to_keyed_state("seen", lambda key, seen: found.append((key[0], len(seen))))
                yield from ({"k": k, "n": n, "sum": None} for k, n in sorted(found))
            case "forget":
                self.rules.clear()
            case name if row["factor"] == 0:
                self.rules.remove(name)
            case name:
                self.rules.put(name, row["factor"])

    def on_timer(self, timestamp, context):
        yield {"k": context.current_key[0], "n": len(self.rules), "sum": self.sums.get()}


class BatchTimes(KeyedBroadcastProcessFunction):
    """The same by batches; of a batch of the broadcast stream row by row."""

    rules = broadcast_state("STRING", "BIGINT")
    sums = reducing_state("sum", "BIGINT")
    seen = map_state("BIGINT", "BIGINT", ttl=50)

    def process_batch(self, batch, context):
        factors = self.rules.get(batch.column("k")).fill_null(1).to_numpy()
        added = batch.column("n").to_numpy() * factors
        turns = context.occurrences
        sums = np.zeros(batch.num_rows, np.int64)
        for turn in range(int(turns.max()) + 1):
            rows = np.flatnonzero(turns == turn)
            keys = context.key_index[rows]
            self.sums.add(added[rows], keys)
            sums[rows] = self.sums.get().to_numpy(zero_copy_only=False)[keys]
        self.seen.put(batch.column("n"), np.ones(batch.num_rows, np.int64))
        context.register_event_time_timers([1000] * context.num_keys)
        return batch.append_column("sum", pa.array(sums))

    def process_broadcast_batch(self, batch, context):
        for position, (name, factor) in enumerate(zip(*batch.to_pydict().values(), strict=True)):
            match name:
                case "reset":
                    context.apply_to_keyed_state(self.sums, lambda keys, sums, f=factor: self._reset(sums, keys, f))
                case "show":
                    shown = {"k": ["rules"], "n": [len(self.rules)], "sum": [sum(self.rules.items()[1].to_pylist())]}
                    context.collect(pa.record_batch(shown, schema=OUT.arrow), [position])
                case "seen":
                    context.apply_to_keyed_state(
                        "seen", lambda keys, seen, p=position: self._seen(context, keys, seen, p)
                    )
                case "forget":
                    self.rules.clear()
                case _ if factor == 0:
                    self.rules.remove([name])
                case _:
                    self.rules.put([name], [factor])

    def _reset(self, sums, keys, factor):
        sums.clear()
        sums.add([factor] * keys.num_rows, np.arange(keys.num_rows))

    def _seen(self, context, keys, seen, position):
        counts = np.bincount(seen.items()[0], minlength=keys.num_rows)
        found = sorted(zip(keys.column(0).to_pylist(), counts.tolist(), strict=True))
        rows = {"k": [k for k, _ in found], "n": [n for _, n in found], "sum": [None] * len(found)}
        context.collect(pa.record_batch(rows, schema=OUT.arrow), [position] * len(found))

    def on_timers(self, timestamps, context):
        rules = pa.array([len(self.rules)] * context.num_keys)
        return pa.record_batch([context.keys.column(0), rules, self.sums.get()], names=OUT.names)


class Match(BroadcastProcessFunction):
    """Without keys."""

    rules = broadcast_state("STRING", "BIGINT", name="the rules")

    def process_element(self, row, context):
        if row["k"] in self.rules:
            yield {**row, "sum": self.rules.get(row["k"])}

    def process_broadcast_element(self, row, context):
        self.rules.put(row["what"], 12 // row["factor"])


class BatchMatch(BroadcastProcessFunction):
    rules = broadcast_state("STRING", "BIGINT", name="the rules")

    def process_batch(self, batch, context):
        rows = np.flatnonzero(self.rules.contains(batch.column("k")))
        found = batch.take(pa.array(rows))
        return found.append_column("sum", self.rules.get(found.column("k"))), rows

    def process_broadcast_batch(self, batch, context):
        self.rules.put(batch.column("what"), 12 // batch.column("factor").to_numpy())


class Meddles(KeyedBroadcastProcessFunction):
    """Does what it must not, as `what` says."""

    rules = broadcast_state("STRING", "BIGINT")
    value = value_state("BIGINT")

    def __init__(self, what):
        self.what = what

    def process_element(self, row, context):
        if self.what == "element":
            self.rules.put("a", 1)
        context.register_event_time_timer(5)

    def process_broadcast_element(self, row, context):
        match self.what:
            case "keyed":
                self.value.value()
            case "state":
                context.apply_to_keyed_state("valeu", print)
            case "type":
                self.rules.put("a", "b")
            case "timer after":
                self.rules.put(row["what"], 1)

    def on_timer(self, timestamp, context):
        self.rules.clear()


class BatchMeddles(KeyedBroadcastProcessFunction):
    rules = broadcast_state("STRING", "BIGINT")
    value = value_state("BIGINT")

    def __init__(self, what):
        self.what = what

    def process_batch(self, batch, context):
        if self.what == "element":
            self.rules.put(["a"], [1])
        context.register_event_time_timers([5] * context.num_keys)

    def process_broadcast_batch(self, batch, context):
        match self.what:
            case "keyed":
                self.value.get()
            case "state":
                context.apply_to_keyed_state("valeu", print)
            case "type":
                self.rules.put(["a"], ["b"])

    def on_timers(self, timestamps, context):
        self.rules.clear()


class Floats(BroadcastProcessFunction):
    rules = broadcast_state("DOUBLE", "ARRAY<BIGINT>")

    def process_batch(self, batch, context):
        found = self.rules.get(batch.column("n").cast(pa.float64()))
        return pa.record_batch(
            [batch.column("k"), batch.column("n"), found.value_lengths().cast(pa.int64())], names=OUT.names
        )

    def process_broadcast_batch(self, batch, context):
        self.rules.put([-0.0, float("nan")], [[1, 2], [3]])


class Alone(KeyedProcessFunction):
    rules = broadcast_state("STRING", "BIGINT")
    items = list_state("BIGINT")

    def process_element(self, row, context): ...


def factory_of(name: str, keys: object = KEYED, **more: object) -> CoProcessFunctionFactory:
    recipe = FunctionRecipe(f"{__name__}:{name}", more.pop("arguments", {}))  # type: ignore[arg-type]
    return CoProcessFunctionFactory(recipe, FunctionInputs.BROADCAST, (ORDERS, RULES), OUT, keys, name="s", **more)  # type: ignore[arg-type]


def run(name: str, keys: object = KEYED, **more: object) -> OperatorHarness:
    return OperatorHarness(factory_of(name, keys, **more), schema=[ORDERS, RULES], inputs=2)


def rules(harness: OperatorHarness, *said: tuple[str, int]) -> None:
    harness.push({"what": [w for w, _ in said], "factor": [f for _, f in said]}, [0] * len(said), 1)


def orders(harness: OperatorHarness, *said: tuple[str, int]) -> None:
    harness.push({"k": [k for k, _ in said], "n": [n for _, n in said]}, [0] * len(said))


@pytest.mark.parametrize("name", ["Times", "BatchTimes"])
def test_rules_hold_for_all_keys_from_when_they_come(name: str) -> None:
    harness = run(name)
    orders(harness, ("a", 1), ("b", 2))
    rules(harness, ("a", 10), ("b", 5), ("b", 0))
    orders(harness, ("a", 1), ("b", 2), ("a", 1))
    rules(harness, ("show", 0), ("reset", 7), ("seen", 0))
    orders(harness, ("b", 1))
    assert harness.rows() == [
        ("a", 1, 1), ("b", 2, 2), ("a", 1, 11), ("b", 2, 4), ("a", 1, 21), ("rules", 1, 10), ("a", 1, None), ("b", 1, None),
        ("b", 1, 8),
    ]  # fmt: skip
    harness.clear()
    harness.watermark(1000)
    assert harness.rows() == [], "the rules may still be behind"
    harness.watermark(1000, 1)
    assert harness.rows() == [("a", 1, 7), ("b", 1, 8)]


@pytest.mark.parametrize("name", ["Times", "BatchTimes"])
def test_state_of_keys_that_has_expired_is_not_gone_through(name: str) -> None:
    harness = run(name)
    orders(harness, ("a", 1), ("b", 2))
    harness.advance_processing_time(49)
    orders(harness, ("b", 3))
    harness.advance_processing_time(1)
    harness.clear()
    rules(harness, ("seen", 0))
    assert harness.rows() == [("b", 1, None)]


@pytest.mark.parametrize("before", ["Match", "BatchMatch"])
@pytest.mark.parametrize("after", ["Match", "BatchMatch"])
def test_every_subtask_starts_with_all_entries(before: str, after: str) -> None:
    old = [
        OperatorHarness(factory_of(before, PLAIN), schema=[ORDERS, RULES], inputs=2, subtask=i, parallelism=2)
        for i in (0, 1)
    ]
    for harness in old:
        rules(harness, ("a", 1), ("b", 2))
        rules(harness, ("a", 3))
    taken = [h.snapshot() for h in old]
    state = taken[0].operator["the rules"]
    assert state.redistribution is Redistribution.BROADCAST
    assert state.rows.to_pylist() == [{"map_key": "a", "value": 4}, {"map_key": "b", "value": 6}]
    assert taken[1].operator["the rules"].rows.equals(state.rows)
    for subtask in range(3):
        harness = OperatorHarness.restore(
            factory_of(after, PLAIN), taken, schema=[ORDERS, RULES], inputs=2, subtask=subtask, parallelism=3
        )
        orders(harness, ("b", 1), ("c", 2), ("a", 3))
        assert harness.rows() == [("b", 1, 6), ("a", 3, 4)]


def test_a_state_of_another_type_is_not_restored() -> None:
    taken = run("Match", PLAIN).snapshot()
    wrong = taken.operator["the rules"].rows.cast(pa.schema([("map_key", pa.string()), ("value", pa.float64())]))
    object.__setattr__(taken.operator["the rules"], "rows", wrong)
    with pytest.raises(
        StateError, match=r"is a map from STRING to BIGINT, the snapshot has \(map_key: string, value: double\)"
    ):
        OperatorHarness.restore(factory_of("Match", PLAIN), [taken], schema=[ORDERS, RULES], inputs=2)


def test_rules_that_fail_are_left_out() -> None:
    harness = run("Match", PLAIN, errors=RowErrors(OnError.SKIP, "step 's'"))
    rules(harness, ("a", 0), ("b", 3))
    orders(harness, ("a", 1), ("b", 2))
    assert harness.rows() == [("b", 2, 4)]
    assert harness.metrics.count("numRecordsSkipped") == 1


def test_a_rule_that_fails_in_all_subtasks_is_counted_once() -> None:
    for subtask, counted in ((0, 1), (1, 0), (2, 0)):
        factory = factory_of("Match", PLAIN, errors=RowErrors(OnError.SKIP, "step 's'"))
        harness = OperatorHarness(factory, schema=[ORDERS, RULES], inputs=2, subtask=subtask, parallelism=3)
        rules(harness, ("a", 0), ("b", 3))
        orders(harness, ("a", 1), ("b", 2))
        assert harness.rows() == [("b", 2, 4)]
        assert harness.metrics.count("numRecordsSkipped") == counted


class Divides(KeyedBroadcastProcessFunction):
    """Each rule divides by the sums of all keys; with `wrap` what goes wrong is raised as something else."""

    sums = reducing_state("sum", "BIGINT")

    def __init__(self, wrap):
        self.wrap = wrap

    def process_element(self, row, context):
        self.sums.add(row["n"])

    def process_broadcast_element(self, row, context):
        if row["factor"] == 0:
            raise ValueError("no factor")
        try:
            context.apply_to_keyed_state(self.sums, lambda key, sums: row["factor"] // sums.get())
        except ZeroDivisionError as error:
            if self.wrap:
                raise ValueError("a sum of zero") from error
            raise


@pytest.mark.parametrize("wrap", [False, True])
def test_what_fails_for_a_key_of_one_subtask_is_no_fault_of_the_rule(wrap: bool) -> None:
    harness = run("Divides", arguments={"wrap": wrap}, errors=RowErrors(OnError.SKIP, "step 's'"))
    orders(harness, ("a", 1))
    rules(harness, ("x", 0), ("y", 3))
    assert harness.metrics.count("numRecordsSkipped") == 1
    orders(harness, ("b", 0))
    with pytest.raises(DataError, match=r"process_broadcast_element raised .*zero"):
        rules(harness, ("z", 1))


@pytest.mark.parametrize("form", ["", "Batch"])
@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("element", "state 'rules' is the same on all subtasks, and is changed by process_broadcast_.* only"),
        ("timer", "on_timer.* is the same on all subtasks"),
        ("keyed", "state of a key was used for a row of the broadcast stream, which has no key"),
        ("state", "apply_to_keyed_state got 'valeu', which is no state of a key"),
        ("type", "BIGINT, got 'b'"),
    ],
)
def test_what_is_not_allowed_says_so(form: str, what: str, message: str) -> None:
    harness = run(f"{form}Meddles", arguments={"what": what})

    def meddle() -> None:
        orders(harness, ("a", 1))
        rules(harness, ("b", 1))
        harness.end_input()

    with pytest.raises(DataError, match=message):
        meddle()


def test_timers_between_rows_of_the_broadcast_stream_do_not_change_it() -> None:
    harness = run("Meddles", arguments={"what": "timer after"})
    orders(harness, ("a", 1))
    harness.watermark(10)
    columns = pa.record_batch({"what": ["a", "b"], "factor": [1, 2]})
    passing = PassingWatermarks(np.array([1]), np.array([7]))
    with pytest.raises(DataError, match=r"on_timer\(5\).* is the same on all subtasks"):
        harness.operator.process_batch(RecordBatch(columns, pa.array([0, 0]), None, passing), 1)


def test_keys_that_are_floating_numbers_are_found() -> None:
    harness = run("Floats", PLAIN)
    rules(harness, ("a", 1))
    orders(harness, ("a", 0), ("b", 1))
    assert harness.rows() == [("a", 0, 2), ("b", 1, None)]


@pytest.mark.parametrize(
    ("name", "keys", "message"),
    [
        ("Times", PLAIN, "is a KeyedBroadcastProcessFunction, but its input has no keys"),
        ("Match", KEYED, "has keys, but is no KeyedBroadcastProcessFunction"),
        ("Alone", KEYED, "a function of one stream, but it is given a stream and a broadcast stream"),
    ],
)
def test_functions_that_do_not_keep_to_the_rules(name: str, keys: object, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        run(name, keys)


STEPS = st.lists(
    st.one_of(
        st.lists(st.tuples(st.just("o"), st.sampled_from("abc"), st.integers(0, 5)), min_size=1, max_size=6),
        st.lists(
            st.tuples(st.just("r"), st.sampled_from(["a", "b", "c", "forget", "reset", "show"]), st.integers(0, 3)),
            min_size=1,
            max_size=3,
        ),
        st.integers(1, 3),
    ),
    max_size=12,
)


@pytest.mark.parametrize("name", ["Times", "BatchTimes"])
@examples(40)
@given(steps=STEPS)
def test_all_subtasks_show_what_the_model_shows(name: str, steps: list[object]) -> None:
    options = {"schema": [ORDERS, RULES], "inputs": 2, "state_keys": [(0,), ()]}
    factory, subtasks = factory_of(name), [OperatorHarness(factory_of(name), **options)]  # type: ignore[arg-type]
    factors: dict[str, int] = {}
    sums: dict[str, int] = {}
    for step in steps:
        wanted = []
        if isinstance(step, int):
            taken = [h.snapshot() for h in subtasks]
            subtasks = [
                OperatorHarness.restore(factory, taken, subtask=i, parallelism=step, **options) for i in range(step)
            ]
            continue
        for kind, what, number in step:  # type: ignore[attr-defined]
            if kind == "o":
                sums[what] = sums.get(what, 0) + number * factors.get(what, 1)
                wanted.append((what, number, sums[what]))
            elif what == "forget":
                factors.clear()
            elif what == "reset":
                sums = dict.fromkeys(sums, number)
            elif what == "show":
                wanted += [("rules", len(factors), sum(factors.values()))] * len(subtasks)
            elif number == 0:
                factors.pop(what, None)
            else:
                factors[what] = number
        for harness in subtasks:
            said = [r[1:] for r in step]  # type: ignore[attr-defined]
            (orders if step[0][0] == "o" else rules)(harness, *said)  # type: ignore[index]
        assert sorted(r for h in subtasks for r in h.rows()) == sorted(wanted)
        for harness in subtasks:
            harness.clear()
