"""The heartbeats of a process that leads: for the one that ends it if it hangs, and for those that stand by."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from flowrun.errors import StateError

BEATS = 10
"""In the time for which a leader may be silent."""
_MOST_S = 5.0
"""Between two of them."""
_PACKAGES = str(Path(__file__).parents[3])
_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv.pop()); from flowrun.runtime.watchdog.leader_guard import main; main()"
)
_END_S = 2.0

_log = logging.getLogger(__name__)


@contextmanager
def watched_leader(
    timeout_ms: int, who: str, probe: Callable[[], None], note_beat: Callable[[], None]
) -> Iterator[None]:
    """While in here, a second process kills this one if it hangs, so that the system frees the lock by which it leads.

    A thread beats; it does not while the interpreter hangs, the process is stopped, or `probe` does not return. Without a process to
    spare the leader goes unwatched, with a warning.

    Args:
        timeout_ms: how long it may hang; 0: for ever.
        who: what this process is, for the message at its end.
        probe: returns at once unless what leads hangs.
        note_beat: tells those that stand by that the leader lives; may raise StateError.
    """
    guard = _start(timeout_ms, who) if timeout_ms else None
    over = threading.Event()
    pause_s = min(timeout_ms / 1000 / BEATS, _MOST_S) if timeout_ms else _MOST_S

    def beat() -> None:
        while not over.wait(pause_s):
            probe()
            if guard is not None and guard.stdin is not None:
                with suppress(OSError):  # it has been ended, or it has not read for long
                    os.write(guard.stdin.fileno(), b".")
            try:
                note_beat()
            except StateError as error:
                _log.warning("those that stand by are not told that this process lives: %s", error.message)

    thread = threading.Thread(target=beat, name="flowrun-leader", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        if guard is not None:
            _end(guard, thread)


def _start(timeout_ms: int, who: str) -> subprocess.Popen[bytes] | None:
    hint = "one that stands by goes on; if there is none, start it again"
    arguments = [str(os.getpid()), str(timeout_ms / 1000), who, hint, _PACKAGES]
    try:
        guard = subprocess.Popen(
            [sys.executable, "-E", "-s", "-S", "-c", _PROGRAM, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            bufsize=0,
        )
    except OSError as error:
        _log.warning("no watchdog: if %s hangs, it must be ended with SIGKILL (%s)", who, error)
        return None
    assert guard.stdin is not None
    os.set_blocking(guard.stdin.fileno(), False)
    return guard


def _end(guard: subprocess.Popen[bytes], thread: threading.Thread) -> None:
    thread.join(_END_S)
    if thread.is_alive():  # what it looks at hangs: let the process end all the same
        return
    assert guard.stdin is not None
    guard.stdin.close()
    try:
        guard.wait(_END_S)
    except subprocess.TimeoutExpired:
        guard.kill()
        guard.wait()
