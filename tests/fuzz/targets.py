"""What is done with a damaged text; each target raises only what users must never see."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

from flowrun.core.schema import Schema
from flowrun.core.type_parser import TypeTextError, parse_type
from flowrun.errors import DataError, ExpressionError, OptionError, PipelineError, SetupError, UnsupportedPlanError
from flowrun.frontend.sql.expressions.from_text import bind_expression
from flowrun.functions.registry import aggregate_names, scalar_names
from flowrun.plan.compiler import compile_value
from flowrun.runners.compile import compile_kept
from flowrun.spark.session import SparkOptions, open_session
from flowrun.state.checkpoints import PipelineText
from tests.fuzz import corpus
from tests.fuzz.mutation import Mutator
from tests.fuzz.queries import BATCH, compile_query, plan_query, translate_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Target = Callable[[str], None]
"""Takes a text, and returns if it is right or is answered with a diagnostic."""

DIAGNOSTICS = (PipelineError, UnsupportedPlanError, OptionError, SetupError)

_VARIABLE = re.compile(r"\$\{(\w+)\}")

LIMITS: dict[str, tuple[str, list[object]]] = {
    "a": ("INT", [2**31 - 1, -(2**31), None, 0]),
    "b": ("BIGINT", [2**63 - 1, -(2**63), None, 0]),
    "i": ("TINYINT", [127, -128, None, 0]),
    "s": ("STRING", ["", "9999-12-31 23:59:59.999999999", None, "\U0001f600%_\\'\x00"]),
    "c": ("CHAR(3)", ["abc", "   ", None, "é☂x"]),
    "p": ("DECIMAL(38, 0)", [Decimal("9" * 38), Decimal("-" + "9" * 38), None, Decimal(0)]),
    "e": ("DECIMAL(38, 38)", [Decimal("0." + "9" * 38), Decimal("-0." + "9" * 38), None, Decimal("0." + "0" * 38)]),
    "x": ("DOUBLE", [float("inf"), float("nan"), None, -0.0]),
    "y": ("FLOAT", [3.4e38, -1e-45, None, 0.5]),
    "f": ("BOOLEAN", [True, False, None, True]),
    "d": ("DATE", [dt.date(9999, 12, 31), dt.date(1, 1, 1), None, dt.date(1970, 1, 1)]),
    "u": ("TIME(3)", [dt.time(23, 59, 59, 999000), dt.time(0), None, dt.time(12)]),
    "ts": ("TIMESTAMP(3)", [2**63 // 10**4, -(2**63 // 10**4), None, dt.datetime(9999, 12, 31, 23, 59, 59, 999000)]),
    "t9": ("TIMESTAMP(9)", [2**63 - 1, -(2**63), None, 0]),
    "l": ("TIMESTAMP_LTZ(6)", [2**63 - 1, -(2**63), None, 0]),
    "n": ("ARRAY<INT>", [[2**31 - 1, None], [], None, [0]]),
    "m": ("MAP<STRING, INT>", [[("x", 1)], [], None, [("", None)]]),
    "r": ("ROW<i INT, q ROW<z STRING>>", [{"i": 1, "q": {"z": ""}}, {"i": None, "q": None}, None, {"i": 0, "q": {"z": None}}]),
    "z": ("BYTES", [b"\xff\x00", b"", None, b"abc"]),
}  # fmt: skip
"""Columns whose values lie at the limits of their types."""


def script(text: str) -> None:
    """A SQL script becomes a job graph."""
    _compiled("fuzz.sql", text)


def query(text: str) -> None:
    """A query over the corpus's tables becomes a job graph."""
    with contextlib.suppress(ExpressionError, *DIAGNOSTICS):
        compile_query(text)


def batch(text: str) -> None:
    """A query over the corpus's tables becomes a plan for Spark."""
    with contextlib.suppress(ExpressionError, *DIAGNOSTICS):
        plan_query(text, BATCH)


def spark(text: str) -> None:
    """A query over the corpus's tables becomes DataFrames, which Spark can analyse."""
    with contextlib.suppress(ExpressionError, *DIAGNOSTICS):
        translate_query(text, session())


@cache
def session() -> SparkSession:
    """A session of Spark that lasts as long as the process."""
    return open_session(SparkOptions(), "fuzz")


def pipeline(text: str) -> None:
    """A YAML pipeline becomes a job graph."""
    _compiled("fuzz.yaml", text)


def expression(text: str) -> None:
    """An expression is bound and evaluated over rows with values at the limits."""
    schema, rows = limits()
    with contextlib.suppress(ExpressionError, DataError):
        compile_value(bind_expression(text, schema))(rows)


def type_text(text: str) -> None:
    """A type is read."""
    with contextlib.suppress(TypeTextError):
        parse_type(text)


@cache
def limits() -> tuple[Schema, pa.RecordBatch]:
    """The columns of `LIMITS` and their rows."""
    schema = Schema.from_pairs((name, parse_type(type)) for name, (type, _) in LIMITS.items())
    columns = [pa.array(values, f.type.arrow) for f, (_, values) in zip(schema, LIMITS.values(), strict=True)]
    return schema, pa.RecordBatch.from_arrays(columns, schema=schema.arrow)


def _compiled(name: str, text: str) -> None:
    variables = {
        n: "json" if n == "FORMAT" else str(corpus.ROOT / "tests" / "sql" / "data") for n in _VARIABLE.findall(text)
    }
    folder = corpus.ROOT / "pipelines"
    with contextlib.suppress(*DIAGNOSTICS):
        compile_kept(PipelineText(name, text, str(folder), variables, working_directory=str(corpus.ROOT)))


TEXT_TARGETS: dict[str, tuple[Target, Callable[[], tuple[str, ...]]]] = {
    "script": (script, corpus.scripts),
    "query": (query, corpus.queries),
    "batch": (batch, corpus.queries),
    "spark": (spark, corpus.queries),
    "pipeline": (pipeline, corpus.pipelines),
    "expression": (expression, corpus.expressions),
    "type": (type_text, lambda: corpus.TYPES),
}
"""Name → what is done, and the right texts."""


def mutator(name: str, seeds: Sequence[str]) -> Mutator:
    """What damages the texts of a target."""
    functions = (*scalar_names(), *aggregate_names())
    names = [*functions, *(f"{f}({c})" for f in functions for c in ("", "s", "ts", "b, a", "s, s, s", "x"))]
    return Mutator(seeds, [*names, *LIMITS] if name == "expression" else names)
