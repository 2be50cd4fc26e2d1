"""The common part of changelog formats on top of JSON, whose objects say which change a row is."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from flowrun.api.format import ReadRequest, RecordDecoder, RecordFormat
from flowrun.connectors.formats.changes import inserts
from flowrun.connectors.formats.framing import at_any_line, framer_for_lines
from flowrun.connectors.formats.json_encoder import MAX_ENCODED_BYTES, JsonEncoder, joined_bytes
from flowrun.connectors.formats.json_format import FORMAT as JSON
from flowrun.connectors.formats.json_format import check_map_keys
from flowrun.core.options import Option, Options
from flowrun.core.record import record
from flowrun.core.schema import Schema

_SHARED = (
    "ignore-parse-errors",
    "timestamp-format.standard",
    "encode.ignore-null-fields",
    "encode.decimal-as-plain-number",
    "map-null-key.mode",
    "map-null-key.literal",
    "decode.json-parser.enabled",
)
SHARED_OPTIONS: tuple[Option, ...] = tuple(o for o in JSON.options if o.name in _SHARED)
"""Options that have the same meaning as those of the json format."""


@record
class Envelope:
    """The texts before and behind the object of a row, for rows that are added and for rows that are removed."""

    added: tuple[str, str]
    removed: tuple[str, str]


class EnvelopeEncoder:
    """Encodes each row as one JSON object that holds the row and its change.

    −U and −D become one kind of object, +I and +U the other: a reader gets the same table, but does not know which changes were updates.

    Args:
        rows: encodes the row itself.
        envelope: the texts that are written around it.
    """

    def __init__(self, rows: JsonEncoder, envelope: Envelope) -> None:
        self._rows = rows
        self._envelope = envelope

    def header(self) -> bytes:
        """Empty: JSON has no header."""
        return b""

    def encode(self, columns: pa.RecordBatch) -> pa.Buffer:
        """All rows as JSON lines that say that they are inserts."""
        return self.encode_changes(columns, inserts(columns.num_rows))

    def encode_messages(self, columns: pa.RecordBatch) -> pa.Array:
        """A JSON object for each row, which says that it is an insert."""
        return self.encode_change_messages(columns, inserts(columns.num_rows))

    def encode_changes(self, columns: pa.RecordBatch, kinds: pa.Int8Array) -> pa.Buffer:
        """All changes as JSON lines."""
        if columns.nbytes > MAX_ENCODED_BYTES and columns.num_rows > 1:  # a string array holds less than 2 GiB
            middle = columns.num_rows // 2
            first = self.encode_changes(columns.slice(0, middle), kinds.slice(0, middle))
            return pa.py_buffer(
                b"".join(map(memoryview, (first, self.encode_changes(columns.slice(middle), kinds.slice(middle)))))
            )
        return joined_bytes(self._wrapped(columns, kinds, "\n"))

    def encode_change_messages(self, columns: pa.RecordBatch, kinds: pa.Int8Array) -> pa.Array:
        """A JSON object for each change."""
        return self._wrapped(columns, kinds, "")

    def _wrapped(self, columns: pa.RecordBatch, kinds: pa.Int8Array, end: str) -> pa.Array:
        added, removed = self._envelope.added, self._envelope.removed
        remove = kinds.to_numpy(zero_copy_only=False) & 1
        if not remove.any():
            return self._rows.encode_messages(columns, added[0], added[1] + end)
        side = pa.array(remove)
        before = pa.array([added[0], removed[0]]).take(side)
        behind = pa.array([added[1] + end, removed[1] + end]).take(side)
        return self._rows.encode_messages(columns, before, behind)


def json_encoder(schema: Schema, options: Options, name: str) -> JsonEncoder:
    """The encoder of the rows of the format `name`, whose options have that prefix."""
    return JsonEncoder(
        schema,
        iso_timestamps=options.text(f"{name}.timestamp-format.standard") == "iso-8601",
        ignore_null_fields=options.flag(f"{name}.encode.ignore-null-fields"),
    )


def check_columns(schema: Schema) -> None:
    """Check that JSON can hold the columns.

    Raises:
        OptionError: the keys of a MAP cannot be names of fields.
    """
    for field in schema:
        check_map_keys(field.name, field.type)


def change_format(
    name: str,
    summary: str,
    *,
    options: tuple[Option, ...],
    check: Callable[[Schema, Options], None],
    create_decoder: Callable[[ReadRequest], RecordDecoder],
    create_encoder: Callable[[Schema, Options], EnvelopeEncoder],
    upserts: Callable[[Options], bool] | None = None,
) -> RecordFormat:
    """A changelog format on top of JSON; the arguments are those of `RecordFormat`."""
    return RecordFormat(
        name=name,
        summary=summary,
        extension="json",
        options=(*SHARED_OPTIONS, *options),
        check=check,
        create_decoder=create_decoder,
        create_encoder=create_encoder,
        create_framer=framer_for_lines,
        splittable=at_any_line,
        changelog=True,
        upserts=upserts,
    )
