"""The canal-json format: changes in Canal's form, `{"data": [rows], "old": [old values], "type": …}`. Its options have Flink's names."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
from flowrun.core.arrays import Bools, Integers
from flowrun.core.options import Option, Options, OptionType
from flowrun.core.schema import Schema
from flowrun.core.types import STRING, array
from flowrun.errors import OptionError

_NAME = "canal-json"
_TYPES = pa.array(["INSERT", "UPDATE", "DELETE", "CREATE"])
_INSERT, _UPDATE, _DELETE, _CREATE = range(4)

_OPTIONS = (
    Option("database.include", OptionType.STRING, "Only changes of databases whose name matches this pattern in full."),
    Option("table.include", OptionType.STRING, "Only changes of tables whose name matches this pattern in full."),
)


class CanalDecoder:
    """Decodes Canal messages: an INSERT, DELETE or UPDATE of the rows in `data`. In an UPDATE `old` holds the fields that changed.

    Args:
        schema: the columns of the rows.
        database: a pattern for the databases to keep; None: all are kept.
        table: a pattern for the tables to keep; None: all are kept.
        ignore_parse_errors: whether a field that cannot be read becomes NULL.
    """

    has_header = False

    def __init__(
        self,
        schema: Schema,
        *,
        database: str | None = None,
        table: str | None = None,
        ignore_parse_errors: bool = False,
    ) -> None:
        self._schema = schema
        self._included = [(n, p) for n, p in (("database", database), ("table", table)) if p is not None]
        rows = array(row_type(schema))
        outer = Schema.of(data=rows, old=rows, type=STRING, **{n: STRING for n, _ in self._included})
        self._messages = JsonDecoder(outer, ignore_parse_errors=ignore_parse_errors)

    def read_header(self, record: bytes) -> None:
        """Nothing to do: JSON has no header."""

    def decode(self, chunk: RecordChunk) -> DecodedRecords:
        """Rows of a chunk; see `RecordDecoder`."""
        decoded = self._messages.decode(chunk)
        columns = decoded.columns
        data, old = columns.column("data"), columns.column("old")
        types = codes_of(columns.column("type"), _TYPES)
        wanted = self._wanted(columns)
        lengths, old_lengths = _lengths(data), _lengths(old)
        wrong = wanted & (
            (types < 0) | ((types != _CREATE) & (lengths < 0)) | ((types == _UPDATE) & (lengths != old_lengths))
        )
        bad = list(decoded.bad)
        for i in np.flatnonzero(wrong).tolist():
            reason = _what_is_wrong(columns.column("type")[i].as_py(), int(lengths[i]), int(old_lengths[i]))
            bad.append(BadRecord(int(decoded.records[i]), reason))
        messages = np.flatnonzero(wanted & ~wrong & (types != _CREATE))
        counts = lengths[messages]
        after = _flattened(data, messages)
        message = np.repeat(messages, counts)
        updates = types[message] == _UPDATE
        before = self._before(old, messages[types[messages] == _UPDATE], after, updates, decoded, message, chunk)
        rows = change_rows(updates, types[message] == _DELETE)
        from_after = rows.after_update | ~updates[rows.changes]
        nth_update = np.cumsum(updates) - 1
        positions = np.where(from_after, rows.changes, nth_update[rows.changes]) if len(message) else rows.changes
        changes = Changes(before, after, from_after, positions, rows.kinds, decoded.records[message][rows.changes])
        return changes.rows(self._schema, (), bad)

    def _wanted(self, columns: pa.RecordBatch) -> Bools:
        wanted = np.ones(columns.num_rows, np.bool_)
        for name, pattern in self._included:
            matching = pc.match_substring_regex(columns.column(name), f"^(?:{pattern})$")
            wanted &= pc.fill_null(matching, False).to_numpy(zero_copy_only=False)
        return wanted

    def _before(
        self,
        old: pa.ListArray,
        update_messages: Integers,
        after: pa.StructArray,
        updates: Bools,
        decoded: DecodedRecords,
        message: Integers,
        chunk: RecordChunk,
    ) -> pa.StructArray:
        """The rows as they were before the updates. Fields that are not in `old` did not change."""
        given = _flattened(old, update_messages)
        current = after.filter(pa.array(updates)) if len(updates) else after
        if not len(given):
            return given
        return rows_before_updates(given, current, self._nulled(decoded.records[message[updates]], chunk))

    def _nulled(self, records: Integers, chunk: RecordChunk) -> dict[str, list[int]]:
        """Column → positions of the updated rows for which `old` says null. Only messages that contain a null are parsed."""
        found: dict[str, list[int]] = {}
        row = 0
        while row < len(records):
            record = int(records[row])
            last = int(np.searchsorted(records, record, side="right"))
            text = chunk.record(record)
            if b"null" in text:
                for offset, fields in enumerate(load_fast(text)["old"]):
                    for name, value in (fields or {}).items():
                        if value is None:
                            found.setdefault(name, []).append(row + offset)
            row = last
        return found


def _lengths(lists: pa.ListArray) -> Integers:
    """The number of elements of each list; −1 for NULL."""
    lengths: Integers = pc.fill_null(pc.list_value_length(lists), -1).to_numpy().astype(np.int64)
    return lengths


def _flattened(lists: pa.ListArray, which: Integers) -> pa.StructArray:
    """The elements of some of the lists, one after the other."""
    return pc.list_flatten(lists.take(pa.array(which)))


def _what_is_wrong(type: str | None, rows: int, old_rows: int) -> str:
    if type is None:
        return 'the field "type" is missing: this is no Canal message'
    if type not in _TYPES.to_pylist():
        return f'unknown "type": {type!r}, expected INSERT, UPDATE or DELETE'
    if rows < 0:
        return 'the field "data" is missing'
    return f'"data" has {rows} rows, but "old" has {max(old_rows, 0)}'


def _check(schema: Schema, options: Options) -> None:
    check_columns(schema)
    for name in ("database.include", "table.include"):
        pattern = options.get(f"{_NAME}.{name}")
        try:
            re.compile(str(pattern or ""))
        except re.error as error:
            raise OptionError(
                f"{_NAME}.{name}", f"option '{_NAME}.{name}' is no regular expression: {error}, got '{pattern}'"
            ) from None


def _decoder(request: ReadRequest) -> CanalDecoder:
    database, table = (request.options.get(f"{_NAME}.{n}.include") for n in ("database", "table"))
    return CanalDecoder(
        request.schema,
        database=None if database is None else str(database),
        table=None if table is None else str(table),
        ignore_parse_errors=request.options.flag(f"{_NAME}.ignore-parse-errors"),
    )


def _encoder(schema: Schema, options: Options) -> EnvelopeEncoder:
    envelope = Envelope(('{"data":[', '],"type":"INSERT"}'), ('{"data":[', '],"type":"DELETE"}'))
    return EnvelopeEncoder(json_encoder(schema, options, _NAME), envelope)


FORMAT = change_format(
    _NAME,
    "Changes as Canal publishes them, one JSON object a line or message.",
    options=_OPTIONS,
    check=_check,
    create_decoder=_decoder,
    create_encoder=_encoder,
)
