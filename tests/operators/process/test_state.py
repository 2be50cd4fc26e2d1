"""State of process functions: what snapshots hold, how little they write, time to live, and restoring."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pytest

from flowrun.api.state import OperatorSnapshot, SegmentedTable
from flowrun.core.clock import ManualClock
from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.errors import StateError
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.operators.process.factories import ProcessFunctionFactory
from flowrun.testing import OperatorHarness
from tests.operators.process.test_process_functions import ROWS, factory_of, run

COUNTERS = pytest.mark.parametrize("name", ["Counter", "BatchCounter"])
LASTING = pytest.mark.parametrize("name", ["Lasting", "BatchLasting"])


def segments_of(harness: OperatorHarness, state: str = "count") -> SegmentedTable:
    """The state's table as the operator hands it over."""
    taken: OperatorSnapshot = harness.operator.snapshot_state(1)
    return taken.segmented[state]


def push_keys(harness: OperatorHarness, keys: range | list[int]) -> None:
    harness.push({"k": [str(k) for k in keys], "n": [0] * len(keys)})


@COUNTERS
def test_a_snapshot_names_only_what_changed(name: str) -> None:
    harness = run(name)
    push_keys(harness, range(1000))
    first = segments_of(harness)
    push_keys(harness, [3, 5])
    second = segments_of(harness)
    third = segments_of(harness)
    assert first.key == ("k",)
    assert first.schema.names == ["__key_group", "k", "value", "__deleted"]
    assert second.segments[:1] == first.segments
    assert second.segments[1].rows().select(["k", "value"]).to_pylist() == [
        {"k": "3", "value": 2},
        {"k": "5", "value": 2},
    ]
    assert third.segments == second.segments, "nothing changed"


@COUNTERS
def test_what_a_segment_holds_does_not_change_afterwards(name: str) -> None:
    harness = run(name)
    push_keys(harness, range(100))
    taken = segments_of(harness)
    for _ in range(3):
        push_keys(harness, range(0, 150))
    assert set(taken.segments[0].rows()["value"].to_pylist()) == {1}


@COUNTERS
def test_the_log_is_folded_before_it_holds_more_than_twice_the_live_rows(name: str) -> None:
    harness = run(name)
    for _ in range(8):
        push_keys(harness, range(10_000))
        table = segments_of(harness)
        rows = sum(s.rows().num_rows for s in table.segments)
        assert rows <= 2 * 10_000 + 4096
    assert len(harness.snapshot().keyed["count"]) == 10_000


@COUNTERS
def test_many_small_snapshots_leave_few_segments(name: str) -> None:
    harness = run(name)
    push_keys(harness, range(5000))
    base = segments_of(harness).segments[0]
    for n in range(100):
        push_keys(harness, [n])
        table = segments_of(harness)
        assert len(table.segments) <= 25
    assert table.segments[0] is base, "what is big is not written again"
    assert sorted(harness.snapshot().keyed["count"]["value"].to_pylist())[-100:] == [2] * 100


class TestTombstones:
    @pytest.mark.parametrize("machine", ["RowMachine", "BatchMachine"])
    def test_state_that_is_removed_leaves_one_only_if_a_snapshot_has_it(self, machine: str) -> None:
        from tests.operators.process.test_against_model import Job

        job = Job(machine, "number")
        (harness,) = job.subtasks
        job.push([(0, "set", 0, 5), (1, "set", 0, 6)])
        assert len(segments_of(harness, "value").segments[0].rows()) == 2
        job.push([(0, "unset", 0, 0), (2, "set", 0, 7), (2, "unset", 0, 0)])
        changed = segments_of(harness, "value").segments[1].rows()
        assert changed.select(["k", "value", "__deleted"]).to_pylist() == [{"k": 1, "value": None, "__deleted": True}]
        job.push([(1, "unset", 0, 0)])
        assert "value" not in harness.operator.snapshot_state(9).segmented, "nothing is left"

    @pytest.mark.parametrize("machine", ["RowMachine", "BatchMachine"])
    def test_timers_and_maps_have_a_row_an_entry(self, machine: str) -> None:
        from tests.operators.process.test_against_model import Job

        job = Job(machine, "number")
        (harness,) = job.subtasks
        job.push([(0, "put", 2, 5), (0, "put", 3, 6), (0, "event", 0, 50), (0, "processing", 0, 60)])
        keyed = harness.snapshot().keyed
        assert keyed["entries"].drop_columns(["__key_group", "__written"]).to_pylist() == [
            {"k": 1, "map_key": 2, "value": 5},
            {"k": 1, "map_key": 3, "value": 6},
        ]
        assert keyed["timers"].drop_columns(["__key_group"]).to_pylist() == [
            {"k": 1, "__timestamp": 50, "__domain": "event"},
            {"k": 1, "__timestamp": 60, "__domain": "processing"},
        ]
        assert keyed["entries"].schema.equals(job.factory.state_schemas()["entries"])
        assert keyed["timers"].schema.equals(job.factory.state_schemas()["timers"])


def test_forgotten_keys_and_entries_make_room() -> None:
    from tests.operators.process.test_against_model import Job

    job = Job("BatchMachine", "number")
    (harness,) = job.subtasks
    job.keys = list(range(300_000))  # type: ignore[assignment]
    harness.push(_commands(range(150_000), "put"))
    harness.push(_commands(range(150_000), "event"))
    harness.push(_commands(range(150_000), "forget"))
    harness.push(_commands(range(150_000), "no_event"))
    harness.push(_commands(range(3), "set"))
    harness.push(_commands(range(2), "show"))
    backend = harness.operator._backend
    assert len(backend._keys) < 70_000
    assert [r[2] for r in harness.rows()] == [7, 7]
    assert len(harness.snapshot().keyed["value"]) == 3


def _commands(keys: range, command: str) -> pa.RecordBatch:
    size = len(keys)
    columns = {"k": np.array(keys), "command": [command] * size, "m": np.zeros(size, int), "v": np.full(size, 7)}
    return pa.record_batch(columns)


@COUNTERS
def test_taking_a_snapshot_of_many_changes_takes_no_time(name: str) -> None:
    keys = 200_000
    harness = OperatorHarness(
        ProcessFunctionFactory(
            FunctionRecipe(f"tests.operators.process.functions:{name}"),
            Schema.of(k=BIGINT, n=BIGINT),
            Schema.of(k=BIGINT, n=BIGINT),
            (0,),
        )
    )
    for start in range(0, keys, 50_000):
        numbers = np.arange(start, start + 50_000)
        harness.push(RecordBatch(pa.record_batch({"k": numbers, "n": numbers})))
    began = time.thread_time()
    taken = harness.operator.snapshot_state(1)
    spent = time.thread_time() - began
    assert spent < 0.05, "references only; materialising takes ten times as long"
    assert taken.segmented["count"].segments[0].rows().num_rows == keys


class TestTimeToLive:
    @LASTING
    def test_state_expires_a_time_after_its_last_write(self, name: str) -> None:
        harness = run(name)
        harness.push({"k": ["a"], "n": [1]})
        harness.advance_processing_time(99)
        harness.push({"k": ["a"], "n": [0]})
        harness.advance_processing_time(1)
        harness.push({"k": ["a"], "n": [0]})
        harness.push({"k": ["a"], "n": [2]})
        harness.advance_processing_time(60)
        harness.push({"k": ["a"], "n": [3]})
        harness.advance_processing_time(60)
        harness.push({"k": ["a"], "n": [0]})
        shown = [n for _, n in harness.rows()]
        assert shown == [10_101, 10_101, 0, 20_201, 30_502, 30_501], (
            "a list lives on as a whole, a map's entries one by one"
        )

    @LASTING
    def test_expired_state_is_not_part_of_snapshots(self, name: str) -> None:
        harness = run(name)
        harness.push({"k": ["a"], "n": [1]})
        harness.advance_processing_time(60)
        harness.push({"k": ["b"], "n": [1]})
        harness.advance_processing_time(60)
        harness.push({"k": ["c"], "n": [0]})
        keyed = harness.snapshot().keyed
        assert {state: table["k"].to_pylist() for state, table in keyed.items()} == {
            "value": ["b"],
            "items": ["b"],
            "pairs": ["b"],
        }
        assert keyed["value"]["__written"].to_pylist() == [60]

    @LASTING
    @pytest.mark.parametrize("after", [0, 39, 40])
    def test_the_time_of_the_last_write_is_restored(self, name: str, after: int) -> None:
        harness = run(name)
        harness.push({"k": ["a"], "n": [1]})
        harness.advance_processing_time(60)
        snapshot = harness.snapshot()
        restored = OperatorHarness.restore(factory_of(name), [snapshot], schema=ROWS, clock=ManualClock(60 + after))
        restored.push({"k": ["a"], "n": [0]})
        assert restored.rows() == [("a", 10_101 if after < 40 else 0)]

    @LASTING
    def test_a_clock_that_jumps_back_brings_nothing_back_and_loses_nothing(self, name: str) -> None:
        harness = run(name)
        harness.push({"k": ["a"], "n": [1]})
        harness.advance_processing_time(150)
        harness.push({"k": ["b"], "n": [1]})
        harness.push({"k": ["a"], "n": [0]})
        restored = OperatorHarness.restore(factory_of(name), [harness.snapshot()], schema=ROWS, clock=ManualClock(20))
        restored.push({"k": ["a", "b"], "n": [0, 0]})
        assert restored.rows() == [("a", 0), ("b", 10_101)], "150 counts, while the clock shows less"
        restored.advance_processing_time(229)
        restored.push({"k": ["b"], "n": [0]})
        restored.advance_processing_time(1)
        restored.push({"k": ["b"], "n": [0]})
        assert restored.rows()[2:] == [("b", 10_101), ("b", 0)]

    def test_state_that_gets_a_time_to_live_begins_to_live(self) -> None:
        columns = {
            "__key_group": pa.array([0], pa.int32()),
            "k": ["a"],
            "value": [1],
            "__written": pa.nulls(1, pa.int64()),
        }
        for name in ("Lasting", "BatchLasting"):
            schema = factory_of(name).state_schemas()["value"]
            migrated = OperatorSnapshot({"value": pa.table(columns, schema=schema)})
            harness = OperatorHarness(factory_of(name), schema=ROWS, restored=migrated, clock=ManualClock(1000))
            harness.push({"k": ["a"], "n": [0]})
            harness.advance_processing_time(100)
            harness.push({"k": ["a"], "n": [0]})
            assert [n for _, n in harness.rows()] == [10_000, 0]


class TestRestoring:
    @COUNTERS
    def test_state_that_the_function_does_not_declare_is_refused(self, name: str) -> None:
        harness = run(name)
        push_keys(harness, [1])
        with pytest.raises(
            StateError, match=r"has the state 'count', which .* does not declare\n.*did you mean 'counts'"
        ):
            OperatorHarness.restore(factory_of("RenamedCounter"), [harness.snapshot()], schema=ROWS)

    @COUNTERS
    def test_a_state_of_another_type_is_refused(self, name: str) -> None:
        harness = run(name)
        push_keys(harness, [1])
        with pytest.raises(
            StateError, match=r"state 'count' has the columns .* value int32, the snapshot has .* value int64"
        ):
            OperatorHarness.restore(factory_of("Counter32"), [harness.snapshot()], schema=ROWS)

    def test_timers_without_on_timer_are_refused(self) -> None:
        harness = run("Alarm")
        harness.push({"k": ["a"], "n": [5]}, [5])
        with pytest.raises(StateError, match="has the state 'timers'"):
            OperatorHarness.restore(factory_of("Counter"), [harness.snapshot()], schema=ROWS)

    def test_state_of_subtasks_is_dealt_out_or_given_to_all(self) -> None:
        harness = run("SubtaskLog")
        harness.push({"k": ["a", "b", "c", "d"], "n": [1, 2, 3, 4]})
        snapshot = harness.snapshot()
        shown = []
        for subtask in range(2):
            restored = OperatorHarness.restore(
                factory_of("SubtaskLog"), [snapshot], subtask=subtask, parallelism=2, schema=ROWS
            )
            restored.push({"k": ["x"], "n": [0]})
            shown += restored.rows()
        assert shown == [("a,c,x", 10), ("b,d,x", 10)]

    def test_states_declared_when_the_function_is_made(self) -> None:
        factory = factory_of("Dynamic", arguments={"names": ["first", "second"]})
        assert list(factory.state_schemas()) == ["first", "second"]
        harness = OperatorHarness(factory, schema=ROWS)
        harness.push({"k": ["a"], "n": [5]})
        assert harness.rows() == [("a", 5)]
        assert list(harness.snapshot().keyed) == ["first"]

    def test_functions_without_keys_describe_no_keyed_state(self) -> None:
        assert factory_of("Router", None).state_schemas() == {}


def test_columns_that_keys_have_already_get_another_name() -> None:
    schema = Schema.of(value=STRING, n=BIGINT)
    factory = ProcessFunctionFactory(
        FunctionRecipe("tests.operators.process.functions:Lasting"), schema, Schema.of(k=STRING, n=BIGINT), (0,)
    )
    assert factory.state_schemas()["pairs"].names == ["__key_group", "value", "map_key", "value_", "__written"]
