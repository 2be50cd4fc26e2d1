"""The control endpoint of a running job: a loopback HTTP server that `flowrun jobs`, `savepoint`, `stop` and `cancel` talk to.

Only the same user reaches it: requests carry the token of the job's registry entry. Nothing of HTTP is imported before the first
connection, so a run that nobody controls pays a socket, a file and a thread that sleeps.
"""

from __future__ import annotations

import selectors
import socket
import threading
from contextlib import suppress

from flowrun.core.clock import Clock, SystemClock
from flowrun.core.record import record
from flowrun.errors import ClusterError, FlowrunError
from flowrun.runners.control import ControllableJob, JobControl
from flowrun.runners.registry import LOOPBACK, JobEntry, JobRegistry, new_entry

MOST_CONNECTIONS = 16
_MOST_THREADS = 4 * MOST_CONNECTIONS
"""Of those, and of connections that were dropped and have not ended yet."""
CONNECTION_MS = 10_000
"""How long one request may take."""


class ControlEndpoint:
    """A job's endpoint, from `open_endpoint` to `close`."""

    def __init__(
        self, control: JobControl, entry: JobEntry, listener: socket.socket, registry: JobRegistry, clock: Clock
    ) -> None:
        self._control = control
        self._entry = entry
        self._listener = listener
        self._registry = registry
        self._clock = clock
        self._wake, self._waker = socket.socketpair()
        self._busy: dict[threading.Thread, _Connection] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._accept, name="flowrun-control", daemon=True)
        self._thread.start()

    @property
    def entry(self) -> JobEntry:
        """As it is registered."""
        return self._entry

    def close(self) -> None:
        """Answer those who still wait, then leave the registry and close. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._control.linger()
        self._registry.remove(self._entry.job_id)
        self._waker.send(b"x")
        self._thread.join()
        for thread, connection in self._connections():
            connection.hang_up()
            thread.join()
        for end in (self._listener, self._wake, self._waker):
            end.close()

    def _connections(self) -> tuple[tuple[threading.Thread, _Connection], ...]:
        with self._lock:
            return tuple(self._busy.items())

    def _accept(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select(1.0 if self._connections() else None)}
                if self._wake in ready:
                    return
                now = self._clock.monotonic_ns()
                for _, open_one in self._connections():
                    if now > open_one.until_ns:  # nobody may hold connections open by sending little at a time
                        open_one.hang_up()
                if self._listener in ready:
                    self._take(now)

    def _take(self, now: int) -> None:
        try:
            accepted, _ = self._listener.accept()
        except OSError:  # the other side has already left
            return
        if not self._has_room():
            accepted.close()
            return
        connection = _Connection(accepted, now + CONNECTION_MS * 1_000_000)
        thread = threading.Thread(target=self._serve, args=(connection,), name="flowrun-control-request", daemon=True)
        with self._lock:
            self._busy[thread] = connection
        thread.start()

    def _has_room(self) -> bool:
        """Whether one more can be answered; drops the oldest that has not shown the token if there are many.

        So whoever holds connections open without asking locks nobody out.
        """
        known = [connection for _, connection in self._connections()]
        held = [connection for connection in known if not connection.dropped]
        if len(held) < MOST_CONNECTIONS:
            return True
        strangers = [connection for connection in held if not connection.trusted]
        if not strangers or len(known) >= _MOST_THREADS:
            return False
        strangers[0].dropped = True
        strangers[0].hang_up()
        return True

    def _serve(self, connection: _Connection) -> None:
        from flowrun.runners.control_http import serve_request

        try:
            serve_request(connection.socket, self._control, self._entry, connection.trust)
        finally:
            with self._lock:
                connection.socket.close()
                del self._busy[threading.current_thread()]


@record(eq=False, frozen=False)
class _Connection:
    """One that is being answered. `trusted`: it has shown the token; `dropped`: its place was given to another."""

    socket: socket.socket
    until_ns: int
    trusted: bool = False
    dropped: bool = False

    def trust(self) -> None:
        """It has shown the token."""
        self.trusted = True

    def hang_up(self) -> None:
        """End it; whoever reads from it gets nothing more. Harmless if it is closed."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


def open_endpoint(
    job: ControllableJob,
    *,
    name: str,
    file: str,
    sources: frozenset[str] = frozenset(),
    checkpoints: bool = False,
    savepoints: str | None = None,
    registry: JobRegistry | None = None,
    clock: Clock | None = None,
) -> ControlEndpoint:
    """Register a job of this process and answer those who want to control it, until `close`.

    Args:
        job: to be controlled.
        name: of its pipeline.
        file: of its pipeline, for people.
        sources: ids of the vertices that read from outside.
        checkpoints: whether it takes checkpoints, so that a stop ends with one.
        savepoints: where savepoints go if nobody says; None: where the job puts them.
        registry: where it is entered; None: this user's.
        clock: time; the system's if None.

    Raises:
        ClusterError: it cannot be registered, or there is no loopback interface.
    """
    clock = SystemClock() if clock is None else clock
    registry = JobRegistry() if registry is None else registry
    try:
        listener = socket.create_server((LOOPBACK, 0), backlog=MOST_CONNECTIONS)
    except OSError as error:
        raise ClusterError(f"cannot listen on {LOOPBACK}: {error.strerror}") from error
    try:
        listener.setblocking(False)
        entry = new_entry(job.job_id, name, file, listener.getsockname()[1], clock.now_ms())
        registry.add(entry)
        control = JobControl(job, entry, sources, clock, checkpoints=checkpoints, savepoints=savepoints)
        return ControlEndpoint(control, entry, listener, registry, clock)
    except FlowrunError:
        listener.close()
        raise
