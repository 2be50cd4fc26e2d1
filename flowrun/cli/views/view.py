"""What shows the progress of a job: live on a terminal, as plain lines elsewhere, or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from flowrun.cli.arguments import ViewOptions
from flowrun.runtime.job_status import JobStatus

_PLAIN = ("dumb", "unknown")
"""Terminals on which nothing can be drawn in place."""


class View(Protocol):
    """Shows the progress of a job."""

    @property
    def shows_stopping(self) -> bool:
        """Whether the view itself says that the job is stopping."""
        ...

    def update(self, status: JobStatus, *, stopping: bool = False) -> None:
        """Show the present status; `stopping` says that the user asked for the end."""
        ...


@contextmanager
def view_of(options: ViewOptions) -> Iterator[View | None]:
    """A context with the view that the options ask for; None: there is none."""
    if options.quiet:
        yield None
    elif options.live or (options.live is None and sys.stderr.isatty() and os.environ.get("TERM") not in _PLAIN):
        from flowrun.cli.views.live_view import LiveView

        with LiveView() as view:
            yield view
    else:
        from flowrun.cli.views.progress import ProgressLines

        yield ProgressLines()
