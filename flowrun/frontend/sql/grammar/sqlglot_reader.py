"""A token reader on sqlglot's parser, which gives precedence of operators, columns and literals. No other module uses its private names.

What it knows of other dialects is switched off here, and what a grammar on top may change has a public name (`special`, `parenthesised`,
`after_call`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NoReturn, TypeVar

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect, NormalizationStrategy
from sqlglot.errors import ErrorLevel
from sqlglot.parser import SENTINEL_NONE, Parser

from flowrun.frontend.sql.grammar.token_reader import TokenReader
from flowrun.frontend.sql.grammar.tokens import Token, TokenType
from flowrun.frontend.sql.spans import FlinkSyntaxError, Span

Parsed = TypeVar("Parsed")


class Flink(Dialect):
    """The dialect, as sqlglot knows it."""

    NORMALIZATION_STRATEGY = NormalizationStrategy.CASE_SENSITIVE


class SqlglotReader(TokenReader, Parser):
    """Reads tokens in turns with sqlglot's rules."""

    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {}
    NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {}
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
        TokenType.PLUS: lambda self: self.expression(exp.Paren(this=self.required(self._parse_unary))),
        TokenType.DASH: lambda self: self.expression(exp.Neg(this=self.required(self._parse_unary))),
        TokenType.NOT: lambda self: self.expression(exp.Not(this=self.required(self._parse_equality))),
    }
    PRIMARY_PARSERS: ClassVar[dict[Any, Any]] = {
        t: Parser.PRIMARY_PARSERS[t]
        for t in (
            TokenType.STRING, TokenType.NUMBER, TokenType.NULL, TokenType.TRUE, TokenType.FALSE, TokenType.STAR,
            TokenType.HEX_STRING, TokenType.UNICODE_STRING,
        )
    }  # fmt: skip

    def __init__(self) -> None:
        super().__init__(dialect=Flink(), error_level=ErrorLevel.IMMEDIATE)

    def read(self, rule: Callable[[], Parsed], tokens: list[Token], text: str, what: str) -> Parsed:
        """What `rule` makes of all tokens, which are of `text`; `what` they are, for messages.

        Raises:
            FlinkSyntaxError: they do not follow the rule.
        """
        parse: Any = self._parse
        parsed: list[Parsed] = parse(lambda _: rule(), tokens, text)
        if not parsed:  # sqlglot stops before an ELSE that comes first
            first = tokens[0]
            raise FlinkSyntaxError(f"{what} cannot begin with '{first.text}'", first.start, first.end + 1 - first.start)
        return parsed[0]

    # -- the place, which sqlglot's parser keeps -----------------------------------------------------------------------------

    @property
    def text(self) -> str:
        return self.sql

    @property
    def token(self) -> Token:
        return self._curr

    @property
    def following(self) -> Token:
        return self._next

    @property
    def previous(self) -> Token:
        return self._prev

    @property
    def place(self) -> int:
        return self._index

    @property
    def end(self) -> Span:
        behind = len(self.sql.rstrip())
        return behind, behind + 1

    def ahead(self, count: int) -> Token:
        index = self._index + count
        return self._tokens[index] if index < len(self._tokens) else SENTINEL_NONE

    def advance(self, count: int = 1) -> Token:
        token = self._curr
        self._advance(count)
        return token

    def go_back(self, place: int) -> None:
        self._advance(place - self._index)

    # -- errors and places ---------------------------------------------------------------------------------------------------

    def raise_error(self, message: str, token: Token = SENTINEL_NONE) -> NoReturn:
        """Fail in the words of sqlglot's rules."""
        shown, got, _ = (
            message.replace("Expecting ", "expected ", 1).replace("Expected ", "expected ", 1).partition(" but got ")
        )
        self.fail(f"{shown}, got {self.shown()}" if got else shown, at=token)

    def validate_expression(self, expression: Any, args: list[Any] | None = None) -> Any:
        """The node, or an error if an operand is missing."""
        if expression.error_messages(args):
            self.fail_expected("an expression")
        return expression

    def _spanned(self, parse: Callable[[], Any]) -> Any:
        start = self._curr
        return self._marked(start, parse())

    def _marked(self, start: Token, node: Any) -> Any:
        """The node with its place, if it has none of its own."""
        if isinstance(node, exp.Expression) and start and self._prev and "span" not in node.meta:
            node.meta["span"] = (start.start, self._prev.end + 1)
        return node

    # -- expressions ---------------------------------------------------------------------------------------------------------

    def required(self, parse: Callable[[], Any]) -> exp.Expression:
        """What `parse` reads, which must be there."""
        node = parse()
        if not isinstance(node, exp.Expression):
            self.fail_expected("an expression")
        return node

    def operand(self) -> exp.Expression:
        """A whole expression."""
        return self.required(self._parse_disjunction)

    def arithmetic(self) -> exp.Expression:
        """An expression without comparisons, AND and OR, outside of parentheses."""
        return self.required(self._parse_bitwise)

    def arguments(self) -> list[exp.Expression]:
        """Comma-separated expressions up to what follows; at least one."""
        found = [self.operand()]
        while self.accept_mark(","):
            found.append(self.operand())
        return found

    # -- what a grammar may change -------------------------------------------------------------------------------------------

    def special(self) -> exp.Expression | None:
        """A form that is no column or literal, such as a call; None if none comes next."""
        return None

    def parenthesised(self) -> exp.Expression | None:
        """What stands in parentheses; None if no '(' comes next."""
        found = super()._parse_paren()
        return found if isinstance(found, exp.Expression) else None

    def after_parentheses(self, node: exp.Expression) -> exp.Expression:
        """What stands in parentheses with what follows it."""
        return node

    def after_call(self, call: exp.Expression) -> exp.Expression:
        """The call with what follows it, such as OVER."""
        found = super()._parse_window(call)
        assert isinstance(found, exp.Expression)
        return found

    # -- sqlglot's rules -----------------------------------------------------------------------------------------------------

    def _parse_disjunction(self) -> Any:
        return self._spanned(super()._parse_disjunction)

    def _parse_conjunction(self) -> Any:
        return self._spanned(super()._parse_conjunction)

    def _parse_equality(self, parse_is: bool = True) -> Any:
        start = self._curr
        return self._marked(start, super()._parse_equality(parse_is))

    def _parse_range(self, this: Any = None, parse_is: bool = False) -> Any:
        left = this or self._parse_bitwise()
        if left is None and self._curr and self._curr.token_type in self.RANGE_PARSERS:
            self.fail_expected("an expression")
        return super()._parse_range(left, parse_is)

    def _parse_bitwise(self) -> Any:
        return self._spanned(super()._parse_bitwise)

    def _parse_factor(self, parse_mod: bool = True) -> Any:
        start = self._curr
        return self._marked(start, super()._parse_factor(parse_mod))

    def _parse_unary(self) -> Any:
        return self._spanned(super()._parse_unary)

    def _parse_at_time_zone(self, this: Any) -> Any:
        return this

    def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> Any:
        special = self.special()
        if special is not None:
            return self._parse_column_ops(special)
        return self._parse_atom() or self._parse_column()

    def _parse_paren(self) -> Any:
        start = self._curr
        node = self._marked(start, self.parenthesised())
        return node if node is None else self.after_parentheses(node)

    def _parse_window(self, this: Any, alias: bool = False) -> Any:
        return self.after_call(this)

    def _parse_bracket_key_value(self, is_map: bool = False) -> Any:
        return self.operand()

    def _parse_function_parameter(self) -> Any:
        """A column's name behind the alias of a table: Flink has no types there."""
        return self._parse_id_var()
