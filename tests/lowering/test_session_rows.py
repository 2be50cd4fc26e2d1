"""Rows of open sessions are state: they come out once and whole, whatever is stored and restored on the way."""

from __future__ import annotations

import pickle
import random
from typing import Any

import pyarrow as pa
import pytest

from flowrun.core.types import BIGINT, STRING, DataType, TypeRoot
from flowrun.graph.transformation import OneInputTransformation, PartitionTransformation, Transformation
from flowrun.lowering import lower
from flowrun.operators.windows.sessions.factories import SessionWindowFactory
from flowrun.plan.nodes import Plan
from flowrun.testing.harness import OperatorHarness
from tests.operators.stored import stored
from tests.plan.recognition.queries import planned

QUERY = "SELECT * FROM TABLE(SESSION(TABLE clicks PARTITION BY user_id, DESCRIPTOR(ts), INTERVAL '0.010' SECOND))"


def collecting(plan: Plan) -> SessionWindowFactory:
    """The operator that keeps the rows."""
    node: Transformation = lower(plan)[0]
    while not isinstance(node, OneInputTransformation) or not isinstance(node.factory, SessionWindowFactory):
        (node,) = node.inputs
    assert isinstance(node.input, PartitionTransformation), "rows are shuffled by the session's key"
    factory: SessionWindowFactory = pickle.loads(pickle.dumps(node.factory))
    return factory


def test_whole_rows_are_collected() -> None:
    factory = collecting(planned(QUERY))
    row = factory.input_schema.types[1]
    assert factory.keys == (0,)
    assert factory.input_schema.types[0] == STRING
    assert isinstance(row, DataType)
    assert row.root is TypeRoot.ROW
    assert row.children[0] == BIGINT


@pytest.mark.parametrize("seed", range(4))
def test_restored_at_another_parallelism(seed: int) -> None:
    chance = random.Random(seed)
    factory = collecting(planned(QUERY))
    row = factory.input_schema.types[1].arrow
    events = [(chance.choice(["a", "b", "c", "d", None]), i * 3 + chance.randrange(4)) for i in range(120)]

    def batch(part: list[tuple[str | None, int]], first: int) -> pa.RecordBatch:
        rows = [
            {"f0": first + i, "f1": key, "f2": None, "f3": f"u{time}", "f4": time, "f5": None, "f6": time}
            for i, (key, time) in enumerate(part)
        ]
        return pa.record_batch(
            [pa.array([k for k, _ in part], pa.string()), pa.array(rows, row)], schema=factory.input_schema.arrow
        )

    def found(harnesses: list[OperatorHarness]) -> list[str]:
        return sorted(repr((k, s, e, [r["f0"] for r in rows])) for h in harnesses for k, s, e, rows in h.rows())

    options: dict[str, Any] = {"schema": factory.input_schema, "state_keys": [(0,)]}
    whole = OperatorHarness(factory, **options)
    for start in range(0, len(events), 10):
        part = events[start : start + 10]
        whole.push(batch(part, start), timestamps=[t for _, t in part])
        whole.watermark(max(t for _, t in events[: start + 10]) - 5)
    whole.watermark(10_000)

    stages: list[OperatorHarness] = [OperatorHarness(factory, subtask=i, parallelism=2, **options) for i in range(2)]
    seen: list[str] = []
    for start in range(0, len(events), 10):
        part = events[start : start + 10]
        for harness in stages:
            harness.push(batch(part, start), timestamps=[t for _, t in part])
            harness.watermark(max(t for _, t in events[: start + 10]) - 5)
        if start in (30, 70):
            seen += found(stages)
            taken = [stored(h.snapshot(), seed + i) for i, h in enumerate(stages)]
            width = 3 if start == 30 else 1
            stages = [
                OperatorHarness.restore(factory, taken, subtask=i, parallelism=width, **options) for i in range(width)
            ]
    for harness in stages:
        harness.watermark(10_000)
    assert sorted(seen + found(stages)) == found([whole])
