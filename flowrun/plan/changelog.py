"""Which changes the rows of each node make, and whether its readers can take them.

The rules are Apache Flink's changelog mode inference (`FlinkChangelogModeInferenceProgram`), with two differences that follow from
how flowrun's operators work: what only inserts is said to (DISTINCT over inserts), and a filter or join over updates counts as
deleting, since it may let one half of an update pass alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flowrun.api.changelog import ChangelogMode, ChangesTaken, changes_taken_by, mode_of_source
from flowrun.api.source import Source
from flowrun.core.elements import RowKind
from flowrun.core.row_errors import DEAD_LETTER_TAG
from flowrun.core.semantics import JoinKind, OutputMode
from flowrun.errors import Diagnostic, OptionError
from flowrun.plan.changelog_nodes import ChangelogNormalize, FromChangelog
from flowrun.plan.conflicts import ResolveConflicts
from flowrun.plan.description import InsertsOnly, node_description
from flowrun.plan.joins import Join, LookupJoin
from flowrun.plan.nodes import (
    Calc,
    Plan,
    PlanNode,
    Process,
    Scan,
    SideOutput,
    Sink,
    TableReference,
    WindowAggregate,
    walk_plan,
)
from flowrun.plan.relational import Deduplicate, GroupAggregate, Keep, Over, OverAggregate, Rank
from flowrun.plan.tables import create_sink, create_source

__all__ = ["ChangelogMode", "changelog_modes", "check_changelogs", "sink_mode"]

Modes = Mapping[int, ChangelogMode]
"""By `id` of the node."""

_WINDOWS = "a window (TUMBLE, HOP, CUMULATE, SESSION), whose results are final"


def changelog_modes(plan: Plan, sources: Mapping[int, Source] | None = None) -> dict[int, ChangelogMode]:
    """The mode of each node's rows, by `id` of the node; for a sink, of what it gets.

    Args:
        plan: all its nodes.
        sources: sources that have been made already, by `id` of their scan.

    Raises:
        OptionError: a source cannot be made from its options.
    """
    modes: dict[int, ChangelogMode] = {}
    for node in walk_plan(plan):
        made = None if sources is None else sources.get(id(node))
        if made is not None:
            modes[id(node)] = mode_of_source(made)
        else:
            modes[id(node)] = node_mode(node, [modes[id(i)] for i in node.inputs])
    return modes


def node_mode(node: PlanNode, inputs: Iterable[ChangelogMode]) -> ChangelogMode:
    """The mode of one node's rows, given those of its inputs."""
    worst = max(inputs, default=ChangelogMode.APPEND)
    match node:
        case Scan():
            return mode_of_source(create_source(node.table, node.physical, node.declared, node.filters))
        case OverAggregate(at_end=True):
            return ChangelogMode.APPEND
        case OverAggregate(corrects=True):
            return ChangelogMode.RETRACT
        case Join(kind=JoinKind.INNER | JoinKind.SEMI) | LookupJoin() | Over() | OverAggregate():
            return _all_or_nothing(worst)
        case Join():
            return ChangelogMode.RETRACT
        case Calc(condition=condition) if condition is not None:
            return _all_or_nothing(worst)
        case WindowAggregate(output_mode=OutputMode.UPDATE):
            return ChangelogMode.RETRACT
        case GroupAggregate():
            if worst is ChangelogMode.APPEND:
                return ChangelogMode.UPDATE if node.aggregates else ChangelogMode.APPEND
            return ChangelogMode.RETRACT
        case Rank():
            return ChangelogMode.RETRACT if node.order else _all_or_nothing(worst)
        case Deduplicate():
            if worst is not ChangelogMode.APPEND:
                return ChangelogMode.RETRACT
            return ChangelogMode.APPEND if node.keep is Keep.FIRST else ChangelogMode.UPDATE
        case SideOutput(tag=tag) if tag == DEAD_LETTER_TAG:
            return ChangelogMode.APPEND
        case ChangelogNormalize():
            return ChangelogMode.RETRACT
        case ResolveConflicts():
            return ChangelogMode.APPEND if worst is ChangelogMode.APPEND else ChangelogMode.RETRACT
        case FromChangelog(upsert=True):
            return ChangelogMode.UPSERT
        case FromChangelog():
            only_inserts = all(kind == RowKind.INSERT for _, kind in node.codes)
            return ChangelogMode.APPEND if only_inserts else ChangelogMode.RETRACT
        case _:
            return ChangelogMode.APPEND if node_description(type(node)).final else worst


def _all_or_nothing(worst: ChangelogMode) -> ChangelogMode:
    return ChangelogMode.RETRACT if worst is ChangelogMode.UPDATE else worst


def sink_mode(plan: Plan, sink: Sink) -> ChangelogMode:
    """The mode of the rows that one sink gets."""
    return changelog_modes(plan)[id(sink)]


def check_changelogs(plan: Plan) -> list[Diagnostic]:
    """What is wrong with the changes that sinks and operators get; empty if they can take them all.

    Each problem names the reader, and the operator or source that makes the changes, with its place in the user's text.
    """
    try:
        modes = changelog_modes(plan)
    except OptionError as error:
        return [Diagnostic(error.message, hint=error.hint)]
    problems = []
    for node in walk_plan(plan):
        if isinstance(node, Sink):
            problem = _check_sink(node, modes)
        else:
            problem = _check_operator(node, modes)
        if problem is not None:
            problems.append(problem)
    return problems


def _check_sink(sink: Sink, modes: Modes) -> Diagnostic | None:
    mode = modes[id(sink)]
    if mode is ChangelogMode.APPEND:
        return None
    try:
        taken = changes_taken_by(create_sink(sink.table, sink.schema, unbounded=False, updating=True))
    except OptionError as error:
        return Diagnostic(f"sink '{sink.table.name}': {error.message}", location=sink.hints.location, hint=error.hint)
    if taken is not ChangesTaken.APPEND:
        return None
    table = sink.table
    how = f"connector '{table.connector}'" + (f" with format '{table.format}'" if table.format else "")
    return _problem(f"sink '{table.name}' ({how}) takes inserts only", sink, sink.input, modes, _sink_hint(table))


def _sink_hint(table: TableReference) -> str:
    ways = []
    if table.format is not None:
        ways.append("a format that carries changes ('format' = 'debezium-json' or 'canal-json')")
        if not table.primary_key:
            ways.append("a PRIMARY KEY (…) NOT ENFORCED on the sink, which then keeps one row a key")
    ways.append(_WINDOWS)
    return "use " + "; or ".join(ways)


_CALLED_FUNCTION = InsertsOnly(
    "a process table function", hint="call it with TO_CHANGELOG(TABLE …): rows that say how they change"
)
_WINDOW_FUNCTION = InsertsOnly("a window function", hint="use a process function, which is shown changes")


def _check_operator(node: PlanNode, modes: Modes) -> Diagnostic | None:
    called = isinstance(node, Process) and node.called is not None
    windowed = isinstance(node, Process) and node.windows is not None
    rule = _CALLED_FUNCTION if called else _WINDOW_FUNCTION if windowed else node_description(type(node)).inserts_only
    if rule is None:
        return None
    for position in rule.inputs:
        given = node.inputs[position]
        if modes[id(given)] is not ChangelogMode.APPEND:
            return _problem(f"{rule.what}{_named(node)} needs rows that never change", node, given, modes, rule.hint)
    return None


def _problem(expected: str, reader: PlanNode, given: PlanNode, modes: Modes, hint: str) -> Diagnostic:
    maker = _maker(given, modes)
    what = "updates and deletes" if modes[id(given)] is ChangelogMode.RETRACT else "updates"
    place = reader.hints.location
    maker_place = maker.hints.location
    if place is None:
        place, where = maker_place, ""
    else:
        where = f" at {maker_place}" if maker_place is not None and maker_place != place else ""
    return Diagnostic(f"{expected}, but gets {what} from {describe(maker)}{where}", location=place, hint=hint)


def _maker(node: PlanNode, modes: Modes) -> PlanNode:
    """The node from which changes come first: none of its own inputs changes. (A source is called so, not what normalises it.)"""
    while True:
        changing = [i for i in node.inputs if modes[id(i)] is not ChangelogMode.APPEND]
        if not changing:
            return node
        node = changing[0]


def describe(node: PlanNode) -> str:
    """What a node that makes changes is called in a query."""
    named = _named(node)
    match node:
        case Scan():
            return f"source '{node.table.name}'" + (f" (format '{node.table.format}')" if node.table.format else "")
        case GroupAggregate(keys=()):
            return f"an aggregate over all rows{named}"
        case GroupAggregate():
            keys = ", ".join(node.input.schema.names[k] for k in node.keys)
            return (f"GROUP BY {keys}" if node.aggregates else f"DISTINCT {keys}") + named
        case Join():
            return f"a {node.kind.name} JOIN{named}"
        case FromChangelog():
            return f"FROM_CHANGELOG{named}"
        case Rank(partition=()):
            return f"ORDER BY … LIMIT or a top-N over all rows{named}"
        case Rank():
            return f"a top-N ({node.function.value}() OVER (…) limited){named}"
        case Deduplicate():
            return f"deduplication (the {node.keep.value} row of each key){named}"
        case _:
            return f"{type(node).__name__}{named}"


def _named(node: PlanNode) -> str:
    """The name that the user gave; front ends call parts of a step or statement by its name, a dot and what they are."""
    name = node.hints.name
    return f" '{name}'" if name and "." not in name else ""
