"""MATCH_RECOGNIZE (…) → `MatchRecognize`: what names mean inside of it, and the checks that Flink makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

from sqlglot import exp

from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import NullOrder, SortKey
from flowrun.errors import did_you_mean
from flowrun.frontend.sql.expressions.aggregate_calls import check_arguments, is_star, typed_call, written_arguments
from flowrun.frontend.sql.expressions.binder import ExpressionBinder, dotted_parts
from flowrun.frontend.sql.expressions.scope import Scope, UnknownNameError, access_fields
from flowrun.frontend.sql.grammar.match_recognize import MatchSyntax, NamedExpression, parse_match
from flowrun.frontend.sql.grammar.syntax import OrderItem
from flowrun.frontend.sql.spans import Span, error_at, span_of
from flowrun.functions.registry import aggregate
from flowrun.plan.expressions import ColumnRef, Expression, Literal, transform, walk
from flowrun.plan.matching import MatchRecognize, Navigation, PatternAggregate, PatternColumn, PatternVariable
from flowrun.plan.nodes import NodeHints, PlanNode

_LOGICAL = ("FIRST", "LAST")
_PHYSICAL = ("PREV", "NEXT")
_UNSUPPORTED = {
    "CLASSIFIER": "give each variable a measure of its own",
    "MATCH_NUMBER": "number the rows after the match",
}


def bind_match(text: str, body: Span, input: PlanNode, names: Sequence[str], hints: NodeHints) -> MatchRecognize:
    """The node of a MATCH_RECOGNIZE; that the first sort key is a time attribute is checked by recognition.

    Args:
        text: the whole query.
        body: what stands between the parentheses, in code points of `text`.
        input: the rows.
        names: how the columns of `input` are called in the query, in order.
        hints: of the node.

    Raises:
        FlinkSyntaxError: the body does not parse.
        ExpressionError: unknown names, wrong types, or a pattern that Flink cannot search for; places count in `text`.
    """
    return _MatchBinder(parse_match(text, body), input, tuple(names), hints).bind()


class _MatchBinder:
    def __init__(self, syntax: MatchSyntax, input: PlanNode, names: tuple[str, ...], hints: NodeHints) -> None:
        self._syntax = syntax
        self._input = input
        self._names = names
        self._hints = hints
        self._variables = tuple(p.variable.name for p in syntax.pattern)

    def bind(self) -> MatchRecognize:
        """The whole node."""
        syntax = self._syntax
        self._check_pattern()
        partition = self._partition()
        order = tuple(self._sort_key(item) for item in syntax.order)
        if order[0].descending:
            raise error_at(
                "the first key of ORDER BY must be ascending: a match follows event time", syntax.order[0].span
            )
        measures = [(m.name.text, self._expression(m.expression, False, order[0].column)) for m in syntax.measures]
        fields = [Field(self._names[p], self._input.schema.types[p]) for p in partition]
        fields += [Field(name, e.type) for name, e in measures]
        self._check_names(fields)
        return MatchRecognize(
            schema=Schema(tuple(fields)),
            hints=self._hints,
            input=self._input,
            partition=partition,
            order=order,
            pattern=tuple(p.variable for p in syntax.pattern),
            defines=tuple(self._define(d, order[0].column) for d in self._unique_defines()),
            measures=tuple(e for _, e in measures),
            after=syntax.after,
            skip_to=self._skip_to(),
            within_ms=self._within(),
        )

    # -- checks --------------------------------------------------------------------------------------------------------------

    def _check_pattern(self) -> None:
        items = self._syntax.pattern
        for i, item in enumerate(items):
            if item.variable.name in self._variables[:i]:
                raise error_at(
                    f"the variable {item.variable.name} occurs twice in the pattern",
                    item.span,
                    "give the second one another name",
                )
        last = items[-1].variable
        if last.greedy and (last.most is None or last.most > last.least):
            raise error_at(
                f"the pattern must not end with the greedy {_shown(last)}: it could never be known to be complete",
                items[-1].span,
                f"end it with a simple variable, or write {_shown(last)}? to take as few rows as possible",
            )
        if all(p.variable.least == 0 for p in items):
            raise error_at(
                "the pattern matches no rows at all, too", self._syntax.pattern_span, "some variable must take a row"
            )

    def _check_names(self, fields: Sequence[Field]) -> None:
        names = [f.name for f in fields]
        for measure in self._syntax.measures:
            if names.count(measure.name.text) > 1:
                raise error_at(
                    f"column '{measure.name.text}' occurs more than once", measure.name.span, "choose another name"
                )

    def _unique_defines(self) -> tuple[NamedExpression, ...]:
        seen: set[str] = set()
        for define in self._syntax.defines:
            name = define.name.text
            if name not in self._variables:
                hint = did_you_mean(name, self._variables)
                raise error_at(f"the pattern has no variable {name}", define.name.span, hint)
            if name in seen:
                raise error_at(
                    f"the variable {name} is defined twice", define.name.span, "join the conditions with AND"
                )
            seen.add(name)
        return self._syntax.defines

    def _skip_to(self) -> str | None:
        name = self._syntax.skip_to
        if name is None:
            return None
        if name.text not in self._variables:
            raise error_at(
                f"the pattern has no variable {name.text}", name.span, did_you_mean(name.text, self._variables)
            )
        if name.text == self._variables[0] and self._syntax.after.value.endswith("FIRST"):
            raise error_at(
                "after a match the search cannot go on at its own first row: it would find the same match for ever",
                name.span,
                "write AFTER MATCH SKIP TO NEXT ROW",
            )
        return name.text

    def _within(self) -> int | None:
        node = self._syntax.within
        if node is None:
            return None
        bound = ExpressionBinder(Scope(Schema(()))).bind(node)
        if (
            not isinstance(bound, Literal)
            or not bound.type.is_interval
            or bound.type.arrow.bit_width != 64
            or bound.value <= 0
        ):
            raise error_at(
                "WITHIN takes a positive interval of days to seconds", span_of(node), "write WITHIN INTERVAL '1' HOUR"
            )
        return int(bound.value)

    # -- parts ---------------------------------------------------------------------------------------------------------------

    def _partition(self) -> tuple[int, ...]:
        positions: list[int] = []
        for node in self._syntax.partition:
            position = self._position(node, "PARTITION BY")
            if position in positions:
                raise error_at(
                    f"PARTITION BY has the column '{self._names[position]}' more than once",
                    span_of(node),
                    "leave it away: every match has the columns of PARTITION BY, each by its name",
                )
            positions.append(position)
        return tuple(positions)

    def _position(self, node: exp.Expression, where: str) -> int:
        parts = dotted_parts(node) if isinstance(node, exp.Column) else []
        if len(parts) != 1:
            raise error_at(
                f"{where} of MATCH_RECOGNIZE takes columns only", span_of(node), "compute it in a subquery before"
            )
        name = parts[0].name
        if name not in self._names:
            raise error_at(
                f"column '{name}' does not exist in the input", span_of(node), did_you_mean(name, self._names)
            )
        return self._names.index(name)

    def _sort_key(self, item: OrderItem) -> SortKey:
        first = not item.descending if item.nulls_first is None else item.nulls_first
        position = self._position(item.expression, "ORDER BY")
        return SortKey(position, item.descending, NullOrder.FIRST if first else NullOrder.LAST)

    def _expression(self, node: exp.Expression, defining: bool, time: int) -> Expression:
        return _binder(self._input.schema, self._names, self._variables, defining, time).bind(node)

    def _define(self, define: NamedExpression, time: int) -> tuple[str, Expression]:
        binder = _binder(self._input.schema, self._names, self._variables, True, time)
        return define.name.text, binder.boolean(define.expression, "the condition of a variable")


@record(slots=False)
class _PatternScope(Scope):
    """Columns of rows of the match, by variable or without."""

    schema: Schema
    names: tuple[str, ...] = field(default=(), kw_only=True)
    variables: tuple[str, ...] = field(default=(), kw_only=True)

    def resolve(self, parts: tuple[str, ...]) -> Expression:
        """[variable.]column[.field …]: that of the last row of the variable, or of the last row at all."""
        variable = parts[0] if parts[0] in self.variables and len(parts) > 1 else None
        at = 0 if variable is None else 1
        name = parts[at]
        if name not in self.names:
            known = [*self.names, *(self.variables if len(parts) > 1 and not at else ())]
            what = f"column '{name}' does not exist in the input"
            if len(parts) > 1 and not at:
                what = f"'{name}' is neither a variable of the pattern nor a column of the input"
            raise UnknownNameError(what, at, did_you_mean(name, known))
        index = self.names.index(name)
        column = PatternColumn(self.schema.types[index], index, name, variable)
        return access_fields(column, parts[at + 1 :], at + 1)


class _PatternBinder(ExpressionBinder):
    """Binds measures and definitions."""

    def __init__(self, scope: _PatternScope, defining: bool, time: int) -> None:
        super().__init__(scope)
        self._pattern_scope = scope
        self._defining = defining
        self._time = time

    def function(self, node: exp.Expression) -> Expression:
        """FIRST, LAST and PREV; aggregates over the rows of a variable; MATCH_ROWTIME(); any other function."""
        name = str(node.this).upper()
        if name in _LOGICAL or name in _PHYSICAL:
            return self._navigation(node, name)
        if name in ("MATCH_ROWTIME", "MATCH_PROCTIME"):
            schema = self._pattern_scope.schema
            return PatternColumn(schema.types[self._time], self._time, schema.names[self._time], None)
        if name in _UNSUPPORTED:
            self.fail(f"{name}() is not supported", node, _UNSUPPORTED[name])
        if aggregate(name) is not None:
            return self._aggregate(node, name)
        return super().function(node)

    def filtered(self, node: exp.Expression) -> Expression:
        """FILTER is not possible here."""
        self.fail("FILTER is not supported in MATCH_RECOGNIZE", node, "use a variable of its own for those rows")

    def _navigation(self, node: exp.Expression, name: str) -> Expression:
        arguments = node.expressions
        if len(arguments) not in (1, 2):
            self.fail(
                f"{name} takes 1 to 2 arguments, {len(arguments)} given", node, f"usage: {name}(column[, offset])"
            )
        if name == "NEXT":
            self.fail("NEXT looks at rows that have not come yet", node, "make them variables of the pattern")
        if name == "PREV" and not self._defining:
            self.fail("PREV stands only in DEFINE", node, "use FIRST or LAST with an offset")
        offset = 1 if name == "PREV" else 0
        if len(arguments) == 2:
            bound = self.bind(arguments[1])
            if not isinstance(bound, Literal) or not bound.type.is_integer or bound.value is None or bound.value < 0:
                self.fail(f"the offset of {name} must be a constant number, at least 0", arguments[1])
            offset = int(bound.value)
        inner = self.bind(arguments[0])
        columns = [e for e in walk(inner) if isinstance(e, PatternColumn)]
        if not columns or any(isinstance(e, PatternAggregate) for e in walk(inner)):
            self.fail(f"{name} takes an expression over columns", arguments[0])
        self._one_variable(columns, node, name)
        where = Navigation[name]

        def move(expression: Expression) -> Expression:
            if not isinstance(expression, PatternColumn):
                return expression
            return replace(expression, navigation=where, offset=offset)

        return transform(inner, move)

    def _one_variable(self, columns: Sequence[PatternColumn], node: exp.Expression, what: str) -> str | None:
        variables = {c.variable for c in columns}
        if len(variables) > 1:
            named = " and ".join(sorted(v or "no variable" for v in variables))
            self.fail(f"{what} must look at the rows of one variable, these are of {named}", node)
        if any(c.offset or c.navigation is not Navigation.LAST for c in columns):
            self.fail(f"{what} cannot hold another FIRST, LAST or PREV", node)
        return next(iter(variables), None)

    def _aggregate(self, node: exp.Expression, name: str) -> Expression:
        function = aggregate(name)
        assert function is not None
        arguments, distinct = written_arguments(node)
        star = is_star(arguments) or (len(arguments) == 1 and _is_star_of_variable(arguments[0]))
        check_arguments(self, function, arguments, node, distinct=distinct, star=star)
        rows: list[Expression] = []
        if star:
            variable, arguments = self._star_variable(arguments[0]), []
        else:
            bound = [self.bind(a) for a in arguments]
            columns = [e for b in bound for e in walk(b) if isinstance(e, PatternColumn)]
            if any(isinstance(e, PatternAggregate) for b in bound for e in walk(b)):
                self.fail(f"{name} cannot hold another aggregate", node)
            variable = self._one_variable(columns, node, name)
            rows = [transform(b, _as_row_column) for b in bound]
        call = typed_call(self, function, rows, arguments, node, distinct=distinct)
        return PatternAggregate(call.type, replace(call, name="aggregate"), variable)

    def _star_variable(self, node: exp.Expression) -> str | None:
        if isinstance(node, exp.Star):
            return None
        name = dotted_parts(node)[0].name
        if name not in self._pattern_scope.variables:
            self.fail(f"the pattern has no variable {name}", node, did_you_mean(name, self._pattern_scope.variables))
        return name


def _is_star_of_variable(node: exp.Expression) -> bool:
    return isinstance(node, exp.Column) and isinstance(node.this, exp.Star)


def _binder(
    schema: Schema, names: tuple[str, ...], variables: tuple[str, ...], defining: bool, time: int
) -> _PatternBinder:
    scope = _PatternScope(schema, names=names, variables=variables)
    return _PatternBinder(scope, defining, time)


def _as_row_column(expression: Expression) -> Expression:
    if isinstance(expression, PatternColumn):
        return ColumnRef(expression.type, expression.index, expression.name)
    return expression


def _shown(variable: PatternVariable) -> str:
    forms = {(1, None): "+", (0, None): "*", (0, 1): "?"}
    most = "" if variable.most is None else variable.most
    return variable.name + forms.get((variable.least, variable.most), f"{{{variable.least},{most}}}")
