"""The last lines of this process's log, for whoever looks at its job from elsewhere."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from flowrun.core.log_context import log_context
from flowrun.core.printable import printable
from flowrun.core.record import record
from flowrun.masking import masked

MOST_LINES = 1_000
MOST_TOLD = 100
"""Lines that a worker tells the job's process at a time."""
LONGEST_MESSAGE = 8_192
"""Code points; of longer ones the end is left out."""


@record
class LogLine:
    """One message.

    Attributes:
        number: of it, from 1.
        at_ms: epoch ms.
        level: `WARNING` and the like.
        logger: the module that says it.
        message: with the traceback that it came with; secrets are masked, control characters are written as escapes.
        vertex: name of the vertex whose subtask says it; null: none does.
        subtask: its number, from 0.
        worker: the process that says it; null: that of the job.
    """

    number: int
    at_ms: int
    level: str
    logger: str
    message: str
    vertex: str | None = None
    subtask: int | None = None
    worker: str | None = None


@record
class LogLines:
    """Messages in the order in which they came.

    Attributes:
        lines: those that are still known.
        last: the number of the last one; asked `after` it, only newer ones come. 0: there was none.
    """

    lines: tuple[LogLine, ...]
    last: int


class RecentLogs(logging.Handler):
    """A handler that keeps the last lines. Thread-safe."""

    def __init__(self, most: int = MOST_LINES) -> None:
        super().__init__()
        self._lines: deque[LogLine] = deque(maxlen=most)
        self._last = 0
        self._told = 0
        self._guard = threading.Lock()
        self.setFormatter(logging.Formatter("%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        try:
            text = printable(masked(self.format(record)))
        except Exception:
            self.handleError(record)
            return
        text = text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]} …"
        place = log_context()
        vertex = None if place.vertex is None else printable(masked(place.vertex))
        at_ms = int(record.created * 1000)
        self.add([LogLine(0, at_ms, record.levelname, record.name, text, vertex, place.subtask, place.worker)])

    def add(self, lines: Iterable[LogLine]) -> None:
        """Lines of this process, or of a worker, which get the next numbers."""
        with self._guard:
            for line in lines:
                self._last += 1
                self._lines.append(replace(line, number=self._last))

    def after(self, number: int = 0) -> LogLines:
        """The lines behind that number."""
        with self._guard:
            return LogLines(tuple(line for line in self._lines if line.number > number), self._last)

    def take_untold(self) -> tuple[LogLine, ...]:
        """The first of the lines that this method has not given yet, at most `MOST_TOLD`."""
        with self._guard:
            if self._told == self._last:
                return ()
            found = [line for line in self._lines if line.number > self._told][:MOST_TOLD]
            self._told = found[-1].number
            return tuple(found)

    def begin_anew(self) -> None:
        """Forget what was kept: this process was forked from the one that logged it."""
        with self._guard:
            self._lines.clear()
            self._told = self._last


RECENT_LOGS = RecentLogs()
"""Those of this process, once `keep_recent_logs` was called."""


def keep_recent_logs() -> None:
    """Keep the last lines of this process's log from now on. Idempotent."""
    logging.getLogger().addHandler(RECENT_LOGS)
