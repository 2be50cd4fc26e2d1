"""Every aggregate on Spark: of groups and OVER frames, with DISTINCT and FILTER, over values of every type, against the stream."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from flowrun.core.types import BIGINT, DOUBLE, INT, STRING, decimal, map_of
from flowrun.functions.contract import Argument
from flowrun.functions.registry import aggregate_functions
from flowrun.plan.expressions import AggregateCall, ColumnRef, UserAggregateReference
from flowrun.spark.aggregates import POSITION_FUNCTIONS, aggregate_text, over_text
from flowrun.spark.frame import NotNative
from tests.spark.grids import GRIDS
from tests.spark.plans import Table, assert_same, assert_same_plan, spark_results, sql_plan, stream_results, yaml_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("interpreted")

WHOLE = [None, 0, 1, -1, 2, 3, 3, 7, -5]
VALUES: dict[str, tuple[str, Sequence[Any]]] = {
    "tiny": ("TINYINT", WHOLE),
    "small": ("SMALLINT", WHOLE),
    "mid": ("INT", [*WHOLE, 70000]),
    "long": ("BIGINT", [*WHOLE, 10**15]),
    "real": ("FLOAT", [None, 0.5, 1.5, -2.25, 3.0, 0.0]),
    "fat": ("DOUBLE", [None, 0.5, 1.5, -2.25, 3.0, 0.0, 1e6]),
    "cents": ("DECIMAL(10, 2)", [None, *map(Decimal, ["1.50", "-2.25", "0.00", "99999999.99", "0.01"])]),
    "exact": ("DECIMAL(38, 18)", [None, *map(Decimal, ["1", "-0.333333333333333333", "123.456789", "7"])]),
    "wide": ("DECIMAL(38, 0)", [None, *map(Decimal, ["1", "-7", "1" + "0" * 30, "5"])]),
    "word": ("STRING", [None, "", "a", "ä", "😀", "Z", "ab", "a"]),
    "truth": ("BOOLEAN", [None, True, False]),
    "raw": ("BYTES", [None, b"", b"\xff", b"a"]),
    "day": ("DATE", GRIDS["day"][1]),
    "clock": ("TIME(3)", GRIDS["clock3"][1]),
    "moment": ("TIMESTAMP(3)", GRIDS["moment"][1]),
    "fine": ("TIMESTAMP(6)", GRIDS["fine"][1]),
    "instant": ("TIMESTAMP_LTZ(3)", GRIDS["instant"][1]),
}
NAMES = tuple(VALUES)
NUMBERS = NAMES[: NAMES.index("word")]
COLUMNS = "g STRING, " + ", ".join(f"`{name}` {type}" for name, (type, _) in VALUES.items())
TIMED = COLUMNS + ", ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
SOME = " FILTER (WHERE mid > 0)"


def _rows() -> list[tuple[Any, ...]]:
    chance = random.Random(3)
    rows = [(chance.choice("aabbc"), *(chance.choice(values) for _, values in VALUES.values())) for _ in range(60)]
    nulls = ("nulls", *(None for _ in VALUES))
    return [*rows, nulls, nulls, ("one", *(values[1] for _, values in VALUES.values()))]


TABLE = Table("t", COLUMNS, _rows(), batch=7)
IN_TIME = Table(
    "t",
    TIMED,
    [(*row, dt.datetime(2024, 1, 1) + dt.timedelta(seconds=i // 3)) for i, row in enumerate(_rows())],
    batch=7,
)


def each(function: str, names: Sequence[str], *, distinct: bool = False, after: str = "") -> str:
    return ", ".join(f"{function}({'DISTINCT ' * distinct}`{name}`){after}" for name in names)


def test_every_aggregate_is_tested():
    tested = set(GROUPED) | {
        "COLLECT",
        "SUM0",
        "SINGLE_VALUE",
        "STDDEV_POP",
        "STDDEV_SAMP",
        "VAR_POP",
        "VAR_SAMP",
        *HOSTED,
    }
    assert {f.name for f in aggregate_functions()} == tested


GROUPED = {
    "COUNT": NAMES,
    "SUM": NUMBERS,
    "AVG": NUMBERS,
    "MIN": NAMES,
    "MAX": NAMES,
    "FIRST_VALUE": NAMES,
    "LAST_VALUE": NAMES,
    "LISTAGG": ("word",),
    "ARRAY_AGG": NAMES,
}


@pytest.mark.parametrize("distinct", [False, True], ids=["all", "distinct"])
def test_groups(distinct: bool, spark: SparkSession) -> None:
    calls = [each(f, names, distinct=distinct, after=a) for f, names in GROUPED.items() for a in ("", SOME)]
    grouped = "".join(f"SELECT g, {c}, COUNT(*), COUNT(*){SOME} FROM t GROUP BY g;" for c in calls)
    assert_same(spark, [TABLE], f"{grouped} SELECT {calls[0]}, LISTAGG(word, '; ''x\\') FROM t")


HOSTED = {"PERCENTILE": "Spark's percentile rounds places between values otherwise"}
"""Aggregates without a native form for any arguments, and why."""


def test_percentiles(spark: SparkSession) -> None:
    calls = "PERCENTILE(cents, 0.3), PERCENTILE(DISTINCT fat, ARRAY[0, 0.75]), PERCENTILE(real, 0.5, mid) FILTER (WHERE truth)"
    assert_same(spark, [TABLE], f"SELECT g, {calls} FROM t GROUP BY g", hosted=["GroupAggregate"])


def test_rows_as_values(spark: SparkSession) -> None:
    assert_same(
        spark, [TABLE], "SELECT g, COUNT((mid, word)), ARRAY_AGG((mid, word)), LAST_VALUE((mid, fat)) FROM t GROUP BY g"
    )


FRAMES = (
    "ROWS BETWEEN 3 PRECEDING AND CURRENT ROW",
    "RANGE BETWEEN INTERVAL '2' SECOND PRECEDING AND CURRENT ROW",
    "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
)


@pytest.mark.parametrize("frame", FRAMES)
def test_over(frame: str, spark: SparkSession) -> None:
    window = f"FROM t WINDOW w AS (PARTITION BY g ORDER BY ts {frame})"
    lists = "LISTAGG(word) OVER w, ARRAY_AGG(mid) OVER w, COLLECT(word) OVER w, COUNT(*) FILTER (WHERE mid > 0) OVER w"
    calls = [
        each(f, [n for n in names if n != "raw"], after=" OVER w") for f, names in GROUPED.items() if f != "ARRAY_AGG"
    ]
    few = ("mid", "fat", "cents")
    distinct = [each(f, few, distinct=True, after=" OVER w") for f in ("COUNT", "SUM", "AVG", "MIN", "FIRST_VALUE")]
    text = "".join(f"SELECT g, ts, {c} {window};" for c in (lists, *calls, *distinct, "LISTAGG(DISTINCT word) OVER w"))
    assert_same(spark, [IN_TIME], text)


def test_multisets(spark: SparkSession) -> None:
    """Their entries have no order."""
    text = "SELECT g, COLLECT(mid), COLLECT(DISTINCT word), COLLECT(moment) FILTER (WHERE mid > 0) FROM t GROUP BY g"
    plan = sql_plan([TABLE], text)
    (streamed,), (batch,) = stream_results(plan), spark_results(spark, plan)
    assert sorted(map(_sorted, streamed.rows)) == sorted(map(_sorted, batch.rows))
    assert not batch.hosted


def _sorted(row: tuple[Any, ...]) -> str:
    return str([sorted(map(str, v)) if isinstance(v, tuple) else v for v in row])


SPREADS = """
name: spreads
sources:
  t:
    connector: memory
    table: spreads
    schema: {g: STRING, n: INT, x: DOUBLE, ts: TIMESTAMP(3)}
    watermark: {column: ts, delay: 5s}
steps:
  all:
    from: t
    key_by: [g]
    window: {type: tumbling, size: 1m}
    aggregate:
      - VAR_POP(n) AS a
      - VAR_SAMP(n) AS b
      - STDDEV_POP(x) AS c
      - STDDEV_SAMP(x) AS d
      - VAR_POP(x) FILTER (WHERE n > 1) AS e
      - STDDEV_SAMP(DISTINCT x) AS f
      - VAR_SAMP(DISTINCT n) AS g2
sinks:
  out: {from: all, connector: print}
"""


def test_variances(spark: SparkSession) -> None:
    chance = random.Random(5)
    rows = [
        (
            chance.choice("aab"),
            chance.choice([None, 1, 2, 5]),
            chance.choice([None, 0.5, -2.0, 4.25, -0.5]),
            dt.datetime(2024, 1, 1, 0, 0, i),
        )
        for i in range(40)
    ]
    rows += [("one", 1, 2.0, dt.datetime(2024, 1, 1)), ("nulls", None, None, dt.datetime(2024, 1, 1))]
    assert_same_plan(spark, yaml_plan(SPREADS, {"spreads": rows}))


@pytest.mark.parametrize(("call", "type"), [("SUM", "TINYINT"), ("AVG", "TINYINT"), ("SUM", "DECIMAL(38, 0)")])
def test_sums_that_do_not_fit_fail_on_both(call: str, type: str, spark: SparkSession) -> None:
    value = Decimal("9" * 38) if type.startswith("DECIMAL") else 100
    table = Table("t", f"x {type}", [(value,), (value,)])
    text = f"SELECT {call}(x) FROM t"
    if call == "AVG":  # of the sum only the mean must fit
        assert_same(spark, [table], text)
        return
    with pytest.raises(Exception, match=r"(?i)does not fit|overflow|out_of_range|out of range"):
        spark_results(spark, sql_plan([table], text))
    with pytest.raises(Exception, match=r"does not fit|overflow"):
        stream_results(sql_plan([table], text))


def test_a_subquery_with_several_rows_fails(spark: SparkSession) -> None:
    one = AggregateCall("SINGLE_VALUE", (ColumnRef(INT, 0, "x"),), INT, "v")
    data = spark.createDataFrame([(1, 5), (2, None), (3, 7), (3, 8)], "k INT, x INT")
    by_key = "k < 3"
    result = data.where(by_key).groupBy("k").agg(_expr(aggregate_text(one, ["x"], None)))
    assert sorted(r[1] or 0 for r in result.collect()) == [0, 5]
    with pytest.raises(Exception, match="several rows"):
        data.groupBy("k").agg(_expr(aggregate_text(one, ["x"], None))).collect()
    zero = AggregateCall("SUM0", (ColumnRef(INT, 0, "x"),), INT, "v")
    assert [r[1] for r in data.groupBy("k").agg(_expr(aggregate_text(zero, ["x"]))).orderBy("k").collect()] == [
        5,
        0,
        15,
    ]


def _expr(text: str) -> Any:
    from pyspark.sql import functions

    return functions.expr(text)


def test_what_spark_lacks_is_hosted():
    column = ColumnRef(INT, 0, "x")
    users = AggregateCall("MINE", (column,), INT, "m", reference=UserAggregateReference("m:Mine"))
    with pytest.raises(NotNative, match="the Python aggregate MINE"):
        aggregate_text(users, ["`x`"])
    with pytest.raises(NotNative, match="VAR_POP"):
        aggregate_text(AggregateCall("VAR_POP", (ColumnRef(DOUBLE, 0, "x"),), decimal(38, 6), "v"), ["`x`"])
    maps = ColumnRef(map_of(STRING, INT), 0, "m")
    with pytest.raises(NotNative, match="ARRAY_AGG"):
        aggregate_text(AggregateCall("ARRAY_AGG", (maps,), map_of(STRING, INT), "v"), ["`m`"], "`o`")


def test_places_have_no_frame():
    window = "PARTITION BY `k` ORDER BY `t`"
    lag = AggregateCall("LAG", (ColumnRef(STRING, 0, "s"),), STRING, "v")
    assert over_text(lag, ["`s`"], window) == f"CAST(lag(`s`) OVER ({window}) AS STRING)"
    assert "COUNT" not in POSITION_FUNCTIONS
    assert over_text(AggregateCall("COUNT", (), BIGINT, "n"), [], window) == f"count(*) OVER ({window})"


def test_rules_resolve_the_types_that_the_texts_have():
    """COUNT of anything is a BIGINT, and so on: what `aggregate_text` casts to is the call's type."""
    for function in (f for f in aggregate_functions() if f.name not in HOSTED):
        given = [Argument(DOUBLE)] if function.name.startswith(("VAR", "STD")) else [Argument(STRING)]
        if function.name in ("SUM", "SUM0", "AVG"):
            given = [Argument(INT)]
        _, kernel = function.type_rule(given)
        call = AggregateCall(function.name, (ColumnRef(given[0].type, 0, "x"),), kernel.result, "v")
        assert aggregate_text(call, ["`x`"])
