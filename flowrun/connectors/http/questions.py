"""The requests of a lookup: one a key, or one for many keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import quote

import pyarrow as pa

from flowrun.connectors.formats.json_encoder import JsonEncoder
from flowrun.connectors.formats.value_text import value_text
from flowrun.connectors.http.client import HttpRequest
from flowrun.connectors.http.templates import BodyTemplate, UrlTemplate, body_template, quoted, url_template
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import OptionError

ALL_KEYS = "keys"
"""The placeholder of a body that stands for all keys of a request, as JSON objects in an array."""


@record
class Questions:
    """How keys become requests.

    Attributes:
        method: GET, POST or PUT.
        url: with placeholders for key columns.
        body: None: there is none.
        most_keys: of a request; 0: each key has a request of its own, with its value where others have an array of values.
        keys: the key columns.
    """

    method: str
    url: UrlTemplate
    body: BodyTemplate | None
    most_keys: int
    keys: Schema

    def requests(self, keys: pa.RecordBatch) -> list[HttpRequest]:
        """The requests for distinct keys, in their order.

        Raises:
            DataError: a value cannot stand in a URL.
        """
        sent = (("content-type", "application/json"),) if self.body is not None else ()
        headers = (("accept", "application/json"), *sent)
        bodies = list(self._bodies(keys))
        return [
            HttpRequest(self.method, url, body, headers) for url, body in zip(self._urls(keys), bodies, strict=True)
        ]

    def _parts(self, count: int) -> Iterator[slice]:
        for start in range(0, count, self.most_keys):
            yield slice(start, start + self.most_keys)

    def _urls(self, keys: pa.RecordBatch) -> list[str]:
        columns = [keys.column(self.keys.index(n)) for n in self.url.columns]
        types = [self.keys.types[self.keys.index(n)] for n in self.url.columns]
        if not self.most_keys:
            if self.url.is_fixed:
                return [self.url.texts[0]] * keys.num_rows
            urls: list[str] = self.url.urls(columns, types).to_pylist()
            return urls
        made = []
        for part in self._parts(keys.num_rows):
            url = self.url.texts[0]
            for column, kind, text in zip(columns, types, self.url.texts[1:], strict=True):
                url += ",".join(quoted(value_text(column[part], kind)).to_pylist()) + text
            made.append(url)
        return made

    def _bodies(self, keys: pa.RecordBatch) -> Iterator[bytes | None]:
        if self.body is None:
            yield from [None] * (len(list(self._parts(keys.num_rows))) if self.most_keys else keys.num_rows)
            return
        values = {name: self._values(keys, name) for name in set(self.body.names)}
        if not self.most_keys:
            for row in range(keys.num_rows):
                yield self.body.filled({name: texts[row] for name, texts in values.items()})
            return
        for part in self._parts(keys.num_rows):
            yield self.body.filled({name: b"[" + b",".join(texts[part]) + b"]" for name, texts in values.items()})

    def _values(self, keys: pa.RecordBatch, name: str) -> list[bytes]:
        """The JSON values that a placeholder stands for, one a key."""
        if name not in self.keys.names:
            return [text.encode() for text in JsonEncoder(self.keys).encode_messages(keys).to_pylist()]
        own = self.keys.select([name])
        objects = JsonEncoder(own).encode_messages(keys.select([self.keys.index(name)])).to_pylist()
        before = len(json.dumps(name, ensure_ascii=False)) + 2  # {"name":
        return [text[before:-1].encode() for text in objects]


def questions_of(method: str, url: str, body: str | None, most_keys: int, keys: Schema) -> Questions:
    """The questions that options describe.

    Args:
        method: GET, POST or PUT.
        url: with placeholders.
        body: a text with placeholders; None: that of Flink's connector: a JSON object of the key columns, or an array of them.
        most_keys: of a request; 0: one.
        keys: the key columns.

    Raises:
        OptionError: a key column is nowhere in the request, or options do not go together.
    """
    if method == "GET":
        if body is not None:
            raise OptionError("lookup.request.body", "a GET has no body", hint="set 'lookup-method' = 'post'")
        named = url_template(url, keys).columns
        added = [n for n in keys.names if n not in named]
        if most_keys and len(keys) > 1:
            raise OptionError(
                "lookup.request.mode",
                "many keys of several columns do not fit into a URL",
                hint="set 'lookup-method' = 'post'",
            )
        for name in added:
            url += ("&" if "?" in url else "?") + quote(name, "") + "={" + name + "}"
        return Questions(method, url_template(url, keys), None, most_keys, keys)
    template = body_template(body if body is not None else "{" + ALL_KEYS + "}", (*keys.names, ALL_KEYS))
    found = url_template(url, keys)
    if most_keys and not found.is_fixed:
        raise OptionError(
            "url", "a request for many keys has them in its body", hint="leave the placeholders of 'url' out"
        )
    given = {*found.columns, *template.names}
    missing = [n for n in keys.names if n not in given]
    if missing and (ALL_KEYS not in given or ALL_KEYS in keys.names):
        raise OptionError(
            "lookup.request.body",
            f"the request says nothing of key column '{missing[0]}'",
            hint=f"write {{{missing[0]}}} in 'lookup.request.body' or 'url', or leave 'lookup.request.body' out",
        )
    return Questions(method, found, template, most_keys, keys)
