"""Connections over which both sides call each other: typed calls of named endpoints, in order.

A gateway is a stand-in for an object of the other process: it has the methods of a protocol, and a call of one travels as a frame. Methods
that return nothing are one-way: the call is over once it is written, and calls of one connection reach their targets in the order in which
they were made. Others wait for the answer, and raise the error that was raised there.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

from flowrun.core.clock import Clock, SystemClock
from flowrun.errors import ClusterError, ConnectionOverError, FencingError, FlowrunError, RpcError
from flowrun.runtime.rpc.answering import AnsweringThreads
from flowrun.runtime.rpc.calls import (
    Answer,
    Call,
    Goodbye,
    pieces_of_answer,
    pieces_of_call,
    pieces_of_goodbye,
    read_control_frame,
)
from flowrun.runtime.rpc.codec import decode, encode
from flowrun.runtime.rpc.endpoint_table import EndpointTable, Post, Served, Token
from flowrun.runtime.rpc.error_values import ErrorValue, error_from_value, error_to_value
from flowrun.runtime.rpc.frames import FrameReader, FrameWriter
from flowrun.runtime.rpc.handshake import Introduction
from flowrun.runtime.rpc.link import Link
from flowrun.runtime.rpc.methods import Method, methods_of

CALL_TIMEOUT_MS = 30_000
"""How long a call waits for its answer."""
_GOODBYE_MS = 1_000

G = TypeVar("G")

_log = logging.getLogger(__name__)


class _Pending:
    """A call that waits for its answer."""

    __slots__ = ("_changed", "answer", "failure")

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.answer: Answer | None = None
        self.failure: ClusterError | None = None

    def end(self, answer: Answer | None, failure: ClusterError | None = None) -> None:
        """Wake who waits."""
        with self._changed:
            self.answer, self.failure = answer, failure
            self._changed.notify_all()

    def wait(self, clock: Clock, timeout_ms: int) -> bool:
        """Wait until it has ended; False if it has not in time."""
        until_ns = clock.monotonic_ns() + timeout_ms * 1_000_000
        with self._changed:
            while self.answer is None and self.failure is None:
                left_ms = (until_ns - clock.monotonic_ns()) / 1e6
                if left_ms <= 0:
                    return False
                clock.wait(self._changed, left_ms)
            return True


class RpcConnection:
    """One control connection. Thread-safe. Serve what the other side may call, then `start`.

    Args:
        link: after its handshake.
        clock: of the process.
        answering: runs calls that are answered; None: on threads of this connection.
    """

    def __init__(
        self, link: Link, clock: Clock | None = None, answering: Callable[[Callable[[], None]], bool] | None = None
    ) -> None:
        self._link = link
        self._clock = clock or SystemClock()
        self._table = EndpointTable()
        self._reader = FrameReader(link.stream, str(link))
        self._writer = FrameWriter(link.stream, str(link), self._fail, clock=self._clock)
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._pending: dict[int, _Pending] = {}
        self._listeners: list[Callable[[str], None]] = []
        self._reason: str | None = None
        self._write_failure: str | None = None
        self._ended = threading.Event()
        self._answer = answering or AnsweringThreads(f"flowrun-answer-{link}").run
        self._thread = threading.Thread(target=self._read_all, name=f"flowrun-control-{link}", daemon=True)

    @property
    def peer(self) -> Introduction:
        """Who is on the other side."""
        return self._link.peer

    @property
    def is_closed(self) -> bool:
        """Whether the connection is over."""
        return self._reason is not None

    def start(self) -> None:
        """Begin to take calls and answers."""
        self._thread.start()

    def serve(self, endpoint: str, protocol: type, target: object, token: Token = "", post: Post | None = None) -> None:
        """Let the other side call the methods of `target`; see `EndpointTable.serve`."""
        self._table.serve(endpoint, protocol, target, token, post)

    def withdraw(self, endpoint: str) -> None:
        """Serve it no more."""
        self._table.withdraw(endpoint)

    def gateway(self, protocol: type[G], endpoint: str, token: str = "", timeout_ms: int = CALL_TIMEOUT_MS) -> G:
        """A stand-in for what the other side serves as `endpoint`.

        Its methods raise ClusterError if the connection is over or no answer comes in time, and what the other side raised.
        """
        return cast(G, _Gateway(self, protocol, endpoint, token, timeout_ms))

    def on_close(self, listener: Callable[[str], None]) -> None:
        """Have `listener` told, once, why the connection is over; at once if it is. By any thread."""
        with self._lock:
            reason = self._reason
            if reason is None:
                self._listeners.append(listener)
        if reason is not None:
            listener(reason)

    def close(self, reason: str = "it was closed") -> None:
        """Say good-bye and end the connection. Idempotent."""
        if not self.is_closed:
            self._writer.write(*pieces_of_goodbye(Goodbye(reason)))
            self._writer.flush(_GOODBYE_MS)
        self._end(reason)
        if self._thread.ident is None:
            self._link.stream.close()
        elif self._thread is not threading.current_thread():
            self._thread.join()

    def abandon(self, reason: str) -> None:
        """End the connection without a word to the other side, which does not listen. Idempotent.

        Does not wait for it: who is told of the end is told by another thread.
        """
        threading.Thread(target=self._end, args=(reason,), name="flowrun-control-abandoned").start()

    def call(self, call: Call, method: Method, timeout_ms: int) -> object:
        """Make a call, and wait for its answer unless it is one-way. For gateways."""
        if method.is_one_way:
            self._write(call)
            return None
        pending = _Pending()
        with self._lock:
            if self._reason is not None:
                raise self._over()
            self._pending[call.number] = pending
        try:
            self._write(call)
            if not pending.wait(self._clock, timeout_ms):
                raise ClusterError(f"{self._link} did not answer {call.method} within {timeout_ms / 1000:g} s")
        finally:
            with self._lock:
                self._pending.pop(call.number, None)
        if pending.failure is not None:
            raise pending.failure
        assert pending.answer is not None
        content = memoryview(pending.answer.content)
        if pending.answer.failed:
            raise error_from_value(decode(content, ErrorValue))
        return method.unpack_result(content)

    def next_number(self) -> int:
        """A number for a call that waits for an answer."""
        return next(self._numbers)

    def _write(self, call: Call) -> None:
        """Write a call. Raises ConnectionOverError: with the reason that the other side gave, if that is on its way."""
        if not self._writer.write(*pieces_of_call(call)):
            self._ended.wait(_GOODBYE_MS / 1000)
            raise self._over()

    # ---- what comes in

    def read_next(self) -> bool:
        """Wait for the next call or answer, and take it; False: the connection is over, as its listeners are told. For one thread."""
        reason: str | None = None
        try:
            frame = self._reader.read()
            message = None if frame is None else read_control_frame(frame)
            match message:
                case Call():
                    self._called(message)
                    return True
                case Answer():
                    self._answered(message)
                    return True
                case Goodbye():
                    reason = message.reason
        except FlowrunError as error:
            reason = self._write_failure or error.message
        except Exception as error:  # nobody may wait for a connection that nobody reads
            _log.exception("what %s sent could not be read", self._link)
            reason = f"what came could not be read: {error}"
        self._end(reason or self._write_failure or "the other side closed it")
        self._link.stream.close()
        return False

    def _read_all(self) -> None:
        while self.read_next():
            pass

    def _answered(self, answer: Answer) -> None:
        with self._lock:
            pending = self._pending.get(answer.number)
        if pending is not None:
            pending.end(answer)

    def _called(self, call: Call) -> None:
        served = self._table.find(call.endpoint)
        try:
            if served is None:
                raise RpcError(f"{call.endpoint} is not served here")
            method = served.method(call)
            served.check_token(call)
            arguments = method.unpack_arguments(memoryview(call.arguments))
        except (RpcError, FencingError) as error:
            self._refuse(call, error)
            return
        work = partial(self._run, served, method, call, arguments)
        if served.post is not None:
            if not served.post(work) and call.number:
                self._refuse(call, ClusterError(f"{call.endpoint} has ended"))
        elif method.is_one_way:
            work()
        elif not self._answer(work):
            self._refuse(call, ClusterError(f"too many calls wait: {call.method} is not answered"))

    def _run(self, served: Served, method: Method, call: Call, arguments: tuple[object, ...]) -> None:
        try:
            served.check_token(call)  # which may have changed while the call waited for the endpoint's thread
        except FencingError as error:
            self._refuse(call, error)
            return
        try:
            result = getattr(served.target, call.method)(*arguments)
            content = b"" if method.is_one_way else method.pack_result(result)
        except Exception as error:
            if method.is_one_way:
                _log.exception("%s of %s failed", call.method, call.endpoint)
                return
            self._refuse(call, error)
            return
        if not method.is_one_way:
            self._reply(Answer(call.number, False, content))

    def _refuse(self, call: Call, error: Exception) -> None:
        """Answer a call with an error; a call that nobody waits for is dropped, and counted."""
        if call.number:
            self._reply(Answer(call.number, True, encode(error_to_value(error), ErrorValue)))
        elif isinstance(error, ClusterError):
            self._table.drop(call, error)

    def _reply(self, answer: Answer) -> None:
        self._writer.write(*pieces_of_answer(answer))  # if nobody is there any more, nobody waits for it

    # ---- the end

    def _fail(self, error: ClusterError) -> None:
        """Nothing can be written any more. If the other side has said good-bye, that waits to be read, and is the reason."""
        if self._thread.ident is None:
            self._end(error.message)
            return
        self._write_failure = error.message
        self._link.stream.shutdown_writing()

    def _end(self, reason: str) -> None:
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
            self._ended.set()
            pending = list(self._pending.values())
            self._pending.clear()
            listeners, self._listeners = self._listeners, []
        self._writer.close()
        for listener in listeners:
            listener(reason)
        for waiting in pending:
            waiting.end(None, self._over())

    def _over(self) -> ConnectionOverError:
        return ConnectionOverError(f"the connection to {self._link} is over: {self._reason or self._write_failure}")


class _Gateway:
    """Has the methods of a protocol; each call of one travels."""

    def __init__(self, connection: RpcConnection, protocol: type, endpoint: str, token: str, timeout_ms: int) -> None:
        self._connection = connection
        self._endpoint = endpoint
        self._token = token
        self._timeout_ms = timeout_ms
        self._methods = methods_of(protocol)

    def __getattr__(self, name: str) -> Any:
        method = self._methods.get(name)
        if method is None:
            raise AttributeError(name)
        made = partial(self._call, method)
        setattr(self, name, made)
        return made

    def _call(self, method: Method, *args: object, **named: object) -> object:
        number = 0 if method.is_one_way else self._connection.next_number()
        call = Call(number, self._endpoint, method.name, self._token, method.pack_arguments(args, named))
        return self._connection.call(call, method, self._timeout_ms)
