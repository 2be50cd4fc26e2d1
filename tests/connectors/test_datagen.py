"""datagen: what the options promise, and the same rows for the same seed."""

import itertools
from collections.abc import Mapping

import pytest

from flowrun.api.connector import TableDefinition
from flowrun.api.operator import InputStatus
from flowrun.api.source import Boundedness, Source
from flowrun.connectors.datagen import CONNECTOR
from flowrun.core import types as t
from flowrun.core.clock import ManualClock
from flowrun.core.options import parse_options
from flowrun.core.schema import Schema
from flowrun.errors import OptionError
from tests.connectors.reading import Reading

ALL_TYPES = Schema.of(
    b=t.BOOLEAN,
    i8=t.TINYINT,
    i16=t.SMALLINT,
    i32=t.INT,
    i64=t.BIGINT,
    f=t.FLOAT,
    d=t.DOUBLE,
    dec=t.decimal(10, 2),
    c=t.char(4),
    v=t.varchar(9),
    s=t.STRING,
    by=t.BYTES,
    day=t.DATE,
    tm=t.time(0),
    ts=t.timestamp(3),
    ltz=t.timestamp_ltz(6),
    arr=t.array(t.INT),
    m=t.map_of(t.STRING, t.DOUBLE),
    r=t.row(("x", t.BIGINT), ("y", t.STRING)),
)


def datagen(schema: Schema, given: Mapping[str, object], declared: Schema | None = None) -> Source:
    options, errors = parse_options(
        CONNECTOR.source_options, {"rows-per-second": 10**9, **given}, "connector 'datagen'"
    )
    assert not errors, errors
    assert CONNECTOR.create_source is not None
    return CONNECTOR.create_source(TableDefinition("gen", schema, options, declared=declared))


def rows_of(source: Source, **how: object) -> list[tuple[object, ...]]:
    reading = Reading(source, **how)  # type: ignore[arg-type]
    reading.clock.advance(10_000)
    return reading.to_the_end()


def test_every_type_can_be_generated() -> None:
    rows = rows_of(datagen(ALL_TYPES, {"number-of-rows": 50}))
    assert len(rows) == 50
    by_name = dict(zip(ALL_TYPES.names, zip(*rows, strict=True), strict=True))
    assert set(by_name["b"]) == {True, False}
    assert all(len(x) == 4 for x in by_name["c"])
    assert all(len(x) == 100 for x in by_name["s"])
    assert all(0 <= x < 1 for x in by_name["d"])
    assert min(by_name["i64"]) < -(2**40) < 2**40 < max(by_name["i64"])
    assert all(len(x) == 3 for x in by_name["arr"])
    assert len(set(by_name["s"])) == 50


def test_the_same_seed_gives_the_same_rows_at_any_batch_size_and_parallelism() -> None:
    source = datagen(ALL_TYPES, {"number-of-rows": 200, "seed": 5, "fields.s.var-len": True, "fields.s.length": 30})
    want = rows_of(source)
    assert rows_of(source, batch_rows=7) == want
    clock = ManualClock(1_700_000_000_000)
    enumerator = source.create_enumerator(2, clock)
    readers = [Reading(source, parallelism=2, subtask=i, clock=clock, enumerator=enumerator) for i in range(2)]
    clock.advance(10_000)
    got = [row for reader in readers for row in reader.to_the_end()]
    assert sorted(map(str, got)) == sorted(map(str, want))
    assert rows_of(datagen(ALL_TYPES, {"number-of-rows": 200, "seed": 6})) != want


def test_numbers_stay_within_their_bounds_and_big_ones_are_exact() -> None:
    low, high = 2**60 + 1, 2**60 + 3
    source = datagen(
        Schema.of(a=t.BIGINT, b=t.decimal(6, 2), c=t.TINYINT),
        {
            "number-of-rows": 300,
            "fields.a.min": low,
            "fields.a.max": high,
            "fields.b.min": "-1.5",
            "fields.b.max": "2.25",
        },
    )
    rows = rows_of(source)
    assert {r[0] for r in rows} == {low, low + 1, high}
    assert -1.5 <= float(min(r[1] for r in rows)) < -1 < 2 < float(max(r[1] for r in rows)) <= 2.25
    assert min(r[2] for r in rows) < -100 < 100 < max(r[2] for r in rows)


def test_a_sequence_counts_and_its_end_ends_the_source() -> None:
    source = datagen(
        Schema.of(n=t.BIGINT, s=t.STRING),
        {"fields.n.kind": "sequence", "fields.n.start": 5, "fields.n.end": 9, "fields.s.length": 2},
    )
    assert source.boundedness is Boundedness.BOUNDED
    assert [r[0] for r in rows_of(source)] == [5, 6, 7, 8, 9]


def test_a_pruned_sequence_still_ends_the_source_and_other_columns_stay_the_same() -> None:
    full = Schema.of(n=t.BIGINT, x=t.BIGINT)
    options = {"fields.n.kind": "sequence", "fields.n.end": 4}
    pruned = rows_of(datagen(full.select(["x"]), options, declared=full))
    assert [r[0] for r in pruned] == [r[1] for r in rows_of(datagen(full, options))]


def test_nulls_come_at_their_rate() -> None:
    rows = rows_of(datagen(Schema.of(x=t.INT), {"number-of-rows": 4000, "fields.x.null-rate": 0.25}))
    assert 850 < sum(r[0] is None for r in rows) < 1150


def test_rows_come_at_the_pace_asked_for() -> None:
    reading = Reading(datagen(Schema.of(x=t.INT), {"rows-per-second": 100}))
    statuses = [reading.step() for _ in range(3)]
    assert statuses[-1] is InputStatus.NOTHING_AVAILABLE
    first = len(reading.output.rows)
    assert first <= 2
    reading.processing_time.advance(1000)
    for _ in range(5):
        reading.step()
    assert 95 <= len(reading.output.rows) <= 102
    assert reading.available.is_set(), "the reader asked to be woken"


def test_timestamps_follow_the_nominal_clock() -> None:
    rows = rows_of(datagen(Schema.of(ts=t.timestamp(3)), {"number-of-rows": 3, "rows-per-second": 1}), batch_rows=1)
    assert [(b[0] - a[0]).total_seconds() for a, b in itertools.pairwise(rows)] == [1, 1]


def test_a_restart_goes_on_after_the_last_row() -> None:
    source = datagen(Schema.of(n=t.BIGINT), {"fields.n.kind": "sequence", "fields.n.start": 0, "fields.n.end": 99})
    reading = Reading(source, batch_rows=30)
    reading.clock.advance(1000)
    reading.step()
    splits, rest = reading.reader.snapshot(), reading.enumerator.snapshot()
    done = [r[0] for r in reading.output.rows]
    clock = ManualClock(1_800_000_000_000)
    again = Reading(source, clock=clock, enumerator=source.create_enumerator(1, clock, rest), restored=splits)
    clock.advance(1000)
    assert done + [r[0] for r in again.to_the_end()] == list(range(100))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"fields.y.min": 1}, "names no column"),
        ({"fields.n.kind": "sequence", "fields.n.min": 1}, "for random columns only"),
        ({"fields.n.start": 1}, "for sequence columns only"),
        ({"fields.n.min": 5, "fields.n.max": 4}, "exceeds"),
        ({"fields.n.kind": "sequence", "fields.n.start": 5, "fields.n.end": 4}, "before"),
        ({"fields.b.kind": "sequence"}, "cannot be a sequence"),
        ({"fields.n.null-rate": 2}, "0 to 1"),
        ({"fields.n.null-rate": "nan"}, "0 to 1"),
        ({"fields.n.kind": "sequence", "fields.n.end": 1 << 63}, "does not fit BIGINT"),
        ({"fields.b.min": 1}, "means nothing for a column of type BOOLEAN"),
        ({"fields.n.length": 1}, "means nothing for a column of type BIGINT"),
    ],
)
def test_options_that_make_no_sense_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        datagen(Schema.of(n=t.BIGINT, b=t.BOOLEAN), given)
