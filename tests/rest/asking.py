"""Asks the REST API as any HTTP client would."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any
from urllib.parse import urlsplit

from flowrun.core.record import record


@record
class Api:
    """Where it is, and the token."""

    url: str
    token: str
    tls: ssl.SSLContext | None = None

    @classmethod
    def of_page(cls, address: str) -> Api:
        """From the address that `flowrun ui` prints."""
        url, _, fragment = address.strip().partition("#token=")
        return cls(url, fragment.partition("&")[0])

    def ask(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, Any, http.client.HTTPMessage]:
        """(status, JSON or bytes, headers) of one request."""
        place = urlsplit(self.url)
        assert place.hostname is not None
        if self.tls is None:
            connection = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
        else:
            connection = http.client.HTTPSConnection(place.hostname, place.port, timeout=60, context=self.tls)
        given = {"Authorization": f"Bearer {self.token}", **headers}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            given["Content-Type"] = "application/json"
        try:
            connection.request(method, path, data, given)
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        is_json = response.headers.get_content_type() == "application/json"
        return response.status, json.loads(text) if is_json else text, response.headers

    def get(self, path: str) -> Any:
        """The answer to a request that is carried out."""
        status, answer, _ = self.ask("GET", path)
        assert status == 200, answer
        return answer
