r"""Java regular expressions that may backtrack for ever: matched with a time limit, and without the interpreter's lock.

Where RE2 cannot stand in (`regex_re2`), a pattern with several quantifiers, such as `(?=x*)^(a|aa)+$`, may try exponentially many ways
through a text of a few dozen characters. The package `regex` matches as `re` does, but looks at the clock. It is imported when it is
needed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Protocol

from flowrun.errors import DataError
from flowrun.functions.regex.re2 import to_re2

LIMIT_S = 10.0
"""How long one search of one text may take, seconds of processor time."""
_QUANTIFIER = re.compile(r"\\.|(?P<found>[*+}])", re.DOTALL)
_ATOMIC = re.compile(r"\\.|(?P<found>\(\?>|[*+?}]\+)", re.DOTALL)
_RE_FAILS_AT_ATOMIC_PARTS = sys.version_info < (3, 11, 5)
"""`re` of these versions, of which Debian 12 has one, matches what is possessive or atomic wrongly, and may even crash."""
_SHOWN = 60
_REMEMBERED = 256
_FEW_STEPS = 10**8
"""So many take a second: a search that needs no more has no limit, which costs more than most searches do."""


class Found(Protocol):
    """What a search found: a match of `re` or of `regex`."""

    def __getitem__(self, group: int, /) -> Any: ...

    def start(self) -> int:
        """The first code point."""
        ...

    def end(self) -> int:
        """The one past the last."""
        ...


class Matching(Protocol):
    """What `re.Pattern` and `TimedPattern` have in common."""

    @property
    def groups(self) -> int:
        """How many capturing groups there are."""
        ...

    @property
    def pattern(self) -> str:
        """The text of the pattern."""
        ...

    def search(self, text: str, /) -> Found | None:
        """The first match."""
        ...

    def finditer(self, text: str, /) -> Iterator[Found]:
        """All matches that do not overlap."""
        ...

    def sub(self, replacement: Callable[[Any], str], text: str, /) -> str:
        """The text with every match replaced."""
        ...


class TimedPattern:
    """A pattern whose searches end after `LIMIT_S`.

    Args:
        java: the pattern as the user wrote it, for messages.
        compiled: its translation.

    Raises:
        ValueError: the `regex` package does not read it as `re` does.
    """

    def __init__(self, java: str, compiled: re.Pattern[str]) -> None:
        import regex

        self._java = java
        try:
            self._regex = regex.compile(compiled.pattern, regex.ASCII | regex.VERSION0)
        except regex.error as error:
            raise ValueError(str(error)) from error
        self._too_slow: set[str] = set()
        self.pattern = compiled.pattern
        self.groups = compiled.groups
        if self._regex.groups != compiled.groups:
            raise ValueError("the groups are counted in another way")

    def search(self, text: str, /) -> Found | None:
        """The first match. Raises DataError: it takes too long."""
        with self._limit(text):
            found: Found | None = self._regex.search(text, timeout=LIMIT_S, concurrent=True)
        return found

    def finditer(self, text: str, /) -> Iterator[Found]:
        """All matches that do not overlap. Raises DataError: it takes too long."""
        with self._limit(text):
            yield from self._regex.finditer(text, timeout=LIMIT_S, concurrent=True)

    def sub(self, replacement: Callable[[Any], str], text: str, /) -> str:
        """The text with every match replaced. Raises DataError: it takes too long."""
        with self._limit(text):
            replaced: str = self._regex.sub(replacement, text, timeout=LIMIT_S, concurrent=True)
        return replaced

    @contextmanager
    def _limit(self, text: str) -> Iterator[None]:
        # A failed batch is tried again in parts, down to the row that is at fault: the wait is for the first time only.
        if text in self._too_slow:
            raise self._too_long(text)
        try:
            yield
        except TimeoutError:
            if len(self._too_slow) >= _REMEMBERED:
                self._too_slow.clear()
            self._too_slow.add(text)
            raise self._too_long(text) from None

    def _too_long(self, text: str) -> DataError:
        shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
        return DataError(
            f"the regular expression '{self._java}' takes more than {LIMIT_S:.0f} s on a text of {len(text)} characters, '{shown}'",
            hint="it tries too many ways through the text: repeat no part that matches the same text in several ways, as (a+)+ does",
        )


def may_take_long(pattern: str) -> bool:
    r"""Whether a pattern has several quantifiers: with one, the time grows with the square of the text's length at most.

    >>> may_take_long("(a+)+$"), may_take_long(r"\bid=\d+"), may_take_long(r"a\+\*")
    (True, False, False)
    """
    return _quantifiers(pattern) > 1


def _quantifiers(pattern: str) -> int:
    return sum(m["found"] is not None for m in _QUANTIFIER.finditer(pattern))


def re_matches_well(pattern: str) -> bool:
    r"""Whether `re` of this Python matches a pattern as it should.

    >>> re_matches_well("a+b"), re_matches_well(r"a\++b")
    (True, True)
    """
    return not (_RE_FAILS_AT_ATOMIC_PARTS and any(m["found"] for m in _ATOMIC.finditer(pattern)))


def may_exceed_limit(pattern: str, compiled: re.Pattern[str]) -> bool:
    """Whether the functions may fail on some text because the search takes too long, as far as rewrites of plans need to know."""
    simple = to_re2(pattern, compiled)
    return may_take_long(pattern) and (simple is None or simple.repeats_groups)


@lru_cache(maxsize=512)
def guarded(pattern: str, compiled: re.Pattern[str]) -> Callable[[str], Matching]:
    """Which compiled pattern to search a text with: one with a time limit where the search may take long.

    Where groups are repeated, it is one that matches nothing if RE2, in linear time, finds no match.
    """
    if not may_take_long(pattern) and re_matches_well(pattern):
        return lambda _: compiled
    try:
        timed: Matching = TimedPattern(pattern, compiled)
    except ValueError:
        timed = compiled
    simple = to_re2(pattern, compiled)
    if simple is None:
        return lambda _: timed
    if not simple.repeats_groups:  # each quantifier multiplies the steps by the length of the text at most
        short = int(_FEW_STEPS ** (1 / (_quantifiers(pattern) + 1)))
        return lambda text: compiled if len(text) <= short else timed
    never = re.compile("(?!)" + "()" * compiled.groups)
    return lambda text: timed if simple.may_match(text) else never
