"""What the process does that ends a leader which hangs: waits for its heartbeats, and kills it when none has come for too long.

A leader holds a lock that the system frees with its process and with those that it has forked, so another one can lead only when they
are gone. One that is stopped, or whose interpreter hangs, keeps the lock for ever otherwise. Standard input is a pipe from the leader: each
byte is a heartbeat, and the end of the pipe the end of the leader. Time in which this process does not run itself does not count, so a
machine that sleeps, or a whole terminal that is suspended, ends nobody.

Imported with nothing but the standard library.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path

_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOOKS = 20
"""In the time that a leader may hang."""


def guard(pid: int, timeout_s: float) -> bool:
    """Watch a process, whose child this is, until it ends; whether it had to be killed, as it gave no heartbeat for so long."""
    silent_looks = 0
    while silent_looks < _LOOKS:
        readable, _, _ = select.select([0], [], [], timeout_s / _LOOKS)
        if not readable:
            silent_looks += 1
        elif os.read(0, 4096):
            silent_looks = 0
        else:
            return False
    if os.getppid() != pid:
        return False
    children = _children(pid)
    os.kill(pid, signal.SIGKILL)
    for child in children:  # they end with it, unless they are stopped, too
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGCONT)
    return True


def _children(pid: int) -> list[int]:
    """Of a process, but this one; none where the system does not tell."""
    found: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, file.read_text().split())
    return [child for child in found if child != os.getpid()]


def main() -> None:
    """Arguments: the process, the seconds that it may hang, what it is, and what to do after its end."""
    pid, timeout_s, who, hint = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4]
    for number in _IGNORED:  # a terminal sends them to all of its processes
        signal.signal(number, signal.SIG_IGN)
    if guard(pid, timeout_s):
        message = f"{who} was ended (SIGKILL): it gave no sign of life for {timeout_s:g} s, and nobody else could lead"
        with suppress(OSError):  # nobody is left to read it
            os.write(2, f"\nerror: {message}\n  hint: {hint}\n".encode())
