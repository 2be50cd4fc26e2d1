"""What stands for the outside of a pipeline under test: rows for tables that are looked up in, functions for Python functions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from flowrun.connectors import memory
from flowrun.core.record import record
from flowrun.errors import Location, did_you_mean
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.pipeline_tests.rows import WrittenRows, to_batch
from flowrun.frontend.source_text import SourceText
from flowrun.plan.co_process import CoProcess
from flowrun.plan.description import Meaning, node_description
from flowrun.plan.expressions import AggregateCall, Expression, PythonCall, transform, walk
from flowrun.plan.joins import LookupJoin
from flowrun.plan.nodes import Plan, PlanNode, Process, TableReference, walk_plan
from flowrun.plan.rewrites.traversal import (
    aggregate_calls_of,
    expressions_of,
    map_aggregate_calls,
    map_expressions,
    map_plan,
)
from flowrun.runners.pipeline_tests.function_tables import FunctionTables

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
        tables = FunctionTables(self.source, self.calls, diagnostics)
        replaced = map_plan(plan, lambda node: self._replaced(node, tables, diagnostics))
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

    def _replaced(self, node: PlanNode, tables: FunctionTables, diagnostics: Diagnostics) -> PlanNode:
        if isinstance(node, LookupJoin) and node.table.name in self.lookups:
            return replace(node, table=self._table(node, diagnostics))
        if not self.functions and not self.calls:
            return node
        node = map_expressions(node, lambda e: transform(e, lambda inner: self._call(inner, tables)))
        node = map_aggregate_calls(node, lambda call: self._aggregate(call, tables))
        for name in _function_fields(node):
            reference = getattr(node, name)
            if reference in self.calls:
                return tables.node(node)
            if (other := self.functions.get(reference)) is not None:
                changes: dict[str, Any] = {name: other, "search_path": (self.folder, *_search_path(node))}
                if isinstance(node, Process | CoProcess):
                    changes["tables"] = None  # the other one may keep another state
                node = replace(node, **changes)
        return node

    def _table(self, node: LookupJoin, diagnostics: Diagnostics) -> TableReference:
        table, written = node.table, self.lookups[node.table.name]
        rows = to_batch(written, node.declared or node.physical, f"table '{table.name}'", diagnostics)
        name = f"looked up in {table.name} {next(_numbers)}"
        if rows is not None:
            memory.put(name, [rows])
        return TableReference(table.name, "memory", {"table": name}, primary_key=table.primary_key)

    def _call(self, expression: Expression, tables: FunctionTables) -> Expression:
        if not isinstance(expression, PythonCall):
            return expression
        reference = expression.reference
        if reference in self.calls:
            return tables.call(expression)
        if reference not in self.functions:
            return expression
        return replace(
            expression, reference=self.functions[reference], search_path=(self.folder, *expression.search_path)
        )

    def _aggregate(self, call: AggregateCall, tables: FunctionTables) -> AggregateCall:
        user = call.reference
        if user is None:
            return call
        if user.reference in self.calls:
            return tables.aggregate(call, user.reference)
        if (other := self.functions.get(user.reference)) is None:
            return call
        # Nobody has looked at its accumulators: they are what they turn out to be.
        path = (self.folder, *user.search_path)
        return replace(call, reference=replace(user, reference=other, search_path=path, accumulator=None))


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
