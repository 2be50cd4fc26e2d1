"""The base of all views that are drawn again and again in the same lines of a terminal."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live

from flowrun.cli.echoed_signals import EchoedSignals

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
