r"""The HTTP side of the control endpoint: one request a connection, checked before anything is read of it but its head.

| request | does |
|---|---|
| `GET /v1/job` | the job as JSON |
| `POST /v1/orders` | `{"kind": "savepoint" \| "stop" \| "cancel", "directory": …, "drain": …}`; answers 202 and `{"order": id}` |
| `GET /v1/orders/ID` | what became of it |

Every request carries `Authorization: Bearer TOKEN` and the endpoint's own address as `Host`; one with `Origin` comes from a browser
and is refused. There is no CORS.
"""

from __future__ import annotations

import hmac
import json
import socket
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

from flowrun.errors import FlowrunError
from flowrun.masking import masked_json
from flowrun.runners.control import JobControl, Json, order_of
from flowrun.runners.registry import LOOPBACK, JobEntry

MOST_BODY_BYTES = 16_384
READ_TIMEOUT_S = 5.0
_METHODS = {"/v1/job": "GET", "/v1/orders": "POST"}
_ORDERS = "/v1/orders/"


def serve_request(
    connection: socket.socket, control: JobControl, entry: JobEntry, trusted: Callable[[], None] = lambda: None
) -> None:
    """Answer the one request of a connection; a broken or slow one is dropped. `trusted` is called when it has shown the token."""
    connection.settimeout(READ_TIMEOUT_S)

    class Handler(_Handler):
        job = control
        registered = entry
        authorised = staticmethod(trusted)

    try:
        Handler(connection, connection.getpeername(), None)  # type: ignore[arg-type]
    except OSError:  # the other side left
        return


class _Refused(Exception):
    """The request is answered with a failure."""

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers


class _Handler(BaseHTTPRequestHandler):
    """One request; `job` and `registered` are set by a subclass."""

    job: JobControl
    registered: JobEntry
    authorised: Callable[[], None]
    server_version = "flowrun"
    sys_version = ""
    error_content_type = "application/json"
    error_message_format = '{"error": "%(message)s"}'

    def setup(self) -> None:
        """Never let a slow reader hold the thread."""
        super().setup()
        self.connection.settimeout(READ_TIMEOUT_S)

    def parse_request(self) -> bool:
        """Parse the head, then answer here: whatever the method is, the same checks come first."""
        if super().parse_request():
            self.close_connection = True
            try:
                self._check()
                self.authorised()
                self._dispatch()
            except _Refused as refusal:
                self._send(refusal.status, {"error": str(refusal)}, refusal.headers)
        return False

    def _check(self) -> None:
        port = self.registered.port
        if self.headers.get("Host", "").lower() not in (f"{LOOPBACK}:{port}", f"localhost:{port}"):
            raise _Refused(403, f"the Host header is not {LOOPBACK}:{port}")
        if self.headers.get("Origin") is not None:
            raise _Refused(403, "requests of browsers are refused")
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise _Refused(401, "a token is needed", **{"WWW-Authenticate": "Bearer"})
        if not hmac.compare_digest(token.strip().encode(), self.registered.token.encode()):
            raise _Refused(403, "the token is wrong")

    def _dispatch(self) -> None:
        is_order = self.path.startswith(_ORDERS)
        allowed = "GET" if is_order else _METHODS.get(self.path)
        if allowed is None:
            raise _Refused(404, f"there is no {self.path}")
        if self.command != allowed:
            raise _Refused(405, f"{self.path} takes {allowed} only", Allow=allowed)
        if is_order:
            self._answer(self.path.removeprefix(_ORDERS))
        elif allowed == "GET":
            self._send(200, self.job.describe())
        else:
            self._place()

    def _answer(self, number: str) -> None:
        answer = self.job.answer(number)
        if answer is None:
            raise _Refused(404, f"there is no order {number}")
        self._send(200, answer)
        if answer["state"] != "pending":
            self.job.delivered(number)

    def _place(self) -> None:
        try:
            order = order_of(self._body())
        except ValueError as error:
            raise _Refused(400, str(error)) from None
        try:
            number = self.job.place(order)
        except FlowrunError as error:
            self._send(409, {"error": error.message, "hint": error.hint})
            return
        self._send(202, {"order": number})

    def _body(self) -> dict[str, Json]:
        if self.headers.get("Transfer-Encoding") is not None:
            raise _Refused(411, "a Content-Length is needed")
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()):
            raise _Refused(411, "a Content-Length is needed")
        if len(length) > len(str(MOST_BODY_BYTES)) or int(length) > MOST_BODY_BYTES:
            raise _Refused(413, f"a request has at most {MOST_BODY_BYTES} bytes")
        if self.headers.get_content_type() != "application/json":
            raise _Refused(415, "the content type is application/json")
        data = self.rfile.read(int(length))
        try:
            body = json.loads(data)
        except (ValueError, RecursionError):
            raise _Refused(400, "the body is no JSON") from None
        if len(data) != int(length) or not isinstance(body, dict):
            raise _Refused(400, "the body is no JSON object")
        return body

    def _send(self, status: int, body: dict[str, Json], headers: dict[str, str] | None = None) -> None:
        data = json.dumps(masked_json(body)).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: a job's standard error is the user's."""
