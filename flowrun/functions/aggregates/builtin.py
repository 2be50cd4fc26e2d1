# ruff: noqa: ARG001 - kernels share one signature
"""SQL aggregates: how each resolves, for its argument type, to accumulators or to a function of the collected values.

Result types are Flink's: SUM keeps integer and approximate types and widens DECIMAL(p, s) to DECIMAL(38, s); AVG keeps them too (of
integers truncated) and gives DECIMAL(38, max(s, 6)). Sums of integers are kept as BIGINT and checked against the result's range here.
Variances of integers are truncated integers and of decimals DECIMAL(38, max(s, 6)), as in Flink, which derives them from AVG's type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from flowrun.api.aggregate import Accumulator, AggregateKernel, CollectKernel, FinishKernel, WithArguments
from flowrun.core.record import record
from flowrun.core.types import BIGINT, DOUBLE, INT, STRING, DataType, TypeRoot, array, decimal, map_of
from flowrun.errors import ExpressionError
from flowrun.functions.aggregates import kernels
from flowrun.functions.aggregates import spark_texts as texts
from flowrun.functions.aggregates.percentiles import PERCENTILES
from flowrun.functions.contract import AggregateFunction, AggregateText, Argument

Resolved = tuple[tuple[DataType, ...], AggregateKernel]
Resolve = Callable[[str, DataType], AggregateKernel]

_COUNT = Accumulator("count", "count", "sum", BIGINT)


def _sum_type(argument: DataType) -> DataType:
    return decimal(38, argument.scale or 0) if argument.root is TypeRoot.DECIMAL else argument


def _average_type(argument: DataType) -> DataType:
    return decimal(38, max(argument.scale or 0, 6)) if argument.root is TypeRoot.DECIMAL else argument


def _partial_sum(argument: DataType) -> Accumulator:
    wide = BIGINT if argument.is_integer else DOUBLE if argument.is_approximate else _sum_type(argument)
    return Accumulator("sum", "sum", "sum", wide)


@record
class _OneArgument:
    """A type rule of aggregates with one argument; `accepts` names what it must be."""

    usage: str
    accepts: Callable[[DataType], bool]
    expects: str
    resolve: Resolve

    def __call__(self, arguments: Sequence[Argument]) -> Resolved:
        name = self.usage.partition("(")[0]
        if len(arguments) != 1:
            raise ExpressionError(f"{name} takes 1 argument, {len(arguments)} given", hint=f"usage: {self.usage}")
        type = arguments[0].type
        if type.root is TypeRoot.NULL:
            raise ExpressionError(f"{name} of NULL has no type", hint="use CAST(NULL AS type)")
        if not self.accepts(type):
            raise ExpressionError(f"{name} needs {self.expects}, {type} given", hint=f"usage: {self.usage}")
        return (type,), self.resolve(name, type)


def _numeric(type: DataType) -> bool:
    return type.is_numeric


def _comparable(type: DataType) -> bool:
    return not type.is_nested


def _anything(type: DataType) -> bool:
    return True


def _count_rule(arguments: Sequence[Argument]) -> Resolved:
    if len(arguments) > 1:
        raise ExpressionError(f"COUNT takes * or 1 argument, {len(arguments)} given", hint="count a ROW of them")
    if not arguments:
        rows = Accumulator("count", "count_all", "sum", BIGINT)
        return (), AggregateKernel("COUNT", None, BIGINT, (rows,), kernels.first_accumulator, retractable=True)
    type = arguments[0].type
    return (type,), AggregateKernel("COUNT", type, BIGINT, (_COUNT,), kernels.first_accumulator, retractable=True)


def _sum(name: str, type: DataType) -> AggregateKernel:
    finish: FinishKernel = WithArguments(kernels.finish_sum, (name,))
    return AggregateKernel(name, type, _sum_type(type), (_partial_sum(type), _COUNT), finish, retractable=True)


def _sum0(name: str, type: DataType) -> AggregateKernel:
    finish: FinishKernel = WithArguments(kernels.finish_sum0, (name,))
    return AggregateKernel(name, type, _sum_type(type), (_partial_sum(type), _COUNT), finish, retractable=True)


def _average(name: str, type: DataType) -> AggregateKernel:
    accumulators = (_partial_sum(type), _COUNT)
    return AggregateKernel(name, type, _average_type(type), accumulators, kernels.finish_average, retractable=True)


def _extreme(partial_name: str, name: str, type: DataType) -> AggregateKernel:
    accumulator = Accumulator(partial_name, partial_name, partial_name, type)
    return AggregateKernel(name, type, type, (accumulator,), kernels.first_accumulator)


def _end(partial_name: str, name: str, type: DataType) -> AggregateKernel:
    accumulator = Accumulator(partial_name, partial_name, partial_name, type)
    return AggregateKernel(name, type, type, (accumulator,), kernels.first_accumulator, order_sensitive=True)


def _variance(sample: bool, root: bool, name: str, type: DataType) -> AggregateKernel:
    accumulators = (
        Accumulator("sum", "sum", "sum", DOUBLE),
        Accumulator("sum_of_squares", "sum_of_squares", "sum", DOUBLE),
        _COUNT,
    )
    finish: FinishKernel = WithArguments(kernels.finish_variance, (sample, root))
    return AggregateKernel(name, DOUBLE, _average_type(type), accumulators, finish, retractable=True)


@record
class _VarianceRule:
    """A number, which is cast to DOUBLE; the result type derives from its own type."""

    shape: _OneArgument

    def __call__(self, arguments: Sequence[Argument]) -> Resolved:
        _, kernel = self.shape(arguments)
        return (DOUBLE,), kernel


def _list_aggregate(arguments: Sequence[Argument]) -> Resolved:
    usage = "usage: LISTAGG(string[, separator])"
    if len(arguments) not in (1, 2):
        raise ExpressionError(f"LISTAGG takes 1 to 2 arguments, {len(arguments)} given", hint=usage)
    for place, argument in enumerate(arguments):
        if not argument.type.is_character:
            raise ExpressionError(
                f"argument {place + 1} of LISTAGG must be a character string, {argument.type} given",
                hint=f"{usage}; use CAST(… AS STRING)",
            )
    separator = ","
    if len(arguments) == 2:
        if not arguments[1].is_literal or arguments[1].literal is None:
            raise ExpressionError("the separator of LISTAGG must be a constant character string", hint=usage)
        separator = arguments[1].literal
    collect: CollectKernel = WithArguments(kernels.collect_text, (separator,))
    casts = (STRING,) * len(arguments)
    return casts, AggregateKernel("LISTAGG", STRING, STRING, collect=collect, order_sensitive=True)


def _array_aggregate(name: str, type: DataType) -> AggregateKernel:
    return AggregateKernel(
        name, type, array(type), collect=kernels.collect_array, order_sensitive=True, keeps_nulls=True
    )


def _multiset(name: str, type: DataType) -> AggregateKernel:
    return AggregateKernel(name, type, map_of(type, INT), collect=kernels.collect_multiset)


def _single(name: str, type: DataType) -> AggregateKernel:
    return AggregateKernel(name, type, type, collect=kernels.collect_single, keeps_nulls=True)


def _one(
    name: str,
    accepts: Callable[[DataType], bool],
    expects: str,
    resolve: Resolve,
    doc: str,
    spark: AggregateText,
    aliases: tuple[str, ...] = (),
) -> AggregateFunction:
    usage = f"{name}(value)"
    return AggregateFunction(name, _OneArgument(usage, accepts, expects, resolve), usage, doc, spark, aliases)


def _spread(name: str, doc: str, *, sample: bool, root: bool, aliases: tuple[str, ...] = ()) -> AggregateFunction:
    usage = f"{name}(number)"
    shape = _OneArgument(usage, _numeric, "a number", partial(_variance, sample, root))
    return AggregateFunction(name, _VarianceRule(shape), usage, doc, texts.Variance(sample, root), aliases)


AGGREGATES = (
    AggregateFunction("COUNT", _count_rule, "COUNT(*) or COUNT([DISTINCT] value)",
                      "The number of rows, or of values that are not NULL.", texts.count_text),
    _one("SUM", _numeric, "a number", _sum, "The sum; NULL of no values.", texts.sum_text),
    _one("SUM0", _numeric, "a number", _sum0, "The sum; 0 of no values.",
         texts.sum0_text, ("$SUM0",)),
    _one("AVG", _numeric, "a number", _average, "The mean; of integers truncated.", texts.average_text),
    _one("MIN", _comparable, "a value that has an order", partial(_extreme, "min"), "The least value.",
         texts.Extreme("min")),
    _one("MAX", _comparable, "a value that has an order", partial(_extreme, "max"), "The greatest value.",
         texts.Extreme("max")),
    _spread("STDDEV_POP", "The population standard deviation.", sample=False, root=True),
    _spread("STDDEV_SAMP", "The sample standard deviation; NULL of fewer than two values.", sample=True, root=True,
            aliases=("STDDEV",)),
    _spread("VAR_POP", "The population variance.", sample=False, root=False),
    _spread("VAR_SAMP", "The sample variance; NULL of fewer than two values.", sample=True, root=False,
            aliases=("VARIANCE",)),
    _one("FIRST_VALUE", _anything, "a value", partial(_end, "first"), "The first value that is not NULL.",
         texts.End(last=False)),
    _one("LAST_VALUE", _anything, "a value", partial(_end, "last"), "The last value that is not NULL.",
         texts.End(last=True)),
    AggregateFunction("LISTAGG", _list_aggregate, "LISTAGG(string[, separator])",
                      "The strings in arrival order, or in that of WITHIN GROUP (ORDER BY …), joined by a constant separator (a comma).",
                      texts.list_text),
    _one("ARRAY_AGG", _anything, "a value", _array_aggregate,
         "The values as an array, NULLs included: in arrival order, or in that of ARRAY_AGG(value ORDER BY …).",
         texts.array_text),
    _one("COLLECT", _comparable, "a value that has an order", _multiset,
         "The values as a multiset: a map from value to how often it occurs.", texts.multiset_text),
    _one("SINGLE_VALUE", _anything, "a value", _single,
         "The only value; an error if there are several. What a subquery used as a value must give.",
         texts.single_text),
    *PERCENTILES,
)  # fmt: skip
"""All aggregates."""
