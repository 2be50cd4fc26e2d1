# ruff: noqa: ARG001 - rules share one signature
"""What columns mean beyond their types: time attributes and the bounds of windows, and which event time the rows carry.

A time attribute is a column that watermarks (ROWTIME) or the machine's clock (PROCTIME) vouch for; windows, time joins and OVER may only
order by these. The rules of which nodes keep them are Apache Flink's ("Time Attributes", "Windowing table-valued functions").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum

from flowrun.core.local_time import UTC_ZONE
from flowrun.core.record import record
from flowrun.core.semantics import TimeDomain
from flowrun.core.types import INTERVAL_DAY_TIME, STRING, DataType, timestamp, timestamp_ltz
from flowrun.functions.times.local_times import LAST_INSTANT
from flowrun.plan import nodes
from flowrun.plan.changelog_nodes import ChangelogNormalize
from flowrun.plan.description import Rows, node_description
from flowrun.plan.expressions import Call, Cast, ColumnRef, Expression, Literal
from flowrun.plan.joins import IntervalJoin, TemporalJoin, WindowJoin
from flowrun.plan.matching import MatchRecognize, Navigation, PatternColumn
from flowrun.plan.relational import AssignTime, Deduplicate, Expand, WindowRank, WindowTableFunction
from flowrun.plan.windows import SessionWindow, TumblingWindow, WindowSpec, window_zone

PROCTIME = "PROCTIME"
ATTACHED = TumblingWindow(1)
"""The window of aggregates over rows that have their window already: such rows' event time is window_end − 1, which this holds alone."""


class Role(Enum):
    """What a column is to time."""

    TIME = "time"
    WINDOW_START = "window start"
    WINDOW_END = "window end"
    WINDOW_TIME = "window time"


@record
class WindowIdentity:
    """Which window a column bounds: windows of equal specification over one clock have equal bounds at all times."""

    spec: WindowSpec
    domain: TimeDomain

    @property
    def zone(self) -> str:
        """Whose clocks it goes by."""
        return window_zone(self.spec)


@record
class ColumnTrait:
    """The role of a column.

    Attributes:
        domain: the clock of a time attribute.
        window: of a bound; None for TIME.
        current: the event times that the batches carry are this column's values.
    """

    role: Role
    domain: TimeDomain
    window: WindowIdentity | None = None
    current: bool = False

    @property
    def attribute(self) -> TimeDomain | None:
        """The clock, if the column is a time attribute; None: it is a bound of a window, an ordinary timestamp."""
        return self.domain if self.role in (Role.TIME, Role.WINDOW_TIME) else None


@record
class Traits:
    """Roles of a node's columns.

    Attributes:
        columns: None for an ordinary column.
        at_window_time: every row's event time is the end of its window − 1 ms.
    """

    columns: tuple[ColumnTrait | None, ...]
    at_window_time: bool = False

    def attribute(self, column: int) -> TimeDomain | None:
        """The clock of a column that is a time attribute."""
        trait = self.columns[column]
        return None if trait is None else trait.attribute

    def is_current(self, column: int) -> bool:
        """Whether the batches' event times are the column's values."""
        trait = self.columns[column]
        return trait is not None and trait.current

    @property
    def window(self) -> WindowIdentity | None:
        """The window of the rows: that of their window_start and window_end columns; a relation has at most one."""
        return next((t.window for t in self.columns if t is not None and t.window is not None), None)


class TraitIndex:
    """Traits of nodes, each worked out once. Keeps the nodes that it was asked for."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[nodes.PlanNode, Traits]] = {}

    def __getitem__(self, node: nodes.PlanNode) -> Traits:
        stack = [node]
        while stack:
            top = stack[-1]
            missing = [i for i in top.inputs if id(i) not in self._known]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            if id(top) not in self._known:
                self._known[id(top)] = (top, node_traits(top, [self._known[id(i)][1] for i in top.inputs]))
        return self._known[id(node)][1]


def window_time(window_end: Expression, type: DataType, zone: str = UTC_ZONE) -> Expression:
    """The window_time of a row from its window_end: one ms less, as `type`, that of the time attribute; `zone` is the window's.

    >>> from flowrun.core.types import timestamp_ltz
    >>> str(window_time(ColumnRef(timestamp(3), 1, "window_end"), timestamp_ltz(3)))
    'CAST((window_end - INTERVAL 1 ms) AS TIMESTAMP_LTZ(3))'
    """
    time = Call(timestamp(3), "-", (window_end, Literal(INTERVAL_DAY_TIME, 1)))
    if zone == UTC_ZONE:
        return time if type == time.type else Cast(type, time)
    instant: Expression = Call(timestamp_ltz(3), LAST_INSTANT, (time, Literal(STRING, zone)))
    return instant if type == instant.type else Cast(type, instant)


def window_end_of(expression: Expression) -> ColumnRef | None:
    """The column of which the expression is the `window_time`, if it has that form."""
    if isinstance(expression, Cast) and expression.type.is_timestamp and not expression.safe:
        expression = expression.operand
    if isinstance(expression, Call) and expression.function == LAST_INSTANT:
        expression = expression.arguments[0]
    match expression:
        case Call(function="-", arguments=(ColumnRef() as end, Literal(value=1, type=type))) if (
            type == INTERVAL_DAY_TIME
        ):
            return end
    return None


def node_traits(node: nodes.PlanNode, inputs: Sequence[Traits]) -> Traits:
    """The traits of a node from those of its inputs."""
    rule = _RULES.get(type(node))
    if rule is not None:
        return rule(node, inputs)
    passes = node_description(type(node)).rows in (Rows.EACH, Rows.REPEATED)
    return _passed(node, inputs) if passes else _plain(len(node.schema))


def _plain(columns: int) -> Traits:
    return Traits((None,) * columns)


# -- sources, rows in and rows out --------------------------------------------------------------------------------------------


def _scan(node: nodes.PlanNode, inputs: Sequence[Traits]) -> Traits:
    assert isinstance(node, nodes.Scan)
    mark = node.watermark
    columns: list[ColumnTrait | None] = []
    for name, projection in zip(node.schema.names, node.projections, strict=True):
        if mark is not None and mark.column == name:
            columns.append(ColumnTrait(Role.TIME, TimeDomain.EVENT, current=True))
        else:
            columns.append(_processing_time(projection))
    return Traits(tuple(columns))


def _processing_time(expression: Expression) -> ColumnTrait | None:
    if isinstance(expression, Call) and expression.function == PROCTIME:
        return ColumnTrait(Role.TIME, TimeDomain.PROCESSING)
    return None


def _calc(node: nodes.PlanNode, inputs: Sequence[Traits]) -> Traits:
    assert isinstance(node, nodes.Calc)
    return Traits(tuple(projected(p, inputs[0]) for p in node.projections), inputs[0].at_window_time)


def projected(expression: Expression, input: Traits) -> ColumnTrait | None:
    """The role of a column that is computed by the expression over rows with the traits `input`."""
    if isinstance(expression, Cast) and expression.type == expression.operand.type:
        expression = expression.operand
    if isinstance(expression, ColumnRef):
        return input.columns[expression.index]
    end = window_end_of(expression)
    if end is not None:
        trait = input.columns[end.index]
        if trait is not None and trait.role is Role.WINDOW_END:
            return replace(trait, role=Role.WINDOW_TIME, current=input.at_window_time)
    return _processing_time(expression)


def _expand(node: nodes.PlanNode, inputs: Sequence[Traits]) -> Traits:
    assert isinstance(node, Expand)
    sets = [tuple(projected(e, inputs[0]) for e in projections) for projections in node.projections]
    return Traits(tuple(_agreed(c) for c in zip(*sets, strict=True)), inputs[0].at_window_time)


def _union(node: nodes.PlanNode, inputs: Sequence[Traits]) -> Traits:
    columns = tuple(_agreed(c) for c in zip(*(i.columns for i in inputs), strict=True))
    return Traits(columns, all(i.at_window_time for i in inputs))


def _agreed(traits: Sequence[ColumnTrait | None]) -> ColumnTrait | None:
    """What all of them are; the event time that rows carry only if it is in all."""
    first = traits[0]
    if first is None:
        return None
    common = replace(first, current=all(t is not None and t.current for t in traits))
    return common if all(t is not None and replace(t, current=common.current) == common for t in traits) else None


def _passed(node: nodes.PlanNode, inputs: Sequence[Traits]) -> Traits:
    """Rows pass as they are, perhaps with columns behind theirs."""
    given = inputs[0]
    return Traits(given.columns + (None,) * (len(node.schema) - len(given.columns)), given.at_window_time)


def _python(node: nodes.PlanNode, inputs: Sequence[Traits]) -> Traits:
    """A function's rows have the event times of the rows that they came from; a time attribute that it hands on under its name stays one.

    Nobody vouches that the function leaves the column as it is, so the rows' event times are not taken for its values.
    """
    assert isinstance(node, nodes.PythonMap | nodes.AsyncMap)
    given = {
        n: (t, trait)
        for n, t, trait in zip(node.input.schema.names, node.input.schema.types, inputs[0].columns, strict=True)
    }
    columns: list[ColumnTrait | None] = []
    for field in node.schema:
        type, trait = given.get(field.name, (None, None))
        kept = trait is not None and type == field.type and trait.role is Role.TIME
        columns.append(replace(trait, current=False) if kept and trait is not None else None)
    return Traits(tuple(columns))


def _process(node: nodes.PlanNode, inputs: Sequence[Traits]) -> Traits:
    """Only what a query asked for as event time is one: the last column, which is that of the rows."""
    assert isinstance(node, nodes.Process)
    columns: list[ColumnTrait | None] = [None] * len(node.schema)
    if node.called is not None and node.called.time is not None:
        columns[-1] = ColumnTrait(Role.TIME, TimeDomain.EVENT, current=True)
    return Traits(tuple(columns))


def _side(node: nodes.PlanNode, inputs: Sequence[Traits]) -> Traits:
    assert isinstance(node, nodes.SideOutput)
    return inputs[0] if isinstance(node.input, nodes.Split) else _plain(len(node.schema))


def _assign(node: nodes.PlanNode, inputs: Sequence[Traits]) -> Traits:
    assert isinstance(node, AssignTime)
    columns = tuple(
        None if t is None else replace(t, current=i == node.column) for i, t in enumerate(inputs[0].columns)
    )
    chosen = columns[node.column]
    return Traits(columns, chosen is not None and chosen.role is Role.WINDOW_TIME)


# -- windows ------------------------------------------------------------------------------------------------------------------


def _window_function(node: nodes.PlanNode, inputs: Sequence[Traits]) -> Traits:
    """The input's own window, if it has one, ends here: its bounds are ordinary columns from now on."""
    assert isinstance(node, WindowTableFunction)
    window = WindowIdentity(node.window, node.domain)
    # a session's rows come out when it closes: they are behind the watermark then, and carry its window_time
    late = isinstance(node.window, SessionWindow) and node.domain is TimeDomain.EVENT
    columns = [None if late else _without_window(t) for t in inputs[0].columns]
    return Traits((*columns, *_bounds(window, late)), late)


def _without_window(trait: ColumnTrait | None) -> ColumnTrait | None:
    """Time attributes without what windows they end: rows of one window no longer come together."""
    if trait is None or trait.role is Role.TIME:
        return trait
    return ColumnTrait(Role.TIME, trait.domain, current=trait.current) if trait.role is Role.WINDOW_TIME else None


def _bounds(window: WindowIdentity, current: bool) -> tuple[ColumnTrait, ColumnTrait, ColumnTrait]:
    return (
        ColumnTrait(Role.WINDOW_START, window.domain, window),
        ColumnTrait(Role.WINDOW_END, window.domain, window),
        ColumnTrait(Role.WINDOW_TIME, window.domain, window, current),
    )


def _window_aggregate(node: nodes.PlanNode, inputs: Sequence[Traits]) -> Traits:
    assert isinstance(node, nodes.WindowAggregate)
    columns: list[ColumnTrait | None] = [None] * len(node.schema)
    given = inputs[0]
    starts = [i for i, k in enumerate(node.keys) if _is_start(given.columns[k])]
    bounds = len(node.keys)
    if node.window == ATTACHED and starts:  # the bounds of the rows' own window: its start is a key
        window = given.window
        assert window is not None
        ends = [i for i, k in enumerate(node.keys) if _is_end(given.columns[k])]
        columns[starts[0]], columns[ends[0] if ends else bounds + 1], _ = _bounds(window, True)
        return Traits(tuple(columns), node.domain is TimeDomain.EVENT)
    if len(node.schema) == bounds + 2 + len(node.aggregates):
        columns[bounds], columns[bounds + 1], _ = _bounds(WindowIdentity(node.window, node.domain), True)
        return Traits(tuple(columns), node.domain is TimeDomain.EVENT)
    return Traits(tuple(columns))  # count and global windows have no bounds


def _is_start(trait: ColumnTrait | None) -> bool:
    return trait is not None and trait.role is Role.WINDOW_START


def _is_end(trait: ColumnTrait | None) -> bool:
    return trait is not None and trait.role is Role.WINDOW_END


def _closed_window(node: nodes.PlanNode, inputs: Sequence[Traits]) -> Traits:
    """Rows that come out when their window closes: their event time is window_time, other rowtimes are behind the watermark."""
    columns = [c for i in inputs for c in i.columns][: len(node.schema)]
    columns += [None] * (len(node.schema) - len(columns))
    event = getattr(node, "domain", TimeDomain.EVENT) is TimeDomain.EVENT
    return Traits(tuple(_at_close(c, event) for c in columns), event)


def _at_close(trait: ColumnTrait | None, event: bool) -> ColumnTrait | None:
    if trait is None or (trait.role is Role.TIME and trait.domain is TimeDomain.EVENT):
        return None
    return replace(trait, current=event and trait.role is Role.WINDOW_TIME)


# -- others that keep time attributes -----------------------------------------------------------------------------------------


def _interval_join(node: nodes.PlanNode, inputs: Sequence[Traits]) -> Traits:
    """Both sides' time attributes stay; the rows carry the later of the two."""
    columns = [c for i in inputs for c in i.columns]
    return Traits(tuple(None if c is None else _without_window(replace(c, current=False)) for c in columns))


def _deduplicate(node: nodes.PlanNode, inputs: Sequence[Traits]) -> Traits:
    given = _passed(node, inputs)
    return Traits(tuple(_without_window(c) for c in given.columns))


_Rule = Callable[[nodes.PlanNode, Sequence[Traits]], Traits]


def _match(node: nodes.PlanNode, inputs: Sequence[Traits]) -> Traits:
    """MATCH_ROWTIME(), the time of a match's last row, is the event time of the match."""
    assert isinstance(node, MatchRecognize)
    time = node.order[0].column
    columns: list[ColumnTrait | None] = [None] * len(node.partition)
    for measure in node.measures:
        match measure:
            case PatternColumn(index=index, variable=None, navigation=Navigation.LAST, offset=0) if index == time:
                columns.append(ColumnTrait(Role.TIME, node.domain, current=node.domain is TimeDomain.EVENT))
            case _:
                columns.append(None)
    return Traits(tuple(columns))


_RULES: dict[type[nodes.PlanNode], _Rule] = {
    nodes.Scan: _scan,
    nodes.Calc: _calc,
    Expand: _expand,
    nodes.Union: _union,
    nodes.Split: _passed,
    nodes.PythonMap: _python,
    nodes.AsyncMap: _python,
    nodes.Process: _process,
    nodes.SideOutput: _side,
    AssignTime: _assign,
    WindowTableFunction: _window_function,
    nodes.WindowAggregate: _window_aggregate,
    WindowJoin: _closed_window,
    WindowRank: _closed_window,
    Deduplicate: _deduplicate,
    ChangelogNormalize: _passed,
    IntervalJoin: _interval_join,
    TemporalJoin: _passed,
    MatchRecognize: _match,
}
"""Of the others those that pass on each row keep what their input had; the rest lose it: their rows may come or change at any time."""
