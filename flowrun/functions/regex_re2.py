r"""The Java regular expressions that RE2 (Arrow's engine) matches identically, spelled for RE2.

RE2 scans in linear time and without Python's global lock, but its language is smaller and some corners differ. Only patterns made of
characters, simple classes, `. ^ \d \w`, quantified characters and classes, alternation and unquantified groups are taken: for those,
leftmost-first matching gives the same match and the same groups in both. Everything else stays with `regex_syntax`.
"""

from __future__ import annotations

import re
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.record import record

_TOKEN = re.compile(
    r"(?P<class>\[\^?(?:[^\[\]\\&^-]|&(?!&)|\\[dwtnr.\-\[\]\\/^$|?*+(){}]|(?<=[0-9a-zA-Z])-(?=[0-9a-zA-Z]))+\])"
    r"|(?P<escape>\\[dwtnr.\-\[\]\\/^$|?*+(){}&=])"
    r"|(?P<open>\((?:\?:|\?<[a-zA-Z][a-zA-Z0-9]*>|(?!\?)))"
    r"|(?P<close>\))"
    r"|(?P<bar>\|)"
    r"|(?P<quantifier>(?:[*+?]|\{\d{1,3}(?:,(?:\d{1,3})?)?\})\??)"
    r"|(?P<dot>\.)"
    r"|(?P<start>\^)"
    r"|(?P<plain>[^\\\[\](){}|*+?.^$])"
)
_NO_LINE_END = r"[^\n\r\x{85}\x{2028}\x{2029}]"


@record
class Re2Pattern:
    """A pattern as tokens: text, or a number for the start of that capturing group.

    `always` holds the groups that take part in every match; Arrow gives '' for the others where Java gives NULL.
    """

    tokens: tuple[str | int, ...]
    always: frozenset[int]
    matches_empty: bool

    @property
    def plain(self) -> str:
        """The pattern without capturing groups."""
        return "".join("(?:" if isinstance(t, int) else t for t in self.tokens)

    def capturing(self, group: int) -> str | None:
        """The pattern with one group, named g, captured (0: the whole); None if it may take no part in a match."""
        if group == 0:
            return f"(?P<g>{self.plain})"
        if group not in self.always:
            return None
        return "".join(("(?P<g>" if t == group else "(?:") if isinstance(t, int) else t for t in self.tokens)


@lru_cache(maxsize=512)
def to_re2(pattern: str, compiled: re.Pattern[str]) -> Re2Pattern | None:
    """The pattern for RE2, or None if it is not known to mean the same there. `compiled` is its translation to Python.

    >>> to_re2("a(b|c)+", re.compile("a(b|c)+")) is None, to_re2("id=([0-9]+)", re.compile("id=([0-9]+)")).capturing(1)
    (True, 'id=(?P<g>[0-9]+)')
    """
    found = _tokens(pattern)
    if found is None:
        return None
    tokens, always = found
    translated = Re2Pattern(tokens, always, compiled.search("") is not None)
    try:
        pc.match_substring_regex(pa.array([""]), pattern=translated.plain)
    except pa.ArrowInvalid:
        return None  # too large for RE2
    return translated


def _tokens(pattern: str) -> tuple[tuple[str | int, ...], frozenset[int]] | None:
    tokens: list[str | int] = []
    own: list[int | None] = [None]  # of each open group: its number if it captures,
    inside: list[list[int]] = [[]]  # the capturing groups within it,
    alternated = [False]  # and whether it has alternatives
    optional: set[int] = set()
    groups, at, previous = 0, 0, "start"
    while at < len(pattern):
        match = _TOKEN.match(pattern, at)
        kind = None if match is None else match.lastgroup
        if match is None or (kind == "quantifier" and previous in ("close", "quantifier", "start", "open", "bar")):
            return None
        at = match.end()
        if kind == "open":
            capturing = match[0] != "(?:"
            groups += capturing
            tokens.append(groups if capturing else "(?:")
            own.append(groups if capturing else None)
            inside.append([])
            alternated.append(False)
        elif kind == "close":
            if len(inside) == 1:
                return None
            number, held = own.pop(), inside.pop()
            if alternated.pop():
                optional.update(held)  # the group itself takes part whichever alternative matched, those inside may not
            inside[-1].extend(held if number is None else [number, *held])
            tokens.append(")")
        elif kind == "bar":
            alternated[-1] = True
            tokens.append("|")
        else:
            tokens.append(_NO_LINE_END if kind == "dot" else match[0])
        previous = str(kind)
    if len(inside) != 1:
        return None
    if alternated[0]:
        optional.update(inside[0])
    return tuple(tokens), frozenset(range(1, groups + 1)) - optional
