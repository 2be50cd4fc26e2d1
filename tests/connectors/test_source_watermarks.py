"""Generators say how far event time has come: no row behind that is late, and the next one may be as early."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.api.connector import Connector, TableDefinition
from flowrun.api.operator import InputStatus
from flowrun.api.source import Source
from flowrun.connectors import datagen, nexmark
from flowrun.connectors.registry import connector_named, connector_names
from flowrun.core import types as t
from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, Watermark
from flowrun.core.options import parse_options
from flowrun.core.schema import Schema
from flowrun.operators.factories import SourceOperatorFactory
from flowrun.state.redistribution import redistribute
from flowrun.testing import SourceHarness
from tests.examples import examples

TIME = Schema.of(ts=t.timestamp(3))
_moment = t.row(("dateTime", t.timestamp(3)))
EVENT_TIMES = Schema.of(person=_moment, auction=_moment, bid=_moment)
"""Of nexmark: no more of an event than its time."""
EPOCH = dt.datetime(1970, 1, 1)


def source_of(connector: Connector, schema: Schema, given: Mapping[str, object], **more: Any) -> Source:
    options, errors = parse_options(connector.source_options, given, "a connector")
    assert not errors, errors
    assert connector.create_source is not None
    return connector.create_source(TableDefinition("t", schema, options, source_watermarks=True, **more))


def moment_ms(row: tuple[Any, ...]) -> int:
    """The only time in a row, or in the first ROW in it that is there."""
    found = next(v for v in row if isinstance(v, dict | dt.datetime))
    moment = found["dateTime"] if isinstance(found, dict) else found
    return (moment.replace(tzinfo=None) - EPOCH) // dt.timedelta(milliseconds=1)


def checked(source: Source, batch_rows: int, cut: int = 0) -> list[tuple[int, int]]:
    """(time, watermark that was sent before) of all rows, none of which is late; one subtask, restored after `cut` polls."""
    factory = SourceOperatorFactory(source, batch_rows=batch_rows)
    first = SourceHarness(factory, source)
    for _ in range(cut):
        first.poll()
    second = SourceHarness(
        factory, source, enumerator=first.enumerator, restored=redistribute([first.snapshot()], 0, 1, 128)
    )
    while second.run() is not InputStatus.END_OF_INPUT:
        second.advance_processing_time(1000)
    seen, rows = MIN_TIMESTAMP, []
    for element in [*first.log(), *second.log()]:
        if isinstance(element, Watermark):
            assert element.timestamp >= seen
            seen = element.timestamp
        elif isinstance(element, tuple):
            rows.append((moment_ms(element), seen))
            assert rows[-1][0] > seen, "no row is late"
    assert seen == MAX_TIMESTAMP
    return rows


@examples(20)
@given(st.integers(1, 5000), st.integers(1, 40), st.sampled_from([1, 7, 100_000]), st.integers(0, 5))
def test_no_event_of_nexmark_is_late(rate: int, group: int, batch_rows: int, cut: int) -> None:
    given = {"first-event.rate": rate, "next-event.rate": rate, "out-of-order.group-size": group, "events.num": 100}
    source = source_of(nexmark.CONNECTOR, EVENT_TIMES, given, declared=nexmark.SCHEMA)
    assert len(checked(source, batch_rows, cut)) == 100


def test_the_clock_of_nexmark_is_exact() -> None:
    given = {"first-event.rate": 100, "next-event.rate": 100, "events.num": 50}
    source = source_of(nexmark.CONNECTOR, nexmark.SCHEMA, given, declared=nexmark.SCHEMA)
    assert all(time == watermark + 1 for time, watermark in checked(source, 1)[1:])


@examples(40)
@given(st.integers(1, 5000), st.sampled_from([0, 5, 3000]), st.sampled_from([1, 7, 100_000]), st.integers(0, 5))
def test_no_time_of_datagen_is_late(rate: int, past: int, batch_rows: int, cut: int) -> None:
    given = {"rows-per-second": rate, "number-of-rows": 200, "fields.ts.max-past": f"{past}ms"}
    for schema in (TIME, Schema.of(r=t.row(("dateTime", t.timestamp(3))))):
        names = given if schema is TIME else {k.replace(".ts.", ".r.dateTime."): v for k, v in given.items()}
        assert len(checked(source_of(datagen.CONNECTOR, schema, names), batch_rows, cut)) == 200


def test_a_generator_that_is_not_asked_says_nothing() -> None:
    options, _ = parse_options(nexmark.CONNECTOR.source_options, {"events.num": 5}, "nexmark")
    assert nexmark.CONNECTOR.create_source is not None
    source = nexmark.CONNECTOR.create_source(TableDefinition("t", nexmark.SCHEMA, options, declared=nexmark.SCHEMA))
    harness = SourceHarness(SourceOperatorFactory(source), source)
    harness.run()
    assert harness.watermarks() == [MAX_TIMESTAMP]


@pytest.mark.parametrize("name", connector_names())
def test_who_sends_watermarks_says_so(name: str) -> None:
    assert connector_named(name).source_watermarks == (name in ("datagen", "memory", "nexmark"))
