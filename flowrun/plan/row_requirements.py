"""What a node requires of its input's rows where it could not leave out those that it fails on: a Calc before it does."""

from __future__ import annotations

from flowrun.core.row_errors import RowFault
from flowrun.core.schema import Schema
from flowrun.core.semantics import NullKeys
from flowrun.errors import FlowrunError
from flowrun.operators.row_tests import SinkCheck
from flowrun.plan.co_process import CoProcess
from flowrun.plan.conditions import conjunction, conjuncts
from flowrun.plan.expressions import AggregateCall, ColumnRef, Expression, transform, walk
from flowrun.plan.fallibility import may_fail
from flowrun.plan.matching import MatchRecognize, Navigation, PatternAggregate, PatternColumn
from flowrun.plan.nodes import Calc, PlanNode, Process, Required, Settings, Sink, TableReference, WindowAggregate
from flowrun.plan.relational import AssignTime, GroupAggregate, OverAggregate
from flowrun.plan.tables import create_sink


def required_of(node: PlanNode, settings: Settings, number: int = 0) -> Required | None:
    """Which rows of one of its inputs a node cannot process, but cannot leave out either; None: there are none.

    That is NULL in some of its columns; of a sink rows that it cannot write; of aggregates rows that a user's aggregate fails on; of
    MATCH_RECOGNIZE rows that a condition on them alone fails on.
    """
    name = node.hints.name or type(node).__name__
    columns: tuple[int, ...] = ()
    place, fault, writes = f"step '{name.partition('.')[0]}'", RowFault.NULL_VALUE, None
    match node:
        case WindowAggregate(keys=keys, null_keys=NullKeys.FAIL) | Process(keys=tuple(keys), null_keys=NullKeys.FAIL):
            columns, fault = keys, RowFault.NULL_KEY
        case CoProcess(null_keys=NullKeys.FAIL):
            columns, fault = node.keys[number] or (), RowFault.NULL_KEY
        case AssignTime(column=column):
            columns, fault = (column,), RowFault.NULL_TIME
        case Sink():
            columns, place = tuple(i for i, field in enumerate(node.schema) if not field.nullable), f"sink '{name}'"
            writes = (node.table, node.schema) if _may_refuse(node, settings) else None
    columns = tuple(i for i in columns if not _never_null(node.inputs[number], i))
    evaluates, folds = _evaluated(node)
    found = Required(columns, place, fault, writes, evaluates, folds)
    return found if columns or writes is not None or evaluates or folds else None


def sink_check(table: TableReference, schema: Schema, settings: Settings, place: str) -> SinkCheck:
    """What looks at the rows of a sink before it. Raises OptionError as `create_sink`."""
    return SinkCheck(create_sink(table, schema, unbounded=False), settings.constraints, place)


def _may_refuse(node: Sink, settings: Settings) -> bool:
    """Whether there are rows that a sink cannot write, for another reason than NULL."""
    try:
        check = sink_check(node.table, node.schema, settings, "")
    except FlowrunError:
        return False  # what is wrong with its options is said by whoever makes the sink
    return check.create() is not None


def _never_null(node: PlanNode, column: int) -> bool:
    """Whether a column has no NULL for sure; what a sink declares of its columns is no proof."""
    while isinstance(node, Calc):
        projection = node.projections[column]
        if not isinstance(projection, ColumnRef):
            return False
        node, column = node.input, projection.index
    return not node.schema.fields[column].nullable


def _evaluated(node: PlanNode) -> tuple[tuple[Expression, ...], tuple[AggregateCall, ...]]:
    """(what a node computes of each row that may fail, the users' aggregates that it hands rows to)."""
    match node:
        case WindowAggregate() | GroupAggregate() | OverAggregate():
            calls = node.calls if isinstance(node, OverAggregate) else node.aggregates
            folds = tuple(c for c in calls if c.reference is not None)
            if not folds:  # then the arguments are computed in a Calc of their own, which leaves rows out
                return (), ()
            return tuple(e for e in arguments_of(calls) if may_fail(e)), folds
        case MatchRecognize():
            return tuple(dict.fromkeys(e for e in _of_single_rows(node) if may_fail(e))), ()
    return (), ()


def arguments_of(calls: tuple[AggregateCall, ...]) -> list[Expression]:
    """The arguments and filters of aggregates."""
    return [e for c in calls for e in (*c.arguments, *(() if c.filter is None else (c.filter,)))]


def _of_single_rows(node: MatchRecognize) -> list[Expression]:
    """What a pattern asks of rows by themselves, over the input's columns.

    Of each condition that is its first conjuncts up to one that reads other rows, which may guard those behind it.
    """
    found = []
    for variable, condition in node.defines:
        leading: list[Expression] = []
        for part in conjuncts(condition):
            if not all(_reads_current(e, variable) for e in walk(part)):
                break
            leading.append(transform(part, _as_column))
        whole = conjunction(leading)
        found += [] if whole is None else [whole]
    computed = (*node.measures, *(c for _, c in node.defines))
    calls = tuple(e.call for c in computed for e in walk(c) if isinstance(e, PatternAggregate))
    return [*found, *arguments_of(calls)]


def _reads_current(expression: Expression, variable: str) -> bool:
    if isinstance(expression, PatternColumn):
        last = expression.navigation is Navigation.LAST and not expression.offset
        return last and expression.variable in (None, variable)
    return not isinstance(expression, PatternAggregate)


def _as_column(expression: Expression) -> Expression:
    if isinstance(expression, PatternColumn):
        return ColumnRef(expression.type, expression.index, expression.name)
    return expression
