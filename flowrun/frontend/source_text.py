"""Texts that users wrote, and places in them."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property

from flowrun.core.record import record
from flowrun.errors import Location

# The line breaks of YAML 1.1, so that line numbers agree with PyYAML's scanner.
_LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


@record(slots=False)
class SourceText:
    """One text with the name it is known by (a path, or `--set` for an override on the command line)."""

    file: str
    text: str

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(m.end() for m in _LINE_BREAK.finditer(self.text))]

    @cached_property
    def _line_ends(self) -> list[int]:
        return [*(m.start() for m in _LINE_BREAK.finditer(self.text)), len(self.text)]

    def line(self, number: int) -> str:
        r"""Line `number` (1-based) without its break; empty past the end.

        >>> SourceText("f", "one\ntwo").line(2)
        'two'
        """
        if not 1 <= number <= len(self._line_starts):
            return ""
        return self.text[self._line_starts[number - 1] : self._line_ends[number - 1]]

    def locate(self, start: int, end: int | None = None) -> Location:
        r"""The place of the code points `start` ≤ i < `end`; the marked range stops at the end of its first line.

        >>> str(SourceText("f.yaml", "a: 1\nb: 2").locate(5)), SourceText("f.yaml", "a: 1\nb: 2").locate(0, 9).length
        ('f.yaml:2:1', 4)
        """
        start = min(max(start, 0), len(self.text))
        line = bisect_right(self._line_starts, start)
        column = start - self._line_starts[line - 1]
        room = self._line_ends[line - 1] - start
        length = 1 if end is None else max(1, min(end - start, room))
        return Location(self.file, line, column + 1, length)
