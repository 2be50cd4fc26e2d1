"""Lowering: which transformations and operators a plan becomes."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from flowrun.api.operator import ChainingStrategy, OutputTag
from flowrun.core.schema import Schema
from flowrun.core.semantics import NullKeys
from flowrun.core.types import BIGINT
from flowrun.errors import PipelineError, UnsupportedPlanError
from flowrun.graph.partitioner import KeyGroupPartitioner
from flowrun.graph.transformation import (
    OneInputTransformation,
    PartitionTransformation,
    PhysicalTransformation,
    SideOutputTransformation,
    SinkTransformation,
    SourceTransformation,
    Transformation,
    UnionTransformation,
)
from flowrun.lowering import lower
from flowrun.operators.factories import CalcFactory, PythonFunctionFactory, SourceOperatorFactory, SplitFactory
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.operators.implementations import create_operator
from flowrun.operators.process.factories import ProcessFunctionFactory
from flowrun.operators.watermark_strategy import WatermarkGeneration
from flowrun.operators.windows.counts.factories import CountWindowFactory, GlobalWindowFactory
from flowrun.operators.windows.general.factories import GeneralWindowFactory
from flowrun.operators.windows.sessions.factories import SessionWindowFactory
from flowrun.operators.windows.slices.factories import LocalSliceAggregateFactory, SliceWindowFactory
from flowrun.plan.nodes import (
    NodeHints,
    Plan,
    PlanNode,
    Process,
    PythonMap,
    Settings,
    SideOutput,
    Sink,
    Split,
    TableReference,
    Union,
    WatermarkKind,
)
from flowrun.plan.windows import (
    CountWindow,
    CumulativeWindow,
    EvictorSpec,
    GlobalWindow,
    SessionWindow,
    SlidingWindow,
    TriggerSpec,
    TumblingWindow,
    WindowSpec,
)
from tests.plan.plans import ORDERS, calc, plan, scan, sink, window

PARALLEL = Settings(parallelism=2)


def all_of(roots: tuple[Transformation, ...]) -> list[Transformation]:
    """Every transformation once, inputs first."""
    found: dict[int, Transformation] = {}

    def visit(node: Transformation) -> None:
        if id(node) not in found:
            for child in node.inputs:
                visit(child)
            found[id(node)] = node

    for root in roots:
        visit(root)
    return list(found.values())


def names(lowered: tuple[Transformation, ...]) -> list[str]:
    return [t.name for t in all_of(lowered)]


def factory(lowered: tuple[Transformation, ...], kind: type) -> object:
    (found,) = (
        t.factory for t in all_of(lowered) if isinstance(t, PhysicalTransformation) and isinstance(t.factory, kind)
    )
    return found


def test_a_keyed_window_is_pre_aggregated_then_shuffled_by_key() -> None:
    paid = calc(scan(event_time=True), "*", where="status = 'paid'", name="paid")
    lowered = lower(plan(window(paid, "SUM(amount) AS total", keys=("user",), name="totals"), settings=PARALLEL))
    assert names(lowered) == [
        "Source: orders",
        "paid, totals.input",
        "totals (local)",
        "totals (by key)",
        "totals",
        "Sink: out",
    ]
    local, final = factory(lowered, LocalSliceAggregateFactory), factory(lowered, SliceWindowFactory)
    assert isinstance(local, LocalSliceAggregateFactory)
    assert isinstance(final, SliceWindowFactory)
    assert final.partial_input
    assert (local.keys, local.aggregates, local.assigner, local.input_schema) == (
        final.keys,
        final.aggregates,
        final.assigner,
        final.input_schema,
    )
    (shuffle,) = (t for t in all_of(lowered) if isinstance(t, PartitionTransformation))
    assert shuffle.partitioner == KeyGroupPartitioner((0,))
    (keyed,) = (t for t in all_of(lowered) if isinstance(t, OneInputTransformation) and t.name == "totals")
    assert keyed.state_keys == (0,)


def test_only_keys_arguments_and_filters_travel_each_once() -> None:
    node = window(
        scan(event_time=True),
        "SUM(amount) AS total",
        "AVG(amount) AS mean",
        "COUNT(*) FILTER (WHERE status = 'paid') AS paid",
        "COUNT(DISTINCT id) FILTER (WHERE status = 'paid') AS ids",
        keys=("user",),
    )
    final = factory(lower(plan(node, settings=PARALLEL)), SliceWindowFactory)
    assert isinstance(final, SliceWindowFactory)
    assert str(final.input_schema) == "user STRING, amount DECIMAL(10, 2), $2 BOOLEAN, id BIGINT"
    assert [(a.name, a.argument, a.filter, a.distinct) for a in final.aggregates] == [
        ("total", 1, None, False),
        ("mean", 1, None, False),
        ("paid", None, 2, False),
        ("ids", 3, 2, True),
    ]
    assert final.null_keys is NullKeys.FAIL


def test_late_rows_keep_their_columns_and_lose_the_computed_ones_again() -> None:
    aggregate = window(scan(event_time=True), "SUM(amount + 1) AS total", keys=("user",), late="late")
    late = SideOutput(schema=ORDERS, hints=NodeHints(name="late"), input=aggregate, tag="late")
    lowered = lower(plan(aggregate, late, settings=PARALLEL))
    final = factory(lowered, SliceWindowFactory)
    assert isinstance(final, SliceWindowFactory)
    assert final.input_schema.names == (*ORDERS.names, "$5")
    assert final.late_tag is not None
    assert final.late_tag.schema == final.input_schema
    (side,) = (t for t in all_of(lowered) if isinstance(t, SideOutputTransformation))
    assert side.tag == final.late_tag
    assert lowered[1].schema == ORDERS


@pytest.mark.parametrize(
    ("why", "node", "settings"),
    [
        ("late rows are wanted", {"late": "late"}, PARALLEL),
        ("it is turned off", {}, Settings(parallelism=2, local_aggregation=False)),
    ],
)
def test_no_local_aggregation_where(why: str, node: dict[str, str], settings: Settings) -> None:
    lowered = lower(plan(window(scan(event_time=True), "COUNT(*) AS n", keys=("user",), **node), settings=settings))  # type: ignore[arg-type]
    assert not any("(local)" in n for n in names(lowered)), why


def test_distinct_and_ordered_aggregates_are_not_pre_aggregated() -> None:
    for text in ("COUNT(DISTINCT id) AS n", "FIRST_VALUE(id) AS n", "LISTAGG(status) AS n"):
        lowered = lower(plan(window(scan(event_time=True), text, keys=("user",)), settings=PARALLEL))
        assert not any("(local)" in n for n in names(lowered))


def test_a_window_without_keys_runs_alone_behind_parallel_pre_aggregation() -> None:
    lowered = lower(plan(window(scan(event_time=True), "COUNT(*) AS n", name="all"), settings=PARALLEL))
    by_name = {t.name: t for t in all_of(lowered)}
    assert (by_name["all (local)"].parallelism, by_name["all"].parallelism) == (2, 1)
    assert not any(isinstance(t, PartitionTransformation) for t in by_name.values())


@pytest.mark.parametrize("spec", [SlidingWindow(60_000, 20_000), CumulativeWindow(60_000, 20_000)])
def test_aligned_windows_use_slices(spec: SlidingWindow | CumulativeWindow) -> None:
    lowered = lower(plan(window(scan(event_time=True), "COUNT(*) AS n", keys=("user",), of=spec), settings=PARALLEL))
    final = factory(lowered, SliceWindowFactory)
    assert isinstance(final, SliceWindowFactory)
    assert final.assigner.slice_ms == 20_000


def test_sessions_have_their_own_operator() -> None:
    node = window(scan(event_time=True), "COUNT(*) AS n", keys=("user",), of=SessionWindow(5_000), late="late")
    final = factory(lower(plan(node)), SessionWindowFactory)
    assert isinstance(final, SessionWindowFactory)
    assert (final.gap_ms, final.late_tag is not None) == (5_000, True)


def test_uids_of_further_operators_are_derived() -> None:
    node = window(scan(event_time=True, uid="in"), "SUM(amount + 1) AS n", keys=("user",), uid="totals")
    lowered = lower(plan(node, settings=PARALLEL))
    uids = [t.uid for t in all_of(lowered) if isinstance(t, PhysicalTransformation)]
    assert uids == ["in", "totals:input", "totals:local", "totals", None]


def test_hints_reach_the_transformations() -> None:
    node = calc(scan(), "id", uid="u", parallelism=3, slot_sharing_group="g", chaining=False)
    (found,) = (t for t in all_of(lower(plan(node))) if isinstance(t, OneInputTransformation))
    assert (found.uid, found.parallelism, found.slot_sharing_group) == ("u", 3, "g")
    assert found.chaining is ChainingStrategy.NEVER


def test_a_scan_that_two_steps_read_is_one_source() -> None:
    shared = scan()
    lowered = lower(plan(calc(shared, "id"), calc(shared, "user")))
    assert sum(isinstance(t, SourceTransformation) for t in all_of(lowered)) == 1


def test_sources_compute_columns_and_event_time() -> None:
    source = factory(lower(plan(scan(event_time=True), settings=Settings(batch_rows=7))), SourceOperatorFactory)
    assert isinstance(source, SourceOperatorFactory)
    assert source.strategy is not None
    assert (source.strategy.kind, source.strategy.delay_ms, source.strategy.column) == (
        WatermarkGeneration.BOUNDED,
        5_000,
        "ts",
    )
    assert source.projection is None
    assert source.batch_rows == 7


@pytest.mark.parametrize("kind", list(WatermarkKind))
def test_every_kind_of_watermark_has_a_strategy(kind: WatermarkKind) -> None:
    node = scan(event_time=True)
    assert node.watermark is not None
    punctuation = node.watermark.time if kind is WatermarkKind.PUNCTUATED else None
    node = replace(node, watermark=replace(node.watermark, kind=kind, punctuation=punctuation))
    source = factory(lower(plan(node)), SourceOperatorFactory)
    assert isinstance(source, SourceOperatorFactory)
    assert source.strategy is not None
    assert source.strategy.kind.value == kind.value


def test_splits_unions_and_python_functions() -> None:
    condition = calc(scan(), where="id > 5").condition
    assert condition is not None
    orders = scan()
    split = Split(schema=ORDERS, hints=NodeHints(name="s"), input=orders, branches=(("big", condition),))
    branch = SideOutput(schema=ORDERS, hints=NodeHints(name="big"), input=split, tag="big")
    union = Union(schema=ORDERS, hints=NodeHints(name="u"), members=(split, branch))
    mapped = PythonMap(
        schema=Schema.of(n=BIGINT),
        hints=NodeHints(name="m"),
        input=union,
        function="m:f",
        flat=True,
        search_path=("/x",),
    )
    lowered = lower(plan(mapped))
    assert isinstance(factory(lowered, SplitFactory), SplitFactory)
    python = factory(lowered, PythonFunctionFactory)
    assert isinstance(python, PythonFunctionFactory)
    assert (python.function, python.flat, python.input_schema) == (
        FunctionRecipe("m:f", search_path=("/x",)),
        True,
        ORDERS,
    )
    (virtual,) = (t for t in all_of(lowered) if isinstance(t, UnionTransformation))
    assert isinstance(virtual.members[1], SideOutputTransformation)


def test_a_process_function_stands_behind_a_shuffle_by_its_keys() -> None:
    late = Schema.of(n=BIGINT)
    process = Process(
        schema=ORDERS,
        hints=NodeHints(name="p", uid="p", parallelism=3, chaining=False),
        input=scan(event_time=True),
        function="m:F",
        arguments={"limit": 5},
        keys=(1,),
        null_keys=NullKeys.DROP,
        side_outputs={"late": late},
        search_path=("/x",),
    )
    side = SideOutput(schema=late, hints=NodeHints(name="late"), input=process, tag="late")
    lowered = lower(plan(process, side))
    (transformation,) = (
        t
        for t in all_of(lowered)
        if isinstance(t, OneInputTransformation) and isinstance(t.factory, ProcessFunctionFactory)
    )
    built = pickle.loads(pickle.dumps(transformation.factory))
    assert built == ProcessFunctionFactory(
        FunctionRecipe("m:F", {"limit": 5}, ("/x",)),
        ORDERS,
        ORDERS,
        (1,),
        NullKeys.DROP,
        (OutputTag("late", late),),
        "p",
        True,
    )
    assert (transformation.uid, transformation.parallelism, transformation.state_keys) == ("p", 3, (1,))
    assert transformation.chaining is ChainingStrategy.NEVER
    assert isinstance(transformation.input, PartitionTransformation)
    assert transformation.input.partitioner == KeyGroupPartitioner((1,))
    unkeyed = replace(process, keys=None, side_outputs={})
    (alone,) = (
        t
        for t in all_of(lower(plan(unkeyed)))
        if isinstance(t, OneInputTransformation) and isinstance(t.factory, ProcessFunctionFactory)
    )
    assert not isinstance(alone.input, PartitionTransformation)
    assert alone.state_keys is None


def test_a_calc_that_only_filters_projects_nothing() -> None:
    filtered = factory(lower(plan(calc(scan(), where="id > 5"))), CalcFactory)
    assert isinstance(filtered, CalcFactory)
    assert filtered.projection is None
    renamed = factory(lower(plan(calc(scan(), "id AS key", "user", "amount", "status", "ts"))), CalcFactory)
    assert isinstance(renamed, CalcFactory)
    assert renamed.projection is not None


def test_options_that_do_not_fit_name_the_table() -> None:
    node = scan()
    broken = Sink(ORDERS, NodeHints(name="out"), node, TableReference("out", "filesystem", {"path": "x"}, format="xml"))
    with pytest.raises(PipelineError, match=r"sink 'out': connector 'filesystem' has no format 'xml'"):
        lower(Plan("p", (broken,)))


def every_kind() -> PlanNode:
    return window(
        calc(scan(event_time=True), "*", where="id > 5"), "SUM(amount) AS a", "LISTAGG(status) AS l", keys=("user",)
    )


def test_everything_that_lowering_makes_pickles() -> None:
    for transformation in all_of(lower(plan(every_kind(), settings=PARALLEL))):
        if isinstance(transformation, PhysicalTransformation):
            assert create_operator(pickle.loads(pickle.dumps(transformation.factory))) is not None
        if isinstance(transformation, SourceTransformation):
            pickle.dumps(transformation.source)
        if isinstance(transformation, SinkTransformation):
            pickle.dumps(transformation.sink)


def test_sinks_come_back_in_the_order_of_the_plan() -> None:
    node = scan()
    lowered = lower(plan(sink(node, "b"), sink(node, "a")))
    assert [t.name for t in lowered] == ["Sink: b", "Sink: a"]


@pytest.mark.parametrize(
    ("spec", "trigger", "evictor", "expected"),
    [
        (CountWindow(5, 2), None, None, CountWindowFactory),
        (GlobalWindow(), None, None, GlobalWindowFactory),
        (GlobalWindow(), TriggerSpec(count=5, purge=True), None, GlobalWindowFactory),
        (GlobalWindow(), TriggerSpec(every_ms=5), None, GlobalWindowFactory),
        (GlobalWindow(), TriggerSpec(count=5, every_ms=5), None, GeneralWindowFactory),
        (GlobalWindow(), TriggerSpec(count=5), EvictorSpec(count=3), GeneralWindowFactory),
        (TumblingWindow(5), TriggerSpec(every_ms=1), None, GeneralWindowFactory),
        (SlidingWindow(6, 2), None, EvictorSpec(time_ms=3), GeneralWindowFactory),
        (SessionWindow(5), TriggerSpec(count=5), None, GeneralWindowFactory),
    ],
)
def test_other_windows_and_triggers_choose_their_operator(
    spec: WindowSpec, trigger: TriggerSpec | None, evictor: EvictorSpec | None, expected: type
) -> None:
    node = replace(
        window(scan(event_time=True), "COUNT(*) AS n", keys=("user",), of=spec), trigger=trigger, evictor=evictor
    )
    lowered = lower(plan(node, settings=PARALLEL))
    assert isinstance(factory(lowered, expected), expected)
    assert not any("(local)" in n for n in names(lowered))


def test_the_column_of_a_delta_trigger_travels_too() -> None:
    node = window(scan(event_time=True), "COUNT(*) AS n", keys=("user",), of=GlobalWindow())
    delta = calc(scan(), "id * 2 AS x").projections[0]
    node = replace(node, trigger=TriggerSpec(delta=delta, threshold=5.0))
    general = factory(lower(plan(node)), GeneralWindowFactory)
    assert isinstance(general, GeneralWindowFactory)
    assert str(general.input_schema) == "user STRING, $1 BIGINT"
    assert general.rule is not None
    assert general.rule.delta == 1


def test_what_no_operator_can_do_names_the_step_and_a_way_out() -> None:
    counted = window(scan(), "COUNT(*) AS n", of=CountWindow(5, 5), name="fives")
    with pytest.raises(
        UnsupportedPlanError, match=r"count window of 'fives' cannot have a trigger[\s\S]*use a global window"
    ):
        lower(plan(replace(counted, trigger=TriggerSpec(count=2))))
    delta = calc(scan(), "id").projections[0]
    session = window(scan(event_time=True), "COUNT(*) AS n", of=SessionWindow(5), name="visits")
    with pytest.raises(UnsupportedPlanError, match=r"'visits'.*cannot be used with session windows"):
        lower(plan(replace(session, trigger=TriggerSpec(delta=delta, threshold=5.0))))
