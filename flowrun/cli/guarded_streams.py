"""Guards standard output and standard error: secrets are masked, and a terminal gets no control sequences but those that the views use."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from flowrun.core.printable import printable
from flowrun.masking import masked

_MOVES = r"\x1b\[[0-9;]*m|\x1b\[[0-9]*[AK]|\x1b\[\?25[hl]|\x1b\[H|\r(?=\n|\x1b\[2K|\x1b\[[0-9]*A)|\r\n"
_OURS = re.compile(f"({_MOVES})")
"""Colours and the movements of a live view: the only control sequences that click and rich write."""
_OF_A_SCREEN = re.compile(rf"({_MOVES}|\x1b\[\?1049[hl])")
"""And those that begin and end a screen of its own."""


class GuardedStream:
    """A text stream that masks secrets in what is written, and removes other control sequences if the stream is a terminal.

    All other attributes are those of the stream that it wraps.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self.passes = _OURS
        """The control sequences that a terminal gets."""

    def write(self, text: str) -> int:
        """Write a text; gives its length.

        Raises:
            TypeError: it is not a text.
        """
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        shown = masked(text)
        if self._terminal and not shown.isprintable():
            shown = "".join(part if i % 2 else printable(part) for i, part in enumerate(self.passes.split(shown)))
        self._stream.write(shown)
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def open_closed_streams() -> None:
    """Open the null device in place of each standard stream that is closed, as after `flowrun … >&-`.

    Otherwise Python has None in its place, and the next file that is opened, perhaps one with rows, gets its descriptor, to which native
    code writes messages.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


@contextmanager
def own_screen_allowed() -> Iterator[None]:
    """A context in which standard output may have a screen of its own: who draws on it prints no data as it is."""
    stream = sys.stdout
    if not isinstance(stream, GuardedStream):
        yield
        return
    stream.passes = _OF_A_SCREEN
    try:
        yield
    finally:
        stream.passes = _OURS


@contextmanager
def guarded_streams() -> Iterator[None]:
    """A context in which `sys.stdout` and `sys.stderr` are guarded."""
    before = sys.stdout, sys.stderr
    guards: list[Any] = [None if stream is None else GuardedStream(stream) for stream in before]
    sys.stdout, sys.stderr = guards
    try:
        yield
    finally:
        if [sys.stdout, sys.stderr] == guards:
            sys.stdout, sys.stderr = before
