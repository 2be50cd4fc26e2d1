"""Every scalar function on Spark gives what its kernel gives, row by row, or is listed as hosted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from flowrun.core.clock import ManualClock
from flowrun.core.types import INT
from flowrun.functions.registry import scalar, scalar_functions
from flowrun.functions.times.current_time import use_clock
from flowrun.plan.expressions import Expression, Literal
from flowrun.spark.expressions import spark_text
from flowrun.spark.frame import NotNative, quoted
from tests.spark.calls import CALLS, calls
from tests.spark.differential import call, differences
from tests.spark.grids import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.grid_fixture import Grid

COLUMNS = [quoted(name) for name in SCHEMA.names]
HOSTED = {
    "CONVERT_TZ": "Java has an edition of its own of the time zone rules",
    "JSON": "what Spark writes has lost digits of numbers",
    "PARSE_JSON": "a VARIANT is JSON text as Flink writes it",
    "TRY_PARSE_JSON": "a VARIANT is JSON text as Flink writes it",
}
"""Functions without a native form for any arguments, and why."""
RANDOM = ("RAND", "RAND_INTEGER", "UUID")
NATIVE_CALLS = 900
"""At least so many calls must be native, so that none falls back to hosting unnoticed."""


def native(cases: list[tuple[str, Expression]]) -> list[tuple[str, Expression]]:
    return [(title, expression) for title, expression in cases if is_native(expression)]


def is_native(expression: Expression) -> bool:
    try:
        spark_text(expression, COLUMNS)
    except NotNative:
        return False
    return True


def test_every_function_is_called():
    assert sorted(CALLS) == sorted(f.name for f in scalar_functions())


@pytest.mark.parametrize("function", scalar_functions(), ids=lambda f: f.name)
def test_every_function_is_native_or_listed_as_hosted(function):
    made = list(calls(function))
    found = [title for title, expression in made if is_native(expression)]
    if function.name in HOSTED:
        assert not found, f"{function.name} is listed as hosted"
    elif function.name == "RAND":
        assert scalar("RAND").spark([], [], made[0][1].type) == "rand()"
    else:
        assert found, f"{function.name} has no native call, and no reason in HOSTED: {[t for t, _ in made]}"


def test_functions_give_what_their_kernels_give(grid: Grid) -> None:
    with use_clock(ManualClock(1_709_287_110_640)):
        cases = native([c for f in scalar_functions() if f.name not in RANDOM for c in calls(f)])
        assert len(cases) > NATIVE_CALLS
        assert differences(cases, grid.frame, grid.batch, SCHEMA, close=True, chunk=150) == []


def test_generated_code_gives_the_same(grid: Grid, spark: SparkSession) -> None:
    """Spark has two implementations of each function: one that it compiles, and one that it interprets, as the other tests do."""
    chosen = [native(list(calls(f)))[:2] for f in scalar_functions() if f.name not in RANDOM]
    small = grid.frame.where("place < 120").coalesce(1)
    few = grid.batch.slice(0, 120)
    spark.conf.set("spark.sql.codegen.factoryMode", "CODEGEN_ONLY")
    with use_clock(ManualClock(1_709_287_110_640)):
        cases = [case for pair in chosen for case in pair]
        assert differences(cases, small, few, SCHEMA, close=True, chunk=40) == []


def test_random_functions_are_random(spark: SparkSession) -> None:
    rand, uuid = (spark_text(call(name), ()) for name in ("RAND", "UUID"))
    dice = spark_text(call("RAND_INTEGER", Literal(INT, 6)), ())
    rows = spark.range(50).selectExpr(f"{rand} AS r", f"{uuid} AS u", f"{dice} AS n").toArrow().to_pylist()
    assert len({row["r"] for row in rows}) == len({row["u"] for row in rows}) == 50
    assert all(0 <= row["r"] < 1 for row in rows)
    assert 1 < len({row["n"] for row in rows} & set(range(6))) == len({row["n"] for row in rows})
    form = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
    assert all(form.fullmatch(row["u"]) for row in rows)
