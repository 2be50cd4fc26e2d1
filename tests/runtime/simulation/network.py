"""Connections between simulated processes: calls travel as bytes, in order on one connection and in any order on two."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from flowrun.errors import ClusterError, ConnectionOverError, FencingError, RpcError
from flowrun.runtime.rpc.calls import Call
from flowrun.runtime.rpc.endpoint_table import EndpointTable, Token
from flowrun.runtime.rpc.methods import methods_of
from tests.runtime.simulation.virtual_time import Process, VirtualTime

GOODBYE = object()


class Wire:
    """One direction between two processes: what is sent arrives in order, after a while; while it is cut, after that."""

    def __init__(self, receiver: Process, most_ms: float) -> None:
        self._time: VirtualTime = receiver.time
        self._receiver = receiver
        self._most_ms = most_ms
        self._sent: deque[Callable[[], None]] = deque()
        self._is_cut = False
        self._late = 0

    def send(self, arrive: Callable[[], None]) -> None:
        self._sent.append(arrive)
        if self._is_cut:
            self._late += 1
        else:
            self._time.soon(self._arrive, self._most_ms)

    def flush(self) -> None:
        """Have everything arrive now that was sent."""
        while self._sent:
            self._sent.popleft()()

    def drop(self) -> None:
        """What is on its way does not arrive."""
        self._sent.clear()

    def cut(self) -> None:
        self._is_cut = True

    def mend(self) -> None:
        self._is_cut = False
        for _ in range(self._late):
            self._time.soon(self._arrive, self._most_ms)
        self._late = 0

    def _arrive(self) -> None:
        if self._is_cut:
            self._late += 1
        else:
            # Whichever event comes first takes what was sent first: so it stays in order.
            self._receiver.run(lambda: self._sent.popleft()() if self._sent else None)


class Connection:
    """One end of a control connection, as `RpcConnection`: the same calls, encoded as there, but no threads."""

    def __init__(self, process: Process, most_ms: float) -> None:
        self.process = process
        self.other: Connection = self
        self.incoming = Wire(process, most_ms)
        self.refused: list[str] = []
        self._table = EndpointTable()
        self._listeners: list[Callable[[str], None]] = []
        self._reason: str | None = None

    @property
    def is_closed(self) -> bool:
        return self._reason is not None

    def start(self) -> None:
        """Calls are taken from the beginning."""

    def serve(self, endpoint: str, protocol: type, target: object, token: Token = "") -> None:
        self._table.serve(endpoint, protocol, target, token)

    def withdraw(self, endpoint: str) -> None:
        self._table.withdraw(endpoint)

    def gateway(self, protocol: type, endpoint: str, token: str = "") -> Any:
        return _Gateway(self, protocol, endpoint, token)

    def on_close(self, listener: Callable[[str], None]) -> None:
        if self._reason is None:
            self._listeners.append(listener)
        else:
            listener(self._reason)

    def close(self, reason: str = "it was closed") -> None:
        if not self.is_closed:
            self.other.incoming.send(lambda: self.other.end(reason))
        self.end(reason)

    def abandon(self, reason: str) -> None:
        self.process.soon(lambda: self.end(reason))

    def end(self, reason: str) -> None:
        if self._reason is None:
            self._reason = reason
            listeners, self._listeners = self._listeners, []
            for listener in listeners:
                listener(reason)

    def call(self, call: Call, *, answered: bool) -> Any:
        if self._reason is not None:
            raise ConnectionOverError(f"the connection to {self.other.process.name} is over: {self._reason}")
        if not answered:
            self.other.incoming.send(partial(self.other.receive, call))
            return None
        reached = self.other.process
        if reached.is_dead or reached.is_stopped or self.other.incoming._is_cut or self.other.is_closed:
            raise ClusterError(f"{reached.name} did not answer {call.method} within 30 s")
        self.other.incoming.flush()
        self.incoming.flush()  # what it had said before its answer
        return self.other.receive(call)

    def receive(self, call: Call) -> Any:
        if self.is_closed:
            return None
        served = self._table.find(call.endpoint)
        try:
            if served is None:
                raise RpcError(f"{call.endpoint} is not served here")
            method = served.method(call)
            served.check_token(call)
        except (RpcError, FencingError) as error:
            self.refused.append(error.message)
            return None
        arguments = method.unpack_arguments(memoryview(call.arguments))
        result = getattr(served.target, call.method)(*arguments)
        return None if method.is_one_way else method.unpack_result(memoryview(method.pack_result(result)))


class _Gateway:
    def __init__(self, connection: Connection, protocol: type, endpoint: str, token: str) -> None:
        self._connection = connection
        self._endpoint = endpoint
        self._token = token
        self._methods = methods_of(protocol)

    def __getattr__(self, name: str) -> Any:
        method = self._methods[name]

        def call(*arguments: object) -> Any:
            packed = method.pack_arguments(arguments, {})
            made = Call(0 if method.is_one_way else 1, self._endpoint, name, self._token, packed)
            return self._connection.call(made, answered=not method.is_one_way)

        setattr(self, name, call)
        return call


def connect(one: Process, other: Process, most_ms: float) -> tuple[Connection, Connection]:
    """Both ends of a connection between two processes."""
    ours, theirs = Connection(one, most_ms), Connection(other, most_ms)
    ours.other, theirs.other = theirs, ours
    return ours, theirs
