"""Flink SQL's expression syntax on sqlglot's parser: the tokens, the operators and the calls, and nothing that other dialects mean by them.

sqlglot rewrites functions of other databases into its own nodes, changing argument order and meaning. This dialect keeps every call as a
name with arguments (`exp.Anonymous`), reads types as text for `flowrun.core.type_parser`, and marks nodes with their place in the text
(`meta["span"]` = first and one-past-last code point). Syntax errors are `FlinkSyntaxError`s with a place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NoReturn, TypeVar, cast

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect, NormalizationStrategy
from sqlglot.errors import ErrorLevel, TokenError
from sqlglot.parser import Parser, binary_range_parser
from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.tokens import Tokenizer

from flowrun.frontend.sql.grammar.call_syntax import CALL_SYNTAX, call
from flowrun.frontend.sql.grammar.qualified_calls import names_before_call, skip_qualifiers
from flowrun.frontend.sql.places import FlinkSyntaxError, span_of

_UNIT_INSIDE = re.compile(r"\s*([+-]?[\d.]+)\s*(year|month|week|day|hour|minute|second)s?\s*", re.IGNORECASE)
"""An interval as PostgreSQL writes it: a number and a unit, both in quotes."""
_WORD = re.compile(r"(?:[^\W\d]|\$)[\w$]*")
_NOT_CALLED = frozenset((
    "ALL", "AND", "ANY", "AS", "BETWEEN", "BY", "CASE", "DISTINCT", "ELSE", "END", "EXCEPT", "EXISTS", "FILTER", "FROM", "GROUP",
    "HAVING", "IN", "INTERSECT", "INTERVAL", "IS", "JOIN", "LATERAL", "LIKE", "NOT", "ON", "OR", "ORDER", "OVER", "SELECT",
    "SOME", "TABLE", "THEN", "UNION", "UNNEST", "USING", "VALUES", "WHEN", "WHERE", "WITH",
))  # fmt: skip
_WORDS = frozenset((
    "ALL", "AND", "ANY", "AS", "ASC", "BETWEEN", "CASE", "CROSS", "CUBE", "DESC", "DISTINCT", "ELSE", "END", "ESCAPE", "EXCEPT",
    "EXISTS", "FALSE", "FETCH", "FILTER", "FOR", "FROM", "FULL", "HAVING", "IN", "INNER", "INSERT", "INTERSECT", "INTERVAL",
    "INTO", "IS", "JOIN", "LATERAL", "LEFT", "LIKE", "LIMIT", "MATCH_RECOGNIZE", "NATURAL", "NOT", "NULL", "OFFSET", "ON", "OR",
    "ORDINALITY", "OUTER", "OVER", "OVERLAPS", "PARTITION", "RANGE", "RIGHT", "ROLLUP", "ROWS", "SELECT", "SEMI", "ANTI", "SET", "SOME",
    "TABLE", "THEN", "TRUE", "UNION", "UNNEST", "USING", "VALUES", "WHEN", "WHERE", "WINDOW", "WITH",
))  # fmt: skip
_PHRASES = frozenset(("GROUP BY", "GROUPING SETS", "ORDER BY", "PARTITION BY", "SIMILAR TO"))
_MARKS = frozenset(("||", ">=", "<=", "<>", "!=", "=>", "/*+"))
_TRUTH_VALUES = ("NULL", "TRUE", "FALSE", "UNKNOWN")


class FlinkTokenizer(Tokenizer):
    """Flink's lexical rules: back-quoted identifiers, strings escaped by doubling, only Flink's own keywords."""

    IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ["`"]
    QUOTES: ClassVar[list[tuple[str, str] | str]] = ["'"]
    STRING_ESCAPES: ClassVar[list[str]] = ["'"]
    HEX_STRINGS: ClassVar[list[str | tuple[str, str]]] = [("x'", "'"), ("X'", "'")]
    UNICODE_STRINGS: ClassVar[list[str | tuple[str, str]]] = [("U&'", "'"), ("u&'", "'")]
    COMMANDS: ClassVar[set[TokenType]] = set()
    TOKENS_PRECEDING_HINT: ClassVar[set[TokenType]] = {  # anywhere else `/*+ … */` is a comment
        TokenType.SELECT, TokenType.VAR, TokenType.IDENTIFIER, TokenType.R_PAREN, TokenType.RANGE, TokenType.ROWS, TokenType.SET,
        TokenType.OFFSET,
    }  # fmt: skip
    KEYWORDS: ClassVar[dict[str, TokenType]] = {
        k: t for k, t in Tokenizer.KEYWORDS.items() if k in _WORDS or k in _PHRASES or k in _MARKS
    }


class FlinkParser(Parser):
    """Parses Flink SQL expressions; `parse_whole` is the entry."""

    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {}
    NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {"CASE": lambda self: self.case()}
    COLUMN_OPERATORS: ClassVar[dict[Any, Any]] = {TokenType.DOT: None}
    BITWISE: ClassVar[dict[Any, Any]] = {}
    TERM: ClassVar[dict[Any, Any]] = {TokenType.DASH: exp.Sub, TokenType.PLUS: exp.Add}
    FACTOR: ClassVar[dict[Any, Any]] = {TokenType.SLASH: exp.Div, TokenType.STAR: exp.Mul, TokenType.MOD: exp.Mod}
    CONJUNCTION: ClassVar[dict[Any, Any]] = {TokenType.AND: exp.And}
    DISJUNCTION: ClassVar[dict[Any, Any]] = {TokenType.OR: exp.Or}
    EQUALITY: ClassVar[dict[Any, Any]] = {TokenType.EQ: exp.EQ, TokenType.NEQ: exp.NEQ}
    ASSIGNMENT: ClassVar[dict[Any, Any]] = {}
    BRACKETS: ClassVar[frozenset[TokenType]] = frozenset((TokenType.L_BRACKET,))
    PLACEHOLDER_PARSERS: ClassVar[dict[Any, Any]] = {}
    ARRAY_CONSTRUCTORS: ClassVar[dict[Any, Any]] = {}
    UNARY_PARSERS: ClassVar[dict[Any, Any]] = {
        TokenType.PLUS: lambda self: self.expression(exp.Paren(this=self.operand(self._parse_unary))),
        TokenType.DASH: lambda self: self.expression(exp.Neg(this=self.operand(self._parse_unary))),
        TokenType.NOT: lambda self: self.expression(exp.Not(this=self.operand(self._parse_equality))),
    }
    RANGE_PARSERS: ClassVar[dict[Any, Any]] = {
        TokenType.BETWEEN: lambda self, this: self.between(this),
        TokenType.IN: lambda self, this: self.membership(this),
        TokenType.IS: lambda self, this: self.is_test(this),
        TokenType.LIKE: binary_range_parser(exp.Like),
        TokenType.SIMILAR_TO: binary_range_parser(exp.SimilarTo),
        TokenType.OVERLAPS: lambda self, this: self.overlaps(this),
    }
    PRIMARY_PARSERS: ClassVar[dict[Any, Any]] = {
        t: Parser.PRIMARY_PARSERS[t]
        for t in (
            TokenType.STRING, TokenType.NUMBER, TokenType.NULL, TokenType.TRUE, TokenType.FALSE, TokenType.STAR,
            TokenType.HEX_STRING, TokenType.UNICODE_STRING,
        )
    }  # fmt: skip

    # -- errors and places ---------------------------------------------------------------------------------------------------

    def raise_error(self, message: str, token: Token | None = None) -> NoReturn:
        """Fail at `token` (default: the current one)."""
        at = token or self._curr
        shown = message.replace("Expecting ", "expected ", 1).replace("Expected ", "expected ", 1)  # sqlglot's wording
        if not at or not at.text:
            raise FlinkSyntaxError(shown, len(self.sql.rstrip()), 1)
        raise FlinkSyntaxError(shown, at.start, at.end + 1 - at.start)

    def validate_expression(self, expression: Any, args: list[Any] | None = None) -> Any:
        """The node, or an error if an operand is missing."""
        if expression.error_messages(args):
            self.raise_error(f"expected an expression, got {self.shown()}")
        return expression

    def shown(self) -> str:
        """The current token for a message."""
        return f"'{self._curr.text}'" if self._curr and self._curr.text else "the end"

    def _spanned(self, parse: Callable[[], Any]) -> Any:
        start = self._curr
        node = parse()
        if isinstance(node, exp.Expression) and start and self._prev and "span" not in node.meta:
            node.meta["span"] = (start.start, self._prev.end + 1)
        return node

    def _parse_disjunction(self) -> Any:
        return self._spanned(super()._parse_disjunction)

    def _parse_conjunction(self) -> Any:
        return self._spanned(super()._parse_conjunction)

    def _parse_equality(self, parse_is: bool = True) -> Any:
        return self._spanned(lambda: super(FlinkParser, self)._parse_equality(parse_is))

    def _parse_range(self, this: Any = None, parse_is: bool = False) -> Any:
        left = this or self._parse_bitwise()
        if left is None and self._curr and self._curr.token_type in self.RANGE_PARSERS:
            self.raise_error(f"expected an expression, got {self.shown()}")
        return super()._parse_range(left, parse_is)

    def _parse_bracket_key_value(self, is_map: bool = False) -> Any:
        return self.operand()

    def _parse_function_parameter(self) -> Any:
        """A column's name behind the alias of a table: Flink has no types there."""
        return self._parse_id_var()

    def _parse_bitwise(self) -> Any:
        return self._spanned(super()._parse_bitwise)

    def _parse_factor(self, parse_mod: bool = True) -> Any:
        return self._spanned(lambda: super(FlinkParser, self)._parse_factor(parse_mod))

    def _parse_unary(self) -> Any:
        return self._spanned(super()._parse_unary)

    def _parse_at_time_zone(self, this: Any) -> Any:
        return this

    # -- what the call parsers use -------------------------------------------------------------------------------------------

    def operand(self, parse: Callable[[], Any] | None = None) -> exp.Expression:
        """A whole expression that must be there."""
        node = (parse or self._parse_disjunction)()
        if not isinstance(node, exp.Expression):
            self.raise_error(f"expected an expression, got {self.shown()}")
        return node

    def arguments(self) -> list[exp.Expression]:
        """Comma-separated expressions up to what follows; at least one."""
        found = [self.operand()]
        while self._match(TokenType.COMMA):
            found.append(self.operand())
        return found

    def at_close(self) -> bool:
        """Whether the call ends here."""
        return not self._curr or self._curr.token_type is TokenType.R_PAREN

    def at_word(self, *words: str) -> bool:
        """Whether the current token is one of these keywords."""
        return bool(self._match_texts(tuple(words), advance=False))

    def next_is_word(self, word: str) -> bool:
        """Whether the token after the current one is this keyword."""
        return bool(self._next) and self._next.text.upper() == word

    def any_word(self, what: str) -> exp.Literal:
        """A word or string as an upper-case literal argument."""
        token = self._curr
        if not token or (token.token_type is not TokenType.STRING and not _WORD.fullmatch(token.text)):
            self.raise_error(f"expected {what}, got {self.shown()}")
        self._advance()
        literal = exp.Literal.string(token.text.upper())
        literal.meta["span"] = (token.start, token.end + 1)
        return literal

    def on_condition(self, conditions: Sequence[str]) -> str:
        """The word after ON: EMPTY, ERROR or NULL."""
        if not self._match(TokenType.ON) or not self._match_texts(tuple(conditions)):
            self.raise_error(f"expected ON {' or ON '.join(conditions)}, got {self.shown()}")
        return str(self._prev.text.upper())

    def type_text(self, stop: Sequence[str]) -> exp.Var:
        """The text of a type, up to the closing parenthesis of the call or one of the words in `stop` outside brackets."""
        start = self._curr
        depth = 0
        while self._curr:
            kind = self._curr.token_type
            if depth == 0 and (kind is TokenType.R_PAREN or self._curr.text.upper() in stop):
                break
            depth += kind in (TokenType.L_PAREN, TokenType.LT)
            depth -= kind in (TokenType.R_PAREN, TokenType.GT)
            self._advance()
        if not start or start is self._curr:
            self.raise_error(f"expected a type, got {self.shown()}")
        end = self._prev.end + 1
        node = exp.Var(this=self.sql[start.start : end])
        node.meta["span"] = (start.start, end)
        return node

    # -- grammar -------------------------------------------------------------------------------------------------------------

    def parse_whole(self, projection: bool) -> exp.Expression:
        """The whole text as one expression; with `projection` also `*`, `a.*` and `expr AS name`."""
        node = self.operand()
        if projection and self._match(TokenType.ALIAS):
            name = self._parse_id_var(any_token=True)
            if name is None:
                self.raise_error(f"expected a name after AS, got {self.shown()}")
            named = exp.Alias(this=node, alias=name)
            named.meta["span"] = (span_of(node)[0], self._prev.end + 1)
            node = named
        if self._curr:
            self.raise_error(f"unexpected {self.shown()} after the expression")
        return node

    def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> Any:
        special = self._special()
        if special is not None:
            return self._parse_column_ops(special)
        return self._parse_atom() or self._parse_column()

    def _special(self) -> exp.Expression | None:
        if names_before_call(self) > 1:
            return self._qualified_call()
        token, following = self._curr, self._next
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
        if not quoted and name in ("ARRAY", "MAP") and following.token_type is TokenType.L_BRACKET:
            self._advance(2)
            items = [] if self._match(TokenType.R_BRACKET, advance=False) else self.arguments()
            if not self._match(TokenType.R_BRACKET):
                self.raise_error(f"expected ']', got {self.shown()}")
            return call(name, *items).update_positions(token)
        if following.token_type is not TokenType.L_PAREN or (not quoted and name in _NOT_CALLED):
            return None
        return self._call(token, quoted) if quoted or _WORD.fullmatch(token.text) else None

    def _qualified_call(self) -> exp.Expression:
        start = self._curr.start
        skip_qualifiers(self)
        node = self._call(self._curr, quoted=True)  # what is in a database is no special form
        called = node
        while not isinstance(called, exp.Anonymous):
            called = called.this
        called.meta["qualified"] = True
        for part in (called, node):
            part.meta["span"] = (start, part.meta["span"][1])
        return node

    def _call(self, token: Token, quoted: bool) -> exp.Expression:
        self._advance(2)
        syntax = None if quoted else CALL_SYNTAX.get(token.text.upper())
        node: exp.Expression = call(token.text, *self._plain_arguments()) if syntax is None else syntax(self)
        if not self._match(TokenType.R_PAREN):
            self.raise_error(f"expected ',' or ')', got {self.shown()}")
        node.meta.update(start=token.start, end=token.end, span=(token.start, self._prev.end + 1))
        called = self._parse_window(node)
        assert isinstance(called, exp.Expression)
        return called

    def _parse_window(self, this: Any, alias: bool = False) -> Any:
        return super()._parse_window(self.filtered(this), alias)

    def filtered(self, this: Any) -> Any:
        """The node with FILTER (WHERE …) if that follows."""
        if self._match(TokenType.FILTER, advance=False) and self._next and self._next.token_type is TokenType.L_PAREN:
            self._advance(2)
            if not self._match(TokenType.WHERE):
                self.raise_error(f"expected WHERE, got {self.shown()}")
            start = span_of(this)[0]
            this = exp.Filter(this=this, expression=exp.Where(this=self.operand()))
            if not self._match(TokenType.R_PAREN):
                self.raise_error(f"expected ')', got {self.shown()}")
            this.meta["span"] = (start, self._prev.end + 1)
        return this

    def _plain_arguments(self) -> list[exp.Expression]:
        if self.at_close():
            return []
        if self._match(TokenType.STAR):
            return [exp.Star()]
        if self._match(TokenType.DISTINCT):
            return [exp.Distinct(expressions=self.arguments())]
        self._match(TokenType.ALL)
        return self.arguments()

    def _interval(self) -> exp.Expression:
        start = self._curr
        self._advance()
        sign = "-" if self._match(TokenType.DASH) else ""
        if not self._match(TokenType.STRING):
            self.raise_error("an interval is written INTERVAL '5' SECOND, with quotes")
        value = sign + self._prev.text
        inside = _UNIT_INSIDE.fullmatch(self._prev.text)
        if inside is not None:
            hint = f"write INTERVAL '{inside[1]}' {inside[2].upper()}"
            raise FlinkSyntaxError(
                "the unit of an interval stands behind the quotes", start.start, self._prev.end + 1 - start.start, hint
            )
        units: list[str] = []
        while not units or self._match_text_seq("TO"):
            units.append(str(self.any_word("a time unit like SECOND").this))
            if self._match(TokenType.L_PAREN):  # a precision, which intervals here do not limit
                if not self._match(TokenType.NUMBER):
                    self.raise_error(f"expected a number of digits, got {self.shown()}")
                self._match_r_paren()
        node = exp.Interval(this=exp.Literal.string(value), unit=exp.Var(this=" TO ".join(units)))
        node.meta["span"] = (start.start, self._prev.end + 1)
        return node

    def _temporal(self) -> exp.Expression:
        start = self._curr
        self._advance(2)
        node = exp.Introducer(this=exp.Var(this=start.text.upper()), expression=exp.Literal.string(self._prev.text))
        node.meta["span"] = (start.start, self._prev.end + 1)
        return node

    def case(self) -> exp.Expression:
        """CASE [x] WHEN … THEN … [ELSE …] END, after the word CASE; with x, several values may stand behind one WHEN."""
        start = self._prev
        subject = None if self._match(TokenType.WHEN, advance=False) else self.operand()
        branches = []
        while self._match(TokenType.WHEN):
            conditions = [self.operand()] if subject is None else self.arguments()
            if not self._match(TokenType.THEN):
                self.raise_error(f"expected THEN, got {self.shown()}")
            result = self.operand()
            branches += [exp.If(this=condition, true=result.copy()) for condition in conditions]
        default = self.operand() if self._match(TokenType.ELSE) else None
        if not branches:
            self.raise_error(f"expected WHEN, got {self.shown()}")
        if not self._match(TokenType.END):
            self.raise_error(f"expected WHEN, ELSE or END, got {self.shown()}")
        node = exp.Case(this=subject, ifs=branches, default=default)
        node.meta["span"] = (start.start, self._prev.end + 1)
        return node

    def between(self, this: exp.Expression) -> exp.Expression:
        """[ASYMMETRIC | SYMMETRIC] low AND high, after BETWEEN."""
        symmetric = bool(self._match_text_seq("SYMMETRIC"))
        if not symmetric:
            self._match_text_seq("ASYMMETRIC")
        low = self.operand(self._parse_bitwise)
        if not self._match(TokenType.AND):
            self.raise_error(f"expected AND, got {self.shown()}")
        return exp.Between(this=this, low=low, high=self.operand(self._parse_bitwise), symmetric=symmetric)

    def membership(self, this: exp.Expression) -> exp.Expression:
        """A list in parentheses, after IN."""
        if not self._match(TokenType.L_PAREN):
            self.raise_error(f"expected '(' and a list of values, got {self.shown()}")
        node = exp.In(this=this, expressions=self.arguments())
        if not self._match(TokenType.R_PAREN):
            self.raise_error(f"expected ',' or ')', got {self.shown()}")
        return node

    def overlaps(self, this: exp.Expression) -> exp.Expression:
        """Two periods (start, end) or (start, INTERVAL …), after OVERLAPS; each in either order, as in the standard."""
        (first, last), (start, end) = self._period(this), self._period(self.operand(self._parse_bitwise))
        left, right = exp.GTE(this=last, expression=start), exp.GTE(this=end.copy(), expression=first.copy())
        return exp.Paren(this=exp.And(this=left, expression=right))

    def _period(self, pair: exp.Expression) -> tuple[exp.Expression, exp.Expression]:
        """The earlier and the later end of a period."""
        if not isinstance(pair, exp.Tuple) or len(pair.expressions) != 2:
            self.raise_error("OVERLAPS compares two periods: (start, end) OVERLAPS (start, end)", self._prev)
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
        negated = bool(self._match(TokenType.NOT))
        if self._match_text_seq("DISTINCT", "FROM"):
            other = self.operand(self._parse_bitwise)
            node: exp.Expression = (
                exp.NullSafeEQ(this=this, expression=other) if negated else exp.NullSafeNEQ(this=this, expression=other)
            )
            return node
        if self._match_text_seq("JSON"):
            kind = self._prev.text.upper() if self._match_texts(("VALUE", "SCALAR", "ARRAY", "OBJECT")) else "VALUE"
            node = call("IS_JSON", this, exp.Literal.string(kind))
        elif self._match_texts(_TRUTH_VALUES):
            node = exp.Is(this=this, expression=exp.Var(this=self._prev.text.upper()))
        else:
            self.raise_error(f"expected NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM, got {self.shown()}")
        return exp.Not(this=node) if negated else node


class Flink(Dialect):
    """The dialect, as sqlglot knows it."""

    NORMALIZATION_STRATEGY = NormalizationStrategy.CASE_SENSITIVE
    Tokenizer = FlinkTokenizer
    Parser = FlinkParser


def checked_tokens(text: str, what: str) -> list[Token]:
    """The tokens of a text that is one expression or one query; `what` it is, for messages.

    Raises:
        FlinkSyntaxError: an unclosed quote, a semicolon, a double quote, or nothing at all.
    """
    try:
        tokens = Flink().tokenize(text)
    except TokenError as error:
        start = max(len(text.rstrip()) - 1, 0)
        unclosed = next((c for c in ("'", "`") if text.replace(c * 2, "").count(c) % 2), None)
        message = f"missing closing {unclosed}" if unclosed else f"not SQL: {error}"
        raise FlinkSyntaxError(message, text.rfind(unclosed) if unclosed else start, 1) from error
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            raise FlinkSyntaxError(
                f"unexpected ';' in {'an expression' if what == 'the expression' else 'a query'}", token.start, 1
            )
        if token.text == '"':
            raise FlinkSyntaxError(
                "unexpected '\"': write names in `back ticks` and text in 'single quotes'", token.start, 1
            )
    if not tokens:
        raise FlinkSyntaxError(f"{what} is empty", 0, 1)
    return tokens


def parse_text(text: str, *, projection: bool = False) -> exp.Expression:
    """The syntax tree of one expression; with `projection`, also of `*` and `expr AS name`.

    Raises:
        FlinkSyntaxError: the text is no expression; carries the place.
    """
    parser = FlinkParser(dialect=Flink(), error_level=ErrorLevel.IMMEDIATE)
    tokens = checked_tokens(text, "the expression")
    return parse_tokens(parser, lambda: parser.parse_whole(projection), tokens, text, "the expression")


Parsed = TypeVar("Parsed")


def parse_tokens(parser: FlinkParser, parse: Callable[[], Parsed], tokens: list[Token], text: str, what: str) -> Parsed:
    """What `parse`, a rule of the parser, makes of all tokens, which are of `text`; `what` they are, for messages.

    Raises:
        FlinkSyntaxError: they do not follow the rule.
    """
    rule = cast(Any, parser)._parse
    parsed: list[Parsed] = rule(lambda _: parse(), tokens, text)
    if not parsed:  # sqlglot stops before an ELSE that comes first
        first = tokens[0]
        raise FlinkSyntaxError(f"{what} cannot begin with '{first.text}'", first.start, first.end + 1 - first.start)
    return parsed[0]
