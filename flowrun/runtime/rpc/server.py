"""The server of a process: listens, shakes hands with whoever connects, and hands on those who are trusted.

Strangers cost little: each may hold a thread and a few hundred bytes until its time to prove itself is over, and if there are too many the
one that has been there longest is dropped, of those from the address that has the most of them. So whoever opens connections
without a word locks nobody out from elsewhere, and nobody at all who proves himself while they are few in that short time.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress

from flowrun.core.clock import Clock, SystemClock
from flowrun.core.record import record
from flowrun.errors import ClusterError
from flowrun.runtime.rpc.address import Address, UnixAddress, listen
from flowrun.runtime.rpc.byte_stream import shut_down
from flowrun.runtime.rpc.handshake import Introduction, Purpose
from flowrun.runtime.rpc.link import Credentials, Link, admit_link

_log = logging.getLogger(__name__)

_LINES_PER_MINUTE = 20
"""Of the log about strangers: nobody fills a disk by knocking."""
_PAUSE_S = 0.1
"""After the system had no more file numbers."""


@record
class ServerLimits:
    """What strangers may take.

    Attributes:
        strangers: connections that have not proved themselves.
        handshake_ms: how long they have for that.
    """

    strangers: int = 64
    handshake_ms: int = 5_000


DEFAULT_LIMITS = ServerLimits()


class Server:
    """Listens from its construction to `close`.

    Links are handed to the callback of their purpose, each on a thread of its own that ends with the callback; what becomes of a link
    is the callback's business. Purposes without a callback are refused. Thread-safe.
    """

    def __init__(
        self,
        address: Address,
        own: Introduction,
        credentials: Credentials,
        on_link: Mapping[Purpose, Callable[[Link], None]],
        *,
        roles: frozenset[str] | None = None,
        limits: ServerLimits = DEFAULT_LIMITS,
        clock: Clock | None = None,
    ) -> None:
        """Listen at `address`, as `own`, for processes of these roles; None: of any, and the callbacks look at it.

        Raises:
            ClusterError: the address is taken, or listening there would let strangers in.
        """
        credentials.check_place(address)
        self._own = own
        self._credentials = credentials
        self._on_link = dict(on_link)
        self._roles = roles
        self._limits = limits
        self._listener, self._address = listen(address)
        self._listener.setblocking(False)
        self._refusals = _Refusals(clock or SystemClock())
        self._lock = threading.Lock()
        self._strangers: dict[threading.Thread, tuple[socket.socket, str]] = {}
        """Socket and host of each, those that came first at the front."""
        self._dropped: set[threading.Thread] = set()
        """Of strangers that had to make room, while they end."""
        self._closed = threading.Event()
        self._wake, self._waker = socket.socketpair()
        self._thread = threading.Thread(target=self._accept_all, name="flowrun-server", daemon=True)
        self._thread.start()

    @property
    def address(self) -> Address:
        """Where it listens, with the port that was chosen."""
        return self._address

    @property
    def strangers(self) -> int:
        """Connections that have not proved themselves yet."""
        return len(self._strangers)

    @property
    def refused(self) -> int:
        """Connections that failed to prove themselves, ever."""
        return self._refusals.count

    def close(self) -> None:
        """Listen no more and drop strangers. Links that were handed on live on. Idempotent."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._waker.send(b"x")
        self._thread.join()
        with self._lock:
            strangers, dropped = dict(self._strangers), set(self._dropped)
        for accepted, _ in strangers.values():
            shut_down(accepted)
        for thread in (*strangers, *dropped):
            if thread is not threading.current_thread():
                thread.join()
        if isinstance(self._address, UnixAddress):
            with suppress(FileNotFoundError):
                os.unlink(self._address.path)
        for end in (self._listener, self._wake, self._waker):
            end.close()

    def _accept_all(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while not self._closed.is_set():
                selector.select()
                try:
                    accepted, came_from = self._listener.accept()
                except BlockingIOError:
                    continue
                except OSError as error:
                    self._refusals.note(f"a connection could not be accepted: {error}")
                    self._closed.wait(_PAUSE_S)
                    continue
                self._shake_hands(accepted, _host(came_from), _text(came_from))

    def _shake_hands(self, accepted: socket.socket, host: str, came_from: str) -> None:
        accepted.setblocking(True)
        with self._lock:
            if len(self._strangers) >= self._limits.strangers:
                self._make_room()
            thread = threading.Thread(
                target=self._admit, args=(accepted, came_from), name="flowrun-handshake", daemon=True
            )
            self._strangers[thread] = accepted, host
            try:
                thread.start()
            except RuntimeError as error:  # the system has no more threads
                del self._strangers[thread]
                accepted.close()
                self._refusals.note(f"a connection could not be accepted: {error}")

    def _make_room(self) -> None:
        """Drop who has been there longest, of the host that has the most strangers here."""
        hosts = Counter(host for _, host in self._strangers.values())
        crowd = max(hosts.values())
        thread, (longest_there, _) = next((t, s) for t, s in self._strangers.items() if hosts[s[1]] == crowd)
        del self._strangers[thread]
        shut_down(longest_there)
        self._dropped.add(thread)

    def _admit(self, accepted: socket.socket, came_from: str) -> None:
        served = frozenset(self._on_link)
        try:
            link = admit_link(
                accepted, came_from, self._own, served, self._credentials, self._limits.handshake_ms, self._roles
            )
        except ClusterError as error:
            if not self._closed.is_set():
                self._refusals.note(f"a connection from {came_from} was refused: {error.message}")
            return
        finally:
            with self._lock:
                self._strangers.pop(threading.current_thread(), None)
                self._dropped.discard(threading.current_thread())
        if self._closed.is_set():
            link.stream.close()
            return
        try:
            self._on_link[link.purpose](link)
        except Exception:
            _log.exception("the connection to %s could not be taken on", link)
            link.stream.close()


class _Refusals:
    """Counts refusals and logs them, so many a minute; the next line says how many were left out."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._minute = -1
        self._lines = 0
        self.count = 0

    def note(self, message: str) -> None:
        with self._lock:
            self.count += 1
            minute = self._clock.monotonic_ns() // 60_000_000_000
            left_out = max(self._lines - _LINES_PER_MINUTE, 0)
            if minute != self._minute:
                self._minute, self._lines = minute, 0
            self._lines += 1
            shown = self._lines <= _LINES_PER_MINUTE
            left_out = left_out if self._lines == 1 else 0
        if shown:
            _log.warning("%s%s", message, f"; {left_out} more in the minute before" if left_out else "")


def _host(came_from: object) -> str:
    return str(came_from[0]) if isinstance(came_from, tuple) else ""


def _text(came_from: object) -> str:
    """Of TCP host and port; who connects to a Unix socket has no address."""
    if isinstance(came_from, tuple):
        return f"{came_from[0]}:{came_from[1]}"
    return "a process of this machine"
