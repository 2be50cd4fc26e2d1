"""`python -m tests.sql.die_midway POLLS CHECKPOINTS ARGUMENT…`: `flowrun` in a process that kills itself in the middle of its files.

Sources of files go slowly from their POLLS-th batch on; when so many CHECKPOINTS are complete after that, the process dies, before
its sinks hear of the last. Nothing in flowrun knows of it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import Counter
from typing import Any

from flowrun.cli.main import main
from flowrun.connectors.filesystem.reader import FileSourceReader
from flowrun.state.storage.folder import JobFolder

DRIP_S = 0.02
_never = threading.Event()


class _Death:
    """Counts batches and checkpoints."""

    def __init__(self, polls: int, checkpoints: int) -> None:
        self._polls, self._left = polls, checkpoints
        self._seen: Counter[int] = Counter()
        self._slow = threading.Event()
        self._poll, self._finish = FileSourceReader.poll, JobFolder.finish

    def poll(self, reader: Any, output: Any) -> Any:
        """Read a batch, slowly once enough are read."""
        self._seen[id(reader)] += 1
        if self._seen[id(reader)] > self._polls:
            self._slow.set()
            _never.wait(DRIP_S)
        return self._poll(reader, output)

    def finish(self, folder: Any, *arguments: Any, **named: Any) -> Any:
        """Complete a checkpoint: perhaps the last act."""
        begun_slow = self._slow.is_set()
        result = self._finish(folder, *arguments, **named)
        self._left -= begun_slow
        if begun_slow and self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result


if __name__ == "__main__":
    death = _Death(int(sys.argv[1]), int(sys.argv[2]))
    for owner, name in ((FileSourceReader, "poll"), (JobFolder, "finish")):
        act = getattr(death, name)
        setattr(owner, name, lambda *given, _act=act, **named: _act(*given, **named))
    sys.argv = ["flowrun", *sys.argv[3:]]
    main()
