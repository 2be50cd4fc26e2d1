"""The process functions of docs/guide.md do what the guide says."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowrun.api.operator import OutputTag
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING, timestamp
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.operators.process.factories import ProcessFunctionFactory
from flowrun.testing import OperatorHarness

GUIDE = Path(__file__).parents[3] / "docs" / "guide.md"
MINUTE = 60_000


@pytest.fixture
def module() -> Iterator[str]:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    code = "import numpy as np\nimport pyarrow as pa\n" + "\n".join(b for b in blocks if "KeyedProcessFunction" in b)
    name = "functions_of_the_guide"
    sys.modules[name] = types.ModuleType(name)
    exec(compile(code, str(GUIDE), "exec"), vars(sys.modules[name]))
    yield name
    del sys.modules[name]


def test_silence(module: str) -> None:
    rows = Schema.of(user_id=STRING, ts=timestamp(3))
    late = OutputTag("late", rows)
    recipe = FunctionRecipe(f"{module}:Silence", {"minutes": 5})
    out = Schema.of(user_id=STRING, last_seen=BIGINT)
    harness = OperatorHarness(ProcessFunctionFactory(recipe, rows, out, (0,), side_outputs=(late,)), schema=rows)
    harness.push({"user_id": ["ann", "bob", "ann"], "ts": [1, 2, 2 * MINUTE]}, [1, 2, 2 * MINUTE])
    harness.watermark(6 * MINUTE)
    assert harness.rows() == [("bob", 2)]
    harness.push({"user_id": ["bob"], "ts": [3]}, [3])
    assert len(harness.side_rows("late")) == 1
    harness.end_input()
    assert harness.rows() == [("bob", 2), ("ann", 2 * MINUTE)]


def test_count(module: str) -> None:
    rows = Schema.of(k=STRING)
    recipe = FunctionRecipe(f"{module}:Count")
    harness = OperatorHarness(ProcessFunctionFactory(recipe, rows, Schema.of(k=STRING, n=BIGINT), (0,)), schema=rows)
    harness.push({"k": ["a", "b", "a"]})
    harness.push({"k": ["a"]})
    assert harness.rows() == [("a", 1), ("b", 1), ("a", 2), ("a", 3)]
