"""The `^C` that a terminal writes when the user presses Ctrl-C: it would tear a view that is drawn in place."""

from __future__ import annotations

import sys
import termios
from typing import Any


class EchoedSignals:
    """Turns the terminal's echo of control characters off, and on again if it was."""

    def __init__(self) -> None:
        self._before: list[Any] | None = None

    def hide(self) -> None:
        """No `^C` from now on; nothing happens without a terminal."""
        if not sys.stdin.isatty():
            return
        try:
            self._before = termios.tcgetattr(sys.stdin)
            changed = list(self._before)
            changed[3] &= ~termios.ECHOCTL
            termios.tcsetattr(sys.stdin, termios.TCSANOW, changed)
        except termios.error:  # the terminal is gone, or not ours
            self._before = None

    def restore(self) -> None:
        """As it was."""
        before, self._before = self._before, None
        if before is not None:
            try:
                termios.tcsetattr(sys.stdin, termios.TCSANOW, before)
            except termios.error:
                return
