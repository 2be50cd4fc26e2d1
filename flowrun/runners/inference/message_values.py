"""What the values of messages are: their format from their bytes, and the rows in them."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import orjson

from flowrun.connectors.formats.avro.schema_registry import SchemaRegistry
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import PipelineError
from flowrun.runners.inference.avro_messages import FRAMED, is_framed, read_avro
from flowrun.runners.inference.files import DELIMITERS
from flowrun.runners.inference.sample import Row
from flowrun.runners.inference.value_types import from_texts

FORMATS = ("json", "debezium-json", "csv", "avro-confluent", "debezium-avro-confluent", "raw")
"""The formats that are found out."""
_ENOUGH = 0.9
"""So large a part of the messages must be of a format: the rest is taken for broken ones."""
_IMAGES = {"c": "after", "r": "after", "u": "after", "d": "before"}
"""Operation of a Debezium event → where its row is."""
_SHOWN_BYTES = 16
OfRegistry: TypeAlias = Callable[[str], SchemaRegistry]
"""Format → the registry that has its schemas. Raises PipelineError: the user has named none."""


@record(eq=False)
class ReadValues:
    """Rows of messages.

    Attributes:
        form: the format.
        options: of the format, without the prefix of its name.
        rows: of each message; None: it has none.
        schema: the columns, where the format tells them.
        why_unread: why a message that has a value is no row; None: all are.
        unread: how many such messages there are.
        needs_key: changes come without the row before, so that they go by a primary key.
    """

    form: str
    options: Mapping[str, str]
    rows: tuple[Row | None, ...]
    schema: Schema | None = None
    why_unread: str | None = None
    unread: int = 0
    needs_key: bool = False


def read_values(values: Sequence[bytes | None], form: str | None, registry: OfRegistry, what: str) -> ReadValues:
    """The rows of messages.

    Args:
        values: of the messages; None: it has none.
        form: their format; None: it is found out.
        registry: has the schemas of Avro records.
        what: holds the messages, as messages of errors call it.

    Raises:
        PipelineError: they are of no format that is known here, or not of the one that is given.
        ConnectorError: the registry cannot be asked.
    """
    present = [v for v in values if v is not None]
    if not present:
        raise PipelineError.of(
            f"the messages of {what} that were looked at have no values", "look at more: --rows 100000"
        )
    if form is not None and form not in FORMATS:
        raise PipelineError.of(
            f"messages of format '{form}' do not tell their columns", f"one of {', '.join(FORMATS)} does"
        )
    found = form or format_of(present)
    if found is None:
        head = present[0][:_SHOWN_BYTES].hex(" ")
        raise PipelineError.of(
            f"the messages of {what} are bytes of a format that is not known: one begins with {head}",
            "give it: --format raw reads them as BYTES; Protobuf needs a declaration by hand (docs/connectors/formats.md)",
        )
    if found in FRAMED:
        read = _avro(values, found, registry(found), is_given=form is not None)
    else:
        read = _READERS[found](values)
    if not any(r is not None for r in read.rows):
        raise PipelineError.of(
            f"no message of {what} that was looked at is a row of format '{found}': {read.why_unread}",
            f"--format chooses another one of {', '.join(FORMATS)}",
        )
    return read


def format_of(values: Sequence[bytes]) -> str | None:
    """The format that nearly all values have, by their bytes; None: none that is known.

    >>> format_of([b'{"a": 1}']), format_of([b'{"op": "c", "before": null, "after": {"a": 1}}'])
    ('json', 'debezium-json')
    >>> format_of([b"1;x", b"2;y"]), format_of([b"hello"]), format_of([bytes(5) + b"x"]), format_of([bytes(range(9, 250))])
    ('csv', 'raw', 'avro-confluent', None)
    """
    enough = _ENOUGH * len(values)
    if sum(map(is_framed, values)) >= enough:
        return "avro-confluent"
    objects = [o for o in map(_object, values) if o is not None]
    if len(objects) >= enough:
        events = sum(_image(o) is not None or _image(o.get("payload")) is not None for o in objects)
        return "debezium-json" if events >= _ENOUGH * len(objects) else "json"
    texts = [t for t in map(_text, values) if t is not None]
    if len(texts) < enough:
        return None
    return "raw" if _delimiter(texts) is None else "csv"


def _object(value: bytes | None) -> dict[str, Any] | None:
    try:
        found = orjson.loads(value or b"")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _text(value: bytes | None) -> str | None:
    """The value as a text of letters; None: it is none."""
    try:
        text = (value or b"").decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if text and all(c.isprintable() or c in "\t\r\n" for c in text) else None


def _delimiter(texts: Sequence[str]) -> str | None:
    """What parts nearly all texts into the same number of fields; None: nothing does."""
    for delimiter in sorted(DELIMITERS, key=texts[0].count, reverse=True):
        (fields, count), *_ = Counter(len(_fields(t, delimiter) or ()) for t in texts).most_common(1)
        if fields > 1 and count >= _ENOUGH * len(texts):
            return delimiter
    return None


def _fields(text: str, delimiter: str) -> list[str] | None:
    try:
        lines = list(csv.reader([text], delimiter=delimiter, strict=True))
    except csv.Error:
        return None
    return lines[0] if len(lines) == 1 else None


def _image(event: object) -> Row | None:
    """The row that a Debezium event tells of."""
    if not isinstance(event, dict) or not ("before" in event or "after" in event):
        return None
    found = event.get(_IMAGES.get(str(event.get("op")), ""))
    return found if isinstance(found, dict) else None


def _counted(
    values: Sequence[bytes | None], rows: Sequence[Row | None], form: str, problem: str, **more: Any
) -> ReadValues:
    unread = [i for i, (v, r) in enumerate(zip(values, rows, strict=True)) if v is not None and r is None]
    return ReadValues(form, rows=tuple(rows), why_unread=problem if unread else None, unread=len(unread), **more)


def _json(values: Sequence[bytes | None]) -> ReadValues:
    return _counted(values, [_object(v) for v in values], "json", "it is no JSON object", options={})


def _debezium(values: Sequence[bytes | None]) -> ReadValues:
    objects = [_object(v) for v in values]
    wrapped = sum(1 for o in objects if o is not None and _image(o.get("payload")) is not None)
    events: list[Any] = objects if not wrapped else [None if o is None else o.get("payload") for o in objects]
    rows = [_image(e) for e in events]
    needs_key = any(
        isinstance(e, dict) and e.get("op") in ("u", "d") and not isinstance(e.get("before"), dict) for e in events
    )
    options = {"schema-include": "true"} if wrapped else {}
    if needs_key:
        options["changelog-mode"] = "upsert"
    return _counted(values, rows, "debezium-json", "it is no event of Debezium", options=options, needs_key=needs_key)


def _csv(values: Sequence[bytes | None]) -> ReadValues:
    texts = [_text(v) for v in values]
    present = [t for t in texts if t is not None]
    delimiter = _delimiter(present) if present else None
    lines = [None if t is None else _fields(t, delimiter or ",") for t in texts]
    width = Counter(len(line) for line in lines if line).most_common(1)
    fields = width[0][0] if width else 0
    good = [line for line in lines if line is not None and len(line) == fields]
    columns = from_texts({f"f{i + 1}": [line[i] or None for line in good] for i in range(fields)})
    parsed = iter([dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)])
    rows = [next(parsed) if line is not None and len(line) == fields else None for line in lines]
    options = {} if delimiter in (None, ",") else {"field-delimiter": str(delimiter)}
    return _counted(values, rows, "csv", f"it has no {fields} fields", options=options)


def _raw(values: Sequence[bytes | None]) -> ReadValues:
    texts = [_text(v) for v in values]
    are_texts = all(t is not None for t, v in zip(texts, values, strict=True) if v is not None)
    cells: Sequence[str | bytes | None] = texts if are_texts else values
    rows = [None if c is None else {"message": c} for c in cells]
    return _counted(values, rows, "raw", "", options={})


_READERS: Mapping[str, Callable[[Sequence[bytes | None]], ReadValues]] = {
    "json": _json,
    "debezium-json": _debezium,
    "csv": _csv,
    "raw": _raw,
}


def _avro(values: Sequence[bytes | None], form: str, registry: SchemaRegistry, *, is_given: bool) -> ReadValues:
    read = read_avro(values, registry)
    is_change = read.is_change if not is_given else form == "debezium-avro-confluent"
    if is_change and not read.is_change:
        raise PipelineError.of("the schema in the registry is that of no event of Debezium", "--format avro-confluent")
    schema = read.image if is_change else read.schema
    rows = [r if r is None or not is_change else _image(r) for r in read.rows]
    return _counted(
        values,
        rows,
        "debezium-avro-confluent" if is_change else "avro-confluent",
        read.why_unread or "it is no event of Debezium",
        options={},
        schema=schema,
    )
