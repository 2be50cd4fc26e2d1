"""Plans of queries for tests: standard tables, and one line a node of what a query has become."""

from __future__ import annotations

from pathlib import Path

from flowrun.errors import PipelineError
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.sql.script.script import read_script
from flowrun.plan.joins import IntervalJoin, Join, LookupJoin, TemporalJoin, WindowJoin
from flowrun.plan.nodes import Calc, Plan, PlanNode, Scan, Sink, Union, WindowAggregate, walk_plan
from flowrun.plan.relational import (
    AssignTime,
    Deduplicate,
    GroupAggregate,
    OverAggregate,
    Rank,
    WindowRank,
    WindowTableFunction,
)

FOLDER = Path(__file__).parent

TABLES = f"""
CREATE TABLE orders (id BIGINT, user_id STRING, amount INT, currency STRING, ts TIMESTAMP(3), p AS PROCTIME(),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH ('connector' = 'datagen');
CREATE TABLE clicks (id BIGINT, user_id STRING, order_id INT, url STRING, ts TIMESTAMP(3), other TIMESTAMP(3), p AS PROCTIME(),
  WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen');
CREATE TABLE rates (currency STRING, rate DOUBLE, ts TIMESTAMP(3), PRIMARY KEY (currency) NOT ENFORCED,
  WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen');
CREATE TABLE plain (currency STRING, rate DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen');
CREATE TABLE side (k STRING, v STRING, active BOOLEAN) WITH ('connector' = 'filesystem', 'path' = '{FOLDER}', 'format' = 'csv');
"""


def planned(script: str) -> Plan:
    """The recognised plan of statements over `TABLES`; a lone query is one, too. Raises PipelineError with what is wrong."""
    diagnostics = Diagnostics()
    text = TABLES + script
    read = read_script(
        SourceText("q.sql", text), variables={}, overrides={}, environment={}, folder=FOLDER, diagnostics=diagnostics
    )
    if read is None:
        diagnostics.raise_if_errors()
        raise AssertionError("a script without errors has a plan")
    return read.plan


def problems(script: str) -> list[str]:
    """The messages of what is wrong with a script."""
    try:
        planned(script)
    except PipelineError as error:
        return [d.message for d in error.diagnostics]
    return []


def shape(plan: Plan) -> list[str]:
    """The nodes that do something of a plan, inputs first, each as a line; Calcs only if they filter."""
    return [line for node in walk_plan(plan) if (line := _line(node)) is not None]


def _line(node: PlanNode) -> str | None:
    match node:
        case Scan() | Sink() | Union():
            return None
        case Calc():
            return None if node.condition is None else f"Filter {node.condition}"
        case WindowAggregate():
            names = _names(node.input, node.keys)
            return f"WindowAggregate {_spec(node.window)} by ({names}) {node.domain.value}"
        case GroupAggregate():
            return f"GroupAggregate by ({_names(node.input, node.keys)})"
        case WindowTableFunction():
            return f"WindowTableFunction {_spec(node.window)} {node.domain.value}"
        case AssignTime():
            return f"AssignTime {_names(node.input, (node.column,))}"
        case WindowJoin():
            return f"WindowJoin {node.kind.value} on ({_pairs(node)}) {node.domain.value}{_if(node.condition)}"
        case IntervalJoin():
            bounds = f"[{node.lower_ms}, {node.upper_ms}] {node.domain.value}"
            return f"IntervalJoin {node.kind.value} on ({_pairs(node)}) {bounds}{_if(node.condition)}"
        case TemporalJoin():
            time = "" if node.right_time is None else f" at {_names(node.right, (node.right_time,))}"
            return f"TemporalJoin {node.kind.value} on ({_pairs(node)}){time} {node.domain.value}{_if(node.condition)}"
        case Join():
            return f"Join {node.kind.value} on ({_pairs(node)}){_if(node.condition)}"
        case LookupJoin():
            keys = ", ".join(f"{e} = {c}" for e, c in node.keys)
            return f"LookupJoin {node.kind.value} {node.table.name} on ({keys}){_if(node.condition)}"
        case Deduplicate():
            return f"Deduplicate {node.keep.value} by ({_names(node.input, node.keys)}) {node.domain.value}"
        case Rank() | WindowRank():
            ranks = f"{node.first}..{node.last}{' with rank' if node.rank_column else ''}"
            return f"{type(node).__name__} {node.function.value} by ({_names(node.input, node.partition)}) {ranks}"
        case OverAggregate():
            frame = f"{node.frame.unit.value} {node.frame.preceding}"
            calls = ", ".join(map(str, node.calls))
            return f"OverAggregate {calls} by ({_names(node.input, node.keys)}) {frame} {node.domain.value}"
        case _:
            return type(node).__name__


def _names(node: PlanNode, positions: tuple[int, ...]) -> str:
    return ", ".join(node.schema.names[p] for p in positions)


def _pairs(node: Join | WindowJoin | IntervalJoin | TemporalJoin) -> str:
    left, right = node.left.schema.names, node.right.schema.names
    return ", ".join(f"{left[a]} = {right[b]}" for a, b in zip(node.left_keys, node.right_keys, strict=True))


def _if(condition: object) -> str:
    return "" if condition is None else f" if {condition}"


def _spec(window: object) -> str:
    fields = [str(getattr(window, n)) for n in ("size_ms", "slide_ms", "step_ms", "gap_ms") if hasattr(window, n)]
    return f"{type(window).__name__}({', '.join(fields)})"
