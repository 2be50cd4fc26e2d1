"""Hides the `^C` that a terminal writes when the user presses Ctrl-C: it would spoil a view that is drawn in place."""

from __future__ import annotations

import sys
import termios
from typing import Any


class EchoedSignals:
    """Turns off the terminal's echo of control characters, and restores it."""

    def __init__(self) -> None:
        self._before: list[Any] | None = None

    def hide(self) -> None:
        """Write no `^C` from now on. Without a terminal nothing happens."""
        if not sys.stdin.isatty():
            return
        try:
            self._before = termios.tcgetattr(sys.stdin)
            changed = list(self._before)
            changed[3] &= ~termios.ECHOCTL
            termios.tcsetattr(sys.stdin, termios.TCSANOW, changed)
        except termios.error:  # the terminal is gone, or belongs to another process group
            self._before = None

    def restore(self) -> None:
        """Restore the settings that the terminal had before `hide`."""
        before, self._before = self._before, None
        if before is not None:
            try:
                termios.tcsetattr(sys.stdin, termios.TCSANOW, before)
            except termios.error:
                return
