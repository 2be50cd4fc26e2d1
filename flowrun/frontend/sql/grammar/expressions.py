"""Flink SQL's expression syntax on sqlglot's parser: the tokens, the operators and the calls, and nothing that other dialects mean by them.

sqlglot rewrites functions of other databases into its own nodes, changing argument order and meaning. This dialect keeps every call as a
name with arguments (`exp.Anonymous`), reads types as text for `flowrun.core.type_parser`, and marks nodes with their place in the text
(`meta["span"]` = first and one-past-last code point). Syntax errors are `FlinkSyntaxError`s with a place.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.parser import binary_range_parser

from flowrun.frontend.sql.catalog import DEFAULT_CATALOG, DEFAULT_DATABASE
from flowrun.frontend.sql.grammar.call_syntax import CALL_SYNTAX, CallReader, call
from flowrun.frontend.sql.grammar.token_reader import TokenReader
from flowrun.frontend.sql.grammar.tokens import WORD, Token, TokenType, checked_tokens, is_mark
from flowrun.frontend.sql.spans import FlinkSyntaxError, span_of

_UNIT_INSIDE = re.compile(r"\s*([+-]?[\d.]+)\s*(year|month|week|day|hour|minute|second)s?\s*", re.IGNORECASE)
"""An interval as PostgreSQL writes it: a number and a unit, both in quotes."""
_NOT_CALLED = frozenset((
    "ALL", "AND", "ANY", "AS", "BETWEEN", "BY", "CASE", "DISTINCT", "ELSE", "END", "EXCEPT", "EXISTS", "FILTER", "FROM", "GROUP",
    "HAVING", "IN", "INTERSECT", "INTERVAL", "IS", "JOIN", "LATERAL", "LIKE", "NOT", "ON", "OR", "ORDER", "OVER", "SELECT",
    "SOME", "TABLE", "THEN", "UNION", "UNNEST", "USING", "VALUES", "WHEN", "WHERE", "WITH",
))  # fmt: skip
_TRUTH_VALUES = ("NULL", "TRUE", "FALSE", "UNKNOWN")
_INTERVAL_UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")


class ExpressionGrammar(CallReader):
    """Parses Flink SQL expressions; `parse_whole` is the entry."""

    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {"CASE": lambda self: self.case()}
    RANGE_PARSERS: ClassVar[dict[Any, Any]] = {
        TokenType.BETWEEN: lambda self, this: self.between(this),
        TokenType.IN: lambda self, this: self.membership(this),
        TokenType.IS: lambda self, this: self.is_test(this),
        TokenType.LIKE: binary_range_parser(exp.Like),
        TokenType.SIMILAR_TO: binary_range_parser(exp.SimilarTo),
        TokenType.OVERLAPS: lambda self, this: self.overlaps(this),
    }

    # -- grammar -------------------------------------------------------------------------------------------------------------

    def parse_whole(self) -> exp.Expression:
        """The whole text as one expression."""
        node = self.operand()
        if self.token:
            self.fail(f"unexpected {self.shown()} after the expression")
        return node

    def special(self) -> exp.Expression | None:
        if names_before_call(self) > 1:
            return self._qualified_call()
        token, following = self.token, self.following
        if not token or not following or token.token_type in (TokenType.STRING, TokenType.NUMBER):
            return None
        quoted = token.token_type is TokenType.IDENTIFIER
        name = token.text.upper()
        if (
            not quoted
            and name == "INTERVAL"
            and following.token_type in (TokenType.STRING, TokenType.DASH, TokenType.NUMBER)
        ):
            return self._interval()
        if (
            not quoted
            and name in ("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ")
            and following.token_type is TokenType.STRING
        ):
            return self._temporal()
        if not quoted and name in ("ARRAY", "MAP") and is_mark(following, "["):
            self.advance(2)
            items = [] if self.at_mark("]") else self.arguments()
            self.expect_mark("]")
            return call(name, *items).update_positions(token)
        if not is_mark(following, "(") or (not quoted and name in _NOT_CALLED):
            return None
        return self._call(token, quoted) if quoted or WORD.fullmatch(token.text) else None

    def _qualified_call(self) -> exp.Expression:
        start = self.token.start
        skip_qualifiers(self)
        node = self._call(self.token, quoted=True)  # what is in a database is no special form
        called = node
        while not isinstance(called, exp.Anonymous):
            called = called.this
        called.meta["qualified"] = True
        for part in (called, node):
            part.meta["span"] = (start, part.meta["span"][1])
        return node

    def _call(self, token: Token, quoted: bool) -> exp.Expression:
        self.advance(2)
        syntax = None if quoted else CALL_SYNTAX.get(token.text.upper())
        node: exp.Expression = call(token.text, *self._plain_arguments()) if syntax is None else syntax(self)
        if not self.accept_mark(")"):
            self.fail_expected("',' or ')'")
        node.meta.update(start=token.start, end=token.end, span=(token.start, self.previous.end + 1))
        return self.after_call(node)

    def after_call(self, call: exp.Expression) -> exp.Expression:
        """The call with FILTER and OVER, which only a query may have."""
        return super().after_call(self.filtered(call))

    def filtered(self, this: exp.Expression) -> exp.Expression:
        """The node with FILTER (WHERE …) if that follows."""
        if self.at_word("FILTER") and is_mark(self.following, "("):
            self.advance(2)
            self.expect_word("WHERE")
            start = span_of(this)[0]
            this = exp.Filter(this=this, expression=exp.Where(this=self.operand()))
            self.expect_mark(")")
            this.meta["span"] = (start, self.previous.end + 1)
        return this

    def _plain_arguments(self) -> list[exp.Expression]:
        if self.at_close():
            return []
        if self.accept_mark("*"):
            return [exp.Star()]
        if self.accept_word("DISTINCT"):
            return [exp.Distinct(expressions=self.arguments())]
        self.accept_word("ALL")
        return self.arguments()

    def _interval(self) -> exp.Expression:
        start = self.token
        self.advance()
        sign = "-" if self.accept_mark("-") else ""
        if not self.accept_kind(TokenType.STRING):
            self.fail("an interval is written INTERVAL '5' SECOND, with quotes")
        value = sign + self.previous.text
        inside = _UNIT_INSIDE.fullmatch(self.previous.text)
        if inside is not None:
            hint = f"write INTERVAL '{inside[1]}' {inside[2].upper()}"
            raise FlinkSyntaxError(
                "the unit of an interval stands behind the quotes",
                start.start,
                self.previous.end + 1 - start.start,
                hint,
            )
        return self._in_units(exp.Literal.string(value), start.start)

    def _in_units(self, this: exp.Expression, start: int) -> exp.Expression:
        """An interval, given its value, with the unit or range of units that follows."""
        units: list[str] = []
        while not units or self.accept_word("TO"):
            units.append(str(self.any_word("a time unit like SECOND").this))
            if self.accept_mark("("):  # a precision, which intervals here do not limit
                if not self.accept_kind(TokenType.NUMBER):
                    self.fail_expected("a number of digits")
                if not self.accept_mark(")"):
                    self.fail("expected )")
        node = exp.Interval(this=this, unit=exp.Var(this=" TO ".join(units)))
        node.meta["span"] = (start, self.previous.end + 1)
        return node

    def after_parentheses(self, node: exp.Expression) -> exp.Expression:
        """`(a - b) DAY TO SECOND`: the interval between two points in time."""
        if isinstance(node, exp.Paren) and isinstance(node.this, exp.Sub) and self.at_word(*_INTERVAL_UNITS):
            return self._in_units(node.this, span_of(node)[0])
        return node

    def _temporal(self) -> exp.Expression:
        start = self.token
        self.advance(2)
        node = exp.Introducer(this=exp.Var(this=start.text.upper()), expression=exp.Literal.string(self.previous.text))
        node.meta["span"] = (start.start, self.previous.end + 1)
        return node

    def case(self) -> exp.Expression:
        """CASE [x] WHEN … THEN … [ELSE …] END, after the word CASE; with x, several values may stand behind one WHEN."""
        start = self.previous
        subject = None if self.at_word("WHEN") else self.operand()
        branches = []
        while self.accept_word("WHEN"):
            conditions = [self.operand()] if subject is None else self.arguments()
            self.expect_word("THEN")
            result = self.operand()
            branches += [exp.If(this=condition, true=result.copy()) for condition in conditions]
        default = self.operand() if self.accept_word("ELSE") else None
        if not branches:
            self.fail_expected("WHEN")
        if not self.accept_word("END"):
            self.fail_expected("WHEN, ELSE or END")
        node = exp.Case(this=subject, ifs=branches, default=default)
        node.meta["span"] = (start.start, self.previous.end + 1)
        return node

    def between(self, this: exp.Expression) -> exp.Expression:
        """[ASYMMETRIC | SYMMETRIC] low AND high, after BETWEEN."""
        symmetric = self.accept_word("SYMMETRIC")
        if not symmetric:
            self.accept_word("ASYMMETRIC")
        low = self.arithmetic()
        self.expect_word("AND")
        return exp.Between(this=this, low=low, high=self.arithmetic(), symmetric=symmetric)

    def membership(self, this: exp.Expression) -> exp.Expression:
        """A list in parentheses, after IN."""
        self.expect_mark("(", "a list of values")
        node = exp.In(this=this, expressions=self.arguments())
        if not self.accept_mark(")"):
            self.fail_expected("',' or ')'")
        return node

    def overlaps(self, this: exp.Expression) -> exp.Expression:
        """Two periods (start, end) or (start, INTERVAL …), after OVERLAPS; each in either order, as in the standard."""
        (first, last), (start, end) = self._period(this), self._period(self.arithmetic())
        left, right = exp.GTE(this=last, expression=start), exp.GTE(this=end.copy(), expression=first.copy())
        return exp.Paren(this=exp.And(this=left, expression=right))

    def _period(self, pair: exp.Expression) -> tuple[exp.Expression, exp.Expression]:
        """The earlier and the later end of a period."""
        if not isinstance(pair, exp.Tuple) or len(pair.expressions) != 2:
            self.fail("OVERLAPS compares two periods: (start, end) OVERLAPS (start, end)", at=self.previous)
        start, end = pair.expressions
        if isinstance(end, exp.Interval):
            end = exp.Add(this=start.copy(), expression=end)
        ends = []
        for test in (exp.LTE, exp.GT):
            branch = exp.If(this=test(this=start.copy(), expression=end.copy()), true=start.copy())
            ends.append(exp.Case(ifs=[branch], default=end.copy()))
        return ends[0], ends[1]

    def is_test(self, this: exp.Expression) -> exp.Expression:
        """[NOT] NULL, TRUE, FALSE, UNKNOWN, JSON or DISTINCT FROM x, after IS."""
        negated = self.accept_word("NOT")
        if self.accept_phrase("DISTINCT", "FROM"):
            other = self.arithmetic()
            node: exp.Expression = (
                exp.NullSafeEQ(this=this, expression=other) if negated else exp.NullSafeNEQ(this=this, expression=other)
            )
            return node
        if self.accept_word("JSON"):
            kind = self.previous.text.upper() if self.accept_word("VALUE", "SCALAR", "ARRAY", "OBJECT") else "VALUE"
            node = call("IS_JSON", this, exp.Literal.string(kind))
        elif self.accept_word(*_TRUTH_VALUES):
            node = exp.Is(this=this, expression=exp.Var(this=self.previous.text.upper()))
        else:
            self.fail_expected("NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM")
        return exp.Not(this=node) if negated else node


def parse_text(text: str) -> exp.Expression:
    """The syntax tree of one expression.

    Raises:
        FlinkSyntaxError: the text is no expression; carries the place.
    """
    parser = ExpressionGrammar()
    tokens = checked_tokens(text, "the expression")
    return parser.read(parser.parse_whole, tokens, text, "the expression")


_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)


def names_before_call(parser: TokenReader) -> int:
    """How many names, joined by dots, stand from the current token on before a `(`; 0 if something else comes."""
    names = 0
    while parser.ahead(2 * names).token_type in _NAMES:
        after = parser.ahead(2 * names + 1)
        names += 1
        if not is_mark(after, "."):
            return names if is_mark(after, "(") else 0
    return 0


def skip_qualifiers(parser: TokenReader) -> None:
    """Step over the catalog and database of the function that is called here.

    Raises:
        FlinkSyntaxError: they are not the only ones there are.
    """
    first = parser.token
    qualifiers = []
    for _ in range(names_before_call(parser) - 1):
        qualifiers.append(parser.token.text)
        parser.advance(2)
    if qualifiers in ([], [DEFAULT_DATABASE], [DEFAULT_CATALOG, DEFAULT_DATABASE]):
        return
    name = parser.token.text
    raise FlinkSyntaxError(
        f"the function '{'.'.join([*qualifiers, name])}' is in a catalog or database that does not exist",
        first.start,
        parser.token.end + 1 - first.start,
        f"all functions of a script are in {DEFAULT_CATALOG}.{DEFAULT_DATABASE}: write {name}(…)",
    )
