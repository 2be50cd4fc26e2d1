"""A process that makes other processes by forking: they begin with everything imported and compiled, within some milliseconds.

A process with threads must not fork: a lock that another thread holds at that moment stays held in the child for ever. So the command forks
once, before it starts a thread; that process, the fork server, has no threads, waits for orders, and forks again for each of them. It is
also the parent that learns how each one ended.

    command ──orders──▶ fork server ──fork──▶ worker, worker, …
            ◀──events──             ◀──wait──

If the command is gone, however it ended, the fork server reads the end of its pipe, kills the workers and ends; if the fork server is
killed, the system kills its children.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import NoReturn

from flowrun.core.record import record
from flowrun.errors import ClusterError

WorkerMain = Callable[[str], None]
"""What a forked process does, given its name; the process ends when it returns, with 1 if it raises."""

_PR_SET_PDEATHSIG = 1
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that a terminal or a supervisor sends to all processes of a group at once: the command answers them, and ends the others."""

_MOST_NAME_BYTES = 200
_SPAWN, _KILL = b"+", b"-"
"""What is ordered, before the name of the process."""
_READ_BYTES = 4096


@record
class ProcessStarted:
    """A process was forked."""

    name: str
    pid: int


@record
class ProcessEnded:
    """A process is over.

    Attributes:
        name: that it was given.
        pid: its number.
        exit_code: None if a signal ended it.
        signal: the number of that signal; None if it ended by itself.
    """

    name: str
    pid: int
    exit_code: int | None
    signal: int | None

    def __str__(self) -> str:
        """How it ended, as a clause.

        >>> str(ProcessEnded("w1", 7, None, 9)), str(ProcessEnded("w1", 7, 1, None))
        ('was killed by SIGKILL', 'ended with exit code 1')
        """
        if self.signal is None:
            return f"ended with exit code {self.exit_code}"
        try:
            name = signal.Signals(self.signal).name
        except ValueError:
            name = f"signal {self.signal}"
        return f"was killed by {name}"


@record
class ServerGone:
    """The fork server itself is gone, and its children with it: nothing can be started any more."""


ForkEvent = ProcessStarted | ProcessEnded | ServerGone


def check_no_threads() -> None:
    """Pass if this process may fork.

    Raises:
        ClusterError: it has threads.
    """
    if threading.active_count() > 1:
        names = ", ".join(sorted(t.name for t in threading.enumerate() if t is not threading.main_thread()))
        raise ClusterError(
            f"processes cannot be forked, as there are threads already: {names}",
            hint="start the workers before everything else, or run in one process (--workers 0)",
        )


class ForkServer:
    """The command's end: orders processes and hears of them. `spawn` and `close` may be called from any thread.

    Args:
        main: what each process does.
        clean_up: is called by the fork server when all processes have ended, also if the command was killed.
    """

    def __init__(self, main: WorkerMain, clean_up: Callable[[], None] = lambda: None) -> None:
        check_no_threads()
        orders, events = os.pipe(), os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if self._pid == 0:
            end_process(lambda: _serve(main, orders, events, clean_up))
        os.close(orders[0])
        os.close(events[1])
        self._orders, self._events = orders[1], events[0]
        self._lock = threading.Lock()
        self._closed = False
        self._gone = False
        self._listener: Callable[[ForkEvent], None] | None = None
        self._thread: threading.Thread | None = None

    def listen(self, listener: Callable[[ForkEvent], None]) -> None:
        """Have events told to `listener` by a thread of its own; to be called once, before the first `spawn`."""
        self._listener = listener
        self._thread = threading.Thread(target=self._read_events, name="flowrun-fork-events", daemon=True)
        self._thread.start()

    def spawn(self, name: str) -> None:
        """Order a process of this name; `ProcessStarted` follows.

        Raises:
            ClusterError: the fork server is gone.
        """
        with self._lock:
            if self._closed:
                raise ClusterError("no process can be started: the workers were closed")
            if not self._order(_SPAWN, name):
                raise ClusterError(
                    "no process can be started any more: the process that forks them was ended from outside",
                    hint="run the command again",
                )

    def kill(self, name: str) -> None:
        """Have all processes of this name killed, whose `ProcessEnded` follow; harmless if there is none.

        The fork server does it, as their parent: a process that has ended keeps its number until it knows, so it kills no other.
        """
        with self._lock:
            if not self._closed:
                self._order(_KILL, name)

    def _order(self, order: bytes, name: str) -> bool:
        """Order something of a process; False: the fork server is gone."""
        encoded = name.encode()
        if not encoded or len(encoded) > _MOST_NAME_BYTES or b"\n" in encoded:
            raise ValueError(f"not a name of a process: {name!r}")
        with contextlib.suppress(BrokenPipeError):
            if not self._gone:
                os.write(self._orders, order + encoded + b"\n")  # shorter than PIPE_BUF: whole or not at all
                return True
        return False

    def close(self) -> None:
        """End all processes and the fork server; returns when they are gone. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            os.close(self._orders)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        else:
            os.close(self._events)

    def _read_events(self) -> None:
        assert self._listener is not None
        rest = b""
        while data := os.read(self._events, _READ_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._listener(_decoded(line))
        self._gone = True
        os.close(self._events)
        if not self._closed:
            self._listener(ServerGone())


def _serve(main: WorkerMain, orders: tuple[int, int], events: tuple[int, int], clean_up: Callable[[], None]) -> None:
    """The fork server's life."""
    os.close(orders[1])
    os.close(events[0])
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    woken_read, woken_write = os.pipe()
    os.set_blocking(woken_read, False)
    os.set_blocking(woken_write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken_write, warn_on_full_buffer=False)
    children: dict[int, str] = {}
    rest = b""
    while True:
        try:
            ready, _, _ = select.select([orders[0], woken_read], [], [])
        except InterruptedError:
            continue
        if woken_read in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(woken_read, _READ_BYTES)
            _reap(children, events[1])
        if orders[0] in ready:
            data = os.read(orders[0], _READ_BYTES)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                name = line[1:].decode()
                if line[:1] == _KILL:
                    for pid in (pid for pid, known in children.items() if known == name):
                        os.kill(pid, signal.SIGKILL)  # it is a child until `_reap` has seen its end
                    continue
                pid = _fork_worker(main, name, (orders[0], events[1], woken_read, woken_write))
                children[pid] = name
                _tell(events[1], f"started {pid} {name}")
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for pid in children:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
    clean_up()


def _fork_worker(main: WorkerMain, name: str, inherited: tuple[int, ...]) -> int:
    server = os.getpid()
    pid = os.fork()
    if pid != 0:
        return pid
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for descriptor in inherited:
        os.close(descriptor)
    die_with_parent(server)
    return end_process(lambda: main(name))


def end_process(work: Callable[[], None]) -> NoReturn:
    """Run and leave at once: what the parent registered for its own end is not this process's."""
    code = 0
    try:
        work()
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 1
    except BaseException:
        code = 1
        traceback.print_exc()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)


def die_with_parent(parent: int) -> None:
    """Have the system kill this process when its parent is gone (Linux only); it is, if it ended before this call."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _reap(children: dict[int, str], events: int) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        code = os.waitstatus_to_exitcode(status)
        how = f"exit {code}" if code >= 0 else f"signal {-code}"
        _tell(events, f"ended {pid} {how} {children.pop(pid, '?')}")


def _tell(events: int, line: str) -> None:
    try:
        os.write(events, line.encode() + b"\n")
    except OSError as error:
        if error.errno != errno.EPIPE:  # the command is gone: the end of the orders follows
            raise


def _decoded(line: bytes) -> ForkEvent:
    kind, pid, rest = line.decode().split(" ", 2)
    if kind == "started":
        return ProcessStarted(rest, int(pid))
    how, number, name = rest.split(" ", 2)
    is_exit = how == "exit"
    return ProcessEnded(name, int(pid), int(number) if is_exit else None, None if is_exit else int(number))
