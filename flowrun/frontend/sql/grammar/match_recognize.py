"""The grammar of MATCH_RECOGNIZE (…), as far as Flink SQL has it."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from flowrun.core.record import record
from flowrun.frontend.sql.grammar.queries import QueryParser
from flowrun.frontend.sql.grammar.syntax import Name, OrderItem
from flowrun.frontend.sql.grammar.tokens import TokenType, checked_tokens
from flowrun.frontend.sql.spans import Span
from flowrun.plan.matching import AfterMatch, PatternVariable

_QUANTIFIERS = {"+": (1, None), "*": (0, None), "?": (0, 1)}


@record
class NamedExpression:
    """A measure or a definition: an expression and its name."""

    name: Name
    expression: exp.Expression


@record
class PatternItem:
    """A variable of PATTERN, where it stands with its quantifier."""

    variable: PatternVariable
    span: Span


@record
class MatchSyntax:
    """What stands between the parentheses. `skip_to` is the variable of SKIP TO FIRST and LAST."""

    partition: tuple[exp.Expression, ...]
    order: tuple[OrderItem, ...]
    measures: tuple[NamedExpression, ...]
    after: AfterMatch
    skip_to: Name | None
    pattern: tuple[PatternItem, ...]
    within: exp.Expression | None
    defines: tuple[NamedExpression, ...]
    pattern_span: Span


class MatchGrammar(QueryParser):
    """Parses the inside of MATCH_RECOGNIZE."""

    def match_body(self) -> MatchSyntax:
        """[PARTITION BY …] ORDER BY … [MEASURES …] [ONE ROW PER MATCH] [AFTER MATCH …] PATTERN (…) [WITHIN …] [DEFINE …]."""
        partition = tuple(self.arguments()) if self.accept_phrase("PARTITION", "BY") else ()
        if not self.accept_phrase("ORDER", "BY"):
            self.fail_expected("ORDER BY and a time attribute")
        order = self.order_by()
        measures = self._measures() if self.accept_word("MEASURES") else ()
        if self.accept_phrase("ALL", "ROWS"):
            self.fail("ALL ROWS PER MATCH is not supported", "ONE ROW PER MATCH is the default", at=self.previous)
        if self.accept_phrase("ONE", "ROW"):
            self.expect_word("PER")
            self.expect_word("MATCH")
        after, skip_to = self._after_match() if self.at_word("AFTER") else (AfterMatch.SKIP_TO_NEXT_ROW, None)
        pattern, span = self._pattern()
        within = self.arithmetic() if self.accept_word("WITHIN") else None
        if self.at_word("SUBSET"):
            self.fail("SUBSET is not supported", "write the variables one by one")
        defines = self._defines() if self.accept_word("DEFINE") else ()
        if self.token:
            self.fail(f"unexpected {self.shown()} in MATCH_RECOGNIZE")
        return MatchSyntax(partition, order, measures, after, skip_to, pattern, within, defines, span)

    def _measures(self) -> tuple[NamedExpression, ...]:
        found = [self._measure()]
        while self.accept_mark(","):
            found.append(self._measure())
        return tuple(found)

    def _measure(self) -> NamedExpression:
        self.accept_word("FINAL")
        if self.at_word("RUNNING"):
            self.fail("RUNNING has no meaning with ONE ROW PER MATCH", "leave it out")
        expression = self.operand()
        if not self.accept_word("AS"):
            self.fail_expected("AS and a name for the measure")
        return NamedExpression(self.take_name("a name after AS"), expression)

    def _defines(self) -> tuple[NamedExpression, ...]:
        found = [self._define()]
        while self.accept_mark(","):
            found.append(self._define())
        return tuple(found)

    def _define(self) -> NamedExpression:
        name = self.take_name("a variable of the pattern")
        if not self.accept_word("AS"):
            self.fail_expected("AS and a condition")
        return NamedExpression(name, self.operand())

    def _after_match(self) -> tuple[AfterMatch, Name | None]:
        for word in ("AFTER", "MATCH", "SKIP"):
            self.expect_word(word)
        if self.accept_word("PAST"):
            self.expect_word("LAST")
            self.expect_word("ROW")
            return AfterMatch.SKIP_PAST_LAST_ROW, None
        self.expect_word("TO")
        if self.accept_word("NEXT"):
            self.expect_word("ROW")
            return AfterMatch.SKIP_TO_NEXT_ROW, None
        if self.accept_word("FIRST"):
            return AfterMatch.SKIP_TO_FIRST, self.take_name("a variable of the pattern")
        self.accept_word("LAST")
        return AfterMatch.SKIP_TO_LAST, self.take_name("a variable of the pattern")

    # -- the pattern ---------------------------------------------------------------------------------------------------------

    def _pattern(self) -> tuple[tuple[PatternItem, ...], Span]:
        self.expect_word("PATTERN")
        self.expect_mark("(", "the variables of the pattern")
        start = self.here
        items: list[PatternItem] = []
        while not self.accept_mark(")"):
            if not self.token:
                self.fail("expected ')' after the pattern")
            self._reject_unsupported()
            items.append(self._pattern_item())
        if not items:
            self.fail("the pattern is empty", "write variables, e.g. PATTERN (A B+ C)", at=self.previous)
        return tuple(items), (start, self.previous.start)

    def _reject_unsupported(self) -> None:
        if self.token.text == "|":
            self.fail("alternatives (A | B) are not supported in a pattern", "let one variable's condition say A OR B")
        if self.at_mark("("):
            self.fail("groups of variables are not supported in a pattern", "write the variables one after the other")
        if self.at_word("PERMUTE"):
            self.fail("PERMUTE is not supported in a pattern", "write the variables in one order")
        if self.token.text in ("{-", "^", "$"):
            self.fail(f"'{self.token.text}' is not supported in a pattern")

    def _pattern_item(self) -> PatternItem:
        name = self.take_name("a variable of the pattern")
        variable = PatternVariable(name.text)
        token = self.token
        # the tokenizer may join characters, as in `+?` or `??`
        text = token.text if token else ""
        if text[:1] in _QUANTIFIERS and text and text[:1]:
            least, most = _QUANTIFIERS[text[0]]
            self.advance()
            reluctant = text[1:] == "?" or (len(text) == 1 and self._reluctant())
            variable = _quantified(variable, least, most, greedy=not reluctant)
        elif text == "{":
            self.advance()
            least, most = self._braces()
            variable = _quantified(variable, least, most, greedy=not self._reluctant())
        return PatternItem(variable, (name.span[0], self.previous.end + 1))

    def _reluctant(self) -> bool:
        return self.accept_mark("?")

    def _braces(self) -> tuple[int, int | None]:
        start = self.previous
        least = self._count()
        most: int | None = least
        if self.accept_mark(","):
            most = self._count()
        elif least is None:
            self.fail_expected("a number")
        self.expect_mark("}")
        if most is not None and most < max(least or 0, 1):
            message = f"{{{least or 0},{most}}} takes no row: the second number must be at least the first, and 1"
            self.fail(message, at=start)
        return least or 0, most

    def _count(self) -> int | None:
        if self.token and self.token.token_type is TokenType.NUMBER and self.token.text.isdigit():
            self.advance()
            return int(self.previous.text)
        return None


def _quantified(variable: PatternVariable, least: int, most: int | None, *, greedy: bool) -> PatternVariable:
    """The variable with a quantifier. Flink's `?` leaves both ways open: what follows may have the row that it could take."""
    return replace(variable, least=least, most=most, greedy=greedy and (least, most) != (0, 1))


def parse_match(text: str, body: Span) -> MatchSyntax:
    """The syntax of what stands at `body` of a query's text; places count in the whole text.

    Raises:
        FlinkSyntaxError: it is no body of a MATCH_RECOGNIZE.
    """
    tokens = [t for t in checked_tokens(text, "the query") if body[0] <= t.start < body[1]]
    parser = MatchGrammar()
    return parser.read(parser.match_body, tokens, text, "the body of MATCH_RECOGNIZE")
