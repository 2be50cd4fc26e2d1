"""Comments that silence rules: `# flowrun: ignore RULE` in YAML, `-- flowrun: ignore RULE` in SQL.

At the end of a line they are about this line; in lines of their own about the next line that holds something else.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from flowrun.errors import Diagnostic, Location, did_you_mean
from flowrun.frontend.source_text import SourceText

_COMMENT = re.compile(r"(?:^|(?<=\s))(?:#|--)\s*flowrun:\s*ignore\s+(?P<rules>[\w-]+(?:\s*,\s*[\w-]+)*)")
_RULE = re.compile(r"[\w-]+")
_ONLY_COMMENT = re.compile(r"\s*(?:#|--)")


def silenced_lines(text: SourceText) -> Mapping[int, frozenset[str]]:
    r"""Line → names of the rules that a comment silences there.

    >>> text = SourceText("a.sql", "-- flowrun: ignore a, b\n-- why\nSELECT 1\nFROM t -- flowrun: ignore c")
    >>> {line: sorted(rules) for line, rules in silenced_lines(text).items()}
    {3: ['a', 'b'], 4: ['c']}
    """
    found: dict[int, frozenset[str]] = {}
    waiting: frozenset[str] = frozenset()
    for number, line in _lines(text):
        match = _COMMENT.search(line)
        rules = frozenset(_RULE.findall(match["rules"])) if match else frozenset()
        if not line.strip() or _ONLY_COMMENT.match(line):
            waiting |= rules
            continue
        if rules or waiting:
            found[number] = rules | waiting
        waiting = frozenset()
    return found


def _lines(text: SourceText) -> Iterator[tuple[int, str]]:
    last = text.locate(len(text.text)).line
    return ((number, text.line(number)) for number in range(1, last + 1))


def unknown_rules(text: SourceText, known: Collection[str]) -> Iterator[Diagnostic]:
    """An error for each name in such a comment that is no rule's."""
    for number, line in _lines(text):
        for match in _COMMENT.finditer(line):
            for name in _RULE.finditer(line, match.start("rules"), match.end("rules")):
                if name[0] not in known:
                    at = Location(text.file, number, name.start() + 1, len(name[0]))
                    yield Diagnostic(f"there is no rule '{name[0]}'", at, line, did_you_mean(name[0], known))
