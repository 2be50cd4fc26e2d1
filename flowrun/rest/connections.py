"""The connections of the REST API: uvicorn's HTTP/1.1 in an event loop of its own, with limits that keep the owner from being locked out.

At most `MOST_CONNECTIONS` are open. One more takes the place of the oldest that has not shown the token, or else of the one that has been
idle for longest; it is refused only while all of them are being answered. Whoever sends slowly, or does not read, is dropped after a while.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from flowrun.core.record import record
from flowrun.rest.application import Application
from flowrun.rest.doors import Door
from flowrun.rest.security import CONNECTION, MOST_HEAD_BYTES, Shown
from flowrun.rest.served import ServedJobs

MOST_CONNECTIONS = 64
REQUEST_S = 10.0
"""How long a request may take to come."""
ANSWER_S = 60.0
"""How long an answer may take to be made and read."""
IDLE_S = 15
"""How long a connection may stay open after an answer."""
_HANDSHAKE_S = 5.0
_LAST_ANSWERS_S = 2.0
"""How long the end of the server waits for what is being answered."""
_NO_DESCRIPTORS_S = 0.2
"""How long no connection is accepted if the process has no file descriptor left."""


def serve_until(wake: socket.socket, doors: tuple[Door, ...], jobs: ServedJobs) -> None:
    """Serve jobs in this thread until `wake` can be read."""
    _quieten(logging.getLogger("uvicorn"))
    application = Application(jobs)
    try:
        asyncio.run(_Connections(doors, application).serve(wake))
    finally:
        application.close()


def _quieten(logger: logging.Logger) -> None:
    """Have a library say nothing: what strangers send is no event of the job, whose log is the user's."""
    logger.setLevel(logging.CRITICAL + 1)
    logger.propagate = False


@record(eq=False, frozen=False)
class _Connection:
    """One that is open. `since`: when it was accepted, or its last answer was read, in the order of all such events."""

    socket: socket.socket
    shown: Shown
    since: int
    protocol: _Protocol | None = None

    @property
    def is_answered(self) -> bool:
        """Whether a request of its is being answered at this moment."""
        return self.protocol is not None and self.protocol.is_answering

    def drop(self) -> None:
        """End it now, whatever is being sent."""
        if self.protocol is not None and self.protocol.transport is not None:
            self.protocol.transport.abort()
        else:  # in a handshake of TLS, or about to begin
            with suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)


class _Connections:
    def __init__(self, doors: tuple[Door, ...], application: Application) -> None:
        self._doors = doors
        self._open: dict[_Connection, asyncio.Task[None]] = {}
        self._events = 0
        self._config = Config(
            application,
            http=_Protocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            timeout_keep_alive=IDLE_S,
            h11_max_incomplete_event_size=MOST_HEAD_BYTES,
        )
        self._config.load()
        self._state = ServerState()

    async def serve(self, wake: socket.socket) -> None:
        """Accept connections until `wake` can be read; then finish what is being answered."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(wake, ended.set)
        for door in self._doors:
            loop.add_reader(door.listener, self._accept, loop, door)
        await ended.wait()
        for door in self._doors:
            loop.remove_reader(door.listener)
        loop.remove_reader(wake)
        await self._finish()

    async def _finish(self) -> None:
        for connection in list(self._open):
            if connection.protocol is not None and connection.is_answered:
                connection.protocol.shutdown()  # it closes behind the answer
            else:
                connection.drop()
        if self._open:
            await asyncio.wait(self._open.values(), timeout=_LAST_ANSWERS_S)
        for connection in list(self._open):
            connection.drop()
        if self._open:
            await asyncio.wait(self._open.values(), timeout=_LAST_ANSWERS_S)

    def _accept(self, loop: asyncio.AbstractEventLoop, door: Door) -> None:
        """Take one connection: between two of them, those that are open are read, so who shows the token is known in time."""
        try:
            accepted, _ = door.listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):  # the other side has already left
            return
        except OSError:  # there is no file descriptor left
            self._make_room()
            loop.remove_reader(door.listener)
            loop.call_later(_NO_DESCRIPTORS_S, self._accept_again, loop, door)
            return
        if len(self._open) >= MOST_CONNECTIONS and not self._make_room():
            accepted.close()
            return
        accepted.setblocking(False)
        connection = _Connection(accepted, Shown(door), self._next())
        task = loop.create_task(self._hold(connection))
        self._open[connection] = task
        task.add_done_callback(lambda _: self._open.pop(connection, None))

    def _accept_again(self, loop: asyncio.AbstractEventLoop, door: Door) -> None:
        if door.listener.fileno() >= 0:
            loop.add_reader(door.listener, self._accept, loop, door)

    async def _hold(self, connection: _Connection) -> None:
        """A connection from its beginning to its end."""
        loop = asyncio.get_running_loop()
        tls = connection.shown.door.tls
        protocol = connection.protocol = _Protocol(
            self._config, self._state, {CONNECTION: connection.shown}, loop, lambda: self._touch(connection)
        )
        connection.shown.begin_answer = protocol.begin_answer
        try:
            await loop.connect_accepted_socket(
                lambda: protocol,
                connection.socket,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else _HANDSHAKE_S,
                ssl_shutdown_timeout=None if tls is None else 1.0,
            )
            await protocol.ended
        except OSError:  # the other side left, or does not speak TLS
            pass
        finally:
            connection.socket.close()

    def _make_room(self) -> bool:
        """Drop the connection that may go first; False: all are being answered."""
        strangers = [c for c in self._open if not c.shown.trusted]
        idle = strangers or [c for c in self._open if not c.is_answered]
        if not idle:
            return False
        first = min(idle, key=lambda c: c.since)
        del self._open[first]
        first.drop()
        return True

    def _touch(self, connection: _Connection) -> None:
        connection.since = self._next()

    def _next(self) -> int:
        self._events += 1
        return self._events


class _Protocol(H11Protocol):
    """uvicorn's, with time limits of requests and of answers, and clear answers to what is no HTTP."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        answered: Any = lambda: None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.ended: asyncio.Future[None] = self.loop.create_future()
        self.is_answering = False
        self._answered = answered
        self._limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self._allow(REQUEST_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        super().connection_lost(exc)
        self._allow(None)
        if not self.ended.done():
            self.ended.set_result(None)

    def begin_answer(self) -> None:
        """A request has come, and is going to be answered."""
        self.is_answering = True
        self._allow(ANSWER_S)

    def on_response_complete(self) -> None:
        """See `H11Protocol`. What the other side does not read is dropped with the connection when it was idle for long enough."""
        self.is_answering = False
        self._answered()
        self._allow(IDLE_S + REQUEST_S)
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """What came is no HTTP, or too much of it."""
        body = b'{"error":"this is no request of HTTP/1.1, or its head is too large","hint":null,"problems":[]}'
        with suppress(h11.LocalProtocolError):  # an answer has begun
            head = [
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(body)),
                (b"connection", b"close"),
            ]
            for event in (h11.Response(status_code=400, headers=head), h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _allow(self, seconds: float | None) -> None:
        """So long from now on; None: for ever."""
        if self._limit is not None:
            self._limit.cancel()
        self._limit = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)
