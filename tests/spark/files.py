"""Tables of files, read by Spark as a scan reads them, and by flowrun's own readers."""

from __future__ import annotations

import datetime as dt
import decimal
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from flowrun.frontend.pipeline import load_text
from flowrun.frontend.source_text import SourceText
from flowrun.plan.nodes import Plan, Scan, walk_plan
from flowrun.plan.rewrites import optimise
from flowrun.spark.arrow import from_spark
from flowrun.spark.context import Context
from flowrun.spark.input.exactness import optimistically
from flowrun.spark.input.reading import find_splits, read_splits
from flowrun.spark.input.scan import make_source, read_scan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = Counter[str]


def sql_plan(text: str, folder: Path) -> Plan:
    """The optimised plan of a script."""
    return optimise(load_text(SourceText("test.sql", text), folder, {}, {}).plan)


def scans(plan: Plan) -> dict[str, Scan]:
    """The scans of a plan, by table."""
    return {node.table.name: node for node in walk_plan(plan) if isinstance(node, Scan)}


def table_of(columns: str, folder: Path, options: str, name: str = "t", beside: str = "") -> str:
    """CREATE TABLE of a filesystem table."""
    return (
        f"CREATE TABLE {name} ({columns}) {beside} WITH ('connector' = 'filesystem', 'path' = '{folder}', {options});"
    )


def scan_of(columns: str, path: Path, options: str, query: str = "SELECT * FROM t", beside: str = "") -> Scan:
    """The scan of a query over one filesystem table."""
    plan = sql_plan(table_of(columns, path, options, beside=beside) + query + ";", path.parent)
    return scans(plan)["t"]


def context_of(spark: SparkSession, node: Scan, **rest: Any) -> Context:
    """For one scan."""
    return Context(spark, Plan("test", ()).settings, 0, **rest)


def on_spark(spark: SparkSession, node: Scan) -> tuple[Rows, bool]:
    """(what a scan gives, whether Spark's own reader read it to its end)."""
    tried: list[bool] = []

    def read(exact: bool) -> pa.Table:
        tried.append(exact)
        frame = read_scan(node, None, context_of(spark, node, exact=exact))  # type: ignore[arg-type]
        if "BatchScan flowrun" in frame.data._jdf.queryExecution().toString():
            tried.append(True)
        return from_spark(frame.data.select(*frame.columns), node.schema)

    return rows_of(optimistically(read)), not any(tried)


def by_flowrun(node: Scan) -> Rows:
    """The same by flowrun's own reader; physical columns."""
    source = make_source(node)
    found: Rows = Counter()
    for batch in read_splits(source, find_splits(source, "source 't'"), "source 't'"):
        found += rows_of(pa.Table.from_batches([batch.columns]))
    return found


def rows_of(table: pa.Table) -> Rows:
    """Rows as text that tells types and NaN apart."""
    return Counter(repr(tuple(_plain(v) for v in row.values())) for row in table.to_pylist())


def _plain(value: Any) -> Any:
    match value:
        case dt.datetime():
            return f"{value.replace(tzinfo=None).isoformat()}{'Z' if value.tzinfo else ''}"
        case decimal.Decimal():
            return f"{value:f}"
        case list():
            return [_plain(v) for v in value]
        case tuple():
            return tuple(_plain(v) for v in value)
        case dict():
            return {k: _plain(v) for k, v in value.items()}
        case _:
            return value
