"""The final table of a frame of changes."""

from __future__ import annotations

from dataclasses import replace

from flowrun.functions.spark_text import quoted
from flowrun.spark.frame import ARRIVAL, EVENT_TIME, KIND, SparkFrame

_LEFT = "flowrun$left"
_AGE = "flowrun$age"
_ADDS = f"{quoted(KIND)} IN (0, 2)"
_SIGN = f"CASE WHEN {_ADDS} THEN 1L ELSE -1L END"


def final_table(frame: SparkFrame, keep_arrival: bool) -> SparkFrame:
    """The rows that were added and not removed, with their multiplicity; `frame` has `KIND` and `ARRIVAL`.

    A removal takes away the oldest of equal rows, as in the stream's operators.
    """
    contents = [*frame.columns, *((quoted(EVENT_TIME),) if frame.event_time else ())]
    same = ", ".join(contents) or "0"
    if keep_arrival:
        age = f"row_number() OVER (PARTITION BY {same}, {_ADDS} ORDER BY {quoted(ARRIVAL)} DESC) AS {quoted(_AGE)}"
        left = f"sum({_SIGN}) OVER (PARTITION BY {same}) AS {quoted(_LEFT)}"
        counted = frame.data.selectExpr("*", left, age)
        alive = counted.where(f"{_ADDS} AND {quoted(_AGE)} <= {quoted(_LEFT)}")
        return replace(frame, data=alive.selectExpr(*contents, quoted(ARRIVAL)))
    from pyspark.sql.functions import expr

    counted = frame.data.groupBy(*map(expr, contents)).agg(expr(f"sum({_SIGN}) AS {quoted(_LEFT)}"))
    alive = counted.where(f"{quoted(_LEFT)} > 0")
    repeated = alive.selectExpr(*contents, f"explode(array_repeat(0, CAST({quoted(_LEFT)} AS INT)))")
    return replace(frame, data=repeated.selectExpr(*contents), arrival=False)
