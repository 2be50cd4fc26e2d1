"""Heartbeats: both ends of a connection tell each other now and then that they live.

A process that dies is noticed at once, as its connections end. Heartbeats are for those that hang, and for networks that drop everything
without a word. A process that was stopped itself (by Ctrl-Z, or as its machine slept) has heard nothing meanwhile, and blames nobody.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

from flowrun.core.clock import Clock
from flowrun.errors import ClusterError
from flowrun.runtime.rpc.connection import RpcConnection
from flowrun.runtime.timers import Timer, TimerThread

INTERVAL_MS = 1_000
TIMEOUT_MS = 50_000
"""As in Apache Flink: a function of the user may hold the interpreter lock for long."""
_ENDPOINT = "heartbeats"


class HeartbeatGateway(Protocol):
    """What each end calls."""

    def beat(self) -> None:
        """The caller lives."""
        ...


class Heartbeats:
    """One end of a connection; make it before the connection is started. Thread-safe.

    Args:
        connection: is ended if nothing was heard for too long.
        timers: of the process.
        clock: of the process.
        interval_ms: between two heartbeats.
        timeout_ms: without one.
    """

    def __init__(
        self,
        connection: RpcConnection,
        timers: TimerThread,
        clock: Clock,
        *,
        interval_ms: int = INTERVAL_MS,
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        self._connection = connection
        self._timers = timers
        self._clock = clock
        self._interval_ms = interval_ms
        self._timeout_ms = timeout_ms
        self._heard_ns = self._looked_ns = clock.monotonic_ns()
        self._timer: Timer | None = None
        connection.serve(_ENDPOINT, HeartbeatGateway, self)
        self._other = connection.gateway(HeartbeatGateway, _ENDPOINT)
        connection.on_close(lambda _: self._stop())

    def start(self) -> None:
        """Begin, once the connection is started."""
        self._timer = self._timers.after(self._interval_ms, self._look)

    def beat(self) -> None:
        """The other end lives."""
        self._heard_ns = self._clock.monotonic_ns()

    def _look(self) -> None:
        """Tell the other end, and see whether it has told anything."""
        if self._connection.is_closed:
            return
        now = self._clock.monotonic_ns()
        slept_ms = (now - self._looked_ns) / 1e6 - self._interval_ms
        self._looked_ns = now
        if slept_ms > 2 * self._interval_ms:
            self._heard_ns = now
        silent_ms = (now - self._heard_ns) / 1e6
        if silent_ms >= self._timeout_ms:
            reason = f"no heartbeat for {silent_ms / 1000:.0f} s"
            self._connection.abandon(reason)
            return
        with suppress(ClusterError):  # the connection has ended meanwhile
            self._other.beat()
        self._timer = self._timers.after(self._interval_ms, self._look)

    def _stop(self) -> None:
        timer = self._timer
        if timer is not None:
            timer.cancel()
