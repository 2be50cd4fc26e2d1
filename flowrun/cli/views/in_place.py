"""The base of all views that are drawn again and again in the same lines of a terminal."""

from __future__ import annotations

import sys
import termios
from types import TracebackType
from typing import Any, Self

from rich.console import Console, RenderableType
from rich.live import Live


class EchoedSignals:
    """Turns off the terminal's echo of control characters, and restores it: `^C` would spoil what is drawn in place."""

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


_REFRESHES_PER_SECOND = 8


class InPlaceView:
    """Draws while its context is open, and leaves no lines behind; meanwhile the terminal does not echo Ctrl-C.

    Args:
        console: where it draws; None: on standard error.
        shown: what it draws first; None: nothing.
    """

    def __init__(self, console: Console | None, shown: RenderableType | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._live = Live(shown, console=self._console, refresh_per_second=_REFRESHES_PER_SECOND, transient=True)
        self._echo = EchoedSignals()

    def __enter__(self) -> Self:
        self._echo.hide()
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()
        self._echo.restore()
