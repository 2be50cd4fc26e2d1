"""Tables that read the row to their left: UNNEST, table functions and LATERAL queries."""

from __future__ import annotations

from dataclasses import replace

from flowrun.core.schema import Field
from flowrun.core.semantics import JoinKind
from flowrun.core.types import INT, DataType, TypeRoot
from flowrun.errors import did_you_mean, near_matches
from flowrun.frontend.sql.catalog import FunctionKind
from flowrun.frontend.sql.expressions.query_expressions import Clause
from flowrun.frontend.sql.expressions.relations import OuterScope, QueryScope, Relation, Source, unique_fields
from flowrun.frontend.sql.grammar.syntax import (
    DerivedTable,
    Descriptor,
    FunctionTable,
    JoinTable,
    TableArgument,
    UnnestTable,
    without_alias,
)
from flowrun.frontend.sql.queries.binding_context import SubqueryPlan
from flowrun.frontend.sql.queries.subqueries.planner import SubqueryPlanner
from flowrun.frontend.sql.queries.tables.from_context import FromContext
from flowrun.frontend.sql.queries.tables.joins import JoinBinder, is_true, side_by_side
from flowrun.frontend.sql.spans import error_at, span_of
from flowrun.plan.conditions import conjunction
from flowrun.plan.expressions import Case, Literal
from flowrun.plan.relational import TableFunctionCall, Unnest


class LateralTables:
    """Binds tables of FROM that depend on the row to their left."""

    def __init__(self, tables: FromContext) -> None:
        self._tables = tables
        self._nodes = tables.nodes

    def joined(self, left: Relation, table: JoinTable) -> Relation:
        """The left rows, each with the rows that UNNEST or a table function gives for it.

        Raises:
            ExpressionError: a kind of join that cannot be, or wrong arguments.
        """
        right, alias, columns = without_alias(table.right)
        assert isinstance(right, UnnestTable | FunctionTable)
        what = "UNNEST" if isinstance(right, UnnestTable) else "LATERAL TABLE"
        if table.kind not in (JoinKind.INNER, JoinKind.LEFT) or table.using or table.natural:
            raise error_at(
                f"{what} goes only with CROSS JOIN or LEFT JOIN … ON TRUE",
                table.span,
                f"write LEFT JOIN {what}(…) ON TRUE",
            )
        conditional = table.on is not None and not is_true(table.on)
        if conditional and table.kind is JoinKind.LEFT:
            assert table.on is not None
            raise error_at(
                f"LEFT JOIN {what} takes only ON TRUE", span_of(table.on), "filter in WHERE, or in a query around"
            )
        single = len(columns) == 1 + (isinstance(right, UnnestTable) and right.ordinality)
        appended = self.appended(left, right, outer=table.kind is JoinKind.LEFT, single=single)
        source = appended.sources[-1]
        if isinstance(right, UnnestTable) and alias is not None and not columns and len(source.names) == 1:
            source = replace(source, names=(alias.text,))
        own = Relation(appended.node, (source,))
        if alias is not None:
            own = self._tables.with_alias(own, alias, columns)
        JoinBinder(self._tables).check_aliases(left, own, table)
        relation = Relation(appended.node, (*left.sources, own.sources[0]), left.merged)
        if conditional:
            assert table.on is not None
            condition = self._tables.expressions(relation, Clause.ON).boolean(table.on, "the condition of ON")
            node = SubqueryPlanner(self._tables.context).filtered(relation.node, [condition], span_of(table.on))
            relation = replace(relation, node=node)
        return relation

    def appended(
        self, left: Relation, table: UnnestTable | FunctionTable, *, outer: bool = False, single: bool = False
    ) -> Relation:
        """The left tables, and as the last one the columns that the table gives; `single`: its alias names one column."""
        if isinstance(table, UnnestTable):
            return self._unnested(left, table, outer, single)
        return self._called(left, table, outer)

    def _unnested(self, left: Relation, table: UnnestTable, outer: bool, single: bool) -> Relation:
        value = self._tables.expressions(left).bind(table.expression)
        columns = element_columns(value.type)
        # a multiset, as COLLECT makes it, is a map from element to how often it is there
        if single and value.type.root is TypeRoot.MAP and value.type.children[1] == INT:
            columns = [("EXPR$0", value.type.children[0])]
        if columns is None:
            hint = "UNNEST takes an ARRAY, MAP or MULTISET"
            raise error_at(f"UNNEST of {value.type} is not possible", span_of(table.expression), hint)
        names, fields = [n for n, _ in columns], [Field(n, t) for n, t in columns]
        if table.ordinality:
            names.append("ORDINALITY")
            fields.append(Field("ORDINALITY", INT, outer))
        node, (position,) = self._nodes.extended(left.node, [value], span_of(table.expression))
        schema = unique_fields([*node.schema.fields, *fields])
        hints = self._nodes.hints("unnest", table.span)
        unnested = Unnest(schema, hints, node, position, outer, table.ordinality)
        positions = tuple(range(len(node.schema), len(schema)))
        return Relation(unnested, (*left.sources, Source(None, tuple(names), positions)), left.merged)

    def _called(self, left: Relation, table: FunctionTable, outer: bool) -> Relation:
        binder = self._tables.expressions(left)
        name = table.name.text
        function = self._tables.context.user_functions.find(name)
        if function is None or function.kind is not FunctionKind.TABLE:
            catalog = self._tables.context.catalog
            known = [f.name for f in catalog.functions.values() if f.kind is FunctionKind.TABLE]
            what = "does not exist" if function is None else f"is a {function.kind.value} function"
            known += ["TUMBLE", "HOP", "CUMULATE", "SESSION"]
            made = (
                "windows are TUMBLE, HOP, CUMULATE and SESSION; a function of your own needs "
                f"CREATE FUNCTION {name} AS 'module.name' LANGUAGE PYTHON before"
            )
            hint = did_you_mean(name.upper(), known) if near_matches(name.upper(), known) else made
            raise error_at(f"table function '{name}' {what}", table.name.span, hint)
        given = []
        for argument in table.arguments:
            if argument.name is not None:
                raise error_at(
                    f"{name} takes its arguments by position", argument.name.span, f"leave out {argument.name.text} =>"
                )
            if isinstance(argument.value, TableArgument | Descriptor):
                raise error_at(f"{name} takes values, not tables", argument.span, "pass columns")
            given.append(argument.value)
        function, arguments = self._tables.context.user_functions.called(function, binder, given, table.span)
        schema = unique_fields(
            [
                *left.schema.fields,
                *(Field(n, t) for n, t in zip(function.result.names, function.result.children, strict=True)),
            ]
        )
        node = TableFunctionCall(
            schema, self._nodes.hints("table-function", table.span), left.node, function.reference, arguments, outer,
            function.search_path,
        )  # fmt: skip
        positions = tuple(range(len(left.schema), len(schema)))
        return Relation(node, (*left.sources, Source(None, function.result.names, positions)), left.merged)

    # -- LATERAL (query) -----------------------------------------------------------------------------------------------------

    def query(self, left: Relation, table: JoinTable) -> Relation:
        """The left rows, each with the rows of a query that may read it.

        Raises:
            ExpressionError: a query that cannot be joined instead.
        """
        right, alias, columns = without_alias(table.right)
        assert isinstance(right, DerivedTable)
        if table.kind not in (JoinKind.INNER, JoinKind.LEFT) or table.using or table.natural:
            raise error_at("LATERAL goes only with CROSS JOIN, JOIN or LEFT JOIN … ON", table.span)
        scope = OuterScope(QueryScope(relation=left, outer=self._tables.outer))
        planner = SubqueryPlanner(self._tables.context)
        plan = self._tables.context.bound_subquery(right.query, self._tables.environment, scope, right.span)
        if plan.is_correlated and plan.is_group_by_keys:
            return self._one_group(left, table, plan)
        rows = planner.rows(plan, left.node)
        node = self._nodes.join(
            left.node, rows.node, table.kind, rows.condition(plan.outer, len(left.schema)), table.span
        )
        positions = tuple(range(rows.width, rows.width + len(rows.names)))
        own = Relation(rows.node, (Source(None, rows.names, positions),))
        if alias is not None:
            own = self._tables.with_alias(own, alias, columns)
        JoinBinder(self._tables).check_aliases(left, own, table)
        relation = side_by_side(left, own, node)
        if table.on is not None and not is_true(table.on):
            condition = self._tables.expressions(relation, Clause.ON).boolean(table.on, "the condition of ON")
            if table.kind is JoinKind.LEFT:
                whole = [c for c in (rows.condition(plan.outer, len(left.schema)), condition) if c is not None]
                node = self._nodes.join(left.node, rows.node, table.kind, conjunction(whole), table.span)
            else:
                node = self._nodes.filter(relation.node, [condition], span_of(table.on))
            relation = replace(relation, node=node)
        return relation

    def _one_group(self, left: Relation, table: JoinTable, plan: SubqueryPlan) -> Relation:
        """The left rows, each with the one row of an aggregate that reads it: of no rows, too."""
        _, alias, columns = without_alias(table.right)
        assert plan.parts is not None
        planner = SubqueryPlanner(self._tables.context)
        node, values, having = planner.one_group(left.node, plan)
        node, positions = self._nodes.extended(node, values, table.span)
        own = Relation(node, (Source(None, tuple(n for n, _ in plan.parts.items), positions),))
        if alias is not None:
            own = self._tables.with_alias(own, alias, columns)
        JoinBinder(self._tables).check_aliases(left, own, table)
        relation = Relation(node, (*left.sources, own.sources[0]), left.merged)
        conditions = [] if having is None else [having]
        if table.on is not None and not is_true(table.on):
            conditions.append(self._tables.expressions(relation, Clause.ON).boolean(table.on, "the condition of ON"))
        if not conditions:
            return relation
        if table.kind is JoinKind.INNER:
            return replace(relation, node=planner.filtered(node, conditions, table.span))
        node, conditions = planner.applied(node, conditions)
        met = conjunction(conditions)
        assert met is not None
        given = [relation.column(p) for p in positions]
        kept = [Case(v.type, ((met, v),), Literal(v.type, None)) for v in given]
        node, positions = self._nodes.extended(node, kept, table.span)
        return Relation(node, (*left.sources, replace(own.sources[0], columns=positions)), left.merged)


def element_columns(type: DataType) -> list[tuple[str, DataType]] | None:
    """Names and types of the columns that UNNEST makes of a collection; None if it is none."""
    if type.root is TypeRoot.MAP:
        return [("KEY", type.children[0]), ("VALUE", type.children[1])]
    if type.root is not TypeRoot.ARRAY:
        return None
    element = type.children[0]
    if element.root is TypeRoot.ROW:
        return list(zip(element.names, element.children, strict=True))
    return [("EXPR$0", element)]
