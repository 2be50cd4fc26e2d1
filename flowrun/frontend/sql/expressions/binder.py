"""Syntax trees → typed expression trees: a dispatch table from sqlglot nodes to methods.

`binder_core` holds what the methods share, `special_calls` the forms that are written as function calls.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from flowrun.core.foreign_names import function_hint
from flowrun.core.types import BOOLEAN, NULL, VARIANT, DataType, TypeRoot
from flowrun.frontend.sql.catalog import DEFAULT_CATALOG, DEFAULT_DATABASE
from flowrun.frontend.sql.expressions import literals
from flowrun.frontend.sql.expressions.binder_core import BinderCore
from flowrun.frontend.sql.expressions.scope import UnknownNameError, access_fields
from flowrun.frontend.sql.expressions.special_calls import SPECIAL_CALLS
from flowrun.functions.coercion import castable
from flowrun.functions.json.variant import MEMBER
from flowrun.functions.operators.operators import OPERATORS
from flowrun.functions.operators.type_rules import comparison_type
from flowrun.functions.registry import aggregate, aggregate_functions, scalar, scalar_functions
from flowrun.plan.expressions import And, Call, Cast, Expression, InList, Literal, Or
from flowrun.plan.folding import fold_constants

_BINARY: dict[type[exp.Expression], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.DPipe: "||",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
    exp.SimilarTo: "SIMILAR TO",
}
_CONSTANT_FUNCTIONS = ("CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP")
"""Functions that are also called without parentheses."""


_SYNTAX_ONLY = frozenset(f.name for f in OPERATORS) - {"ROW", "ARRAY", "MAP"}
"""Functions that are written as operators, never called by name."""


class ExpressionBinder(BinderCore):
    """Binds one text's syntax tree against a scope. Not reused across texts."""

    def bind(self, node: exp.Expression) -> Expression:
        """The typed tree of a node.

        Raises:
            ExpressionError: unknown names, wrong types, or syntax that has no meaning here; marks the place.
        """
        if (symbol := _BINARY.get(type(node))) is not None:
            return self.operator(symbol, (node.this, node.expression), node)
        method = _METHODS.get(type(node))
        if method is None:
            self.fail(f"{type(node).__name__} is not supported in an expression", node)
        return method(self, node)

    def column(self, node: exp.Expression) -> Expression:
        """A dotted name."""
        parts = dotted_parts(node)
        if isinstance(parts[-1], exp.Star):
            self.fail("* stands for columns only in a select list", node)
        names = tuple(p.name for p in parts)
        first = parts[0]
        if len(parts) == 1 and not self.scope.knows(names[0]) and not getattr(first, "quoted", False):
            constant = names[0].upper()
            if constant in _CONSTANT_FUNCTIONS and (function := scalar(constant)) is not None:
                return self.call(function, (), (), node)
        try:
            return self.scope.resolve(names)
        except UnknownNameError as error:
            if len(parts) == 1 and scalar(names[0]) is not None:
                error.hint = f"write {names[0]}(…) to call the function"
            self.fail_unknown(error, parts)

    def dot(self, node: exp.Expression) -> Expression:
        """A field of something that is not a plain name, or of a name with more than four parts."""
        base, parts = node, []
        while isinstance(base, exp.Dot):
            parts.append(base.expression)
            base = base.this
        parts.reverse()
        for part in parts:
            if not isinstance(part, exp.Identifier):
                self.fail("expected a field name after '.'", part)
        try:
            return access_fields(self.bind(base), tuple(p.name for p in parts), 0)
        except UnknownNameError as error:
            self.fail_unknown(error, parts)

    def bracket(self, node: exp.Expression) -> Expression:
        """Element access."""
        indices = node.expressions
        if len(indices) != 1:
            self.fail("expected one position or key between the brackets", node)
        container = self.bind(node.this)
        name = MEMBER if container.type == VARIANT else "ITEM"
        return self.apply(name, (container, self.bind(indices[0])), (node.this, indices[0]), node)

    def adjacent_texts(self, node: exp.Expression) -> Expression:
        """One text that is written in several pieces: 'a' 'b'."""
        return literals.text("".join(part.this for part in node.expressions))

    def literal(self, node: exp.Expression) -> Expression:
        """A number or text."""
        if node.is_string:
            return literals.text(node.this)
        try:
            return literals.number(node.this)
        except ValueError as error:
            self.fail(str(error), node)

    def negation(self, node: exp.Expression) -> Expression:
        """Unary minus; directly before a number it is part of the number."""
        inner = node.this
        if isinstance(inner, exp.Literal) and not inner.is_string:
            try:
                return literals.number(inner.this, negative=True)
            except ValueError as error:
                self.fail(str(error), node)
        return self.operator("NEGATE", (inner,), node)

    def unicode_text(self, node: exp.Expression) -> Expression:
        r"""U&'…' with \XXXX escapes, or those of another character behind UESCAPE."""
        escape = node.args.get("escape")
        character = escape.this if isinstance(escape, exp.Expression) else "\\"
        if len(character) != 1:
            self.fail("expected one character behind UESCAPE", node)
        try:
            return literals.text(literals.unescaped(node.this, character))
        except ValueError:
            self.fail(f"expected {character} and four hexadecimal digits in U&'…'", node)

    def bytes_literal(self, node: exp.Expression) -> Expression:
        """X'…'."""
        try:
            value = bytes.fromhex(node.this)
        except ValueError:
            self.fail("expected pairs of hexadecimal digits in X'…'", node)
        return Literal(DataType(TypeRoot.BINARY, length=len(value)), value)

    def temporal(self, node: exp.Expression) -> Expression:
        """DATE, TIME, TIMESTAMP with a text."""
        try:
            return literals.temporal(node.this.name, node.expression.name)
        except ValueError as error:
            self.fail(str(error), node)

    def interval(self, node: exp.Expression) -> Expression:
        """INTERVAL, or `(end - start) unit`."""
        unit = node.args["unit"].name
        try:
            if isinstance(node.this, exp.Literal):
                return literals.interval(node.this.name, unit)
            return self._between(node.this, literals.counts_months(unit), node)
        except ValueError as error:
            self.fail(str(error), node)

    def _between(self, difference: exp.Expression, months: bool, node: exp.Expression) -> Expression:
        """The time between two points in time, in whole months or to the millisecond."""
        nodes = [difference.this, difference.expression]
        end, start = (self.bind(n) for n in nodes)
        if not (end.type.is_temporal and start.type.is_temporal):
            unit = node.args["unit"].name
            given = f"{end.type} and {start.type}"
            hint = f"if {unit} is to be a name, write AS `{unit}`"
            self.fail(f"(a - b) {unit} is the time between two points in time, got {given}", node, hint)
        if not months:
            return self.apply("-", [end, start], nodes, node)
        counted = self.apply("TIMESTAMPDIFF", [literals.text("MONTH"), start, end], [node, *nodes[::-1]], node)
        return self.apply("*", [literals.interval("1", "MONTH"), counted], [node, node], node)

    def conjunction(self, node: exp.Expression) -> Expression:
        """AND, flattened."""
        return And(tuple(self.boolean(n, "an operand of AND") for n in _chain(node, exp.And)))

    def disjunction(self, node: exp.Expression) -> Expression:
        """OR, flattened."""
        return Or(tuple(self.boolean(n, "an operand of OR") for n in _chain(node, exp.Or)))

    def inversion(self, node: exp.Expression) -> Expression:
        """NOT; NOT (x IS y) is x IS NOT y, NOT (x IN …) is x NOT IN …"""
        inner = node.this
        while isinstance(inner, exp.Paren):
            inner = inner.this
        if isinstance(inner, exp.Is):
            return self.truth_test(inner, negated=True)
        if isinstance(inner, exp.In):
            return self.membership(inner, negated=True)
        return self.operator("NOT", (node.this,), node)

    def truth_test(self, node: exp.Expression, negated: bool = False) -> Expression:
        """IS [NOT] NULL, TRUE, FALSE, UNKNOWN."""
        return self.operator(f"IS {'NOT ' * negated}{node.expression.name}", (node.this,), node)

    def between(self, node: exp.Expression) -> Expression:
        """BETWEEN as two comparisons."""
        low, high = node.args["low"], node.args["high"]

        def within(a: exp.Expression, b: exp.Expression) -> Expression:
            return And((self.operator(">=", (node.this, a), node), self.operator("<=", (node.this, b), node)))

        return Or((within(low, high), within(high, low))) if node.args.get("symmetric") else within(low, high)

    def like(self, node: exp.Expression) -> Expression:
        """LIKE."""
        return self._negated(self.operator("LIKE", (node.this, node.expression), node), node)

    def escape(self, node: exp.Expression) -> Expression:
        """LIKE or SIMILAR TO with an escape character."""
        test = node.this
        name = "LIKE" if isinstance(test, exp.Like) else "SIMILAR TO"
        return self._negated(self.operator(name, (test.this, test.expression, node.expression), node), test)

    def _negated(self, expression: Expression, node: exp.Expression) -> Expression:
        return Call(BOOLEAN, "NOT", (expression,)) if node.args.get("negate") else expression

    def membership(self, node: exp.Expression, negated: bool = False) -> Expression:
        """IN over a list of constants, or as equalities."""
        if node.args.get("query") is not None:
            return self.in_query(node, negated)
        items = [self.bind(n) for n in node.expressions]
        operand = self.bind(node.this)
        common = comparison_type([operand.type, *(i.type for i in items)])
        if common is None:
            odd = next((i for i, x in enumerate(items) if comparison_type([operand.type, x.type]) is None), 0)
            wrong = items[odd].type
            self.fail(
                f"a list for {operand.type} cannot hold {wrong}",
                node.expressions[odd],
                "CAST one side to the other's type",
            )
        operand = self.cast(operand, common, node.this)
        values = [fold_constants(self.cast(i, common, n)) for i, n in zip(items, node.expressions, strict=True)]
        constants = [v.value for v in values if isinstance(v, Literal)]
        if len(constants) == len(values) and not common.is_nested and common != NULL:
            return InList(operand, tuple(dict.fromkeys(constants)), negated)
        tests = tuple(
            self.apply("=", (operand, v), (node.this, n), node) for v, n in zip(values, node.expressions, strict=True)
        )
        either = Or(tests) if len(tests) > 1 else tests[0]
        return Call(BOOLEAN, "NOT", (either,)) if negated else either

    def case(self, node: exp.Expression) -> Expression:
        """CASE, searched or simple."""
        subject: exp.Expression | None = node.this
        conditions, results, nodes = [], [], []
        for branch in node.args["ifs"]:
            if subject is None:
                conditions.append(self.boolean(branch.this, "a condition of CASE"))
            else:
                conditions.append(self.operator("=", (subject, branch.this), branch.this))
            results.append(self.bind(branch.args["true"]))
            nodes.append(branch.args["true"])
        default: exp.Expression | None = node.args.get("default")
        results.append(Literal(NULL, None) if default is None else self.bind(default))
        nodes.append(node if default is None else default)
        return self.choice(conditions, results, nodes, "the results of CASE")

    def conversion(self, node: exp.Expression) -> Expression:
        """CAST and TRY_CAST."""
        target = self.type_of(node.args["to"])
        operand = self.bind(node.this)
        if operand.type == target:
            return operand
        if isinstance(operand, Literal) and operand.value is None:
            return Literal(target, None)
        if not castable(operand.type, target):
            hint = None
            if operand.type.is_numeric and target.is_timestamp:
                hint = "use TO_TIMESTAMP_LTZ(number, 0 for seconds or 3 for milliseconds)"
            elif operand.type.is_timestamp and target.is_numeric:
                hint = "use UNIX_TIMESTAMP or EXTRACT"
            elif operand.type == VARIANT:
                hint = "use JSON_STRING to get its JSON text, JSON_VALUE(…, '$' RETURNING type) to read that"
            self.fail(f"CAST from {operand.type} to {target} is not possible", node, hint)
        return Cast(target, operand, isinstance(node, exp.TryCast))

    def function(self, node: exp.Expression) -> Expression:
        """A call by name."""
        name = str(node.this)
        if node.meta.get("qualified"):
            hint = f"functions that are built in belong to no database: write {name}(…)" if scalar(name) else None
            self.fail(f"function '{name}' does not exist in {DEFAULT_CATALOG}.{DEFAULT_DATABASE}", node, hint)
        special = SPECIAL_CALLS.get(name.upper())
        if special is not None:
            return special(self, node)
        function = None if name.upper() in _SYNTAX_ONLY or name.startswith("$") else scalar(name)  # $: internal ones
        arguments = node.expressions
        for argument in arguments:
            if isinstance(argument, exp.Star | exp.Distinct):
                self.reject_aggregate(node, name)
        if function is None:
            self.reject_aggregate(node, name)
            known = {f.name for f in scalar_functions()} - _SYNTAX_ONLY | {f.name for f in aggregate_functions()}
            known |= set(SPECIAL_CALLS)
            self.fail(f"function '{name}' does not exist", node, function_hint(name, known))
        return self.call(function, [self.bind(a) for a in arguments], arguments, node)

    def reject_aggregate(self, node: exp.Expression, name: str) -> None:
        """Fail if the name is an aggregate: it has no meaning for single rows."""
        if aggregate(name) is not None:
            self.fail(
                f"{name.upper()} is an aggregate, it works only under 'aggregate'",
                node,
                "move it there, with key_by and window",
            )

    def filtered(self, node: exp.Expression) -> Expression:
        """FILTER (WHERE …) after something."""
        self.fail("FILTER (WHERE …) follows only aggregates", node)

    def windowed(self, node: exp.Expression) -> Expression:
        """OVER (…) after something."""
        self.fail("OVER (…) is not possible here", node, "use a SQL step for OVER aggregates")

    def subquery(self, node: exp.Expression) -> Expression:
        """A query in parentheses."""
        self.fail("a subquery is possible only inside a SQL query", node)

    def exists(self, node: exp.Expression) -> Expression:
        """EXISTS (query)."""
        return self.subquery(node)

    def in_query(self, node: exp.Expression, negated: bool) -> Expression:
        """X IN (query)."""
        return self.subquery(node)

    def row(self, node: exp.Expression) -> Expression:
        """(a, b): the same as ROW(a, b)."""
        return self.operator("ROW", node.expressions, node)

    def star(self, node: exp.Expression) -> Expression:
        """A lone *."""
        self.fail("* stands for columns only in a select list", node)

    def alias(self, node: exp.Expression) -> Expression:
        """AS inside an expression."""
        self.fail("AS names a column; it has no meaning here", node)


def dotted_parts(node: exp.Expression) -> list[exp.Expression]:
    """The identifiers of a column node, outermost first."""
    return [p for key in ("catalog", "db", "table", "this") if (p := node.args.get(key)) is not None]


def _chain(node: exp.Expression, kind: type[exp.Expression]) -> list[exp.Expression]:
    """The operands of a left-deep chain of one connective, without recursion: it may be long."""
    found: list[exp.Expression] = []
    stack = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, kind):
            stack += [current.expression, current.this]
        else:
            found.append(current)
    return found


# through the instance where a subclass has another meaning
_METHODS: dict[type[exp.Expression], Callable[[ExpressionBinder, exp.Expression], Expression]] = {
    exp.Column: lambda binder, node: binder.column(node),
    exp.Dot: ExpressionBinder.dot,
    exp.Bracket: ExpressionBinder.bracket,
    exp.Paren: lambda binder, node: binder.bind(node.this),
    exp.Literal: ExpressionBinder.literal,
    exp.Concat: ExpressionBinder.adjacent_texts,
    exp.Null: lambda *_: Literal(NULL, None),
    exp.Boolean: lambda _, node: Literal(BOOLEAN, bool(node.this)),
    exp.HexString: ExpressionBinder.bytes_literal,
    exp.UnicodeString: ExpressionBinder.unicode_text,
    exp.Introducer: ExpressionBinder.temporal,
    exp.Interval: ExpressionBinder.interval,
    exp.Neg: ExpressionBinder.negation,
    exp.And: ExpressionBinder.conjunction,
    exp.Or: ExpressionBinder.disjunction,
    exp.Not: lambda binder, node: binder.inversion(node),
    exp.Is: ExpressionBinder.truth_test,
    exp.Between: ExpressionBinder.between,
    exp.Like: ExpressionBinder.like,
    exp.Escape: ExpressionBinder.escape,
    exp.In: ExpressionBinder.membership,
    exp.Case: ExpressionBinder.case,
    exp.Cast: ExpressionBinder.conversion,
    exp.TryCast: ExpressionBinder.conversion,
    exp.Anonymous: lambda binder, node: binder.function(node),
    exp.Filter: lambda binder, node: binder.filtered(node),
    exp.Window: lambda binder, node: binder.windowed(node),
    exp.Star: ExpressionBinder.star,
    exp.Tuple: ExpressionBinder.row,
    exp.Subquery: lambda binder, node: binder.subquery(node),
    exp.Exists: lambda binder, node: binder.exists(node),
    exp.Any: lambda binder, node: binder.subquery(node),
    exp.All: lambda binder, node: binder.subquery(node),
    exp.Alias: ExpressionBinder.alias,
}
