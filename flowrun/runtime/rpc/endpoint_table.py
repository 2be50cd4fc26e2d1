"""Which endpoints a process serves, and how a call that came in reaches its target."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from flowrun.core.record import record
from flowrun.errors import ClusterError, FencingError, RpcError
from flowrun.runtime.mailbox import Mail
from flowrun.runtime.rpc.calls import Call
from flowrun.runtime.rpc.methods import Method, methods_of

_log = logging.getLogger(__name__)

_REMEMBERED = 64
"""So many endpoints that were withdrawn last: calls of theirs may still be on their way."""

Post: TypeAlias = Callable[[Mail], bool]
"""Puts a mail into the mailbox of an endpoint's main thread; False if that has ended."""
Token: TypeAlias = str | Callable[[], str | None]
"""A fencing token, or what tells the one of the moment; None: there is no leader here now, and every call is refused."""


@record(eq=False)
class Served:
    """One endpoint; see `EndpointTable.serve`."""

    name: str
    protocol: type
    target: object
    token: Token
    post: Post | None

    def method(self, call: Call) -> Method:
        """The method that is called.

        Raises:
            RpcError: the protocol has none of that name, or it is called with an answer although it gives none, or the other way round.
        """
        method = methods_of(self.protocol).get(call.method)
        if method is None or method.is_one_way != (call.number == 0):
            raise RpcError(f"endpoint {self.name} has no such method: {call.method}")
        return method

    def check_token(self, call: Call) -> None:
        """Pass if the caller knows the fencing token.

        Raises:
            FencingError: it knows another one, or nobody leads here.
        """
        token = self.token if isinstance(self.token, str) else self.token()
        if token is None:
            raise FencingError(f"{call.method} of {self.name} was refused: it is not the leader now")
        if token != call.token:
            raise FencingError(
                f"{call.method} of {self.name} was refused: the fencing token is stale",
                hint="another process leads now, or has led in between",
            )


class EndpointTable:
    """Endpoints by name. Thread-safe. A connection has one of its own, and may share another with other connections."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._served: dict[str, Served] = {}
        self._told: set[str] = set()
        self._withdrawn: deque[str] = deque(maxlen=_REMEMBERED)
        self.dropped = 0
        """One-way calls that were refused, or for endpoints that are not there."""

    def serve(self, endpoint: str, protocol: type, target: object, token: Token = "", post: Post | None = None) -> None:
        """Have calls of `endpoint` reach the methods of `target`; takes the place of one of the same name.

        Args:
            endpoint: the name.
            protocol: whose methods can be called.
            target: of that protocol.
            token: callers must know it.
            post: puts a mail into the mailbox of the endpoint's main thread, on which all calls run then. Without it, methods that return
                nothing run on the connection's reader thread, so they must not block; others on one of a bounded number of threads.
        """
        methods_of(protocol)  # errors in it are the caller's
        with self._lock:
            self._served[endpoint] = Served(endpoint, protocol, target, token, post)
            if endpoint in self._withdrawn:
                self._withdrawn.remove(endpoint)

    def withdraw(self, endpoint: str) -> None:
        """Serve it no more; calls that are on their way are dropped. Harmless if it is not there."""
        with self._lock:
            if self._served.pop(endpoint, None) is not None:
                self._withdrawn.append(endpoint)

    def find(self, endpoint: str) -> Served | None:
        """The endpoint, if it is served."""
        return self._served.get(endpoint)

    def drop(self, call: Call, reason: ClusterError) -> None:
        """Count a one-way call that nobody takes; the first one of an endpoint is a warning, unless the endpoint was withdrawn lately."""
        with self._lock:
            self.dropped += 1
            is_expected = call.endpoint in self._withdrawn
            is_first = not is_expected and call.endpoint not in self._told
            if is_first:
                self._told.add(call.endpoint)
        _log.log(logging.WARNING if is_first else logging.DEBUG, "a call was dropped: %s", reason.message)
