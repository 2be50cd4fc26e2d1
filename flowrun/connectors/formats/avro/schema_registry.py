"""A client of schema registries that speak Confluent's protocol, over HTTP."""

from __future__ import annotations

import base64
import functools
import http.client
import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from flowrun.connectors.formats.avro.registry_options import RegistrySettings
from flowrun.connectors.formats.avro.schema import AvroSchemaError, AvroType, parse_schema
from flowrun.errors import ConnectorError

_ATTEMPTS = 3
_WAIT_S = 0.2
_ANSWER_BYTES = 16 << 20
_CACHED = 1000
"""How many schemas are kept, as in Confluent's client."""
_MOST_REFERENCES = 100
_TYPE = "application/vnd.schemaregistry.v1+json"


class UnknownSchemaError(Exception):
    """The registry has no such schema, or it is no Avro schema that can be read."""


class _RefusedError(Exception):
    """The registry answered with an error."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses to be sent elsewhere: passwords and tokens are for the registry that the user names."""

    def redirect_request(self, *_: Any) -> None:
        return None


class SchemaRegistry:
    """Asks a registry for schemas, and registers them. Thread-safe; schemas are kept, as they never change. Every method may block."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._schemas: dict[int, AvroType] = {}
        self._ids: dict[tuple[str, str], int] = {}
        self._context: ssl.SSLContext | None = None

    def schema(self, number: int) -> AvroType:
        """The schema with this number.

        Raises:
            UnknownSchemaError: there is none, or it is no Avro schema.
            ConnectorError: the registry cannot be asked.
        """
        with self._lock:
            known = self._schemas.get(number)
        if known is not None:
            return known
        try:
            answer = self._ask("GET", f"/schemas/ids/{number}")
        except _RefusedError as error:
            if error.status == 404:
                raise UnknownSchemaError(f"the registry has no schema {number}") from None
            raise self._failed(f"schema {number} cannot be read", error) from error
        if answer.get("schemaType", "AVRO") != "AVRO":
            raise UnknownSchemaError(f"schema {number} is of type {answer['schemaType']}, expected AVRO")
        try:
            schema = parse_schema(str(answer.get("schema")), self._references(answer, {}))
        except AvroSchemaError as error:
            raise UnknownSchemaError(f"schema {number}: {error}") from None
        with self._lock:
            while len(self._schemas) >= _CACHED:
                del self._schemas[next(iter(self._schemas))]
            self._schemas[number] = schema
        return schema

    def _references(self, answer: dict[str, Any], found: dict[str, str]) -> dict[str, str]:
        """The texts of the schemas that a schema refers to, by the names that it uses for them."""
        for reference in answer.get("references") or ():
            name, subject, version = (str(reference.get(key, "")) for key in ("name", "subject", "version"))
            if name in found:
                continue
            if len(found) >= _MOST_REFERENCES:
                raise UnknownSchemaError(f"a schema refers to more than {_MOST_REFERENCES} others")
            try:
                referred = self._ask("GET", f"/subjects/{quote(subject, '')}/versions/{quote(version, '')}")
            except _RefusedError as error:
                raise UnknownSchemaError(
                    f"version {version} of '{subject}', which a schema refers to: {error}"
                ) from None
            found[name] = str(referred.get("schema"))
            self._references(referred, found)
        return found

    def register(self, subject: str, text: str, *, may_add: bool = True) -> int:
        """The number of a schema under a subject.

        Args:
            subject: its name.
            text: the schema.
            may_add: whether it is registered if it is not there.

        Raises:
            ConnectorError: the registry refuses the schema, does not have it, or cannot be asked.
        """
        with self._lock:
            known = self._ids.get((subject, text))
        if known is not None:
            return known
        path = f"/subjects/{quote(subject, '')}" + ("/versions" if may_add else "")
        try:
            answer = self._ask("POST", path, {"schema": text})
        except _RefusedError as error:
            if error.status == 409:
                raise ConnectorError(
                    f"the schema registry refuses the schema of '{subject}': {error}",
                    retryable=False,
                    hint="columns that are added must be nullable, and types must stay; or write under another subject",
                ) from None
            if error.status == 404 and not may_add:
                raise ConnectorError(
                    f"the schema of '{subject}' is not in the schema registry: {error}",
                    retryable=False,
                    hint="register it, or leave out 'auto.register.schemas'",
                ) from None
            raise self._failed(f"the schema of '{subject}' cannot be registered", error) from error
        number = answer.get("id")
        if not isinstance(number, int):
            raise ConnectorError(f"the schema registry gave no number for the schema of '{subject}'")
        with self._lock:
            self._ids[subject, text] = number
        return number

    # -- HTTP

    def _ask(self, method: str, path: str, body: dict[str, str] | None = None) -> dict[str, Any]:
        """The answer to a request; each URL is tried, and all of them several times."""
        problem: Exception | None = None
        for attempt in range(_ATTEMPTS):
            for url in self._settings.urls:
                try:
                    return self._request(method, url, path, body)
                except _RefusedError as error:
                    if error.status < 500 and error.status != 429:
                        raise
                    problem = error
                except (OSError, ValueError, http.client.HTTPException) as error:
                    if isinstance(getattr(error, "reason", error), ssl.SSLCertVerificationError):
                        raise self._unreachable(error, retryable=False) from error
                    problem = error
            if attempt + 1 < _ATTEMPTS:
                time.sleep(_WAIT_S * 2**attempt)
        assert problem is not None
        raise self._unreachable(problem, retryable=True) from problem

    def _request(self, method: str, url: str, path: str, body: dict[str, str] | None) -> dict[str, Any]:
        parts = urlsplit(url)
        address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}{path}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(address, data, self._headers(parts.username, parts.password), method=method)
        handlers = [urllib.request.HTTPSHandler(context=self._tls())] if parts.scheme == "https" else []
        opener = urllib.request.build_opener(_NoRedirects, *handlers)
        try:
            with opener.open(request, timeout=self._settings.timeout_ms / 1000) as response:
                text = response.read(_ANSWER_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error.code, error.read(_ANSWER_BYTES)) from None
        if len(text) > _ANSWER_BYTES:
            raise ValueError(f"the answer is longer than {_ANSWER_BYTES >> 20} MB")
        found = json.loads(text)
        if isinstance(found, dict):
            return found
        raise ValueError("the answer is no JSON object")

    def _headers(self, user: str | None, password: str | None) -> dict[str, str]:
        settings = self._settings
        headers = {"Accept": f"{_TYPE}, application/json", "Content-Type": _TYPE}
        info = settings.user_info or (f"{unquote(user)}:{unquote(password or '')}" if user else "")
        if settings.token:
            headers["Authorization"] = f"Bearer {settings.token}"
        elif info:
            headers["Authorization"] = "Basic " + base64.b64encode(info.encode()).decode()
        return headers

    def _tls(self) -> ssl.SSLContext:
        with self._lock:
            if self._context is None:
                settings = self._settings
                try:
                    context = ssl.create_default_context(cafile=settings.authorities or None)
                    if settings.certificate:
                        context.load_cert_chain(settings.certificate, password=settings.key_password or None)
                except (OSError, ValueError) as error:
                    raise ConnectorError(
                        f"a PEM file for the schema registry cannot be read: {error}",
                        retryable=False,
                        hint="check ssl.truststore.location, ssl.keystore.location and its password",
                    ) from error
                self._context = context
            return self._context

    def _failed(self, what: str, error: _RefusedError) -> ConnectorError:
        if error.status in (401, 403):
            hint = "check basic-auth.user-info or bearer-auth.token"
            return ConnectorError(
                f"the schema registry at {self._place} lets nobody in: {error}", retryable=False, hint=hint
            )
        return ConnectorError(
            f"{what} at the schema registry {self._place}: {error}", retryable=False if error.status < 500 else None
        )

    def _unreachable(self, problem: Exception, *, retryable: bool) -> ConnectorError:
        reason = getattr(problem, "reason", None) or problem
        return ConnectorError(
            f"the schema registry at {self._place} cannot be asked: {reason}",
            retryable=retryable,
            hint="check that it runs, and the option url",
        )

    @property
    def _place(self) -> str:
        """The URLs, without user and password."""
        parts = [urlsplit(url) for url in self._settings.urls]
        return ", ".join(f"{p.scheme}://{p.netloc.rpartition('@')[2]}{p.path}" for p in parts)


def _refusal(status: int, text: bytes) -> _RefusedError:
    try:
        said = json.loads(text)
        return _RefusedError(status, int(said.get("error_code", status)), f"{said['message']} (HTTP {status})")
    except (ValueError, KeyError, TypeError, AttributeError):
        return _RefusedError(status, status, f"HTTP {status}")


@functools.lru_cache(maxsize=100)
def schema_registry(settings: RegistrySettings) -> SchemaRegistry:
    """The client of a registry, which all subtasks of the process share."""
    return SchemaRegistry(settings)
