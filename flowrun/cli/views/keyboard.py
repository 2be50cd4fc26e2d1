"""Keys that a user presses while something is drawn in place."""

from __future__ import annotations

import os
import select
import sys
import termios
from types import TracebackType
from typing import Any, Self


class Keyboard:
    """Gives keys as they are pressed, without echo, while its context is open; Ctrl-C stays an interruption.

    Where standard input is no terminal, there are no keys.
    """

    def __init__(self) -> None:
        self._before: list[Any] | None = None

    def __enter__(self) -> Self:
        if sys.stdin.isatty():
            try:
                self._before = termios.tcgetattr(sys.stdin)
                changed = list(self._before)
                changed[3] &= ~(termios.ICANON | termios.ECHO)
                termios.tcsetattr(sys.stdin, termios.TCSANOW, changed)
            except termios.error:  # the terminal is gone
                self._before = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        before, self._before = self._before, None
        if before is not None:
            try:
                termios.tcsetattr(sys.stdin, termios.TCSAFLUSH, before)
            except termios.error:
                return

    def wait(self, seconds: float) -> str:
        """The key that was pressed within the time; empty: none was, or it is none of a letter. Ctrl-D and a closed terminal are `q`."""
        if self._before is None:
            select.select([], [], [], seconds)
            return ""
        if not select.select([sys.stdin], [], [], seconds)[0]:
            return ""
        try:
            typed = os.read(sys.stdin.fileno(), 64)
        except OSError:  # the terminal was closed
            return "q"
        if not typed or typed == b"\x04":
            return "q"
        return typed.decode("ascii", "ignore") if len(typed) == 1 else ""
