"""What the watchdog's process does: wait for signals that the job's process was sent, and end it if they come to nothing.

Its standard input is a pipe from that process. Python writes the number of each signal into it before any Python code handles the signal,
so it arrives even when a call holds the interpreter's lock. `ENDED_WELL` comes before an orderly end; the end of the pipe without it is
a sudden death, and if the system has ended a process for want of memory meanwhile, that is said.

Imported with nothing but the standard library. Its messages say what happened in one line, with a hint, as all errors of the command
line do.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from flowrun.runtime.watchdog.board import BoardReader, SubtaskState
from flowrun.runtime.watchdog.memory import kills_for_memory, memory_limits

ENDED_WELL = 0
"""The byte that announces an orderly end; signals are numbered from 1."""
LOOK_EVERY_S = 0.2
SAID_AFTER_S = 2.0
"""How long a first signal may stay unanswered before the user is told."""
UNANSWERED_S = 3.0
"""How long a second one may."""
CANCELLED_S = 10.0
"""How long a job may take to end after the second signal."""
INSISTING_S = 1.0
"""How soon after the second a third one counts: some press Ctrl-C several times at once."""
GIVING_UP_S = 2.0
"""How much later than the job master, which names the place, this process ends a job whose cancelled subtasks do not end."""
_ENDING = frozenset([signal.SIGINT, signal.SIGTERM])
_BUSY_SHARE = 0.04
"""Of a machine that is busy with other things a thread may get little."""
_SAMPLE_S = 0.25


@dataclass
class Case:
    """What the user has asked for so far. Times are those of `time.monotonic`."""

    received: int = 0
    asked: list[tuple[int, float]] = field(default_factory=list)
    calls: dict[int, int] = field(default_factory=dict)
    """How many calls of each busy subtask there had been when the first SIGTERM came."""
    has_said: bool = False

    def receive(self, number: int, now: float, subtasks: list[SubtaskState]) -> None:
        """A signal came."""
        self.received += 1
        if number not in _ENDING:
            return
        if number == signal.SIGTERM and not self.calls:
            self.calls = {s.index: s.calls for s in subtasks if s.is_busy}
        self.asked.append((number, now))

    def restart(self, now: float) -> None:
        """Count all times from now on: the process could do nothing meanwhile."""
        self.asked = [(number, now) for number, _ in self.asked]


def verdict(case: Case, answered: int, subtasks: list[SubtaskState], timeout_s: float, now: float) -> str | None:
    """Why the process is to be ended now; None: it is not.

    Args:
        case: what the user asked for.
        answered: how many signals were answered.
        subtasks: what they are doing.
        timeout_s: how long a cancelled subtask may take to end; 0: for ever.
        now: `time.monotonic`.
    """
    if len(case.asked) > 2 and now - case.asked[1][1] >= INSISTING_S:
        return "it was asked to end a third time"
    if len(case.asked) > 1:
        since, name = now - case.asked[1][1], _name(case.asked[1][0])
        allowed = CANCELLED_S if not timeout_s else min(CANCELLED_S, timeout_s + GIVING_UP_S)
        if answered < case.received and since >= UNANSWERED_S:
            return f"it did not answer a second signal ({name}) for {_seconds(since)}"
        if since >= allowed:
            return f"the job did not end within {_seconds(since)} after it was cancelled by a second signal ({name})"
    terminated = next((at for number, at in case.asked if number == signal.SIGTERM), None)
    if terminated is not None and timeout_s and now - terminated >= timeout_s:
        if answered < case.received:
            return f"it did not answer SIGTERM for {_seconds(now - terminated)}"
        if any(s.is_busy and case.calls.get(s.index) == s.calls for s in subtasks):
            return f"a subtask has not returned from one call since SIGTERM, {_seconds(now - terminated)} ago"
    cancelled = [s.cancelled_ns / 1e9 for s in subtasks if s.cancelled_ns]
    if timeout_s and cancelled and now - min(cancelled) >= timeout_s + GIVING_UP_S:
        return f"a subtask did not end within {_seconds(now - min(cancelled))} after it was cancelled"
    return None


def culprits(subtasks: list[SubtaskState], busy_shares: dict[int, float]) -> list[SubtaskState]:
    """Which subtasks hang: those whose threads compute, or else all that are in an operator that does not wait.

    Args:
        subtasks: all of them.
        busy_shares: thread → share of the last moment in which it computed. A call that holds the lock computes; the others wait for it.
    """
    busy = [s for s in subtasks if s.is_busy]
    most = max((busy_shares.get(s.thread, 0) for s in busy), default=0)
    if most < _BUSY_SHARE:
        return busy
    return [s for s in busy if busy_shares.get(s.thread, 0) >= most / 2]


def describe(hung: list[SubtaskState]) -> str:
    """Which operators hung, in words."""
    if not hung:
        return "no operator was at work"
    names = ", ".join(f"'{s.operator}' of subtask {s.names.vertex}" for s in hung)
    return f"operator {names} hung" if len(hung) == 1 else f"operators {names} hung"


def guard(pid: int, board: BoardReader, timeout_s: float, hint: str) -> None:
    """Watch a process until it ends.

    Args:
        pid: of the process, whose child this is.
        board: what its subtasks are doing.
        timeout_s: how long a cancelled subtask may take to end; 0: for ever.
        hint: how to go on after a hard end.
    """
    case, kills = Case(), kills_for_memory()
    while True:
        readable, _, _ = select.select([0], [], [], LOOK_EVERY_S if case.asked else 1.0)
        numbers = os.read(0, 64) if readable else b""
        if ENDED_WELL in numbers:
            return
        if readable and not numbers:
            _explain_death(kills, hint)
            return
        now, subtasks = time.monotonic(), board.subtasks()
        for number in numbers:
            case.receive(number, now, subtasks)
        if _is_stopped(pid):
            case.restart(now)
            continue
        reason = verdict(case, board.answered, subtasks, timeout_s, now)
        if reason is not None:
            shares = _busy_shares(pid, subtasks)
            if os.getppid() == pid:
                os.kill(pid, signal.SIGKILL)
                _say(f"the process was ended (SIGKILL): {reason}; {describe(culprits(subtasks, shares))}", hint)
            return
        if case.asked and not case.has_said and board.answered < case.received:
            _say_that_it_hangs(case, pid, subtasks, now)


def _say_that_it_hangs(case: Case, pid: int, subtasks: list[SubtaskState], now: float) -> None:
    number, at = case.asked[0]
    if now - at < SAID_AFTER_S or len(case.asked) > 1:
        return
    case.has_said = True
    hung = describe(culprits(subtasks, _busy_shares(pid, subtasks)))
    again = "; press Ctrl-C again to end the process" if number == signal.SIGINT else ""
    _write(f"\nflowrun does not answer: {hung}{again}\n")


def _explain_death(kills_before: int | None, hint: str) -> None:
    kills = kills_for_memory()
    if kills is None or kills_before is None or kills <= kills_before:
        return  # somebody killed it, and knows
    limits = memory_limits()
    smallest = min(limits, key=lambda limit: limit.limit, default=None)
    size = "" if smallest is None else f" ({smallest.what}: {smallest.limit >> 20} MiB)"
    _say(f"the system ended the process because memory ran out{size}", hint)


def _is_stopped(pid: int) -> bool:
    """Whether the process is suspended, as by Ctrl-Z: it cannot answer then."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] in "Tt"


def _busy_shares(pid: int, subtasks: list[SubtaskState]) -> dict[int, float]:
    """Thread → share of the next moment in which it computes; empty where the system does not tell."""
    threads = [s.thread for s in subtasks if s.is_busy]
    before = {thread: _processor_s(pid, thread) for thread in threads}
    time.sleep(_SAMPLE_S)
    return {t: (_processor_s(pid, t) - used) / _SAMPLE_S for t, used in before.items()}


def _processor_s(pid: int, thread: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/task/{thread}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _say(message: str, hint: str) -> None:
    _write(f"\nerror: {message}\n  hint: {hint}\n")


def _write(text: str) -> None:
    """To standard error, at once; a terminal gets its cursor back, which a live view may have hidden."""
    shown = ("\x1b[?25h" if os.isatty(2) else "") + text
    try:
        os.write(2, shown.encode())
    except OSError:  # nobody is left to read it
        return


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s"


def _name(number: int) -> str:
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


def main() -> None:
    """Arguments: the process, the board's file, the time-out in seconds, the hint."""
    pid, descriptor, timeout_s, hint = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    guard(pid, BoardReader(descriptor), timeout_s, hint)
