"""From what is said of an operator to the operator: a table from kind of spec to what makes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TypeAlias

from flowrun.api.operator import OperatorRecipe, OperatorSpec, StreamOperator
from flowrun.errors import InternalError

Make: TypeAlias = Callable[[OperatorSpec], StreamOperator]
"""A spec → a new operator for one subtask."""

IMPLEMENTATIONS: Mapping[str, str] = {
    "factories:SourceOperatorFactory": "source:ConnectorSourceOperator",
    "factories:SinkOperatorFactory": "sink:SinkOperator",
    "factories:CalcFactory": "calc:CalcOperator",
    "factories:SplitFactory": "split:SplitOperator",
    "factories:PythonFunctionFactory": "python_function:python_function_operator",
    "factories:TimestampsAndWatermarksFactory": "watermarks:TimestampsAndWatermarksOperator",
    "factories:IterationHeadFactory": "iteration:IterationHead",
    "factories:IterationTailFactory": "iteration:IterationTail",
    "rows.factories:AssignTimeFactory": "rows.times:AssignTimeOperator",
    "rows.factories:ExpandFactory": "rows.copies:ExpandOperator",
    "rows.factories:UnnestFactory": "rows.unnest:UnnestOperator",
    "rows.factories:TableFunctionFactory": "rows.table_function:TableFunctionOperator",
    "rows.factories:WindowFunctionFactory": "rows.copies:WindowFunctionOperator",
    "rows.factories:WatermarkColumnFactory": "rows.times:WatermarkColumnOperator",
    "rows.factories:ToChangelogFactory": "rows.changelogs:ToChangelogOperator",
    "rows.factories:FromChangelogFactory": "rows.changelogs:FromChangelogOperator",
    "updating.factories:GroupAggregateFactory": "updating.group_aggregate:GroupAggregateOperator",
    "updating.factories:LocalGroupAggregateFactory": "updating.local_group:LocalGroupAggregateOperator",
    "updating.factories:ChangelogNormalizeFactory": "updating.normalize:ChangelogNormalizeOperator",
    "updating.factories:ConflictResolutionFactory": "updating.conflicts:ConflictResolutionOperator",
    "ranking.factories:RankFactory": "ranking.top_n:RankOperator",
    "ranking.factories:DeduplicateFactory": "ranking.deduplicate:DeduplicateOperator",
    "ranking.factories:WindowRankFactory": "ranking.window_rank:window_rank_operator",
    "ranking.factories:TemporalSortFactory": "ranking.temporal_sort:TemporalSortOperator",
    "over.factories:AppendOverFactory": "over.append_over:AppendOverOperator",
    "over.factories:ChangelogOverFactory": "over.final_over:changelog_over_operator",
    "matching.factories:MatchFactory": "matching.operator:MatchOperator",
    "joins.factories:RegularJoinFactory": "joins.regular:RegularJoinOperator",
    "joins.factories:WindowJoinFactory": "joins.window:window_join_operator",
    "joins.factories:IntervalJoinFactory": "joins.interval:IntervalJoinOperator",
    "joins.factories:TemporalJoinFactory": "joins.temporal:TemporalJoinOperator",
    "joins.factories:LookupJoinFactory": "joins.lookup:LookupJoinOperator",
    "asynchronous.factories:AsyncFunctionFactory": "asynchronous.operator:AsyncFunctionOperator",
    "process.factories:ProcessFunctionFactory": "process.create_operator:process_operator",
    "process.factories:CoProcessFunctionFactory": "process.create_operator:co_process_operator",
    "windows.slices.factories:SliceWindowFactory": "windows.slices.open_windows:slice_window_operator",
    "windows.slices.factories:LocalSliceAggregateFactory": "windows.slices.local:local_slice_aggregate_operator",
    "windows.sessions.factories:SessionWindowFactory": "windows.sessions.open_windows:session_window_operator",
    "windows.counts.factories:CountWindowFactory": "windows.counts.count_window:CountWindowOperator",
    "windows.counts.factories:GlobalWindowFactory": "windows.counts.global_window:global_window_operator",
    "windows.output_modes.factories:OutputModeFactory": "windows.output_modes.operator:output_mode_operator",
    "windows.general.factories:GeneralWindowFactory": "windows.general.operator:general_window_operator",
}
"""Class of specs → what is called with one: an operator, or a function where there are several or the time zone matters.

Both are names (module:name below `flowrun.operators`): no operator is imported that a job does not have, and no operator by its spec."""

_PACKAGE = "flowrun.operators."


def create_operator(recipe: OperatorRecipe) -> StreamOperator:
    """A new operator for one subtask: what the table has for a spec, or what a factory of one's own makes.

    Raises:
        InternalError: nothing is known that makes an operator of it.
    """
    return _implementation(recipe)(recipe) if isinstance(recipe, OperatorSpec) else recipe.create()


def import_operators(recipes: Iterable[OperatorRecipe]) -> None:
    """Import what `create_operator` and the first batch will need, so that processes which are forked afterwards have it.

    Raises as `create_operator` does.
    """
    for recipe in recipes:
        if isinstance(recipe, OperatorSpec):
            _implementation(recipe)
    import_module("numpy.ma")  # by pyarrow, when it is first given an array of NumPy


def _implementation(spec: OperatorSpec) -> Make:
    kind = type(spec)
    where = IMPLEMENTATIONS.get(f"{kind.__module__.removeprefix(_PACKAGE)}:{kind.__qualname__}")
    if where is None:
        raise InternalError(f"there is no operator for {kind.__qualname__}")
    module, _, name = where.partition(":")
    make: Make = getattr(import_module(_PACKAGE + module), name)
    return make
