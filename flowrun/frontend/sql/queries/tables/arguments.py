"""Arguments of functions that take tables: by position or by name, each once, `DEFAULT` where one is left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from flowrun.core.record import record
from flowrun.errors import did_you_mean
from flowrun.frontend.sql.expressions.query_expressions import QueryExpressionBinder
from flowrun.frontend.sql.grammar.syntax import Descriptor, FunctionArgument, FunctionTable, Name, TableArgument
from flowrun.frontend.sql.spans import Span, error_at, span_of
from flowrun.plan.expressions import ColumnRef


@record
class TableArguments:
    """The arguments of one call, by parameter in upper case."""

    function: str
    usage: str
    given: Mapping[str, FunctionArgument]

    def get(self, parameter: str) -> FunctionArgument | None:
        """The argument of a parameter, if one is given."""
        return self.given.get(parameter)

    def span(self, parameter: str, otherwise: Span) -> Span:
        """Where an argument stands."""
        argument = self.given.get(parameter)
        return otherwise if argument is None else argument.span

    def tables(self, parameter: str) -> TableArgument:
        """The table of a parameter.

        Raises:
            ExpressionError: it is something else.
        """
        argument = self.given[parameter]
        if not isinstance(argument.value, TableArgument):
            message = f"{parameter.lower()} of {self.function} must be a table"
            raise error_at(message, argument.span, f"usage: {self.usage}")
        return argument.value


def assigned(
    table: FunctionTable,
    parameters: Sequence[str],
    usage: str,
    *,
    required: Sequence[str],
    aliases: Mapping[str, str] | None = None,
) -> TableArguments:
    """The arguments of a call by parameter.

    Args:
        table: the call.
        parameters: names in upper case, in the order of positions.
        usage: how it is written, for messages.
        required: those that must be given.
        aliases: other names of parameters.

    Raises:
        ExpressionError: unknown parameters, parameters that are given twice, or missing ones.
    """
    name = table.name.text
    found: dict[str, FunctionArgument] = {}
    for position, argument in enumerate(table.arguments):
        if argument.name is not None:
            key = argument.name.text.upper()
            key = (aliases or {}).get(key, key)
            if key not in parameters:
                hint = did_you_mean(key.lower(), [p.lower() for p in parameters]) or f"usage: {usage}"
                raise error_at(f"{name} has no parameter '{argument.name.text}'", argument.name.span, hint)
        elif position >= len(parameters):
            raise error_at(f"{name} takes at most {len(parameters)} arguments", argument.span, f"usage: {usage}")
        else:
            key = parameters[position]
        if key in found:
            raise error_at(f"{key.lower()} of {name} is given twice", argument.span, f"usage: {usage}")
        if not _is_default(argument):
            found[key] = argument
    missing = [p.lower() for p in required if p not in found]
    if missing:
        raise error_at(f"{name} needs {' and '.join(missing)}", table.span, f"usage: {usage}")
    return TableArguments(name, usage, found)


def _is_default(argument: FunctionArgument) -> bool:
    """Whether `DEFAULT` stands in the argument's place."""
    value = argument.value
    return (
        isinstance(value, exp.Column)
        and not value.table
        and isinstance(value.this, exp.Identifier)
        and not value.this.quoted
        and value.name.upper() == "DEFAULT"
    )


def descriptor_column(function: str, argument: FunctionArgument) -> Name:
    """The one column of DESCRIPTOR(column).

    Raises:
        ExpressionError: it is something else, or several columns.
    """
    if not isinstance(argument.value, Descriptor):
        name = argument.name.text if argument.name is not None else "the argument"
        raise error_at(f"{name} of {function} must be DESCRIPTOR(column)", argument.span, "write DESCRIPTOR(column)")
    if len(argument.value.columns) != 1:
        raise error_at(f"{function} takes one column here", argument.span, "write DESCRIPTOR(column)")
    return argument.value.columns[0]


def partition_columns(function: str, data: TableArgument, binder: QueryExpressionBinder) -> tuple[int, ...]:
    """Positions of the columns of PARTITION BY, each once.

    Raises:
        ExpressionError: something else than a column.
    """
    keys = []
    for node in data.partition:
        bound = binder.bind(node)
        if not isinstance(bound, ColumnRef):
            hint = "compute the key in a subquery or view"
            raise error_at(f"PARTITION BY of {function} takes columns", span_of(node), hint)
        keys.append(bound.index)
    return tuple(dict.fromkeys(keys))
