"""Functions of two streams: what they are in a plan, and which transformations they become."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowrun.api.operator import OutputTag
from flowrun.core.schema import Schema
from flowrun.core.semantics import NullKeys
from flowrun.core.types import BIGINT
from flowrun.errors import InternalError
from flowrun.graph.partitioner import BroadcastPartitioner, KeyGroupPartitioner
from flowrun.graph.transformation import PartitionTransformation, TwoInputTransformation
from flowrun.lowering import lower
from flowrun.lowering.change_order import keep_changes_in_order
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.operators.process.factories import CoProcessFunctionFactory
from flowrun.operators.process.function_kinds import FunctionInputs
from flowrun.plan.co_process import CoProcess
from flowrun.plan.explain import explain_plan
from flowrun.plan.nodes import NodeHints, SideOutput, walk_plan
from flowrun.plan.rewrites import optimise
from tests.lowering.test_lowering import PARALLEL, all_of
from tests.plan.plans import ORDERS, calc, plan, scan

LATE = Schema.of(n=BIGINT)


def co_process(**changes: object) -> CoProcess:
    numbers = calc(scan(name="numbers"), "id % 10 AS n", "user AS who", name="numbers")
    given = CoProcess(
        schema=ORDERS,
        hints=NodeHints(name="both", uid="both", parallelism=3),
        left=scan(event_time=True),
        right=numbers,
        function="m:F",
        arguments={"limit": 5},
        left_keys=(0,),
        right_keys=(0,),
        null_keys=NullKeys.DROP,
        side_outputs={"late": LATE},
        search_path=("/x",),
    )
    return replace(given, **changes)  # type: ignore[arg-type]


def lowered(node: CoProcess) -> TwoInputTransformation:
    (found,) = (t for t in all_of(lower(plan(node, settings=PARALLEL))) if isinstance(t, TwoInputTransformation))
    return found


def test_both_inputs_stand_behind_shuffles_by_their_keys() -> None:
    node = co_process()
    made = lowered(node)
    assert made.factory == CoProcessFunctionFactory(
        FunctionRecipe("m:F", {"limit": 5}, ("/x",)),
        FunctionInputs.TWO,
        (ORDERS, node.right.schema),
        ORDERS,
        ((0,), (0,)),
        NullKeys.DROP,
        (OutputTag("late", LATE),),
        "both",
        True,
    )
    assert (made.uid, made.parallelism, made.state_keys) == ("both", 3, ((0,), (0,)))
    for side in (made.left, made.right):
        assert isinstance(side, PartitionTransformation)
        assert side.partitioner == KeyGroupPartitioner((0,))


@pytest.mark.parametrize("keys", [(0,), None])
def test_a_broadcast_stream_goes_to_all_subtasks(keys: tuple[int, ...] | None) -> None:
    made = lowered(co_process(left_keys=keys, right_keys=None, broadcast=True))
    assert isinstance(made.factory, CoProcessFunctionFactory)
    assert (made.factory.inputs, made.factory.keys) == (FunctionInputs.BROADCAST, (keys, None))
    assert isinstance(made.right, PartitionTransformation)
    assert made.right.partitioner == BroadcastPartitioner()
    assert isinstance(made.left, PartitionTransformation) == (keys is not None)
    assert made.state_keys == (None if keys is None else (keys, ()))
    keep_changes_in_order(made, 2)
    assert made.right.partitioner == BroadcastPartitioner()


def test_without_keys_rows_come_as_they_are() -> None:
    made = lowered(co_process(left_keys=None, right_keys=None))
    assert not isinstance(made.left, PartitionTransformation)
    assert not isinstance(made.right, PartitionTransformation)
    assert made.state_keys is None


@pytest.mark.parametrize(("own", "by_row"), [(None, False), (2, False), (3, True), (1, False)])
def test_without_keys_a_change_stays_behind_the_row_that_it_changes(own: int | None, by_row: bool) -> None:
    made = lowered(co_process(left_keys=None, right_keys=None, hints=NodeHints(name="both", parallelism=own)))
    keep_changes_in_order(made, 2)
    assert made.parallelism == own
    for side in (made.left, made.right):
        assert isinstance(side, PartitionTransformation) == by_row


def test_functions_get_all_columns_and_send_side_outputs_of_their_own() -> None:
    node = co_process()
    side = SideOutput(schema=LATE, hints=NodeHints(name="late"), input=node, tag="late")
    optimised = optimise(plan(calc(node, "id"), side))
    (kept,) = (n for n in walk_plan(optimised) if isinstance(n, CoProcess))
    assert (kept.left.schema, kept.right.schema) == (node.left.schema, node.right.schema)
    (read,) = (n for n in walk_plan(optimised) if isinstance(n, SideOutput))
    assert (read.schema, read.input) == (LATE, kept)


def test_keys_of_both_inputs_go_together() -> None:
    for wrong in ({"right_keys": None}, {"left_keys": None}, {"right_keys": (0, 1)}, {"broadcast": True}):
        with pytest.raises(InternalError, match="a function of two streams has keys"):
            co_process(**wrong)


def test_explain_shows_function_arguments_keys_and_side_outputs() -> None:
    shown = explain_plan(plan(co_process())).splitlines()
    at = next(i for i, line in enumerate(shown) if "CoProcess both" in line)
    assert [line.strip(" │└├─") for line in shown[at : at + 7]] == [
        "#4 CoProcess both [uid=both, parallelism=3]",
        "function: m:F",
        "with: limit = 5",
        "keys: id = n",
        "null_keys: drop",
        f"columns_out: {ORDERS}",
        "side_outputs: late = (n BIGINT)",
    ]
    shown = explain_plan(plan(co_process(right_keys=None, broadcast=True))).splitlines()
    details = {line.strip(" │└├─") for line in shown}
    assert details > {"keys: id", "null_keys: drop", "broadcast: the second input"}
