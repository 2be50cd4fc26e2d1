"""Hints for records that cannot be read, and warnings about columns that no record has: which option may be set wrongly."""

from __future__ import annotations

import csv
import json
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from flowrun.api.format import DecodedRecords, RecordChunk, RecordDecoder
from flowrun.core.schema import Schema
from flowrun.errors import near_matches

_log = logging.getLogger(__name__)
_EPOCH = re.compile(r"column '([^']+)': (\d{9,19}) is no (TIMESTAMP\S*)")
ENOUGH_ROWS = 10_000
"""After how many rows a warning says which columns none of them has."""
GO_ON = "set on_error (in SQL: 'format.on-error') to skip or dead-letter to go on without such records"


def bad_record_hint(raw: bytes, reason: str, columns: Sequence[str], format: str) -> str:
    """A hint for a record that cannot be read: which option to set.

    >>> bad_record_hint(b"[", "not JSON", ["id"], "json").split(":")[0]
    'the file is one JSON array'
    >>> bad_record_hint(b"id,v", "column 'id': 'id' is no BIGINT", ["id", "v"], "csv")
    "the line names the columns: set 'csv.header' = 'true'"
    """
    if format == "json" and raw.lstrip()[:1] == b"[":
        return "the file is one JSON array: write one object a line, e.g. jq -c '.[]' file.json > lines.json"
    if format == "csv" and _names_columns(raw, columns):
        return "the line names the columns: set 'csv.header' = 'true'"
    epoch = _EPOCH.search(reason)
    if epoch is not None:
        unit, argument = ("seconds", 0) if len(epoch[2]) < 12 else ("milliseconds", 3)
        name = epoch[1]
        return (
            f"these are {unit} since 1970: declare {name} as BIGINT, and the time as a computed column: "
            f"ts AS TO_TIMESTAMP_LTZ({name}, {argument})"
        )
    return GO_ON


def _names_columns(raw: bytes, columns: Sequence[str]) -> bool:
    line = raw.decode("utf-8", "replace").strip()
    for separator in (",", ";", "\t", "|"):
        try:
            fields = next(csv.reader([line], delimiter=separator), [])
        except csv.Error:  # such a line is no header
            continue
        named = {f.strip().casefold() for f in fields} & {c.casefold() for c in columns}
        if named and len(named) >= min(2, len(columns)):
            return True
    return False


class WatchedDecoder:
    """A decoder of JSON objects that notices columns which no record has, and warns about them once.

    Args:
        decoder: decodes the records.
        schema: the columns that it gives.
        place: the name of what is read, for the warning.
    """

    def __init__(self, decoder: RecordDecoder, schema: Schema, place: str) -> None:
        self._decoder = decoder
        self._place = place
        self._unseen = list(schema.names)
        self._rows = 0
        self._first: Mapping[str, Any] = {}

    @property
    def is_watching(self) -> bool:
        """Whether records that were not read yet decide about a warning."""
        return bool(self._unseen)

    @property
    def has_header(self) -> bool:
        """Whether files begin with a header, as the decoder says."""
        return self._decoder.has_header

    def read_header(self, record: bytes) -> None:
        """Pass the header on to the decoder."""
        self._decoder.read_header(record)

    def decode(self, chunk: RecordChunk) -> DecodedRecords:
        """Rows of a chunk; see `RecordDecoder`."""
        decoded = self._decoder.decode(chunk)
        rows = decoded.columns.num_rows
        if self._unseen and rows:
            if not self._rows:
                self._first = _object(chunk.record(int(decoded.records[0])))
            self._rows += rows
            self._unseen = [n for n in self._unseen if decoded.columns.column(n).null_count == rows]
            if self._rows >= ENOUGH_ROWS:
                self.report()
        return decoded

    def report(self) -> None:
        """Warn about the columns that no record had so far. Only the first call warns."""
        missing = [n for n in self._unseen if n not in self._first]
        self._unseen = []
        if missing and self._first:
            _log.warning("%s", _unseen_text(self._place, missing, list(self._first), self._rows))


class HeaderWatch:
    """A decoder of CSV without a header that warns if the first record names the columns; its arguments are those of `WatchedDecoder`."""

    has_header = False

    def __init__(self, decoder: RecordDecoder, schema: Schema, place: str) -> None:
        self._decoder = decoder
        self._columns = schema.names
        self._place = place
        self._looked = False

    @property
    def is_watching(self) -> bool:
        """Whether it has not seen a record yet."""
        return not self._looked

    def read_header(self, record: bytes) -> None:
        """Nothing to do: there is no header."""

    def decode(self, chunk: RecordChunk) -> DecodedRecords:
        """Rows of a chunk; see `RecordDecoder`."""
        decoded = self._decoder.decode(chunk)
        if not self._looked and len(decoded.records):
            self._looked = True
            if _names_columns(chunk.record(int(decoded.records[0])), self._columns):
                hint = "set 'csv.header' = 'true'"
                _log.warning("%s: the first line names the columns and is read as a row; %s", self._place, hint)
        return decoded


def leave_warnings_to_others() -> None:
    """Give no warnings in this process from now on: it reads a part of the data, and another process warns about all of it."""
    _log.disabled = True


def _object(record: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(record)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _unseen_text(place: str, missing: Sequence[str], keys: Sequence[str], rows: int) -> str:
    shown = " and ".join(f"'{n}'" for n in missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
    counted = "the only record" if rows == 1 else f"all {rows} records"
    text = f"{place}: {shown} {'is' if len(missing) == 1 else 'are'} NULL in {counted} read"
    if {"before", "after"} & set(keys) and "op" in keys:
        return f"{text}: they look like Debezium's changes; set the format to debezium-json"
    if {"payload", "schema"} <= set(keys):
        options = "the format to debezium-json and debezium-json.schema-include to true"
        return f"{text}: they look like Debezium's changes with their schema; set {options}"
    if {"before", "after"} & set(keys) and "op_type" in keys:
        return f"{text}: they look like GoldenGate's changes; set the format to ogg-json"
    if {"data", "type", "database", "xid"} <= set(keys):
        return f"{text}: they look like Maxwell's changes; set the format to maxwell-json"
    if {"data", "type", "database"} <= set(keys):
        return f"{text}: they look like Canal's changes; set the format to canal-json"
    folded = {k.casefold(): k for k in keys}
    near = [folded.get(n.casefold()) or next(iter(near_matches(n, keys)), None) for n in missing[:3]]
    meant = " and ".join(f"'{k}'" for k in near if k is not None)
    if meant:
        return f"{text}; names are case-sensitive: did you mean {meant}?"
    return f"{text}; the first one has {', '.join(keys[:12])}"
