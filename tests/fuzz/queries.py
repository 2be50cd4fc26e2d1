"""Queries over tables that are read once: reading them takes longer than a query does."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from flowrun.errors import PipelineError
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.references import References
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.sql.catalog import Catalog
from flowrun.frontend.sql.queries.from_text import bind_query
from flowrun.frontend.sql.queries.statement_context import QueryContext
from flowrun.frontend.sql.script.column_expressions import ColumnExpressions
from flowrun.frontend.sql.script.inserts import print_sink
from flowrun.frontend.sql.script.statement_parser import read_statements
from flowrun.frontend.sql.script.statements import CreateTable, ReadStatement
from flowrun.frontend.sql.script.tables import ScriptTables
from flowrun.frontend.sql.script.text import ScriptText, fill_script
from flowrun.graph.job_graph import JobGraph
from flowrun.graph.job_graph_generator import build_job_graph
from flowrun.graph.stream_graph_generator import build_stream_graph
from flowrun.lowering import lower
from flowrun.lowering.settings import graph_settings
from flowrun.plan.changelog import check_changelogs
from flowrun.plan.nodes import Plan, Settings
from flowrun.plan.recognition import recognise
from flowrun.plan.rewrites import optimise
from flowrun.plan.row_errors import route_row_errors
from flowrun.spark.execution import plan_on_spark
from flowrun.spark.translation import SparkPlan
from tests.fuzz import corpus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH = Settings(mode="batch")


def compile_query(text: str) -> JobGraph:
    """The job graph of a query whose rows are printed.

    Raises:
        ExpressionError, PipelineError, UnsupportedPlanError: it is wrong.
    """
    plan = plan_query(text, Settings())
    problems = check_changelogs(plan)
    if problems:
        raise PipelineError(problems)
    return build_job_graph(build_stream_graph("fuzz", lower(plan), graph_settings(plan.settings)))


def plan_query(text: str, settings: Settings) -> Plan:
    """The optimised plan of a query whose rows are printed. Raises as `compile_query`."""
    script, diagnostics = _script("fuzz.sql", text)
    catalog, tables = _prepared()
    bound = bind_query(text, 0, catalog, QueryContext("fuzz", script, diagnostics, tables.scan))
    sink = print_sink(bound.node, bound.names, (0, len(text)), script, "fuzz")
    return route_row_errors(optimise(recognise(Plan("fuzz", (sink,), settings, text))))


def translate_query(text: str, session: SparkSession) -> SparkPlan:
    """What a query becomes on Spark, nothing of which is run. Raises as `compile_query`."""
    return plan_on_spark(plan_query(text, BATCH), session, now_ms=1_700_000_000_000)


@cache
def _prepared() -> tuple[Catalog, ScriptTables]:
    script, diagnostics = _script("tables.sql", corpus.TABLES)
    catalog = Catalog()
    tables = ScriptTables(script, catalog, diagnostics, ColumnExpressions(catalog).bind, {})
    for read in read_statements(script.text):
        assert isinstance(read, ReadStatement), read
        assert isinstance(read.statement, CreateTable), read
        name = read.statement.name[-1]
        tables.declare(catalog.path([name.text]), name.span, read.statement)
    diagnostics.raise_if_errors()
    return catalog, tables


def _script(name: str, text: str) -> tuple[ScriptText, Diagnostics]:
    source = SourceText(name, text)
    diagnostics = Diagnostics(source)
    return fill_script(source, References({}, {}, corpus.ROOT), diagnostics), diagnostics
