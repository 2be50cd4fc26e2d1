"""A schema registry for tests: a small HTTP server that speaks Confluent's protocol, as far as clients use it.

It keeps schemas in memory, refuses new versions of a subject that cannot read what the last one wrote (BACKWARD), and can ask for a
password or token. Confluent's own registry is not on Maven Central.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

_PROMOTED = {"int": {"long", "float", "double"}, "long": {"float", "double"}, "float": {"double"}, "string": {"bytes"}}
_PROMOTED["bytes"] = {"string"}


class _RefusedError(Exception):
    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error_code": code, "message": message}


class SchemaRegistryServer:
    """The server, and what it holds."""

    def __init__(self, identity: Path | None = None) -> None:
        self._lock = threading.Lock()
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[str] = []
        self.authorization: str | None = None
        self.failing = 0
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(None)

            def do_POST(self) -> None:
                self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def _answer(self, body: dict[str, Any] | None) -> None:
                try:
                    status, answer = 200, registry._answer(self.command, self.path, body, self.headers["Authorization"])
                except _RefusedError as error:
                    status, answer = error.status, error.body
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if identity is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(identity / "cert.pem", identity / "key.pem")
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self.url = f"{'http' if identity is None else 'https'}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def let_in(self, user: str, password: str) -> None:
        """Ask for a password from now on."""
        self.authorization = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    def register(self, subject: str, schema: str, **more: Any) -> int:
        """Register a schema from the test; gives its number."""
        number: int = self._register(subject, {"schema": schema, **more})["id"]
        return number

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, method: str, path: str, body: dict[str, Any] | None, authorization: str | None) -> Any:
        with self._lock:
            self.requests.append(f"{method} {path}")
            if self.failing:
                self.failing -= 1
                raise _RefusedError(503, 50001, "Error in the backend data store")
            if self.authorization is not None and authorization != self.authorization:
                raise _RefusedError(401, 401, "Unauthorized")
            match method, [unquote(part) for part in path.strip("/").split("/")]:
                case "GET", ["schemas", "ids", number]:
                    if int(number) not in self.schemas:
                        raise _RefusedError(404, 40403, f"Schema {number} not found")
                    return self.schemas[int(number)]
                case "GET", ["subjects"]:
                    return sorted(self.subjects)
                case "GET", ["subjects", subject, "versions"]:
                    return list(range(1, len(self._versions(subject)) + 1))
                case "GET", ["subjects", subject, "versions", version]:
                    versions = self._versions(subject)
                    place = len(versions) if version == "latest" else int(version)
                    if not 1 <= place <= len(versions):
                        raise _RefusedError(404, 40402, f"Version {version} not found.")
                    number = versions[place - 1]
                    return {"subject": subject, "version": place, "id": number, **self.schemas[number]}
                case "POST", ["subjects", subject, "versions"] if body is not None:
                    return self._register(subject, body)
                case "POST", ["subjects", subject] if body is not None:
                    for place, number in enumerate(self._versions(subject), start=1):
                        if _parsed(self.schemas[number]["schema"]) == _parsed(body["schema"]):
                            return {"subject": subject, "version": place, "id": number, **self.schemas[number]}
                    raise _RefusedError(404, 40403, "Schema not found")
        raise _RefusedError(404, 404, "HTTP 404 Not Found")

    def _versions(self, subject: str) -> list[int]:
        if subject not in self.subjects:
            raise _RefusedError(404, 40401, f"Subject '{subject}' not found.")
        return self.subjects[subject]

    def _register(self, subject: str, body: dict[str, Any]) -> dict[str, int]:
        schema = _parsed(body["schema"])
        versions = self.subjects.setdefault(subject, [])
        for number in versions:
            if _parsed(self.schemas[number]["schema"]) == schema:
                return {"id": number}
        if versions and body.get("schemaType", "AVRO") == "AVRO":
            problem = _unreadable(schema, _parsed(self.schemas[versions[-1]]["schema"]))
            if problem:
                message = (
                    f"Schema being registered is incompatible with an earlier schema for subject '{subject}': {problem}"
                )
                raise _RefusedError(409, 409, message)
        known = [n for n, kept in self.schemas.items() if kept == {k: v for k, v in body.items() if v}]
        number = known[0] if known else len(self.schemas) + 1
        self.schemas[number] = dict(body)
        versions.append(number)
        return {"id": number}


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _unreadable(reader: Any, writer: Any) -> str | None:
    """Why what one schema wrote cannot be read with another; None: it can. Named types are not looked up."""
    if isinstance(writer, list):
        return next((p for w in writer if (p := _unreadable(reader, w))), None)
    if isinstance(reader, list):
        problems = [_unreadable(r, writer) for r in reader]
        return None if None in problems else problems[-1]
    theirs, mine = _kind(writer), _kind(reader)
    if mine != theirs:
        return None if mine in _PROMOTED.get(theirs, ()) else f"{theirs} became {mine}"
    if theirs == "record" and isinstance(writer, dict) and isinstance(reader, dict):
        fields = {f["name"]: f["type"] for f in writer["fields"]}
        for field in reader["fields"]:
            if field["name"] not in fields:
                if "default" not in field:
                    return f"field '{field['name']}' is new and has no default"
            elif problem := _unreadable(field["type"], fields[field["name"]]):
                return f"field '{field['name']}': {problem}"
    if theirs in ("array", "map"):
        inner = "items" if theirs == "array" else "values"
        return _unreadable(reader[inner], writer[inner])
    return None


def _kind(schema: Any) -> str:
    return str(schema["type"] if isinstance(schema, dict) else schema)


@pytest.fixture
def schema_registry() -> Iterator[SchemaRegistryServer]:
    """An empty registry for one test."""
    server = SchemaRegistryServer()
    yield server
    server.stop()
