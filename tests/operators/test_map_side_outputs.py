"""Functions of map and flat_map with a context: time, and side outputs, which go with the rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from flowrun.api.operator import OutputTag
from flowrun.core.row_errors import OnError, RowErrors
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.errors import DataError, PipelineError
from flowrun.operators.factories import PythonFunctionFactory
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.testing import OperatorHarness

N = Schema.of(n=BIGINT)
ODD = OutputTag("odd", Schema.of(n=BIGINT, why=STRING))
HERE = f"{__name__}:"


def by_row(row: dict[str, Any], context: Any) -> dict[str, Any]:
    if row["n"] % 2:
        context.side_output("odd", {"n": row["n"], "why": f"at {context.timestamp}"})
    if row["n"] < 0:
        raise ValueError("negative")
    return row


def by_row_flat(row: dict[str, Any], context: Any) -> Iterator[dict[str, Any]]:
    yield by_row(row, context)
    yield row


class Both:
    """A callable object, with the watermark."""

    def __call__(self, row: dict[str, Any], context: Any) -> dict[str, Any]:
        context.side_output("odd", {"n": context.current_watermark, "why": "watermark"}, 77)
        return row


def by_batch(batch: pa.RecordBatch, context: Any) -> pa.RecordBatch:
    odd = [i for i, n in enumerate(batch.column("n").to_pylist()) if n % 2]
    rows = pa.record_batch(
        {"n": batch.column("n").take(pa.array(odd, pa.int64())), "why": pa.array(["odd"] * len(odd), pa.string())}
    )
    context.side_output("odd", rows, parents=odd)
    if any(n < 0 for n in batch.column("n").to_pylist()):
        raise ValueError("negative")
    return batch


def wrong(row: dict[str, Any], context: Any) -> dict[str, Any]:
    context.side_output("odd", {"n": "one", "why": None} if row["n"] == 1 else {"n": 0, "why": None})
    return row


def unknown(row: dict[str, Any], context: Any) -> dict[str, Any]:
    context.side_output("od", row)
    return row


def without(row: dict[str, Any], other: Any = None) -> dict[str, Any]:
    assert other is None
    return row


def harness(name: str, *, errors: OnError = OnError.FAIL, **options: Any) -> OperatorHarness:
    tags = options.pop("side_outputs", (ODD,))
    options = {"row": True, **options}
    recipe = PythonFunctionFactory(
        FunctionRecipe(HERE + name), N, N, name="step", side_outputs=tags, errors=RowErrors(errors, "step"), **options
    )
    return OperatorHarness(recipe, schema=N)


@pytest.mark.parametrize(
    ("name", "options"), [("by_row", {}), ("by_row_flat", {"flat": True}), ("by_batch", {"row": False})]
)
def test_side_outputs_go_with_the_rows(name: str, options: dict[str, Any]) -> None:
    with harness(name, **options) as step:
        step.push({"n": [1, 2, 3]}, timestamps=[10, 20, 30])
        why = ("odd", "odd") if name == "by_batch" else ("at 10", "at 30")
        assert step.side_rows("odd") == [(1, why[0]), (3, why[1])]
        (side,) = (e.batch for e in step.elements if hasattr(e, "tag"))
        assert side.timestamps.to_pylist() == [10, 30]
        assert len(step.rows()) == (6 if "flat" in options else 3)


@pytest.mark.parametrize(("name", "options"), [("by_row", {}), ("by_batch", {"row": False}), ("wrong", {})])
def test_nothing_is_sent_of_a_row_that_fails(name: str, options: dict[str, Any]) -> None:
    with harness(name, errors=OnError.SKIP, **options) as step:
        step.push({"n": [2, -1, 3, 1]} if name != "wrong" else {"n": [2, 1, 3, 4]}, timestamps=[1, 2, 3, 4])
        assert len(step.rows()) == 3
        assert [n for n, _ in step.side_rows("odd")] == ([3, 1] if name != "wrong" else [0, 0, 0])
        assert step.metrics.count("numRecordsSkipped") == 1


def test_a_function_knows_the_time() -> None:
    with harness("Both") as step:
        step.watermark(5)
        step.push({"n": [1]}, timestamps=[10])
        assert step.side_rows("odd") == [(5, "watermark")]
        (side,) = (e.batch for e in step.elements if hasattr(e, "tag"))
        assert side.timestamps.to_pylist() == [77]
        assert not step.operator.passes_watermarks


def test_changes_keep_their_kinds_beside() -> None:
    with harness("by_row") as step:
        step.push({"n": [1, 1]}, row_kinds=[1, 2])
        (side,) = (e.batch for e in step.elements if hasattr(e, "tag"))
        assert side.row_kinds.to_pylist() == [1, 2]


def test_what_is_not_declared_is_an_error_with_a_near_match() -> None:
    with harness("unknown") as step, pytest.raises(DataError, match="has no side output 'od'") as raised:
        step.push({"n": [1]})
    assert "odd" in (raised.value.hint or "")


def test_side_outputs_without_a_context_are_refused() -> None:
    with pytest.raises(PipelineError, match="no second parameter 'context'"):
        harness("without")
    with harness("without", side_outputs=()) as step:
        step.push({"n": [1]})
        assert step.rows() == [(1,)]
        assert step.operator.passes_watermarks
