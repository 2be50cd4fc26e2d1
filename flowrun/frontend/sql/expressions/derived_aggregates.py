"""Aggregates that are expressions over other aggregates: variances of exact numbers, JSON_ARRAYAGG, JSON_OBJECTAGG, and
APPROX_COUNT_DISTINCT, which is exact: COUNT(DISTINCT value).

Variances have the types and values that Apache Flink gives them. Those of integers are exact until the last division, and are truncated
then; in OVER windows every division truncates (Calcite's `AggregateReduceFunctionsRule`). Of decimals every step has the scale of the
result. Of approximate numbers they are aggregates of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

from sqlglot import exp

from flowrun.core.types import BIGINT, DOUBLE, STRING, DataType, decimal
from flowrun.frontend.sql.expressions.aggregate_calls import is_star, typed_call, written_arguments
from flowrun.frontend.sql.expressions.binder import ExpressionBinder
from flowrun.functions.registry import aggregate
from flowrun.plan.expressions import AggregateCall, And, Case, Cast, Expression, Literal

_SPREADS = {
    "STDDEV_POP": (False, True), "STDDEV_SAMP": (True, True), "STDDEV": (True, True),
    "VAR_POP": (False, False), "VAR_SAMP": (True, False), "VARIANCE": (True, False),
}  # fmt: skip
"""Name → of a sample, and its root."""
_JSON = ("JSON_ARRAYAGG", "JSON_OBJECTAGG")
_APPROXIMATE = "APPROX_COUNT_DISTINCT"
_HALF = Literal(decimal(2, 1), Decimal("0.5"))

Pending = Callable[[AggregateCall], Expression]
"""What stands for the result of a call: a group's, or that of an OVER window."""
_Spread = Callable[["_Calls", Expression, DataType], tuple[Expression, Expression]]
"""(the sum of squared distances from the mean, the number of values) of an argument whose mean has this type."""


def is_json_aggregate(name: str) -> bool:
    """Whether the name is that of an aggregate that makes JSON."""
    return name.upper() in _JSON


def is_derived_aggregate(name: str) -> bool:
    """Whether the name is that of an aggregate which exists only in this module."""
    return is_json_aggregate(name) or name.upper() == _APPROXIMATE


def derived_aggregate(
    outer: ExpressionBinder,
    node: exp.Expression,
    filter: Expression | None,
    pending: Pending,
    *,
    variances_in_double: bool = False,
    is_over: bool = False,
) -> Expression | None:
    """The expression that an aggregate call stands for; None: the call is an aggregate itself.

    Args:
        outer: binds the clause; `outer.within(Clause.AGGREGATE)` or its like binds what stands inside the call.
        node: the call.
        filter: the bound condition of FILTER.
        pending: makes the reference to an aggregate's result.
        variances_in_double: variances of exact numbers are aggregates of their own too.
        is_over: the call has an OVER window.

    Raises:
        ExpressionError: wrong arguments; marks the place.
    """
    name = str(node.this).upper()
    arguments, distinct = written_arguments(node)
    if name in _JSON:
        build = _json_array if name == "JSON_ARRAYAGG" else _json_object
        return build(_Calls(outer, node, False, filter, pending), arguments)
    if name == _APPROXIMATE:
        if len(arguments) != 1 or is_star(arguments):
            outer.fail(f"{_APPROXIMATE} takes one value", node, f"usage: {_APPROXIMATE}(value)")
        return _Calls(outer, node, True, filter, pending).aggregate("COUNT", outer.bind(arguments[0]))
    if name not in _SPREADS or variances_in_double or len(arguments) != 1 or is_star(arguments):
        return None
    argument = outer.bind(arguments[0])
    if not argument.type.is_numeric or argument.type.is_approximate:
        return None
    sample, root = _SPREADS[name]
    spread = _spread if is_over or not argument.type.is_integer else _spread_of_integers
    return _variance(_Calls(outer, node, distinct, filter, pending), argument, spread, sample=sample, root=root)


class _Calls:
    """Makes calls and operations at the place of one aggregate."""

    def __init__(
        self,
        binder: ExpressionBinder,
        node: exp.Expression,
        distinct: bool,
        filter: Expression | None,
        pending: Pending,
    ) -> None:
        self.binder = binder
        self.node = node
        self._distinct = distinct
        self.filter = filter
        self._pending = pending

    def aggregate(self, name: str, *arguments: Expression, filter: Expression | None = None) -> Expression:
        """The result of a built-in aggregate of the group's rows, with FILTER and DISTINCT of the call."""
        nodes = [self.node] * len(arguments)
        condition = self.filter if filter is None else filter
        function = aggregate(name)
        assert function is not None, name
        call = typed_call(self.binder, function, arguments, nodes, self.node, distinct=self._distinct, filter=condition)
        return self._pending(call)

    def apply(self, name: str, *arguments: Expression) -> Expression:
        """A call of a scalar function or operator."""
        return self.binder.apply(name, arguments, [self.node] * len(arguments), self.node)

    def cast(self, value: Expression, type: DataType) -> Expression:
        """The value in another type."""
        return value if value.type == type else Cast(type, value)


def _variance(calls: _Calls, argument: Expression, spread: _Spread, *, sample: bool, root: bool) -> Expression:
    """Σ(x − mean)² / n, or / (n − 1); or its root: of the type of the mean."""
    type = calls.aggregate("AVG", argument).type
    squares, count = spread(calls, argument, type)
    if sample:
        divisor = _unless(calls, count, 1, calls.apply("-", count, Literal(BIGINT, 1)))
    else:
        divisor = _unless(calls, count, 0, count)
    variance = calls.apply("/", squares, calls.cast(divisor, DOUBLE) if squares.type == DOUBLE else divisor)
    return calls.cast(calls.apply("POWER", variance, _HALF) if root else variance, type)


def _spread(calls: _Calls, argument: Expression, type: DataType) -> tuple[Expression, Expression]:
    """(Σx² − (Σx)² / n, n), each step in the type of the mean."""
    value = calls.cast(argument, type)
    squares = calls.aggregate("SUM", calls.apply("*", value, value))
    total, count = calls.aggregate("SUM", value), calls.aggregate("COUNT", value)
    several = _unless(calls, count, 0, count)
    return calls.apply("-", squares, calls.apply("/", calls.apply("*", total, total), several)), count


def _spread_of_integers(calls: _Calls, argument: Expression, type: DataType) -> tuple[Expression, Expression]:
    """The same of integers, in whole numbers of 38 digits as far as they are whole.

    With a whole number m near the mean, and r = Σx − m n, Σx² − (Σx)² / n is Σx² − m (Σx + r) − r² / n: no term is much larger than Σx².
    """
    value = calls.cast(argument, decimal(19 if type == BIGINT else 10, 0))
    squares = calls.aggregate("SUM", calls.apply("*", value, value))
    total, count = calls.aggregate("SUM", value), calls.aggregate("COUNT", value)
    several = _unless(calls, count, 0, count)
    near = calls.cast(calls.apply("/", total, several), decimal(38, 0))
    rest = calls.apply("-", total, calls.apply("*", near, several))
    whole = calls.apply("-", squares, calls.apply("*", near, calls.apply("+", total, rest)))
    fraction = calls.apply("/", calls.cast(calls.apply("*", rest, rest), DOUBLE), calls.cast(several, DOUBLE))
    return calls.apply("-", calls.cast(whole, DOUBLE), fraction), count


def _unless(calls: _Calls, count: Expression, odd: int, value: Expression) -> Expression:
    """The value; NULL if the count is `odd`."""
    test = calls.apply("=", count, Literal(BIGINT, odd))
    return Case(value.type, ((test, Literal(value.type, None)),), value)


def _text(calls: _Calls, value: Expression, mark: Expression) -> Expression:
    """A value as JSON; what another constructor made is JSON."""
    is_json = isinstance(mark, Literal) and mark.value == "j"
    return value if is_json else calls.apply("JSON_STRING", value)


def _is_absent(mode: Expression) -> bool:
    return isinstance(mode, Literal) and mode.value == "ABSENT"


def _or_null(calls: _Calls, text: Expression) -> Expression:
    """The JSON text; that of null for NULL."""
    return Case(STRING, ((calls.apply("IS NOT NULL", text), calls.cast(text, STRING)),), Literal(STRING, "null"))


def _present(calls: _Calls, value: Expression) -> Expression:
    """The condition of FILTER, and that there is a value."""
    known = calls.apply("IS NOT NULL", value)
    return known if calls.filter is None else And((calls.filter, known))


def _json_array(calls: _Calls, arguments: Sequence[exp.Expression]) -> Expression:
    mode, mark, item = (calls.binder.bind(a) for a in arguments)
    text = _text(calls, item, mark)
    if _is_absent(mode):
        items = calls.aggregate("ARRAY_AGG", text, filter=_present(calls, item))
    else:
        items = calls.aggregate("ARRAY_AGG", _or_null(calls, text))
    joined = calls.apply("ARRAY_JOIN", items, Literal(STRING, ","))
    inner = Case(STRING, ((calls.apply("IS NOT NULL", joined), joined),), Literal(STRING, ""))
    return calls.apply("||", calls.apply("||", Literal(STRING, "["), inner), Literal(STRING, "]"))


def _json_object(calls: _Calls, arguments: Sequence[exp.Expression]) -> Expression:
    mode, mark, key, value = (calls.binder.bind(a) for a in arguments)
    if not key.type.is_character:
        calls.binder.fail(
            f"the key of JSON_OBJECTAGG must be a character string, {key.type} given", arguments[2], "CAST(… AS STRING)"
        )
    absent = _is_absent(mode)
    member = calls.apply("ROW", calls.cast(key, STRING), _or_null(calls, _text(calls, value, mark)))
    members = calls.aggregate("ARRAY_AGG", member, filter=_present(calls, value) if absent else None)
    return calls.apply("JSON_OBJECT_OF", members)
