"""The text of a script after its `${…}` are filled in, which still knows where everything stands in the file.

References are filled anywhere but in comments. Inside quotes a value cannot end them: its quotes are doubled.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import field, replace

from flowrun.core.record import record
from flowrun.errors import ExpressionError, Location
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.references import REFERENCE, References
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.sql.grammar.tokens import BLOCK_COMMENT, LINE_COMMENT, QUOTED_NAME, TEXT
from flowrun.frontend.sql.spans import SeveralErrors

_STRETCH = re.compile(
    rf"(?P<comment>{LINE_COMMENT}|{BLOCK_COMMENT}|/\*(?!\+).*)|(?P<quoted>{TEXT}|{QUOTED_NAME}|['`].*)"
    r"|(?P<reference>\$\$\{|\$\{[^}]*\}?)",
    re.DOTALL,
)
"""What is not closed goes on to the end."""


_BETWEEN = "\n;\n"


@record
class FilledPiece:
    """The code points `start` ≤ i < `end` of the filled text stand for `written_start` ≤ j < `written_end` of the file."""

    start: int
    end: int
    written_start: int
    written_end: int
    secret: bool = False
    unresolved: bool = False


@record(slots=False)
class ScriptText(SourceText):
    """A script with its references filled. Offsets count code points of `text`; places are those of the file."""

    origin: SourceText = field(kw_only=True)
    pieces: tuple[FilledPiece, ...] = field(default=(), kw_only=True)

    def locate(self, start: int, end: int | None = None) -> Location:
        """The place in the file of a range of the filled text."""
        first, after = self._written(start)
        if end is None or end <= start + 1:
            return self.origin.locate(first, after)
        return self.origin.locate(first, self._written(end - 1)[1])

    def pieces_in(self, start: int, end: int) -> tuple[FilledPiece, ...]:
        """What was filled in that touches a range of the filled text."""
        return tuple(
            p for p in self.pieces if (p.start < max(end, start + 1) and p.end > start) or start <= p.start < end
        )

    def _written(self, offset: int) -> tuple[int, int]:
        """The range of the file that a code point came from."""
        index = bisect_right(self.pieces, offset, key=lambda p: p.start) - 1
        if index < 0:
            return offset, offset + 1
        piece = self.pieces[index]
        if offset < piece.end:
            return piece.written_start, piece.written_end
        moved = offset - piece.end + piece.written_end
        return moved, moved + 1


@record(slots=False)
class JoinedText(ScriptText):
    """Several scripts one after the other; `origin` is the last one, which the others go before. Places are those of each one's file.

    Attributes:
        parts: each with the offset at which it begins, in order.
    """

    parts: tuple[tuple[int, ScriptText], ...] = field(kw_only=True)

    @property
    def own_start(self) -> int:
        """Where the last one begins."""
        return self.parts[-1][0]

    def locate(self, start: int, end: int | None = None) -> Location:
        """The place in its file of a range of the whole; one that goes beyond its file ends with that."""
        first, part = self.parts[bisect_right(self.parts, start, key=lambda p: p[0]) - 1]
        last = None if end is None else min(end - first, len(part.text))
        return part.locate(min(start - first, len(part.text)), last)


def joined(before: Sequence[ScriptText], script: ScriptText) -> ScriptText:
    r"""A script behind others, each of which ends its last statement.

    >>> one, two = (ScriptText(f, t, origin=SourceText(f, t)) for f, t in (("a.sql", "A -- a"), ("b.sql", "B")))
    >>> whole = joined([one], two)
    >>> whole.text, str(whole.locate(0)), str(whole.locate(whole.own_start))
    ('A -- a\n;\nB', 'a.sql:1:1', 'b.sql:1:1')
    """
    if not before:
        return script
    text, parts, pieces = "", [], []
    for part in (*before, script):
        start = len(text)
        parts.append((start, part))
        pieces += [replace(p, start=p.start + start, end=p.end + start) for p in part.pieces]
        text += part.text + ("" if part is script else _BETWEEN)
    return JoinedText(script.file, text, origin=script.origin, pieces=tuple(pieces), parts=tuple(parts))


def fill_script(source: SourceText, references: References, diagnostics: Diagnostics) -> ScriptText:
    """The script with its references filled; those that cannot be filled are reported and leave nothing.

    >>> from pathlib import Path
    >>> filled = fill_script(SourceText("s.sql", "SELECT '${A}' -- ${B}"), References({"A": "it's"}, {}, Path()), Diagnostics())
    >>> filled.text, str(filled.locate(8)), str(filled.locate(15))
    ("SELECT 'it''s' -- ${B}", 's.sql:1:9', 's.sql:1:15')
    """
    if "${" not in source.text:
        return ScriptText(source.file, source.text, origin=source)
    filler = _Filler(source, references, diagnostics)
    for stretch in _STRETCH.finditer(source.text):
        if stretch["quoted"] is not None:
            filler.fill(stretch.start(), stretch.end(), quote=stretch[0][0])
        elif stretch["reference"] is not None:
            filler.fill(stretch.start(), stretch.end(), quote="")
    return filler.finish()


class _Filler:
    """Builds the filled text from left to right."""

    def __init__(self, source: SourceText, references: References, diagnostics: Diagnostics) -> None:
        self._source = source
        self._references = references
        self._diagnostics = diagnostics
        self._parts: list[str] = []
        self._size = self._position = 0
        self._pieces: list[FilledPiece] = []

    def fill(self, start: int, end: int, quote: str) -> None:
        """Replace the references between two offsets of the file; inside `quote`s if that is not empty."""
        for match in REFERENCE.finditer(self._source.text, start, end):
            if match.start() < self._position:
                continue  # the `${` after an escaping `$`
            if match[1] is None:  # `$${`
                self._put("${", match.start(), match.end() + 2)
                continue
            at = self._source.locate(match.start(), match.end())
            found = self._references.value(match, at, self._diagnostics)
            value = "" if found is None else found.text
            if quote and found is not None and not found.default:
                value = value.replace(quote, quote * 2)
                if found.secret:
                    self._diagnostics.add_secret(value)
            self._put(value, match.start(), match.end(), found is not None and found.secret, found is None)

    def _put(self, value: str, start: int, end: int, secret: bool = False, unresolved: bool = False) -> None:
        self._copy(start)
        self._pieces.append(FilledPiece(self._size, self._size + len(value), start, end, secret, unresolved))
        self._parts.append(value)
        self._size += len(value)
        self._position = end

    def _copy(self, end: int) -> None:
        self._parts.append(self._source.text[self._position : end])
        self._size += end - self._position
        self._position = end

    def finish(self) -> ScriptText:
        """The whole."""
        self._copy(len(self._source.text))
        text = "".join(self._parts)
        return ScriptText(self._source.file, text, origin=self._source, pieces=tuple(self._pieces))


def report(error: ExpressionError, script: ScriptText, diagnostics: Diagnostics) -> None:
    """Show an error, or the several that it holds, where they stand in the file."""
    for one in error.errors if isinstance(error, SeveralErrors) else (error,):
        at = script.locate(one.offset, one.offset + max(1, one.length))
        diagnostics.error(one.message, at, hint=one.hint)
