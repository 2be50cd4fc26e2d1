"""Tables of the connector `http` as users declare them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from flowrun.api.connector import TableDefinition
from flowrun.api.lookup import FoundRows, LookupContext
from flowrun.connectors.formats.registry import prefixed_options
from flowrun.connectors.http.connector import CONNECTOR
from flowrun.connectors.http.lookup import HttpLookupSource
from flowrun.connectors.http.sink import HttpSink
from flowrun.core.clock import ManualClock
from flowrun.core.elements import RecordBatch
from flowrun.core.options import parse_options
from flowrun.core.schema import Schema
from flowrun.operators.joins.lookup_options import LOOKUP_JOIN_OPTIONS
from flowrun.testing.connector_conformance import writer_context
from flowrun.testing.metrics import RecordedMetrics

QUICK = {
    "retry-strategy.exponential-delay.initial-backoff": "1 ms",
    "retry-strategy.exponential-delay.max-backoff": "5 ms",
}
"""Waits that tests need not wait for."""


def table(schema: Schema, known: Any, given: dict[str, Any], **more: Any) -> TableDefinition:
    options = {"format": "json", **QUICK, **given}
    format_name = options.pop("format")
    parsed, problems = parse_options((*known, *prefixed_options(format_name)), options, "t")
    assert not problems, problems
    return TableDefinition("t", schema, parsed, format_name, **more)


def sink(schema: Schema, given: dict[str, Any], *keys: str, updating: bool = False) -> HttpSink:
    assert CONNECTOR.create_sink is not None
    made = CONNECTOR.create_sink(table(schema, CONNECTOR.sink_options, given, primary_key=keys, updating=updating))
    assert isinstance(made, HttpSink)
    return made


def lookup(declared: Schema, wanted: Schema, given: dict[str, Any], *keys: str) -> HttpLookupSource:
    assert CONNECTOR.create_lookup is not None
    known = (*CONNECTOR.lookup_options, *LOOKUP_JOIN_OPTIONS)
    made = CONNECTOR.create_lookup(table(wanted, known, given, declared=declared), keys)
    assert isinstance(made, HttpLookupSource)
    return made


def batch(schema: Schema, kinds: Sequence[int] | None = None, **columns: list[Any]) -> RecordBatch:
    rows = pa.RecordBatch.from_pydict(columns, schema=schema.arrow)
    return RecordBatch(rows, row_kinds=None if kinds is None else pa.array(kinds, pa.int8()))


def write(made: HttpSink, *batches: RecordBatch) -> None:
    writer = made.create_writer(writer_context())
    writer.open()
    try:
        for each in batches:
            writer.write(each)
        writer.flush(True)
    finally:
        writer.close()


def find(made: HttpLookupSource, **keys: list[Any]) -> FoundRows:
    looking = made.create_lookup(LookupContext(0, 1, ManualClock(0), RecordedMetrics()))
    looking.open()
    try:
        return looking.find(pa.RecordBatch.from_pydict(keys, schema=made.keys.arrow))
    finally:
        looking.close()
