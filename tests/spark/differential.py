"""Holds Spark's expressions against flowrun's, row by row, in few jobs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from flowrun.core.schema import Schema
from flowrun.core.types import INT
from flowrun.errors import DataError
from flowrun.functions.contract import Argument
from flowrun.functions.registry import scalar
from flowrun.functions.spark_text import quoted
from flowrun.plan.compiler import compile_value
from flowrun.plan.expressions import Call, Cast, ColumnRef, Expression, Literal, walk
from flowrun.spark.arrow import from_spark, spark_data_type
from flowrun.spark.expressions import spark_text
from flowrun.spark.frame import NotNative
from flowrun.spark.literals import literal_text


@dataclass(frozen=True)
class Answer:
    """What flowrun gives: a value a row, and the rows at which it fails instead."""

    values: pa.Array
    failed: tuple[int, ...]


def call(name: str, *arguments: Expression) -> Expression:
    """A function call with the casts that its type rule asks for."""
    function = scalar(name)
    assert function is not None, name
    given = [Argument(a.type, getattr(a, "value", None), isinstance(a, Literal)) for a in arguments]
    bound = function.type_rule(given)
    cast = [a if a.type == t else _cast(a, t) for a, t in zip(arguments, bound.arguments, strict=True)]
    return Call(bound.result, function.name, tuple(cast))


def _cast(argument: Expression, type: Any) -> Expression:
    if isinstance(argument, Literal) and (argument.value is None or argument.type.root is type.root):
        return Literal(type, argument.value)
    return Cast(type, argument)


def flowruns_answer(expression: Expression, batch: pa.RecordBatch) -> Answer:
    """The kernel's values; rows at which it fails are found by halving."""
    kernel = compile_value(expression)
    failed: list[int] = []
    values = pa.concat_arrays(_pieces(kernel, batch, 0, failed, expression))
    return Answer(values, tuple(failed))


def _pieces(
    kernel: Any, batch: pa.RecordBatch, start: int, failed: list[int], expression: Expression
) -> list[pa.Array]:
    try:
        return [kernel(batch)]
    except DataError:
        if batch.num_rows == 1:
            failed.append(start)
            return [pa.nulls(1, expression.type.arrow)]
    half = batch.num_rows // 2
    return [
        *_pieces(kernel, batch.slice(0, half), start, failed, expression),
        *_pieces(kernel, batch.slice(half), start + half, failed, expression),
    ]


def differences(
    cases: Sequence[tuple[str, Expression]],
    frame: Any,
    batch: pa.RecordBatch,
    schema: Schema,
    *,
    close: bool = False,
    chunk: int = 60,
) -> list[str]:
    """Where Spark gives something else than flowrun, or one fails and the other does not: one line each, empty if all agree.

    Args:
        cases: a title and an expression over `schema` each.
        frame: the rows in Spark, with a column `place` that numbers them.
        batch: the same rows.
        schema: of both.
        close: approximate numbers may differ in their last bits.
        chunk: expressions a job.
    """
    columns = [quoted(n) for n in schema.names]
    found: list[str] = []
    ready = []
    for title, expression in cases:
        try:
            text = spark_text(expression, columns)
        except NotNative:
            continue
        ready.append((title, expression, text, flowruns_answer(expression, batch)))
    for start in range(0, len(ready), chunk):
        found += _compare(ready[start : start + chunk], frame, batch, close)
    failing = [(title, e, answer.failed[-(i % 2)]) for i, (title, e, _, answer) in enumerate(ready) if answer.failed]
    with ThreadPoolExecutor(4) as pool:
        given = pool.map(lambda case: _given(case[1], frame, batch, schema, case[2]), failing)
    for (title, expression, place), value in zip(failing, given, strict=True):
        if value is not None:
            found.append(f"{title}: flowrun fails at {_row(batch, expression, place)}, Spark gives {value}")
    return found


def _compare(ready: Sequence[Any], frame: Any, batch: pa.RecordBatch, close: bool) -> list[str]:
    guarded = [_guarded(text, answer.failed) for _, _, text, answer in ready]
    try:
        selected = frame.selectExpr("place", *(f"{text} AS `r{i}`" for i, text in enumerate(guarded)))
        types = [f.dataType for f in selected.schema.fields[1:]]
        wrong = [
            f"{title}: Spark type {type.simpleString()}, expected {spark_data_type(e.type).simpleString()}   {text}"
            for (title, e, text, _), type in zip(ready, types, strict=True)
            if type.simpleString() != spark_data_type(e.type).simpleString()
        ]
        if wrong:
            if len(ready) == 1:
                return wrong
            raise ValueError("types")
        out = Schema.from_pairs([("place", INT), *((f"r{i}", e.type) for i, (_, e, _, _) in enumerate(ready))])
        rows = from_spark(selected, out).sort_by("place")
    except Exception as error:
        if len(ready) == 1:
            return [f"{ready[0][0]}: {str(error)[:300]}   {ready[0][2][:300]}"]
        half = len(ready) // 2
        return _compare(ready[:half], frame, batch, close) + _compare(ready[half:], frame, batch, close)
    return [line for i, one in enumerate(ready) for line in _unequal(one, rows.column(i + 1), batch, close)]


def _guarded(text: str, failed: tuple[int, ...]) -> str:
    if not failed:
        return text
    return f"CASE WHEN NOT array_contains(array({', '.join(map(str, failed))}), place) THEN {text} END"


def _unequal(one: Any, got: pa.ChunkedArray, batch: pa.RecordBatch, close: bool) -> list[str]:
    title, expression, text, answer = one
    for place, (spark, flow) in enumerate(zip(plain(got), plain(answer.values), strict=True)):
        if spark != flow and not (close and _close(spark, flow)):
            return [f"{title}: at {_row(batch, expression, place)}: flowrun {flow!r}, Spark {spark!r}   {text[:300]}"]
    return []


def _close(a: Any, b: Any) -> bool:
    if not (isinstance(a, tuple) and isinstance(b, tuple) and a[0] == b[0] == "double"):
        return False
    return math.isclose(a[1], b[1], rel_tol=4e-16)


def plain(column: Any) -> list[Any]:
    """Values that compare as they should: NaN equals itself, -0.0 does not equal 0.0."""
    if pa.types.is_temporal(column.type):
        width = pa.int32() if column.type.bit_width == 32 else pa.int64()
        column = column.cast(width)
    return [_plain(v) for v in column.to_pylist()]


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return ("NaN",) if math.isnan(value) else ("double", value, math.copysign(1, value))
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value


def _row(batch: pa.RecordBatch, expression: Expression, place: int) -> str:
    used = {e.index: e.name for e in walk(expression) if isinstance(e, ColumnRef)}
    return ", ".join(f"{name}={batch.column(i)[place]}" for i, name in used.items())


def _given(expression: Expression, frame: Any, batch: pa.RecordBatch, schema: Schema, place: int) -> str | None:
    """What Spark gives for one row; None if it fails. The row is written into the text, so that no job is needed."""
    used = {e.index for e in walk(expression) if isinstance(e, ColumnRef)}
    constants = {i: literal_text(batch.column(i)[place].as_py(), schema.types[i]) for i in used}
    text = spark_text(expression, [constants.get(i, "") for i in range(len(schema))])
    selected = f"SELECT {text} AS r"
    try:  # inside Java, as an error that comes through the socket of Arrow takes ten times as long
        frame.sparkSession.sql(selected)._jdf.queryExecution().executedPlan().executeCollect()
    except Exception:
        return None
    return f"{frame.sparkSession.sql(selected).toArrow().column(0).to_pylist()}   {text[:200]}"
