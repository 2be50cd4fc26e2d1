r"""The Java regular expressions that RE2 (Arrow's engine) matches identically, spelled for RE2.

RE2 scans in linear time and without Python's global lock, but its language is smaller and some corners differ. Only patterns made of
characters, simple classes, `. ^ \d \w`, alternation, groups, quantified characters, classes and groups that match no empty text, and `$`
at the end are taken: for those, leftmost-first matching gives the same match in both, and the same groups outside of repeated ones.
Everything else stays with `regex_syntax`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import field
from functools import lru_cache
from itertools import pairwise

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
_END = r"\n?\z"  # Java's `$` also stands before a line feed that ends the text
_OPTIONAL = re.compile(r"[*?]|\{0")
_NO_LINE_END = r"[^\n\r\x{85}\x{2028}\x{2029}]"


@record
class Re2Pattern:
    """A pattern as tokens: text, or a number for the start of that capturing group.

    `always` holds the groups that take part in every match, and once; Arrow gives '' for those that do not where Java gives NULL.
    `at_end`: a `$` follows the tokens. `repeats_groups`: backtracking may try more ways through it than anybody can wait for.
    """

    tokens: tuple[str | int, ...]
    always: frozenset[int]
    matches_empty: bool
    at_end: bool = False
    repeats_groups: bool = False

    def may_match(self, text: str) -> bool:
        """Whether some part of a text matches, in time that grows with its length only."""
        found: bool = pc.match_substring_regex(pa.scalar(text), pattern=self.plain).as_py()
        return found

    @property
    def plain(self) -> str:
        """The pattern without capturing groups. What it matches may be longer by the line feed that ends the text if `at_end`."""
        return self._text("(?:" if isinstance(t, int) else t for t in self.tokens)

    def capturing(self, group: int) -> str | None:
        """The pattern with one group, named g, captured (0: the whole); None if it may take no part in a match."""
        if group == 0:
            whole = "".join("(?:" if isinstance(t, int) else t for t in self.tokens)
            return self._text([f"(?P<g>{whole})"])
        if group not in self.always:
            return None
        return self._text(("(?P<g>" if t == group else "(?:") if isinstance(t, int) else t for t in self.tokens)

    def _text(self, parts: Iterable[str]) -> str:
        return "".join(parts) + (_END if self.at_end else "")


@lru_cache(maxsize=512)
def to_re2(pattern: str, compiled: re.Pattern[str]) -> Re2Pattern | None:
    r"""The pattern for RE2, or None if it is not known to mean the same there. `compiled` is its translation to Python.

    >>> to_re2("a(b?)+", re.compile("a(b?)+")) is None, to_re2("id=([0-9]+)$", re.compile("id=([0-9]+)$")).capturing(1)
    (True, 'id=(?P<g>[0-9]+)\\n?\\z')
    """
    at_end = pattern.endswith("$") and not pattern.endswith("\\$")
    found = _tokens(pattern[:-1] if at_end else pattern)
    if found is None:
        return None
    tokens, always, alternated = found
    if at_end and alternated:
        return None
    repeats_groups = any(a == ")" and isinstance(b, str) and b[0] in "*+?{" for a, b in pairwise(tokens))
    translated = Re2Pattern(tokens, always, compiled.search("") is not None, at_end, repeats_groups)
    try:
        pc.match_substring_regex(pa.array([""]), pattern=translated.plain)
    except pa.ArrowInvalid:
        return None  # too large for RE2
    return translated


def _tokens(pattern: str) -> tuple[tuple[str | int, ...], frozenset[int], bool] | None:
    """(tokens, groups that take part in every match, whether there are alternatives outside of groups)."""
    reader = _Reader()
    at = 0
    while at < len(pattern):
        match = _TOKEN.match(pattern, at)
        if match is None or not reader.take(str(match.lastgroup), match[0]):
            return None
        at = match.end()
    whole = reader.open[0]
    if len(reader.open) > 1:
        return None
    if whole.alternated:
        reader.unsure.update(whole.inside)
    return tuple(reader.tokens), frozenset(range(1, reader.groups + 1)) - reader.unsure, whole.alternated


@record(frozen=False)
class _Group:
    """A group of a pattern, or the whole.

    Attributes:
        number: if it captures.
        inside: the capturing groups within it.
        alternated: whether it has alternatives.
        filled: whether the alternative that is being read matches some character, whatever the text.
        always_filled: whether all alternatives before it do.
    """

    number: int | None = None
    inside: list[int] = field(default_factory=list)
    alternated: bool = False
    filled: bool = False
    always_filled: bool = True


class _Reader:
    """Reads tokens of a pattern one after the other."""

    def __init__(self) -> None:
        self.tokens: list[str | int] = []
        self.open = [_Group()]
        self.groups = 0
        self.unsure: set[int] = set()
        """Groups that may take no part in a match, or several times."""
        self._previous = "start"
        self._closed = _Group()
        self._filled_before = False

    def take(self, kind: str, text: str) -> bool:
        """Read one token; False if the two engines are not known to agree on it."""
        group = self.open[-1]
        match kind:
            case "open":
                capturing = text != "(?:"
                self.groups += capturing
                self.tokens.append(self.groups if capturing else "(?:")
                self.open.append(_Group(self.groups if capturing else None))
            case "close":
                if len(self.open) == 1:
                    return False
                self._close()
            case "bar":
                group.alternated = True
                group.always_filled = group.always_filled and group.filled
                group.filled = False
                self.tokens.append("|")
            case "quantifier":
                if not self._quantify(text):
                    return False
            case _:
                self.tokens.append(_NO_LINE_END if kind == "dot" else text)
                self._filled_before = group.filled
                group.filled = group.filled or kind != "start"
        self._previous = kind
        return True

    def _close(self) -> None:
        closed = self._closed = self.open.pop()
        if closed.alternated:  # the group itself takes part whichever alternative matched, those inside may not
            self.unsure.update(closed.inside)
        closed.always_filled = closed.always_filled and closed.filled
        around = self.open[-1]
        around.inside.extend(closed.inside if closed.number is None else [closed.number, *closed.inside])
        self._filled_before = around.filled
        around.filled = around.filled or closed.always_filled
        self.tokens.append(")")

    def _quantify(self, text: str) -> bool:
        if self._previous not in ("class", "escape", "dot", "plain", "close"):
            return False
        if self._previous == "close":
            if not self._closed.always_filled:  # engines differ in how often they repeat what matches nothing
                return False
            self.unsure.update(self._closed.inside)
            if self._closed.number is not None:
                self.unsure.add(self._closed.number)
        if _OPTIONAL.match(text):
            self.open[-1].filled = self._filled_before
        self.tokens.append(text)
        return True
