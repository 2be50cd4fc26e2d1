"""The maxwell-json format: changes in Maxwell's form, `{"data": row, "old": old values, "type": …}`. Its options have Flink's names."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.api.format import BadRecord, DecodedRecords, ReadRequest, RecordChunk
from flowrun.connectors.formats.changes import Changes, change_rows, codes_of, row_type, rows_before_updates
from flowrun.connectors.formats.json_decoder import JsonDecoder
from flowrun.connectors.formats.json_envelope import (
    Envelope,
    EnvelopeEncoder,
    change_format,
    check_columns,
    json_encoder,
)
from flowrun.connectors.formats.json_values import load_fast
from flowrun.core.arrays import Integers
from flowrun.core.options import Options
from flowrun.core.schema import Schema
from flowrun.core.types import STRING

_NAME = "maxwell-json"
_TYPES = pa.array(["insert", "update", "delete"])
_UPDATE, _DELETE = 1, 2


class MaxwellDecoder:
    """Decodes Maxwell messages: an insert, delete or update of the row in `data`. In an update `old` holds the fields that changed.

    Args:
        schema: the columns of the rows.
        ignore_parse_errors: whether a field that cannot be read becomes NULL.
    """

    has_header = False

    def __init__(self, schema: Schema, *, ignore_parse_errors: bool = False) -> None:
        self._schema = schema
        image = row_type(schema)
        messages = Schema.of(data=image, old=image, type=STRING)
        self._messages = JsonDecoder(messages, ignore_parse_errors=ignore_parse_errors)

    def read_header(self, record: bytes) -> None:
        """Nothing to do: JSON has no header."""

    def decode(self, chunk: RecordChunk) -> DecodedRecords:
        """Rows of a chunk; see `RecordDecoder`."""
        decoded = self._messages.decode(chunk)
        data, old, type = decoded.columns.columns
        types = codes_of(type, _TYPES)
        no_data = data.is_null().to_numpy(zero_copy_only=False)
        no_old = old.is_null().to_numpy(zero_copy_only=False) & (types == _UPDATE)
        wrong = (types < 0) | no_data | no_old
        bad = list(decoded.bad)
        bad += (
            BadRecord(int(decoded.records[i]), _what_is_wrong(type[i].as_py(), bool(no_data[i])))
            for i in np.flatnonzero(wrong).tolist()
        )
        good = np.flatnonzero(~wrong)
        updates = types[good] == _UPDATE
        updated = good[updates]
        nulled = self._nulled(decoded.records[updated], chunk)
        before = rows_before_updates(old.take(pa.array(updated)), data.take(pa.array(updated)), nulled)
        rows = change_rows(updates, types[good] == _DELETE)
        from_after = rows.after_update | ~updates[rows.changes]
        nth_update = np.cumsum(updates) - 1
        positions = np.where(from_after, good[rows.changes], nth_update[rows.changes])
        changes = Changes(before, data, from_after, positions, rows.kinds, decoded.records[good[rows.changes]])
        return changes.rows(self._schema, (), bad)

    def _nulled(self, records: Integers, chunk: RecordChunk) -> dict[str, list[int]]:
        """Column → positions of the updates for which `old` says null. Only messages that contain a null are parsed."""
        found: dict[str, list[int]] = {}
        for position, record in enumerate(records.tolist()):
            text = chunk.record(record)
            if b"null" in text:
                for name, value in load_fast(text)["old"].items():
                    if value is None:
                        found.setdefault(name, []).append(position)
        return found


def _what_is_wrong(type: str | None, no_data: bool) -> str:
    if type is None:
        return 'the field "type" is missing: this is no Maxwell message'
    if type not in _TYPES.to_pylist():
        return f'unknown "type": {type!r}, expected insert, update or delete'
    return 'the field "data" is missing' if no_data else 'the field "old" of an update is missing'


def _check(schema: Schema, _options: Options) -> None:
    check_columns(schema)


def _decoder(request: ReadRequest) -> MaxwellDecoder:
    return MaxwellDecoder(request.schema, ignore_parse_errors=request.options.flag(f"{_NAME}.ignore-parse-errors"))


def _encoder(schema: Schema, options: Options) -> EnvelopeEncoder:
    envelope = Envelope(('{"data":', ',"type":"insert"}'), ('{"data":', ',"type":"delete"}'))
    return EnvelopeEncoder(json_encoder(schema, options, _NAME), envelope)


FORMAT = change_format(
    _NAME,
    "Changes as Maxwell publishes them, one JSON object a line or message.",
    options=(),
    check=_check,
    create_decoder=_decoder,
    create_encoder=_encoder,
)
