"""What scalar expressions may hold inside a query: subqueries, quantified comparisons, tuples and OVER clauses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from flowrun.core.semantics import FrameUnit
from flowrun.frontend.sql.grammar.expressions import ExpressionGrammar
from flowrun.frontend.sql.grammar.syntax import FrameBound, FrameClause, Name, OrderItem, OverClause, QuerySyntax
from flowrun.frontend.sql.grammar.tokens import Token, TokenType, is_mark, is_word
from flowrun.frontend.sql.spans import FlinkSyntaxError, span_of

if TYPE_CHECKING:
    from collections.abc import Callable

_QUERY_STARTS = ("SELECT", "WITH", "VALUES", "TABLE")
_QUANTIFIERS = ("ANY", "SOME", "ALL")
_NO_ALIAS = frozenset((
    "APPLY", "ASOF", "CLUSTER", "CONNECT", "DISTRIBUTE", "FETCH", "FOR", "GROUP", "INTO", "LIMIT", "MATCH_RECOGNIZE", "MINUS",
    "OFFSET", "ORDER", "PARTITION", "PIVOT", "QUALIFY", "SORT", "START", "TABLESAMPLE", "UNPIVOT", "WINDOW",
))  # fmt: skip


class QueryExpressionGrammar(ExpressionGrammar):
    """The expression parser with the hooks that queries need. Abstract: `query` and `order_by` are the query grammar's."""

    def query(self) -> QuerySyntax:
        """A whole query."""
        raise TypeError("the query grammar defines this")

    def order_by(self) -> tuple[OrderItem, ...]:
        """Entries after ORDER BY."""
        raise TypeError("the query grammar defines this")

    # -- pieces -------------------------------------------------------------------------------------------------------------

    def at_empty_parens(self) -> bool:
        """Whether `()` comes next."""
        return self.at_mark("(") and is_mark(self.following, ")")

    def number(self, value: int) -> exp.Expression:
        """A number that the text leaves out."""
        literal = exp.Literal.number(value)
        literal.meta["span"] = (self.previous.start, self.previous.end + 1)
        return literal

    def alias(self) -> Name | None:
        """[AS] name, if there is one."""
        if self.accept_word("AS"):
            return self.take_name("a name after AS")
        if self.at_kind(TokenType.IDENTIFIER) or (self.at_kind(TokenType.VAR) and not self.at_word(*_NO_ALIAS)):
            return self.take_name("a name")
        return None

    def is_star(self, node: exp.Expression) -> bool:
        """Whether the expression is `a.*` or `a.b.*`."""
        return (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)) or (
            isinstance(node, exp.Dot) and isinstance(node.expression, exp.Star)
        )

    def tuple_members(self, node: exp.Expression) -> tuple[exp.Expression, ...]:
        """The members of `(a, b)` or `(a)`, else ()."""
        if isinstance(node, exp.Tuple):
            return tuple(node.expressions)
        return (node.this,) if isinstance(node, exp.Paren) else ()

    # -- subqueries ----------------------------------------------------------------------------------------------------------

    def _at_query(self) -> bool:
        """Whether a query comes next, perhaps in more parentheses."""
        opened = 0
        while is_mark(self.ahead(opened), "("):
            opened += 1
        token = self.ahead(opened)
        if not is_word(token, *_QUERY_STARTS):
            return False
        return not is_word(token, "TABLE") or not is_mark(self.ahead(opened + 1), "(")

    def _subquery(self) -> exp.Expression | None:
        """A query in parentheses whose '(' was just read, with its ')'; None if it turns out to be an expression."""
        if not self._at_query():
            return None
        opened, index = self.previous.start, self.place
        nested = self.at_mark("(")
        try:
            query = self.query()
        except FlinkSyntaxError:
            if not nested:
                raise
            query = None
        if query is None or not self.accept_mark(")"):
            if not nested:
                self.fail_expected("')' after the subquery")
            self.go_back(index)
            return None
        node = exp.Subquery(this=exp.Null())
        node.meta.update(query=query, span=(opened, self.previous.end + 1))
        return node

    def parenthesised(self) -> exp.Expression | None:
        """A query, an expression or several in parentheses; None if no '(' comes next."""
        start = self.token
        if not self.accept_mark("("):
            return None
        node = self._subquery()
        if node is None:
            members = self.arguments()
            self.expect_mark(")")
            node = exp.Paren(this=members[0]) if len(members) == 1 else exp.Tuple(expressions=members)
            node.meta["span"] = (start.start, self.previous.end + 1)
        return node

    def special(self) -> exp.Expression | None:
        token = self.token
        if self.at_word("EXISTS") and is_mark(self.following, "("):
            self.advance(2)
            query = self._subquery()
            if query is None:
                self.fail_expected("a query after EXISTS (")
            node = exp.Exists(this=query)
            node.meta["span"] = (token.start, self.previous.end + 1)
            return node
        if self.at_word(*_QUANTIFIERS) and is_mark(self.following, "("):
            return self._quantified(token)
        if self.at_word("CURSOR", "MULTISET") and is_mark(self.following, "(", "["):
            self.fail(f"{token.text.upper()} constructors are not supported", "use ARRAY[…] or COLLECT(value)")
        return super().special()

    def _quantified(self, token: Token) -> exp.Expression:
        self.advance(2)
        query = self._subquery()
        if query is None:
            self.fail_expected(f"a query after {token.text.upper()} (")
        kind: Callable[..., exp.Expression] = exp.All if token.text.upper() == "ALL" else exp.Any
        node = kind(this=query)
        node.meta["span"] = (token.start, self.previous.end + 1)
        return node

    def membership(self, this: exp.Expression) -> exp.Expression:
        """A list or a query in parentheses, after IN."""
        if self.at_mark("("):
            index = self.place
            self.advance()
            query = self._subquery()
            # IN ((SELECT 1), 2) is a list that begins with a subquery
            if query is not None:
                return exp.In(this=this, query=query)
            self.go_back(index)
        return super().membership(this)

    # -- OVER ----------------------------------------------------------------------------------------------------------------

    def after_call(self, call: exp.Expression) -> exp.Expression:
        """The call with WITHIN GROUP, FILTER and OVER."""
        self._call_order(call)
        node = self.filtered(call)
        if self.accept_phrase("WITHIN", "GROUP"):
            self.fail("WITHIN GROUP (ORDER BY …) stands before FILTER", "move it in front of FILTER", at=self.previous)
        if self.at_word("IGNORE", "RESPECT") and is_word(self.following, "NULLS"):
            self._null_treatment(node)
        if not self.accept_word("OVER"):
            return node
        start = span_of(node)[0]
        clause = self.over_clause()
        windowed = exp.Window(this=node)
        windowed.meta.update(over=clause, span=self.since(start))
        return windowed

    def _plain_arguments(self) -> list[exp.Expression]:
        found = super()._plain_arguments()
        if found and self.accept_phrase("ORDER", "BY"):
            order = exp.Order(expressions=[])
            order.meta["order"] = self.order_by()
            found.append(order)
        return found

    def _call_order(self, node: exp.Expression) -> None:
        """The order of a call's rows, from inside its parentheses or from WITHIN GROUP, into its `meta`."""
        last = node.expressions[-1] if node.expressions else None
        # calls that sqlglot reads by itself may hold an order of its own making, which the binder refuses with its place
        if isinstance(last, exp.Order) and "order" in last.meta:
            node.meta["order"] = last.meta["order"]
            node.set("expressions", node.expressions[:-1])
        if not self.at_word("WITHIN") or not self.accept_phrase("WITHIN", "GROUP"):
            return
        if "order" in node.meta:
            self.fail("the call is ordered already", "leave out one ORDER BY", at=self.previous)
        self.expect_mark("(", "ORDER BY")
        if not self.accept_phrase("ORDER", "BY"):
            self.fail_expected("ORDER BY")
        node.meta["order"] = self.order_by()
        self.expect_mark(")")
        node.meta["span"] = self.since(span_of(node)[0])

    def _null_treatment(self, node: exp.Expression) -> None:
        ignore = self.at_word("IGNORE")
        name = str(node.this).upper() if isinstance(node, exp.Anonymous) else ""
        # FIRST_VALUE and LAST_VALUE skip NULLs anyhow, as in Flink; LAG and LEAD count them
        if ignore != (name in ("FIRST_VALUE", "LAST_VALUE")):
            self.fail(
                f"{self.token.text.upper()} NULLS is not supported here",
                "FIRST_VALUE and LAST_VALUE skip NULLs, LAG and LEAD count them",
            )
        self.advance(2)

    def over_clause(self) -> OverClause:
        """A window's name, or its description in parentheses."""
        start = self.here
        if not self.accept_mark("("):
            name = self.take_name("a window's name or '('")
            return OverClause(name.span, name)
        base = None
        if self.at_kind(TokenType.VAR, TokenType.IDENTIFIER):
            base = self.take_name("a window's name")
        partition: tuple[exp.Expression, ...] = ()
        if self.accept_phrase("PARTITION", "BY"):
            partition = tuple(self.arguments())
        order = self.order_by() if self.accept_phrase("ORDER", "BY") else ()
        frame = self._frame() if self.at_word("ROWS", "RANGE") else None
        if self.at_word("GROUPS", "EXCLUDE"):
            self.fail(f"{self.token.text.upper()} is not supported in OVER", "use ROWS or RANGE BETWEEN … PRECEDING")
        self.expect_mark(")")
        return OverClause(self.since(start), base, partition, order, frame)

    def _frame(self) -> FrameClause:
        start = self.token.start
        unit = FrameUnit(self.token.text.lower())
        self.advance()
        if self.accept_word("BETWEEN"):
            first = self._bound()
            self.expect_word("AND")
            last = self._bound()
        else:
            first = self._bound()
            last = FrameBound(first.span)
        return FrameClause(unit, first, last, self.since(start))

    def _bound(self) -> FrameBound:
        start = self.here
        if self.accept_phrase("CURRENT", "ROW"):
            return FrameBound(self.since(start))
        unbounded = self.accept_word("UNBOUNDED")
        amount = None if unbounded else self.arithmetic()
        following = self.accept_word("FOLLOWING")
        if not following:
            self.expect_word("PRECEDING")
        return FrameBound(self.since(start), amount, unbounded, following)
