"""Calls of process table functions: `FROM f(input => TABLE t PARTITION BY k, limit => 3, on_time => DESCRIPTOR(ts), uid => 'f')`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import NullKeys
from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import PipelineError, did_you_mean
from flowrun.frontend.sql.catalog import Parameter, ProcessSignature, UserFunction
from flowrun.frontend.sql.expressions.query_expressions import QueryExpressionBinder
from flowrun.frontend.sql.expressions.relations import Relation, Source, unique_fields
from flowrun.frontend.sql.grammar.syntax import Descriptor, FunctionArgument, FunctionTable, TableArgument, TableSyntax
from flowrun.frontend.sql.queries.tables.arguments import TableArguments, assigned, descriptor_column, partition_columns
from flowrun.frontend.sql.queries.tables.from_context import FromContext
from flowrun.frontend.sql.spans import error_at
from flowrun.functions.coercion import implicitly_castable
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.operators.process.loading import load_process_function
from flowrun.plan.expressions import Cast, Expression, Literal
from flowrun.plan.folding import fold_constants
from flowrun.plan.nodes import NodeHints, Process, TableFunction

_ON_TIME, _UID = "ON_TIME", "UID"
ROWTIME = "rowtime"


def process_relation(tables: FromContext, table: FunctionTable, read: Callable[[TableSyntax], Relation]) -> Relation:
    """The rows of a call: the keys (or all columns of the table), the function's columns, and `rowtime` if `on_time` is given.

    `read` gives the rows of its table.

    Raises:
        ExpressionError: wrong arguments; marks the place.
    """
    function = tables.context.user_functions.find(table.name.text)
    assert function is not None
    assert function.process is not None
    return _Call(tables, table, function, function.process).relation(read)


class _Call:
    def __init__(
        self, tables: FromContext, table: FunctionTable, function: UserFunction, signature: ProcessSignature
    ) -> None:
        self._tables = tables
        self._table = table
        self._function = function
        self._signature = signature
        self._usage = _usage(function.name, signature)
        parameters = (signature.table, *(p.name for p in signature.parameters))
        required = (signature.table, *(p.name for p in signature.parameters if p.required))
        self._arguments: TableArguments = assigned(
            table,
            (*(p.upper() for p in parameters), _ON_TIME, _UID),
            self._usage,
            required=tuple(p.upper() for p in required),
        )

    def relation(self, read: Callable[[TableSyntax], Relation]) -> Relation:
        """The node with its columns by name."""
        data = self._arguments.tables(self._signature.table.upper())
        inner = read(data.table)
        nodes = self._tables.nodes
        items = inner.star()
        node = nodes.calc(inner.node, items, data.span)
        relation = Relation(
            node, (Source(inner.sources[0].alias, tuple(n for n, _ in items), tuple(range(len(items)))),)
        )
        binder = self._tables.expressions(relation)
        keys = self._keys(data, binder)
        leading = tuple(range(len(items))) if self._signature.passes_columns else keys
        time = self._time([n for n, _ in items])
        fields = [*(node.schema.fields[i] for i in leading), *_fields(self._function.result)]
        names = [*(items[i][0] for i in leading), *self._function.result.names]
        if time is not None:
            names.append(ROWTIME)
            fields.append(Field(ROWTIME, node.schema.types[time], False))
        made = Process(
            schema=unique_fields(fields),
            hints=self._hints(binder),
            input=node,
            function=self._function.reference,
            arguments=self._constants(binder),
            keys=keys if self._signature.keyed else None,
            null_keys=NullKeys.GROUP,
            search_path=self._function.search_path,
            called=TableFunction(leading, Schema(_fields(self._function.result)), time),
        )
        made = replace(made, tables=self._tables_of(made))
        return Relation(made, (Source(None, tuple(names), tuple(range(len(names)))),))

    def _keys(self, data: TableArgument, binder: QueryExpressionBinder) -> tuple[int, ...]:
        name = self._function.name
        if data.order:
            hint = "rows come as they arrive; sort them in the function, by timers"
            raise error_at(f"{name} takes no ORDER BY", data.order[0].span, hint)
        if self._signature.keyed and not data.partition:
            raise error_at(
                f"{name} keeps state a key: its table needs PARTITION BY", data.span, f"usage: {self._usage}"
            )
        if not self._signature.keyed and data.partition:
            hint = "leave PARTITION BY out, or let the class extend KeyedProcessFunction"
            raise error_at(f"{name} takes each row by itself, without keys", data.span, hint)
        return partition_columns(name, data, binder)

    def _time(self, names: Sequence[str]) -> int | None:
        argument = self._arguments.get(_ON_TIME)
        if argument is None:
            return None
        column = descriptor_column(self._function.name, argument)
        if column.text not in names:
            hint = did_you_mean(column.text, names) or f"its columns: {', '.join(names)}"
            raise error_at(f"the table has no column '{column.text}'", column.span, hint)
        return list(names).index(column.text)

    def _hints(self, binder: QueryExpressionBinder) -> NodeHints:
        hints = self._tables.nodes.hints(self._function.name, self._table.span)
        argument = self._arguments.get(_UID)
        if argument is None:
            return hints
        uid = self._constant(argument, Parameter("uid", None, False), binder)
        if not isinstance(uid, str) or not uid:
            raise error_at("uid must be a constant text", argument.span, "uid => 'name-of-its-state'")
        return replace(hints, uid=uid)

    def _constants(self, binder: QueryExpressionBinder) -> dict[str, object]:
        found: dict[str, object] = {}
        for parameter in self._signature.parameters:
            argument = self._arguments.get(parameter.name.upper())
            if argument is not None:
                found[parameter.name] = self._constant(argument, parameter, binder)
        return found

    def _constant(self, argument: FunctionArgument, parameter: Parameter, binder: QueryExpressionBinder) -> Any:
        what = f"{parameter.name} of {self._function.name}"
        if isinstance(argument.value, TableArgument | Descriptor):
            raise error_at(f"{what} must be a constant", argument.span, f"usage: {self._usage}")
        bound: Expression = binder.bind(argument.value)
        wanted = parameter.type
        if wanted is not None and bound.type != wanted and bound.type.root is not TypeRoot.NULL:
            if not implicitly_castable(bound.type, wanted):
                raise error_at(f"{what} must be {wanted}, this is {bound.type}", argument.span, f"usage: {self._usage}")
            bound = Cast(wanted, bound)
        constant = fold_constants(bound)
        if not isinstance(constant, Literal):
            raise error_at(f"{what} must be a constant", argument.span, "values of rows reach the function as its rows")
        return None if constant.value is None else pa.scalar(constant.value, constant.type.arrow).as_py()

    def _tables_of(self, node: Process) -> tuple[tuple[str, pa.Schema], ...]:
        """The tables of the function's state. It is made once, to look at: what is wrong with it is said where it is called."""
        recipe = FunctionRecipe(node.function, dict(node.arguments), node.search_path)
        try:
            loaded = load_process_function(recipe, keyed=node.keys is not None)
        except PipelineError as error:
            problem = error.diagnostics[0]
            raise error_at(problem.message, self._table.name.span, problem.hint) from error
        from flowrun.operators.process.factories import declared_tables  # imported here, as few scripts need it

        return declared_tables(loaded, node.input.schema, node.keys)


def _fields(row: DataType) -> tuple[Field, ...]:
    return tuple(Field(n, t) for n, t in zip(row.names, row.children, strict=True))


def _usage(name: str, signature: ProcessSignature) -> str:
    key = " PARTITION BY key" if signature.keyed else ""
    others = "".join(
        f", {p.name} => {p.type or 'constant'}" if p.required else f" [, {p.name} => {p.type or 'constant'}]"
        for p in signature.parameters
    )
    return f"{name}({signature.table} => TABLE t{key}{others} [, on_time => DESCRIPTOR(ts)] [, uid => 'name'])"
