"""Builders of type rules: parameters that say what they accept, and rules that check a call and name its result.

A rule is a frozen value (`Rule`), so function records print and pickle. Every refusal says the function's usage, which argument was
meant and what was given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flowrun.core.record import record
from flowrun.core.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DOUBLE,
    INT,
    STRING,
    DataType,
    TypeRoot,
    timestamp,
)
from flowrun.errors import ExpressionError, did_you_mean
from flowrun.functions.coercion import common_type
from flowrun.functions.contract import Argument, Signature

Resolve = Callable[[DataType], DataType | None]
"""The type that an argument of the given type is cast to, or None if the parameter does not take it."""


@record
class Parameter:
    """One parameter of a function.

    Attributes:
        expects: what is accepted, in words, e.g. `a character string`.
        resolve: see `Resolve`; a NULL constant never reaches it.
        null_type: type that a bare NULL gets.
        constant: the argument must be a literal.
        check: looks at the literal value, if there is one; returns what is wrong with it, or None.
    """

    expects: str
    resolve: Resolve
    null_type: DataType
    constant: bool = False
    check: Callable[[object], str | None] | None = None


def _to_string(type: DataType) -> DataType | None:
    return STRING if type.is_character else None


def _to_int(type: DataType) -> DataType | None:
    return INT if type.root in (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INTEGER) else None


def _to_bigint(type: DataType) -> DataType | None:
    return BIGINT if type.is_integer else None


def _to_double(type: DataType) -> DataType | None:
    return DOUBLE if type.is_numeric else None


def _numeric(type: DataType) -> DataType | None:
    return type if type.is_numeric else None


def _boolean(type: DataType) -> DataType | None:
    return type if type.root is TypeRoot.BOOLEAN else None


def _binary(type: DataType) -> DataType | None:
    return BYTES if type.is_binary else None


def _string_or_binary(type: DataType) -> DataType | None:
    return _to_string(type) or _binary(type)


def _timestamp(type: DataType) -> DataType | None:
    return type if type.is_timestamp else None


def _date_or_timestamp(type: DataType) -> DataType | None:
    return type if type.is_timestamp or type.root is TypeRoot.DATE else None


def _temporal(type: DataType) -> DataType | None:
    return type if type.is_temporal else None


def _array(type: DataType) -> DataType | None:
    return type if type.root is TypeRoot.ARRAY else None


def _map(type: DataType) -> DataType | None:
    return type if type.root is TypeRoot.MAP else None


def _anything(type: DataType) -> DataType | None:
    return type


TEXT = Parameter("a character string", _to_string, STRING)
BYTES_OR_TEXT = Parameter("a character or binary string", _string_or_binary, STRING)
BINARY = Parameter("a binary string", _binary, BYTES)
INTEGER = Parameter("an INT", _to_int, INT)
LONG = Parameter("an integer", _to_bigint, BIGINT)
NUMBER = Parameter("a number", _numeric, INT)
APPROXIMATE = Parameter("a number", _to_double, DOUBLE)
TRUTH = Parameter("a BOOLEAN", _boolean, BOOLEAN)
TIMESTAMP = Parameter("a TIMESTAMP or TIMESTAMP_LTZ", _timestamp, timestamp(3))
DATE_OR_TIMESTAMP = Parameter("a DATE, TIMESTAMP or TIMESTAMP_LTZ", _date_or_timestamp, timestamp(3))
TEMPORAL = Parameter("a DATE, TIME, TIMESTAMP or TIMESTAMP_LTZ", _temporal, timestamp(3))
ARRAY = Parameter("an ARRAY", _array, DataType(TypeRoot.ARRAY, children=(STRING,)))
MAP = Parameter("a MAP", _map, DataType(TypeRoot.MAP, children=(STRING, STRING)))
ANYTHING = Parameter("any value", _anything, STRING)


@record
class OneOf:
    """A check that a literal is one of a fixed set of upper-case words; near matches are named."""

    words: tuple[str, ...]

    def __call__(self, value: object) -> str | None:
        if value is None or str(value).upper() in self.words:
            return None
        hint = did_you_mean(str(value), self.words)
        return f"'{value}' is not one of {', '.join(self.words)}" + (f"; {hint}" if hint else "")


def word(*words: str) -> Parameter:
    """A parameter that takes one of the given upper-case words, as a literal (time units, modes)."""
    return Parameter("one of the words " + ", ".join(words), _to_string, STRING, constant=True, check=OneOf(words))


Result = DataType | Callable[[Sequence[Argument]], DataType]
"""A fixed result type, or a function of the arguments after their casts."""


@record
class Rule:
    """A type rule: required parameters, then optional ones, then any number of `variadic` ones.

    `minimum` is the least number of variadic arguments. `check` sees all arguments after their casts and returns what is wrong.
    """

    usage: str
    result: Result
    required: tuple[Parameter, ...] = ()
    optional: tuple[Parameter, ...] = ()
    variadic: Parameter | None = None
    minimum: int = 0
    check: Callable[[Sequence[Argument]], str | None] | None = None

    def __call__(self, arguments: Sequence[Argument]) -> Signature:
        self._check_count(len(arguments))
        cast = [self._resolve(i, a) for i, a in enumerate(arguments)]
        if self.check is not None and (problem := self.check(cast)) is not None:
            raise ExpressionError(f"{self._name}: {problem}", hint=f"usage: {self.usage}")
        result = self.result if isinstance(self.result, DataType) else self.result(cast)
        return Signature(tuple(a.type for a in cast), result)

    @property
    def _name(self) -> str:
        return self.usage.partition("(")[0]

    def _check_count(self, given: int) -> None:
        least = len(self.required) + self.minimum
        most = None if self.variadic is not None else len(self.required) + len(self.optional)
        if given >= least and (most is None or given <= most):
            return
        expected = f"at least {least}" if most is None else str(least) if least == most else f"{least} to {most}"
        noun = "argument" if expected == "1" else "arguments"
        raise ExpressionError(f"{self._name} takes {expected} {noun}, {given} given", hint=f"usage: {self.usage}")

    def _resolve(self, index: int, argument: Argument) -> Argument:
        listed = (*self.required, *self.optional)
        parameter = listed[index] if index < len(listed) else self.variadic
        assert parameter is not None
        place = f"argument {index + 1} of {self._name}"
        if parameter.constant and not argument.is_literal:
            raise ExpressionError(f"{place} must be a constant: {parameter.expects}", hint=f"usage: {self.usage}")
        if argument.type.root is TypeRoot.NULL:
            return Argument(parameter.null_type, None, argument.is_literal)
        target = parameter.resolve(argument.type)
        if target is None:
            wanted = " or use CAST(… AS STRING)" if parameter is TEXT else ""
            raise ExpressionError(
                f"{place} must be {parameter.expects}, {argument.type} given", hint=f"usage: {self.usage}{wanted}"
            )
        if parameter.check is not None and argument.is_literal and (wrong := parameter.check(argument.literal)):
            raise ExpressionError(f"{place}: {wrong}", hint=f"usage: {self.usage}")
        return Argument(target, argument.literal, argument.is_literal)


def same_as(index: int) -> Callable[[Sequence[Argument]], DataType]:
    """A result type: that of the argument at `index`."""
    return _SameAs(index)


@record
class _SameAs:
    index: int

    def __call__(self, arguments: Sequence[Argument]) -> DataType:
        return arguments[self.index].type


@record
class CommonType:
    """A rule for functions whose arguments all take their common type (GREATEST, LEAST); that is the result type too."""

    usage: str
    accepts: Callable[[DataType], bool]
    expects: str

    def __call__(self, arguments: Sequence[Argument]) -> Signature:
        name = self.usage.partition("(")[0]
        if not arguments:
            raise ExpressionError(f"{name} takes at least 1 argument, 0 given", hint=f"usage: {self.usage}")
        common = common_type([a.type for a in arguments])
        if common is None:
            given = ", ".join(str(a.type) for a in arguments)
            raise ExpressionError(f"{name} needs arguments of one common type, {given} given", hint="use CAST")
        if common.root is not TypeRoot.NULL and not self.accepts(common):
            raise ExpressionError(f"{name} needs {self.expects}, {common} given", hint=f"usage: {self.usage}")
        return Signature((common,) * len(arguments), common)
