"""The watchdog as the job's process sees it: started before the job, told of its orderly end."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from flowrun.runtime.watchdog.board import ActivityBoard
from flowrun.runtime.watchdog.guard import ENDED_WELL

_log = logging.getLogger(__name__)

_PACKAGES = str(Path(__file__).parents[3])
_PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop()); from flowrun.runtime.watchdog.guard import main; main()"
_END_S = 2.0


@contextmanager
def watched(board: ActivityBoard, *, cancel_timeout_ms: int, hint: str) -> Iterator[None]:
    """A second process ends this one in here if signals come to nothing; see `guard`. The main thread only.

    Signal handlers must be Python's, and count what they handle with `board.answer`. Without memory or a process to spare the job runs
    unwatched, with a warning.

    Args:
        board: what the subtasks are doing.
        cancel_timeout_ms: how long a cancelled subtask may take to end; 0: for ever.
        hint: what to tell users after a hard end.
    """
    try:
        guard = _start(board, cancel_timeout_ms, hint)
    except OSError as error:
        _log.warning("no watchdog: a job that hangs must be ended with SIGKILL (%s)", error)
        yield
        return
    assert guard.stdin is not None
    pipe = guard.stdin.fileno()
    os.set_blocking(pipe, False)
    before = signal.set_wakeup_fd(pipe, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        with suppress(OSError):  # it may have been ended by somebody
            os.write(pipe, bytes([ENDED_WELL]))
        with suppress(OSError):
            guard.stdin.close()
        _reap(guard)


def _start(board: ActivityBoard, cancel_timeout_ms: int, hint: str) -> subprocess.Popen[bytes]:
    arguments = [str(os.getpid()), str(board.descriptor), str(cancel_timeout_ms / 1000), hint, _PACKAGES]
    return subprocess.Popen(
        [sys.executable, "-E", "-s", "-S", "-c", _PROGRAM, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        pass_fds=[board.descriptor],
        start_new_session=True,  # the terminal's signals are for the job
        bufsize=0,
    )


def _reap(guard: subprocess.Popen[bytes]) -> None:
    try:
        guard.wait(_END_S)
    except subprocess.TimeoutExpired:
        guard.kill()
        guard.wait()
