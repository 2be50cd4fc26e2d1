from __future__ import annotations

import pickle
from collections.abc import Sequence
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.api.process_function import operator_state, value_state
from flowrun.api.window_function import ProcessWindowFunction, window_state
from flowrun.core.elements import MAX_TIMESTAMP
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.errors import DataError, PipelineError
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.operators.implementations import create_operator
from flowrun.operators.timed.assigners import SlidingSlices, TumblingSlices
from flowrun.operators.windows.functions.loading import load_window_function
from flowrun.operators.windows.general import collected
from flowrun.operators.windows.general.collected import CollectedWindowOperator
from flowrun.operators.windows.general.evictors import CountEvictor
from flowrun.operators.windows.general.factories import GeneralWindowFactory, GlobalAssigner, SessionAssigner
from flowrun.operators.windows.general.operator import WindowOperator
from flowrun.operators.windows.recipes import TriggerRule
from flowrun.testing.harness import OperatorHarness
from tests.examples import examples
from tests.operators.windows.flink_oracle import tumbling
from tests.operators.windows.functions.digests import (
    BUSY,
    TOLD,
    Digest,
    DigestBatch,
    DigestWithClear,
    FunctionOracle,
)
from tests.operators.windows.general_streams import CASES, push_cut
from tests.operators.windows.streams import (
    INPUT,
    LATE,
    LateKeeping,
    Stream,
    drive,
    oracle_log,
    plain,
    random_events,
    run_restored,
    streams,
)
from tests.slices import everyday

FEW = examples(40)
KEYS = ((0,), (0, 1), ())
FUNCTIONS = (Digest, DigestWithClear, DigestBatch)


def factory(function: type, assigner: Any, keys: Sequence[int] = (0,), **options: Any) -> GeneralWindowFactory:
    options.setdefault("output_schema", TOLD)
    return GeneralWindowFactory(
        tuple(keys),
        (),
        assigner,
        INPUT,
        function=FunctionRecipe.of_code(function),
        side_outputs=(BUSY,),
        late_tag=LATE,
        **options,
    )


def fired_by_window(log: Sequence[Any]) -> list[Any]:
    """Keys of one window in a fixed order; what late rows fire stays in order."""
    return [(kind, sorted(rows, key=lambda r: (r[2], repr(r))) if kind == "fired" else rows) for kind, rows in log]


@FEW
@given(
    streams(),
    st.sampled_from(CASES),
    st.sampled_from(KEYS),
    st.sampled_from(FUNCTIONS),
    st.sampled_from([0, 0, 4, 12]),
    st.sampled_from([1, 2, 7, 1024]),
)
def test_functions_see_what_flink_shows_them_row_by_row(
    stream: Stream, case: Any, keys: tuple[int, ...], function: type, lateness: int, cuts: int
) -> None:
    assigner, assign = case
    events = (*stream.events, MAX_TIMESTAMP)
    recipe = pickle.loads(pickle.dumps(factory(function, assigner, keys, allowed_lateness_ms=lateness)))
    harness = LateKeeping(recipe, schema=INPUT)
    busy: list[Any] = []
    harness_clear = harness.clear

    def clear() -> None:
        busy.extend(harness.side_rows(BUSY))
        harness_clear()

    harness.clear = clear  # type: ignore[method-assign]
    log = drive(harness, events, cuts)
    harness.close()
    oracle = FunctionOracle(assign, keys, lateness)
    assert fired_by_window(log) == fired_by_window(oracle_log(oracle, events))
    assert harness.late == oracle.late
    assert sorted(busy) == sorted(oracle.busy)


@pytest.mark.parametrize(
    ("function", "widths", "lateness"), everyday(product(FUNCTIONS, [(1, 2), (2, 1), (2, 3)], [0, 12]), 5)
)
def test_state_and_rows_survive_a_restore_at_another_parallelism(
    function: type, widths: tuple[int, int], lateness: int
) -> None:
    events = random_events(600, seed=lateness + widths[0])
    keys = (0, 1)
    got, expected = run_restored(
        factory(function, SlidingSlices(40, 20), keys, allowed_lateness_ms=lateness),
        lambda: _oracle_of_all(keys, lateness),
        events,
        317,
        widths,
        keys,
        lags=(0, 7),
    )
    assert got == expected


def _oracle_of_all(keys: tuple[int, ...], lateness: int) -> FunctionOracle:
    return FunctionOracle(lambda t: [(s, s + 40) for s in (t // 20 * 20 - 20, t // 20 * 20)], keys, lateness)


def test_windows_that_only_collect_rows_need_no_python_a_window() -> None:
    def kind(*arguments: Any, **options: Any) -> type:
        return type(create_operator(factory(*arguments, **options)))

    for function in (Digest, DigestBatch):
        assert kind(function, TumblingSlices(10)) is CollectedWindowOperator
        assert kind(function, TumblingSlices(10), rule=TriggerRule(count=3)) is WindowOperator
        assert kind(function, TumblingSlices(10), evictor=CountEvictor(3)) is WindowOperator
    assert kind(DigestWithClear, TumblingSlices(10)) is WindowOperator


def test_rows_and_windows_that_are_over_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collected, "_SPARE", 8)
    recipe = factory(Digest, TumblingSlices(10))
    harness = OperatorHarness(recipe, schema=INPUT)
    oracle = FunctionOracle(tumbling(10), (0,), 0)
    for t in range(300):
        row = (f"k{t // 7}", 1, t, "x", True)
        push_cut(harness, [(row, t)], 1)
        harness.watermark(t - 5)
        oracle.row(row, t)
        oracle.advance(t - 5)
    assert plain(harness.rows()) == oracle.emitted
    assert len(harness.operator._contents) < 64
    assert len(harness.operator._numbers) < 64


class Bounds(ProcessWindowFunction):
    def process(self, key: Any, context: Any, rows: Any) -> Any:
        return {"text": f"{key} {context.window.start} {context.window.end} {len(rows)}"}


TEXT = Schema.of(text=STRING)


def test_sessions_and_the_global_window_call_functions_too() -> None:
    harness = OperatorHarness(factory(Bounds, SessionAssigner(5), output_schema=TEXT), schema=INPUT)
    push_cut(harness, [(("a", 1, 1, "x", True), t) for t in (1, 4, 20)], 2)
    harness.watermark(30)
    assert harness.rows() == [("('a',) 1 9 2",), ("('a',) 20 25 1",)]
    assert harness.timestamps() == [8, 24]
    rule = TriggerRule(count=2, purge=True)
    harness = OperatorHarness(factory(Bounds, GlobalAssigner(), rule=rule, output_schema=TEXT), schema=INPUT)
    push_cut(harness, [(("a", 1, 1, "x", True), t) for t in (9, 4, 20)], 3)
    assert [r[0].rpartition(" ")[2] for r in harness.rows()] == ["2"]
    assert harness.timestamps() == [9]


CLEARED: list[Any] = []


class Clearing(ProcessWindowFunction):
    """Shows in which order it is called."""

    def process(self, key: Any, context: Any, rows: Any) -> None:
        CLEARED.append(("fired", *key, context.window.end))

    def clear(self, context: Any) -> None:
        CLEARED.append(("cleared", context.window.end))


class ClearingBatch(ProcessWindowFunction):
    def process_batch(self, windows: pa.RecordBatch, rows: pa.RecordBatch, context: Any) -> None:
        CLEARED.append(("fired", windows.num_rows))

    def clear_batch(self, windows: pa.RecordBatch, context: Any) -> None:
        CLEARED.append(("cleared", windows.num_rows))


@pytest.mark.parametrize("lateness", [0, 5])
def test_a_function_is_told_of_windows_that_are_forgotten(lateness: int) -> None:
    CLEARED.clear()
    for function in (Clearing, ClearingBatch):
        harness = OperatorHarness(
            factory(function, TumblingSlices(10), output_schema=TEXT, allowed_lateness_ms=lateness), schema=INPUT
        )
        push_cut(harness, [(("a", 1, 1, "x", True), t) for t in (1, 12)], 2)
        harness.watermark(19)
        harness.watermark(30)
        harness.close()
    first = [("fired", "a", 10), ("cleared", 10), ("fired", "a", 20), ("cleared", 20)]
    if lateness:
        batch = [("fired", 2), ("cleared", 1), ("cleared", 1)]
    else:
        batch = [("fired", 2), ("cleared", 2)]
    assert first + batch == CLEARED


class Raises(ProcessWindowFunction):
    def process(self, key: Any, context: Any, rows: Any) -> Any:
        return {"text": 1 // (len(rows) - 1)}


class Misnamed(ProcessWindowFunction):
    def process(self, key: Any, context: Any, rows: Any) -> Any:
        yield {"txt": "x"}


class WithoutParents(ProcessWindowFunction):
    def process_batch(self, windows: Any, rows: pa.RecordBatch, context: Any) -> Any:
        return pa.record_batch({"text": ["x"] * rows.num_rows})


class SendsFromClear(ProcessWindowFunction):
    def process(self, key: Any, context: Any, rows: Any) -> None: ...

    def clear(self, context: Any) -> None:
        context.collect({"text": "late"})


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (Raises, r"process raised ZeroDivisionError: .* the window is \('b',\), 0 to 10 ms"),
        (Misnamed, "without the column 'text' and with the undeclared column 'txt'"),
        (WithoutParents, "got 2 windows and sent 3 rows without saying of which they are"),
        (SendsFromClear, "rows cannot be sent while a window is cleared"),
    ],
)
def test_errors_name_the_function_and_the_window(function: type, message: str) -> None:
    harness = OperatorHarness(factory(function, TumblingSlices(10), output_schema=TEXT, name="spreads"), schema=INPUT)
    push_cut(harness, [((k, 1, 1, "x", True), 1) for k in ("a", "a", "b")], 9)
    with pytest.raises(DataError, match=f"window function .*{function.__name__}' of 'spreads'.*{message}"):
        harness.watermark(10)


class Both(ProcessWindowFunction):
    def process(self, key: Any, context: Any, rows: Any) -> None: ...
    def process_batch(self, windows: Any, rows: Any, context: Any) -> None: ...


class Short(ProcessWindowFunction):
    def process(self, key: Any, rows: Any) -> None: ...


class OfSubtask(ProcessWindowFunction):
    seen = operator_state("BIGINT")

    def process(self, key: Any, context: Any, rows: Any) -> None: ...


class Reserved(ProcessWindowFunction):
    rows = value_state("BIGINT")

    def process(self, key: Any, context: Any, rows: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (ProcessWindowFunction, "has neither process nor process_batch"),
        (Both, "has both process and process_batch"),
        (Short, r"process\(.*cannot be called with \(key, context, rows\)"),
        (OfSubtask, "declares the operator state 'seen'"),
        (Reserved, "a state cannot be called 'rows'"),
        (Digest, "declares the state 'firings' of a window, but its windows merge"),
        (dict, "is the class dict, not a window function"),
    ],
)
def test_functions_that_do_not_keep_to_the_rules_are_refused(function: type, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        load_window_function(FunctionRecipe.of_code(function), merging=True)


def test_state_of_windows_and_keys_has_tables() -> None:
    schemas = factory(Digest, TumblingSlices(10)).state_schemas()
    assert schemas["firings"].names == ["__key_group", "name", "window_start", "window_end", "value"]
    assert schemas["total"].names == ["__key_group", "name", "value"]
    assert list(schemas) == ["rows", "total", "firings"]
    with pytest.raises(TypeError, match="takes a declaration of keyed state"):
        window_state("BIGINT")
    assert BIGINT  # the type of both values
