"""Hints behind SELECT, `/*+ NAME('key' = 'value', …) */`: times to live of state, and those that mean nothing here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from flowrun.core.record import record
from flowrun.core.units import parse_duration_ms
from flowrun.errors import did_you_mean
from flowrun.frontend.sql.expressions.relations import Relation
from flowrun.frontend.sql.grammar.syntax import HintText
from flowrun.frontend.sql.grammar.token_reader import TextReader
from flowrun.frontend.sql.grammar.tokens import TokenType, scan
from flowrun.frontend.sql.queries.binding_context import BindingContext
from flowrun.frontend.sql.spans import FlinkSyntaxError, Span, error_at

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
    found = []
    try:
        reader = TextReader(comment.text, list(scan(comment.text)))
        while reader.token:
            found.append(Hint(_name(reader).upper(), _options(reader), comment.span))
            reader.accept_mark(",")
    except FlinkSyntaxError:
        raise error_at("the hint is not understood", comment.span, "write /*+ NAME('key' = 'value', …) */") from None
    return tuple(found)


def _options(reader: TextReader) -> tuple[tuple[str, str | None], ...]:
    """`(key = value, key, …)`, or nothing at all."""
    options: list[tuple[str, str | None]] = []
    if not reader.accept_mark("(") or reader.accept_mark(")"):
        return ()
    while not options or reader.accept_mark(","):
        key = _value(reader)
        options.append((key, _value(reader) if reader.accept_mark("=") else None))
    reader.expect_mark(")")
    return tuple(options)


def _value(reader: TextReader) -> str:
    if reader.at_kind(TokenType.STRING, TokenType.NUMBER):
        return str(reader.advance().text)
    return _name(reader)


def _name(reader: TextReader) -> str:
    return ".".join(part.text for part in reader.take_path())


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
