"""The threads of a job master: the one that runs its mails, and the one for calls that may block.

After Apache Flink's `ComponentMainThreadExecutor` and the I/O executor of its job master. A simulation has both done at times of a virtual
clock on one thread, so that a run can be repeated.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from flowrun.runtime.jobmaster.io_thread import IoThread
from flowrun.runtime.mailbox import Mailbox, Post


class MainThread:
    """Runs the mails of one mailbox.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self.mailbox = Mailbox()
        self._name = name
        self._thread: threading.Thread | None = None

    def start(self, step: Callable[[], bool]) -> None:
        """Begin.

        Args:
            step: runs the next mail, if there is one; False: no other mail is to be run.
        """
        self._thread = threading.Thread(target=self._run, args=(step,), name=self._name, daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Return once the last mail was run."""
        assert self._thread is not None
        self._thread.join()

    def _run(self, step: Callable[[], bool]) -> None:
        while step():
            self.mailbox.wait_for_mail()


class JobMasterThreads:
    """Makes the threads of one job master."""

    def main(self, name: str) -> MainThread:
        """The thread that runs its mails."""
        return MainThread(name)

    def io(self, name: str, post: Post) -> IoThread:
        """The thread for calls that may block, such as writing files."""
        return IoThread(name, post)
