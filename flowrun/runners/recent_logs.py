"""The last lines of this process's log, for whoever looks at its job from elsewhere."""

from __future__ import annotations

import logging
import threading
from collections import deque

from flowrun.core.printable import printable
from flowrun.core.record import record
from flowrun.masking import masked

MOST_LINES = 1_000
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
    """

    number: int
    at_ms: int
    level: str
    logger: str
    message: str


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
        with self._guard:
            self._last += 1
            self._lines.append(LogLine(self._last, int(record.created * 1000), record.levelname, record.name, text))

    def after(self, number: int = 0) -> LogLines:
        """The lines behind that number."""
        with self._guard:
            return LogLines(tuple(line for line in self._lines if line.number > number), self._last)


RECENT_LOGS = RecentLogs()
"""Those of this process, once `keep_recent_logs` was called."""


def keep_recent_logs() -> None:
    """Keep the last lines of this process's log from now on. Idempotent."""
    logging.getLogger().addHandler(RECENT_LOGS)
