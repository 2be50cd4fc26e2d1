"""A REST catalog in this process: Iceberg's HTTP interface in front of PyIceberg's own catalog in SQLite. It can lose its answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
)
from pyiceberg.table import CommitTableRequest, Table

from tests.connectors.iceberg.tables import catalog

TOKEN = "a-token-that-nobody-sees"


class RestCatalog(ThreadingHTTPServer):
    """Answers on a free loopback port.

    Attributes:
        inner: the catalog behind it.
        after_commit: called after each commit, before the answer; what it raises is answered as status 500.
    """

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.inner: Catalog = catalog(folder)
        self.after_commit: Callable[[], None] = lambda: None

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: RestCatalog

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged."""

    def do_GET(self) -> None:
        self._respond(self._get)

    def do_HEAD(self) -> None:
        self._respond(self._get)

    def do_POST(self) -> None:
        self._respond(self._post)

    def _respond(self, act: Callable[[list[str]], dict[str, Any] | None]) -> None:
        self._body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        try:
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                self._answer(401, _error("no such token", "NotAuthorizedException", 401))
                return
            self._answer(200, act(self.path.partition("?")[0].strip("/").split("/")[1:]))
        except (NoSuchTableError, NoSuchNamespaceError) as error:
            self._answer(404, _error(str(error), type(error).__name__, 404))
        except (CommitFailedException, NamespaceAlreadyExistsError) as error:
            self._answer(409, _error(str(error), type(error).__name__, 409))
        except Exception as error:
            self._answer(500, _error(str(error), "ServerError", 500))

    def _answer(self, status: int, content: dict[str, Any] | None) -> None:
        data = b"" if content is None else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _get(self, parts: list[str]) -> dict[str, Any] | None:
        match parts:
            case ["config"]:
                return {"defaults": {}, "overrides": {}}
            case ["namespaces"]:
                parent = parse_qs(urlsplit(self.path).query).get("parent", [""])[0]
                return {"namespaces": self.server.inner.list_namespaces(tuple(filter(None, parent.split("\x1f"))))}
            case ["namespaces", name, "tables"]:
                found = self.server.inner.list_tables(name)
                return {"identifiers": [{"namespace": list(n[:-1]), "name": n[-1]} for n in found]}
            case ["namespaces", name]:
                self.server.inner.load_namespace_properties(name)
                return {"namespace": [name], "properties": {}}
            case ["namespaces", name, "tables", table]:
                return _loaded(self.server.inner.load_table((name, table)))
        raise NoSuchNamespaceError(self.path)

    def _post(self, parts: list[str]) -> dict[str, Any] | None:
        inner: Any = self.server.inner
        match parts:
            case ["namespaces"]:
                names = json.loads(self._body)["namespace"]
                inner.create_namespace(tuple(names))
                return {"namespace": names, "properties": {}}
            case ["namespaces", name, "tables"]:
                asked = CreateTableRequest.model_validate({"location": None, **json.loads(self._body)})
                given = ((name, asked.name), asked.table_schema, asked.location)
                make = inner._create_staged_table if asked.stage_create else inner.create_table
                more = {"partition_spec": asked.partition_spec} if asked.partition_spec is not None else {}
                return _loaded(make(*given, properties=asked.properties or {}, **more))
            case ["namespaces", name, "tables", table]:
                change = CommitTableRequest.model_validate_json(self._body)
                named = Table((name, table), None, "", None, inner)  # type: ignore[arg-type]
                done = inner.commit_table(named, change.requirements, change.updates)
                self.server.after_commit()
                return {
                    "metadata-location": done.metadata_location,
                    "metadata": json.loads(done.metadata.model_dump_json()),
                }
        raise NoSuchNamespaceError(self.path)


def _loaded(table: Table) -> dict[str, Any]:
    metadata = json.loads(table.metadata.model_dump_json())
    return {"metadata-location": table.metadata_location, "metadata": metadata, "config": {}}


def _error(message: str, kind: str, code: int) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": code}}


@contextmanager
def rest_catalog(folder: Path) -> Iterator[RestCatalog]:
    """A catalog that answers until the block ends."""
    with RestCatalog(folder) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
