"""Lowering of relational nodes: a table from kind of node to the function that makes its transformation."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TypeAlias

from flowrun.errors import InternalError
from flowrun.graph.transformation import Transformation
from flowrun.lowering.inputs import Inputs
from flowrun.plan import relational as rel
from flowrun.plan.changelog_nodes import ChangelogNormalize, FromChangelog, ToChangelog
from flowrun.plan.conflicts import ResolveConflicts
from flowrun.plan.joins import IntervalJoin, Join, LookupJoin, TemporalJoin, WindowJoin
from flowrun.plan.matching import MatchRecognize
from flowrun.plan.nodes import PlanNode, Settings

Lower: TypeAlias = Callable[[PlanNode, Inputs, Settings], Transformation]
"""(node, what its inputs became, settings) → its transformation."""

# Module and function by name: each kind of operator is imported when a plan has it.
_LOWERINGS: dict[type[PlanNode], str] = {
    rel.Values: "rows:lower_values",
    rel.AssignTime: "rows:lower_assign_time",
    rel.Expand: "rows:lower_expand",
    rel.Unnest: "rows:lower_unnest",
    rel.TableFunctionCall: "rows:lower_table_function",
    rel.WindowTableFunction: "window_functions:lower_window_function",
    rel.GroupAggregate: "aggregates:lower_group_aggregate",
    rel.OverAggregate: "over:lower_over",
    rel.Rank: "ranking:lower_rank",
    rel.Deduplicate: "ranking:lower_deduplicate",
    rel.WindowRank: "ranking:lower_window_rank",
    rel.TemporalSort: "ranking:lower_temporal_sort",
    Join: "joins:lower_join",
    WindowJoin: "joins:lower_window_join",
    IntervalJoin: "time_joins:lower_interval_join",
    TemporalJoin: "time_joins:lower_temporal_join",
    LookupJoin: "time_joins:lower_lookup_join",
    MatchRecognize: "matching:lower_match",
    ToChangelog: "changelogs:lower_to_changelog",
    FromChangelog: "changelogs:lower_from_changelog",
    ChangelogNormalize: "changelogs:lower_normalize",
    ResolveConflicts: "changelogs:lower_conflicts",
}


def lower_relational(node: PlanNode, inputs: Inputs, settings: Settings) -> Transformation:
    """The transformation of a relational node over those of its inputs.

    Raises:
        InternalError: the node is of a kind that recognition should have replaced.
        UnsupportedPlanError: no operator can do what the node asks for.
    """
    where = _LOWERINGS.get(type(node))
    if where is None:
        raise InternalError(f"there is no lowering for {type(node).__name__}")
    module, _, function = where.partition(":")
    lower: Lower = getattr(import_module(f"flowrun.lowering.{module}"), function)
    return lower(node, inputs, settings)
