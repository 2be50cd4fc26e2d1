"""What stands for the outside of a pipeline under test: rows for tables that are looked up in, functions for Python functions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from flowrun.connectors import memory
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.types import DataType, array
from flowrun.core.types import row as row_type
from flowrun.errors import Location, PipelineError, did_you_mean
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.pipeline_tests.declaration import RESULT, ROWS
from flowrun.frontend.pipeline_tests.rows import WrittenRows, to_batch
from flowrun.frontend.source_text import SourceText
from flowrun.plan.description import Meaning, node_description
from flowrun.plan.expressions import AggregateCall, Expression, PythonCall, UserAggregateReference, transform, walk
from flowrun.plan.joins import LookupJoin
from flowrun.plan.nodes import Plan, PlanNode, PythonMap, TableReference, walk_plan
from flowrun.plan.relational import TableFunctionCall
from flowrun.plan.rewrites.traversal import (
    aggregate_calls_of,
    expressions_of,
    map_aggregate_calls,
    map_expressions,
    map_plan,
)
from flowrun.runners.pipeline_tests.call_tables import Calls, Role, new_table

_numbers = itertools.count()


@record(eq=False)
class Replacements:
    """What stands for the outside.

    Attributes:
        source: the text of the tests, for messages.
        location: of the test that has them.
        lookups: rows of tables that are asked, by name.
        functions: `module:name` of what stands for a function, by that of the function.
        calls: tables of calls that stand for a function, by its `module:name`.
        folder: of the tests: there functions are looked for first.
    """

    source: SourceText
    location: Location
    lookups: Mapping[str, WrittenRows] = field(default_factory=dict)
    functions: Mapping[str, str] = field(default_factory=dict)
    calls: Mapping[str, WrittenRows] = field(default_factory=dict)
    folder: str = "."

    def apply(self, plan: Plan) -> Plan:
        """The plan with everything replaced.

        Raises:
            PipelineError: a table is asked for which there are no rows, or what is to be replaced is not there.
        """
        diagnostics = Diagnostics(self.source)
        self._check(plan, diagnostics)
        replaced = map_plan(plan, lambda node: self._replaced(node, diagnostics))
        diagnostics.raise_if_errors()
        return replaced

    def _check(self, plan: Plan, diagnostics: Diagnostics) -> None:
        tables = sorted({n.table.name for n in walk_plan(plan) if isinstance(n, LookupJoin)})
        for name in self.lookups:
            if name not in tables:
                known = did_you_mean(name, tables) if tables else "the pipeline has no lookup join"
                diagnostics.error(f"no table '{name}' is looked up in", self.location, hint=known)
        for name in tables:
            if name not in self.lookups:
                diagnostics.error(
                    f"the pipeline looks up rows in table '{name}', which a test does not reach",
                    self.location,
                    hint=f"give its rows: replace: {{lookup: {{{name}: [{{…}}]}}}}",
                )
        functions = sorted({f for node in walk_plan(plan) for f in _functions(node)})
        for name in (*self.functions, *self.calls):
            if name not in functions:
                known = did_you_mean(name, functions) if functions else "it calls none"
                diagnostics.error(f"the pipeline calls no function '{name}'", self.location, hint=known)

    def _replaced(self, node: PlanNode, diagnostics: Diagnostics) -> PlanNode:
        if isinstance(node, LookupJoin) and node.table.name in self.lookups:
            return replace(node, table=self._table(node, diagnostics))
        if not self.functions and not self.calls:
            return node
        node = map_expressions(node, lambda e: transform(e, lambda inner: self._call(inner, diagnostics)))
        node = map_aggregate_calls(node, lambda call: self._aggregate(call, diagnostics))
        for name in _function_fields(node):
            reference = getattr(node, name)
            if reference in self.calls and isinstance(node, TableFunctionCall):
                return self._rows_given(node, diagnostics)
            if reference in self.calls:
                return self._mapped(node, reference, diagnostics)
            if (other := self.functions.get(reference)) is not None:
                changes: dict[str, Any] = {name: other, "search_path": (self.folder, *_search_path(node))}
                node = replace(node, **changes)
        return node

    def _table(self, node: LookupJoin, diagnostics: Diagnostics) -> TableReference:
        table, written = node.table, self.lookups[node.table.name]
        rows = to_batch(written, node.declared or node.physical, f"table '{table.name}'", diagnostics)
        name = f"looked up in {table.name} {next(_numbers)}"
        if rows is not None:
            memory.put(name, [rows])
        return TableReference(table.name, "memory", {"table": name}, primary_key=table.primary_key)

    def _call(self, expression: Expression, diagnostics: Diagnostics) -> Expression:
        if not isinstance(expression, PythonCall):
            return expression
        reference = expression.reference
        if reference in self.calls:
            types = [a.type for a in expression.arguments]
            made = self._table_of_calls(reference, types, expression.type, diagnostics)
            return expression if made is None else replace(expression, reference=made, search_path=(), vectorised=True)
        if reference not in self.functions:
            return expression
        return replace(
            expression, reference=self.functions[reference], search_path=(self.folder, *expression.search_path)
        )

    def _aggregate(self, call: AggregateCall, diagnostics: Diagnostics) -> AggregateCall:
        user = call.reference
        if user is None:
            return call
        if user.reference in self.calls:
            types = [array(a.type) for a in call.arguments]
            made = self._table_of_calls(user.reference, types, call.type, diagnostics, Role.AGGREGATE)
            return call if made is None else replace(call, reference=UserAggregateReference(made, retractable=True))
        if (other := self.functions.get(user.reference)) is None:
            return call
        # Nobody has looked at its accumulators: they are what they turn out to be.
        path = (self.folder, *user.search_path)
        return replace(call, reference=replace(user, reference=other, search_path=path, accumulator=None))

    def _table_of_calls(
        self,
        reference: str,
        types: Sequence[DataType],
        result: DataType,
        diagnostics: Diagnostics,
        role: Role = Role.SCALAR,
    ) -> str | None:
        """The reference of a table that stands for a function that is given values; None: it cannot, which is reported."""
        written = self.calls[reference]
        at = written.node.location
        names = tuple(n for n in written.columns if n != RESULT)
        if written.rows and (len(names) != len(types) or RESULT not in written.columns):
            problem = f"the table that stands for function '{reference}' has {len(names)} columns beside '{RESULT}', but it is called with"
            hint = f"name a column for each argument, in their order, and '{RESULT}'"
            diagnostics.error(f"{problem} {len(types)} argument{'s' * (len(types) != 1)}", at, hint=hint)
            return None
        if not written.rows:
            names = tuple(f"argument {i + 1}" for i in range(len(types)))
        schema = Schema.from_pairs([*zip(names, types, strict=True), (RESULT, result)])
        return self._new_table(reference, names, schema, diagnostics, role)

    def _rows_given(self, node: TableFunctionCall, diagnostics: Diagnostics) -> PlanNode:
        """A table function that is a table: its results are lists of rows."""
        types = [a.type for a in node.arguments]
        added = node.schema.fields[len(node.input.schema) :]
        rows = array(row_type(*((f.name, f.type) for f in added)))
        made = self._table_of_calls(node.function, types, rows, diagnostics, Role.TABLE)
        return node if made is None else replace(node, function=made, search_path=())

    def _mapped(self, node: PlanNode, reference: str, diagnostics: Diagnostics) -> PlanNode:
        """A `map` whose function is a table: of rows that it is given, and of those that it gives."""
        written = self.calls[reference]
        at = written.node.location
        if not isinstance(node, PythonMap) or node.flat or node.side_outputs:
            diagnostics.error(
                f"function '{reference}' keeps state or gives any number of rows: no table can stand for it",
                at,
                hint="let another function stand for it: module:function",
            )
            return node
        if not written.rows or set(written.columns) != {ROWS, RESULT}:
            diagnostics.error(
                f"function '{reference}' is given rows and gives rows: the columns of its table are '{ROWS}' and '{RESULT}'",
                at,
                hint="- {row: {id: 1, amount: 5}, result: {id: 1, fee: 0.5}}",
            )
            return node
        rows = (row.cells[ROWS].value for row in written.rows if ROWS in row.cells)
        named = dict.fromkeys(n for cell in rows if isinstance(cell, dict) for n in cell)
        known = [f for f in node.input.schema if f.name in named]
        unknown = [n for n in named if n not in node.input.schema]
        if unknown:
            hint = did_you_mean(unknown[0], node.input.schema.names)
            diagnostics.error(
                f"the rows that function '{reference}' is given have no column '{unknown[0]}'", at, hint=hint
            )
            return node
        given = row_type(*((f.name, f.type) for f in known))
        gives = row_type(*((f.name, f.type) for f in node.schema))
        schema = Schema.from_pairs([(ROWS, given), (RESULT, gives)])
        made = self._new_table(reference, tuple(f.name for f in known), schema, diagnostics, Role.MAP)
        return node if made is None else replace(node, function=made, row=False, search_path=())

    def _new_table(
        self,
        reference: str,
        names: tuple[str, ...],
        schema: Schema,
        diagnostics: Diagnostics,
        role: Role,
    ) -> str | None:
        written = self.calls[reference]
        batch = to_batch(written, schema, f"the table that stands for function '{reference}'", diagnostics)
        if batch is None:
            return None
        columns = batch.columns
        arguments = columns.column(ROWS).flatten() if role is Role.MAP else columns.columns[:-1]
        at = written.node.location
        line = self.source.line(at.line)
        calls = Calls(reference, names, tuple(arguments), columns.column(RESULT), at, line, role)
        try:
            return new_table(calls)
        except PipelineError as error:
            (problem,) = error.diagnostics
            diagnostics.error(problem.message, problem.location, hint=problem.hint)
            return None


def _functions(node: PlanNode) -> set[str]:
    """References of the Python functions that a node calls."""
    called = {str(getattr(node, name)) for name in _function_fields(node)}
    calls = (e for expression in expressions_of(node) for e in walk(expression) if isinstance(e, PythonCall))
    aggregates = {c.reference.reference for c in aggregate_calls_of(node) if c.reference is not None}
    return called | aggregates | {call.reference for call in calls}


def _function_fields(node: PlanNode) -> tuple[str, ...]:
    described = node_description(type(node)).fields
    return tuple(name for name, each in described.items() if each.meaning is Meaning.FUNCTION)


def _search_path(node: PlanNode) -> tuple[str, ...]:
    found: tuple[str, ...] = getattr(node, "search_path", ())
    return found
