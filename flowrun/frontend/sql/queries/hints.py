"""Hints behind SELECT, `/*+ NAME('key' = 'value', …) */`: times to live of state, and those that mean nothing here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from flowrun.core.record import record
from flowrun.core.units import parse_duration_ms
from flowrun.errors import ExpressionError, did_you_mean
from flowrun.frontend.sql.expressions.relations import Relation
from flowrun.frontend.sql.grammar.syntax import HintText
from flowrun.frontend.sql.places import Span, error_at
from flowrun.frontend.sql.queries.binding_context import BindingContext

Lifetimes: TypeAlias = Mapping[str, int]
"""By the name that a table has in FROM: how long what is kept of its rows lives, ms; 0: for ever."""

_STATE_TTL = "STATE_TTL"
_WITHOUT_EFFECT = {
    **dict.fromkeys(
        ("BROADCAST", "SHUFFLE_HASH", "SHUFFLE_MERGE", "NEST_LOOP", "MULTI_JOIN"), "leave it out: joins are chosen by their condition"
    ),
    "LOOKUP": "set how a table is asked by its options: /*+ OPTIONS('lookup.async' = 'true') */ behind its name",
    "OPTIONS": "write it behind the name of the table: FROM t /*+ OPTIONS('key' = 'value') */",
}  # fmt: skip
_TOKEN = re.compile(r"\s*(?:(?P<word>[^\W\d][\w.]*|`[^`]+`|\d+)|'(?P<text>(?:[^']|'')*)'|(?P<mark>[(),=]))")


@record
class Hint:
    """One hint.

    Attributes:
        name: in upper case.
        options: its `'key' = 'value'` pairs; a plain argument is a key without value.
        span: of the comment that it is in.
    """

    name: str
    options: tuple[tuple[str, str | None], ...]
    span: Span


def read_hints(comment: HintText) -> tuple[Hint, ...]:
    """The hints of one comment.

    Raises:
        ExpressionError: it is not understood; with its place in the query.

    >>> [(h.name, h.options) for h in read_hints(HintText((0, 40), "state_ttl('a' = '1d'), BROADCAST(b)"))]
    [('STATE_TTL', (('a', '1d'),)), ('BROADCAST', (('b', None),))]
    """
    return _HintReader(comment).hints()


class _HintReader:
    def __init__(self, comment: HintText) -> None:
        self._comment = comment
        text = comment.text.strip()
        self._tokens: list[tuple[str, str]] = []
        place = 0
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None:
                raise self._not_understood()
            kind = match.lastgroup or ""
            value = match[kind]
            self._tokens.append((kind, value.replace("''", "'") if kind == "text" else value.strip("`")))
            place = match.end()

    def hints(self) -> tuple[Hint, ...]:
        found = []
        while self._tokens:
            kind, name = self._tokens.pop(0)
            if kind != "word":
                raise self._not_understood()
            found.append(Hint(name.upper(), self._arguments(), self._comment.span))
            self._accept(",")
        return tuple(found)

    def _arguments(self) -> tuple[tuple[str, str | None], ...]:
        options: list[tuple[str, str | None]] = []
        if not self._accept("(") or self._accept(")"):
            return ()
        while True:
            key = self._value()
            options.append((key, self._value() if self._accept("=") else None))
            if self._accept(")"):
                return tuple(options)
            if not self._accept(","):
                raise self._not_understood()

    def _value(self) -> str:
        if not self._tokens or self._tokens[0][0] == "mark":
            raise self._not_understood()
        return self._tokens.pop(0)[1]

    def _accept(self, mark: str) -> bool:
        if self._tokens and self._tokens[0] == ("mark", mark):
            self._tokens.pop(0)
            return True
        return False

    def _not_understood(self) -> ExpressionError:
        return error_at("the hint is not understood", self._comment.span, "write /*+ NAME('key' = 'value', …) */")


def lifetimes(context: BindingContext, comments: Sequence[HintText]) -> Lifetimes:
    """What the hints of a SELECT say of its tables. Hints that mean nothing here are warned about.

    Raises:
        ExpressionError: a hint is wrong.
    """
    found: dict[str, int] = {}
    for hint in (h for c in comments for h in read_hints(c)):
        if hint.name != _STATE_TTL:
            _warn(context, hint)
            continue
        for table, value in hint.options:
            found.setdefault(table, _lifetime(table, value, hint))  # the first one counts, as in Flink
    return found


def check_names(given: Lifetimes, relation: Relation, comments: Sequence[HintText]) -> None:
    """Fail if a hint names what is no table of FROM.

    Raises:
        ExpressionError: one does.
    """
    known = [s.alias for s in relation.sources if s.alias is not None]
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known) or f"its tables are {', '.join(known) or 'without names'}"
            raise error_at(f"{_STATE_TTL}: there is no table '{name}' in FROM", comments[0].span, hint)


def lifetime_of(relation: Relation, given: Lifetimes) -> int | None:
    """What hints say of the rows of a table; None of several joined ones, or if they say nothing."""
    return given.get(relation.sources[0].alias or "") if len(relation.sources) == 1 else None


def joined_lifetimes(left: Relation, right: Relation, given: Lifetimes) -> tuple[int | None, ...]:
    """What hints say of both sides of a join; empty if nothing."""
    sides = lifetime_of(left, given), lifetime_of(right, given)
    return () if sides == (None, None) else sides


def _lifetime(table: str, value: str | None, hint: Hint) -> int:
    if value is not None and value.strip().isdecimal():
        return int(value)  # ms
    try:
        return parse_duration_ms(value or "")
    except ValueError as error:
        shown = f"'{value}'" if value else "nothing"
        raise error_at(
            f"{_STATE_TTL} of '{table}': expected a time such as '1 d', got {shown}",
            hint.span,
            f"write /*+ {_STATE_TTL}('{table}' = '1 d') */",
        ) from error


def _warn(context: BindingContext, hint: Hint) -> None:
    known = (_STATE_TTL, *_WITHOUT_EFFECT)
    advice = _WITHOUT_EFFECT.get(hint.name) or did_you_mean(hint.name, known) or "leave it out"
    context.statement.diagnostics.warning(
        f"the hint {hint.name} has no effect", context.nodes.locate(hint.span), hint=advice
    )
