"""What lowering says of operators is plain data: it pickles, compares by value, and holds no code but named functions."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import FunctionType

import pyarrow as pa
import pytest

from flowrun.api.async_function import AsyncRetryStrategy
from flowrun.api.operator import OperatorSpec, OutputTag
from flowrun.core.schema import Schema
from flowrun.core.semantics import OutputMode
from flowrun.core.types import BIGINT, STRING
from flowrun.operators.asynchronous.factories import AsyncFunctionFactory
from flowrun.operators.factories import (
    IterationHeadFactory,
    IterationTailFactory,
    PythonFunctionFactory,
    SplitFactory,
    TimestampsAndWatermarksFactory,
)
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.operators.implementations import IMPLEMENTATIONS
from flowrun.operators.process.factories import CoProcessFunctionFactory
from flowrun.operators.process.function_kinds import FunctionInputs
from flowrun.operators.rows.factories import TableFunctionFactory
from flowrun.operators.timed.assigners import TumblingSlices
from flowrun.operators.updating.factories import ChangelogNormalizeFactory
from flowrun.operators.watermark_strategy import WatermarkStrategy
from flowrun.operators.windows.counts.factories import CountWindowFactory, GlobalWindowFactory
from flowrun.operators.windows.general.evictors import CountEvictor
from flowrun.operators.windows.general.factories import GeneralWindowFactory
from flowrun.operators.windows.output_modes.factories import OutputModeFactory
from flowrun.operators.windows.recipes import TriggerRule
from flowrun.runners.compile import compile_pipeline
from tests.operators.operator_recipes import Column, Greater
from tests.operators.windows.kernels import bound

SQL = Path(__file__).parent.parent / "sql"
CASES = (
    "aggregate_cube",
    "aggregate_distinct_tags",
    "aggregate_percentile",
    "changelog_functions",
    "deduplicate_first",
    "deduplicate_order_by_time",
    "insert_on_conflict_of_changes",
    "interval_window_agg",
    "match_agg_define",
    "misc_join_window_results",
    "misc_over_on_changelog",
    "misc_session_then_topn",
    "misc_win_on_temporal",
    "misc_window_topn_join",
    "process_table_functions",
    "temporal_lookup",
)
"""Scripts that have most kinds of operators between them."""
ROWS = Schema.of(name=STRING, amount=BIGINT)
TOTAL = Schema.of(name=STRING, total=BIGINT)
SUM = (bound("total", "SUM", 1),)
OTHERS = (
    IterationHeadFactory("loop", 1000),
    IterationTailFactory("loop"),
    PythonFunctionFactory(FunctionRecipe("functions:double"), ROWS, ROWS),
    AsyncFunctionFactory(FunctionRecipe("functions:Ask"), ROWS, ROWS, retry=AsyncRetryStrategy.fixed_delay(3, 10)),
    CoProcessFunctionFactory(FunctionRecipe("functions:Both"), FunctionInputs.TWO, (ROWS, ROWS), ROWS, ((0,), (0,))),
    TableFunctionFactory("functions:words", Greater("amount", 1), ROWS, ROWS),
    SplitFactory(((OutputTag("big", ROWS), Greater("amount", 100)),)),
    TimestampsAndWatermarksFactory(WatermarkStrategy.bounded(5000, Column("amount"))),
    ChangelogNormalizeFactory(ROWS, (0,)),
    CountWindowFactory((0,), SUM, 10, 5, ROWS, TOTAL),
    GlobalWindowFactory((0,), SUM, ROWS, TOTAL, TriggerRule(count=5)),
    OutputModeFactory(OutputMode.UPDATE, 1, ROWS),
    GeneralWindowFactory((0,), SUM, TumblingSlices(10), ROWS, TOTAL, TriggerRule(count=5), CountEvictor(3)),
)
"""What SQL has no words for, or what those scripts leave out."""
LEAVES = (bool, int, float, str, bytes, Decimal, date, datetime, time, timedelta, Enum, pa.RecordBatch, pa.Schema)


def lowered() -> list[OperatorSpec]:
    """The specs of all operators in the job graphs of the scripts."""
    variables = {"DATA": str(SQL / "data"), "OUT": str(SQL / "out")}
    found: list[OperatorSpec] = []
    for case in CASES:
        path = SQL / "cases" / f"{case}.sql"
        used = {n: v for n, v in variables.items() if f"${{{n}}}" in path.read_text()}
        graph = compile_pipeline(path, used, {"settings.parallelism": "3"}).job_graph
        found += [o.factory for vertex in graph.vertices for o in vertex.operators]
    return found


@pytest.fixture(scope="module")
def specs() -> list[OperatorSpec]:
    return [*lowered(), *OTHERS]


def test_there_is_one_of_each_kind(specs: list[OperatorSpec]) -> None:
    kinds = {f"{type(s).__module__.removeprefix('flowrun.operators.')}:{type(s).__qualname__}" for s in specs}
    assert kinds == set(IMPLEMENTATIONS)


def test_specs_pickle_and_compare_by_value(specs: list[OperatorSpec]) -> None:
    for spec in specs:
        copy = pickle.loads(pickle.dumps(spec))
        assert copy is not spec
        assert copy == spec


def test_specs_hold_plain_data_and_functions_that_have_a_name(specs: list[OperatorSpec]) -> None:
    assert {text for spec in specs for text in strange_parts(spec, type(spec).__name__)} == set()


def strange_parts(value: object, place: str) -> Iterator[str]:
    """Where in a value something is that is no data."""
    if value is None or isinstance(value, LEAVES):
        return
    if isinstance(value, FunctionType):
        if "<" in value.__qualname__:
            yield f"{place}: {value.__qualname__}"
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from strange_parts(key, place)
            yield from strange_parts(part, f"{place}[{key!r}]")
    elif isinstance(value, tuple | list | frozenset):
        for part in value:
            yield from strange_parts(part, place)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from strange_parts(getattr(value, field.name), f"{place}.{field.name}")
    else:
        yield f"{place}: a {type(value).__qualname__}"
