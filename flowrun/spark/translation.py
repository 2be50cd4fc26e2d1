"""Translates a plan to DataFrames node by node: natively if Spark has the node and all its functions, else with the streaming operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

from flowrun.core.clock import ManualClock
from flowrun.core.record import record
from flowrun.functions.times.current_time import use_clock
from flowrun.plan import nodes
from flowrun.plan import relational as rel
from flowrun.plan.changelog_nodes import ChangelogNormalize, FromChangelog, ToChangelog
from flowrun.plan.co_process import CoProcess
from flowrun.plan.conflicts import ResolveConflicts
from flowrun.plan.joins import IntervalJoin, Join, LookupJoin, TemporalJoin, WindowJoin
from flowrun.plan.matching import MatchRecognize
from flowrun.spark.context import Context
from flowrun.spark.frame import NotNative, SparkFrame
from flowrun.spark.translated import Inputs, Translated, leaves_rows_out

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


Native: TypeAlias = Callable[[nodes.PlanNode, Inputs, Context], SparkFrame | Translated]
"""(node, its inputs, context) → its rows. If it raises `NotNative`, the node is hosted."""

# The module below `flowrun.spark` and the function, as a text: a module is imported when a plan needs it.
NATIVE: Mapping[type[nodes.PlanNode], str] = {
    nodes.Scan: "input.scan:read_scan",
    rel.Values: "native.rows:translate_values",
    nodes.Calc: "native.rows:translate_calc",
    nodes.Union: "native.rows:translate_union",
    nodes.Split: "native.rows:translate_split",
    rel.AssignTime: "native.rows:translate_assign_time",
    rel.Expand: "native.rows:translate_expand",
    rel.Unnest: "native.rows:translate_unnest",
    rel.WindowTableFunction: "native.windows:translate_window_function",
    nodes.WindowAggregate: "native.windows:translate_window_aggregate",
    rel.GroupAggregate: "native.groups:translate_group_aggregate",
    rel.OverAggregate: "native.over:translate_over",
    rel.Rank: "native.ranking:translate_rank",
    rel.Deduplicate: "native.ranking:translate_deduplicate",
    rel.WindowRank: "native.ranking:translate_window_rank",
    rel.TemporalSort: "native.ranking:translate_temporal_sort",
    Join: "native.joins:translate_join",
    WindowJoin: "native.joins:translate_window_join",
    IntervalJoin: "native.joins:translate_interval_join",
    TemporalJoin: "native.temporal:translate_temporal_join",
    LookupJoin: "native.lookup:translate_lookup_join",
    ToChangelog: "native.changelogs:translate_to_changelog",
    FromChangelog: "native.changelogs:translate_from_changelog",
    ChangelogNormalize: "native.changelogs:translate_normalize",
}
HOSTED: Mapping[type[nodes.PlanNode], str] = {
    nodes.PythonMap: "a Python function",
    nodes.AsyncMap: "an asynchronous Python function",
    nodes.Process: "a Python process function",
    CoProcess: "a Python function of two streams",
    rel.TableFunctionCall: "a Python table function",
    MatchRecognize: "Spark has no row patterns",
    ResolveConflicts: "rows are compared as the stream does",
}
"""Kinds of nodes that are always hosted, and why."""


@record(eq=False, slots=False)
class SparkPlan:
    """A translated plan.

    Attributes:
        plan: the plan that was translated.
        results: `id` of each node → its translation.
        kept: DataFrames that Spark keeps for it until they are released.
        optimistic: whether scans use Spark's readers, which stop at the first record that they may read in another way than flowrun's.
    """

    plan: nodes.Plan
    results: Mapping[int, Translated]
    kept: Sequence[DataFrame] = ()
    optimistic: bool = False

    @property
    def outputs(self) -> tuple[tuple[nodes.Sink, SparkFrame], ...]:
        """Each sink of the plan, with its rows."""
        return tuple((sink, self.results[id(sink)].main) for sink in self.plan.sinks)


def translate(plan: nodes.Plan, context: Context) -> SparkPlan:
    """The DataFrames of a plan. Nothing is read or run but what Spark needs to analyse them.

    Raises:
        UnsupportedPlanError: a node cannot run on Spark; the message names it and says what works instead.
        ConnectorError: a file or folder that a scan reads does not exist.
    """
    done: dict[int, Translated] = {}
    readers = Counter(id(i) for node in nodes.walk_plan(plan) for i in node.inputs)
    with use_clock(ManualClock(context.now_ms)):  # the time for CURRENT_TIMESTAMP and similar functions
        for node in nodes.walk_plan(plan):
            made = _translate_node(node, Inputs(node, done, context.stops.get(id(node))), context)
            if readers[id(node)] > 1:  # its readers use rows that Spark keeps, which Python does not make again
                made = replace(made, main=replace(made.main, made_by=None))
            done[id(node)] = made
    return SparkPlan(plan, done, context.kept, bool(context.optimistic))


def _translate_node(node: nodes.PlanNode, inputs: Inputs, context: Context) -> Translated:
    if isinstance(node, nodes.Sink):
        return Translated(inputs.only)
    if isinstance(node, nodes.SideOutput):
        return _side_output(node, inputs, context)
    reason = HOSTED.get(type(node)) or leaves_rows_out(node, context)
    if reason is None:
        module, _, function = NATIVE[type(node)].partition(":")
        native: Native = getattr(import_module(f"flowrun.spark.{module}"), function)
        try:
            made = native(node, inputs, context)
        except NotNative as missing:
            reason = missing.reason
        else:
            return made if isinstance(made, Translated) else Translated(made)
    from flowrun.spark.hosted.node import host_node  # imported here: most pipelines host nothing

    if isinstance(node, ChangelogNormalize):
        from flowrun.spark.native.changelogs import changes_of

        return host_node(node, (changes_of(node.input, inputs, context),), context, reason)
    return host_node(node, inputs.frames, context, reason)


def _side_output(node: nodes.SideOutput, inputs: Inputs, context: Context) -> Translated:
    frame = inputs.of(node.input).sides.get(node.tag)
    if frame is None:
        from flowrun.spark.native.rows import no_rows

        frame = no_rows(node.schema, node.event_time, context)
    return Translated(frame)
