"""An HTTP server in threads of the test's own process. It takes note of all requests, and can be as odd as tests need it to be."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Received:
    """A request. Names of headers are in small letters."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def key(self) -> str | None:
        """Its idempotency key."""
        return self.headers.get("idempotency-key")

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Reply:
    """What is answered. `dropped`: nothing at all, the connection is closed. `late`: not before this is set."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    dropped: bool = False
    late: threading.Event | None = None


class HttpServer:
    """The server. It keeps its port when it is stopped and started again.

    Attributes:
        answer: makes the reply to a request; runs in threads.
        replies: are given before `answer` is asked, one a request; the request is not `taken`.
        received: all requests, in the order in which they came.
        taken: those that were answered by `answer` with a status of 2xx, each idempotency key once.
        most_at_a_time: the most requests that were under way at once.
    """

    def __init__(self, identity: Path | None = None, authority: Path | None = None) -> None:
        self._identity, self._authority = identity, authority
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None
        self.answer: Callable[[Received], Reply] = lambda _: Reply()
        self.replies: deque[Reply] = deque()
        self.received: list[Received] = []
        self.taken: list[Received] = []
        self._keys: set[str] = set()
        self._under_way = 0
        self.most_at_a_time = 0
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http{'s' if self._identity else ''}://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listen, on the port of the last time."""
        own = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # header and body are written one after the other

            def __getattr__(self, name: str) -> Any:
                if name.startswith("do_"):  # whatever the method is
                    return lambda: own._serve(self)
                raise AttributeError(name)

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Clients that go away are no errors of the server."""

            def process_request(self, request: Any, client_address: Any) -> None:
                own._connections.append(request)
                super().process_request(request, client_address)

        self._connections: list[socket.socket] = []
        server = Server(("127.0.0.1", self.port), Handler)
        if self._identity is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self._identity / "cert.pem", self._identity / "key.pem")
            if self._authority is not None:
                context.load_verify_locations(self._authority)
                context.verify_mode = ssl.CERT_REQUIRED
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = server.server_address[1]
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close the port and all connections, as a server that crashes; idempotent."""
        server, self._server = self._server, None
        if server is None:
            return
        server.shutdown()
        server.server_close()
        self._thread.join()
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers.get("Content-Length") or 0)
        headers = {name.lower(): value for name, value in handler.headers.items()}
        request = Received(handler.command, handler.path, headers, handler.rfile.read(length))
        if len(request.body) < length:  # its sender died
            handler.close_connection = True
            return
        with self._lock:
            self.received.append(request)
            self._under_way += 1
            self.most_at_a_time = max(self.most_at_a_time, self._under_way)
            planned = self.replies.popleft() if self.replies else None
        try:
            reply = self.answer(request) if planned is None else planned
            if reply.late is not None:
                reply.late.wait(60)
            with self._lock:
                if planned is None and 200 <= reply.status < 300 and request.key not in self._keys:
                    self.taken.append(request)
                    if request.key is not None:
                        self._keys.add(request.key)
        finally:
            with self._lock:
                self._under_way -= 1
        if reply.dropped:
            handler.close_connection = True
            return
        handler.send_response(reply.status)
        for name, value in reply.headers.items():
            handler.send_header(name, value)
        if reply.status not in (204, 304):
            handler.send_header("Content-Length", str(len(reply.body)))
        handler.end_headers()
        handler.wfile.write(reply.body)


@pytest.fixture
def http_server() -> Iterator[HttpServer]:
    """A server for one test."""
    server = HttpServer()
    yield server
    server.stop()
