"""Standard output and error of the command line: secrets are masked, and terminals get nothing to obey but what the views need."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from flowrun.core.printable import printable
from flowrun.masking import masked

_OURS = re.compile(r"(\x1b\[[0-9;]*m|\x1b\[[0-9]*[AK]|\x1b\[\?25[hl]|\x1b\[H|\r(?=\n|\x1b\[2K)|\r\n)")
"""Colours, and what moves a live view: the only control sequences that click and rich write."""


class GuardedStream:
    """A text stream whose writes are masked, and made harmless if it is a terminal. Everything else is the stream's own."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()

    def write(self, text: str) -> int:
        """Write text; gives its length."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        shown = masked(text)
        if self._terminal and not shown.isprintable():
            shown = "".join(part if i % 2 else printable(part) for i, part in enumerate(_OURS.split(shown)))
        self._stream.write(shown)
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def open_closed_streams() -> None:
    """Give standard streams that whoever called us had closed (`flowrun … >&-`) the null device.

    Otherwise Python has None in their place, and the next file that is opened, perhaps one with rows, gets the number that native code
    writes its messages to.
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
def guarded_streams() -> Iterator[None]:
    """In here `sys.stdout` and `sys.stderr` are guarded."""
    before = sys.stdout, sys.stderr
    guards: list[Any] = [None if stream is None else GuardedStream(stream) for stream in before]
    sys.stdout, sys.stderr = guards
    try:
        yield
    finally:
        if [sys.stdout, sys.stderr] == guards:
            sys.stdout, sys.stderr = before
