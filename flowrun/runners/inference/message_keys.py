"""What the keys of messages are: their format from their bytes, and the columns in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from flowrun.connectors.formats.avro.schema_registry import SchemaRegistry
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import PipelineError
from flowrun.runners.inference.avro_messages import is_framed, read_avro
from flowrun.runners.inference.sample import Row

_WHOLE = "message_key"
"""The column of a key that is one value, which the value of the message does not have."""
_PREFIX = "key_"
_ENVELOPE = {"schema", "payload"}
"""Members of a key that Kafka Connect writes with its schema."""


@record(eq=False)
class ReadKeys:
    """Keys of messages.

    Attributes:
        form: their format; empty: no format reads them, and the values have their columns.
        columns: that are in them, as the table calls them.
        rows: what they add to the row of each message; None: the values have it all.
        prefix: what names of the columns in the key begin with in the table only.
        schema: of the columns that are added, where the format tells it.
    """

    form: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...] | None
    prefix: str = ""
    schema: Schema | None = None

    @property
    def options(self) -> dict[str, str]:
        """The options of a table whose messages have such keys, but for the names of the columns."""
        found = {"key.format": self.form}
        if self.prefix:
            found["key.fields-prefix"] = self.prefix
        if self.rows is not None:
            found["value.fields-include"] = "EXCEPT_KEY"
        return found


def read_keys(
    keys: Sequence[bytes | None], values: Sequence[Row | None], registry: Callable[[], SchemaRegistry]
) -> ReadKeys | None:
    """The columns of keys; None: the messages have none.

    Args:
        keys: of the messages.
        values: the rows of the values of the same messages.
        registry: has the schemas of Avro keys; raises PipelineError if the user has named none.

    >>> read_keys([b"u1", b"u2"], [{"n": 1, "user": "u1"}, {"n": 2, "user": "u2"}], registry=lambda: None).columns
    ('user',)
    """
    if not keys or any(k is None for k in keys):
        return None
    present = [k for k in keys if k is not None]
    if all(map(is_framed, present)):
        try:
            read = read_avro(present, registry())
        except PipelineError:
            return _whole(present, values)  # the key is a single value, or the registry knows nothing of it
        rows = [r or {} for r in read.rows]
        return _of_fields("avro-confluent", rows, values, read.schema)
    objects = [_object(k) for k in present]
    if not all(o is not None for o in objects):
        return _whole(present, values)
    rows = [o or {} for o in objects]
    if not all(r.keys() == _ENVELOPE and isinstance(r["payload"], dict) for r in rows):
        return _of_fields("json", rows, values, None)
    inner = _of_fields("", [r["payload"] for r in rows], values, None)
    return inner if inner.rows is None else None


def _object(key: bytes) -> Row | None:
    try:
        found = orjson.loads(key)
    except ValueError:
        return None
    return found if isinstance(found, dict) and found else None


def _of_fields(form: str, rows: Sequence[Row], values: Sequence[Row | None], schema: Schema | None) -> ReadKeys:
    """Keys of several columns: those that the values have, too, with the same contents, stay there."""
    names = tuple(dict.fromkeys(n for row in rows for n in row))
    if all(_same(row, value, names) for row, value in zip(rows, values, strict=True) if value is not None):
        return ReadKeys(form, names, None)
    taken = {n for value in values if value is not None for n in value}
    prefix = _PREFIX if taken & set(names) else ""
    added = tuple({prefix + n: v for n, v in row.items()} for row in rows)
    named = None if schema is None else Schema.from_pairs((prefix + f.name, f.type) for f in schema)
    return ReadKeys(form, tuple(prefix + n for n in names), added, prefix, named)


def _same(row: Row, value: Row, names: Sequence[str]) -> bool:
    return all(n in value and row.get(n) == value[n] for n in names)


def _whole(keys: Sequence[bytes], values: Sequence[Row | None]) -> ReadKeys:
    """Keys that are one value each: that of a column, or one of their own."""
    texts = [_text(k) for k in keys]
    if any(t is None for t in texts):
        return ReadKeys("raw", (_WHOLE,), tuple({_WHOLE: k} for k in keys))
    pairs = [(str(t), v) for t, v in zip(texts, values, strict=True) if v is not None]
    names = dict.fromkeys(n for _, value in pairs for n in value)
    for name in names:
        cells = [value.get(name) for _, value in pairs]
        if all(_is_text_of(cell, text) for (text, _), cell in zip(pairs, cells, strict=True)):
            return ReadKeys("raw" if all(isinstance(c, str) for c in cells) else "csv", (name,), None)
    name = _WHOLE if _WHOLE not in names else _PREFIX + _WHOLE
    return ReadKeys("raw", (name,), tuple({name: t} for t in texts))


def _is_text_of(cell: Any, text: str) -> bool:
    """Whether a text is a value that is a text or a whole number."""
    return isinstance(cell, str | int) and not isinstance(cell, bool) and str(cell) == text


def _text(key: bytes) -> str | None:
    try:
        text = key.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None
