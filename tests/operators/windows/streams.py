"""Random streams for window tests: rows with event times, watermarks between them, and a driver that cuts them into batches."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from flowrun.api.operator import OutputTag
from flowrun.core.elements import MAX_TIMESTAMP
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, BOOLEAN, STRING, timestamp
from flowrun.state.key_groups import key_groups, subtask_of
from flowrun.testing.harness import OperatorHarness
from tests.operators.stored import stored
from tests.operators.windows.kernels import bound

INPUT = Schema.of(name=STRING, number=BIGINT, v=BIGINT, text=STRING, chosen=BOOLEAN)
LATE = OutputTag("late", INPUT)

AGGREGATES = (
    bound("n", "COUNT(*)"),
    bound("values", "COUNT", 2),
    bound("total", "SUM", 2),
    bound("least", "MIN", 2),
    bound("most", "MAX", 3, STRING),
    bound("mean", "AVG", 2),
    bound("variance", "VAR_POP", 2),
    bound("chosen_rows", "COUNT(*)", filter=4),
    bound("chosen_total", "SUM", 2, filter=4),
)
ORDERED = (
    bound("opening", "FIRST_VALUE", 2),
    bound("closing", "LAST_VALUE", 3, STRING, filter=4),
)
SIDES = (
    bound("distinct_values", "COUNT", 2, distinct=True),
    bound("distinct_total", "SUM", 2, distinct=True, filter=4),
    bound("distinct_mean", "AVG", 2, distinct=True),
    bound("texts", "LISTAGG", 3, STRING),
    bound("distinct_texts", "LISTAGG", 3, STRING, distinct=True),
)
EVERYTHING = (*AGGREGATES, *ORDERED, *SIDES)


@dataclass(frozen=True)
class Stream:
    """`events` are (row, event time) or watermarks (int), in order."""

    events: tuple[Any, ...]

    def __repr__(self) -> str:
        return f"Stream({self.events!r})"


ROWS = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.sampled_from([1, 2, None]),
    st.one_of(st.none(), st.integers(-5, 5)),
    st.sampled_from(["x", "y", "zz", None]),
    st.sampled_from([True, False, None]),
)


@st.composite
def streams(draw: st.DrawFn, *, max_size: int = 40, horizon: int = 60) -> Stream:
    watermark = -20
    events: list[Any] = []
    for _ in range(draw(st.integers(1, max_size))):
        if draw(st.integers(0, 3)) == 0:
            watermark += draw(st.integers(1, 15))
            events.append(watermark)
        else:
            around = max(-15, watermark - 25) if draw(st.booleans()) else watermark
            events.append((draw(ROWS), draw(st.integers(around, min(around + 40, horizon + watermark)))))
    return Stream(tuple(events))


def random_events(count: int, seed: int) -> list[Any]:
    """A long stream with disorder, late rows and a final watermark."""
    rng = random.Random(seed)
    events: list[Any] = []
    now, watermark = 0, -100
    for i in range(count):
        now += rng.choice([0, 0, 0, 1])
        v = rng.choice([None, rng.randint(-50, 50)])
        names = (rng.choice(["a", "b", "c", None]), rng.randint(0, 3))
        row = (*names, v, rng.choice(["x", "y", None]), rng.choice([True, False, None]))
        events.append((row, now - rng.choice([0, 0, 1, 3, 8, 30])))
        if i % 97 == 96 and now - 5 > watermark:
            watermark = now - 5
            events.append(watermark)
    return [*events, MAX_TIMESTAMP]


def batches_of(events: Sequence[Any], cuts: int) -> list[Any]:
    """Lists of at most `cuts` rows, and watermarks between them."""
    batches: list[Any] = []
    for event in events:
        if isinstance(event, int) or not batches or isinstance(batches[-1], int) or len(batches[-1]) == cuts:
            batches.append(event if isinstance(event, int) else [event])
        else:
            batches[-1].append(event)
    return batches


def output_schema(keys: Sequence[int], aggregates: Sequence[Any], schema: Schema = INPUT) -> Schema:
    return Schema.from_pairs(
        [
            *((schema.fields[k].name, schema.fields[k].type) for k in keys),
            ("window_start", timestamp(3)),
            ("window_end", timestamp(3)),
            *((a.name, a.kernel.result) for a in aggregates),
        ]
    )


def columns(rows: Sequence[Sequence[Any]], schema: Schema = INPUT) -> dict[str, list[Any]]:
    return {f.name: [r[i] for r in rows] for i, f in enumerate(schema)}


def drive(harness: OperatorHarness, events: Sequence[Any], cuts: int) -> list[Any]:
    """Push the rows in batches of at most `cuts` rows; what came out, in order, with ("wm", t) after each watermark."""
    waiting: list[Any] = []

    def flush() -> None:
        for start in range(0, len(waiting), cuts):
            part = waiting[start : start + cuts]
            harness.push(columns([r for r, _ in part]), timestamps=[t for _, t in part])
        waiting.clear()

    log: list[Any] = []
    for event in events:
        if isinstance(event, int):
            flush()
            log.append(("rows", plain(harness.rows())))
            harness.clear()
            harness.watermark(event)
            log.append(("fired", plain(harness.rows())))
            harness.clear()
        else:
            waiting.append(event)
    flush()
    log.append(("rows", plain(harness.rows())))
    harness.clear()
    return log


def millis(value: Any) -> Any:
    if isinstance(value, datetime):
        return round(value.replace(tzinfo=UTC).timestamp() * 1000)
    return value


def plain(rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Rows with times as ms and floats rounded, so that they compare with the oracle's."""
    return [
        tuple(round(v, 6) + 0.0 if isinstance(v, float) and math.isfinite(v) else millis(v) for v in row)
        for row in rows
    ]


def oracle_log(oracle: Any, events: Sequence[Any]) -> list[Any]:
    """What the oracle says, in the form of `drive`."""
    log: list[Any] = []

    def take(kind: str) -> None:
        log.append((kind, plain(oracle.emitted)))
        oracle.emitted.clear()

    for event in events:
        if isinstance(event, int):
            take("rows")
            oracle.advance(event)
            take("fired")
        else:
            oracle.row(*event)
    take("rows")
    return log


def by_window(log: Sequence[Any], key_count: int) -> list[Any]:
    """The log with the keys of one window in a fixed order; windows stay in the order in which they fired."""
    return [
        (kind, sorted(rows, key=lambda r: (r[key_count + 1], repr(r))) if kind == "fired" else rows)
        for kind, rows in log
    ]


def assert_ordered(log: Sequence[Any], key_count: int) -> None:
    for kind, rows in log:
        ends = [r[key_count + 1] for r in rows]
        assert kind != "fired" or ends == sorted(ends), f"windows fired out of order: {ends}"


class LateKeeping(OperatorHarness):
    """A harness that keeps the late rows when the rest of the output is cleared."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.late: list[Any] = []
        super().__init__(*args, **options)

    def clear(self) -> None:
        self.late.extend(self.side_rows(LATE))
        super().clear()


def run_restored(
    factory: Any,
    oracle: Any,
    stream: Sequence[Any],
    cut: int,
    widths: tuple[int, int],
    keys: tuple[int, ...],
    lags: tuple[int, ...] = (0,),
) -> tuple[list[Any], list[Any]]:
    """(what came out, what the oracles say) of a stream that is snapshotted after `cut` events and restored elsewhere.

    `oracle` makes one; each old subtask has its own. In the first part, watermarks of subtask i lag by `lags[i]`.
    """
    before, after = stream[:cut], stream[cut:]
    old = [
        LateKeeping(factory, schema=INPUT, state_keys=[keys] if keys else None, subtask=i, parallelism=widths[0])
        for i in range(widths[0])
    ]
    oracles = [oracle() for _ in old]
    owners = Owners(keys, widths[0])
    log: list[Any] = []
    for i, harness in enumerate(old):
        lag = lags[i % len(lags)]
        part = [e - lag if isinstance(e, int) else e for e in before if isinstance(e, int) or owners.of(e[0]) == i]
        log.extend(drive(harness, part, 3))
        log.extend([("expected", oracle_log(oracles[i], part))])
    got = [entry for entry in log if entry[0] != "expected"]
    expected = [entry for kind, entries in log if kind == "expected" for entry in entries]
    snapshots = [stored(harness.snapshot()) for harness in old]
    for i in range(widths[1]):
        harness = LateKeeping.restore(
            factory,
            snapshots,
            subtask=i,
            parallelism=widths[1],
            schema=INPUT,
            state_keys=[keys] if keys else None,
        )
        got.extend(drive(harness, after, 3))
        old.append(harness)
    for i, one in enumerate(oracles):
        expected.extend(oracle_log(one, [e for e in after if isinstance(e, int) or owners.of(e[0]) == i]))
    assert sorted(map(repr, (r for h in old for r in h.late))) == sorted(
        map(repr, (r for o in oracles for r in o.late))
    )
    return sorted(repr(r) for _, rows in got for r in rows), sorted(repr(r) for _, rows in expected for r in rows)


class Owners:
    """Which old subtask has a row's key."""

    def __init__(self, keys: tuple[int, ...], parallelism: int) -> None:
        self._keys = keys
        self._parallelism = parallelism

    def of(self, row: Any) -> int:
        if not self._keys:
            return 0
        arrays = [pa.array([row[k]], INPUT.types[k].arrow) for k in self._keys]
        return int(subtask_of(key_groups(arrays, 128), self._parallelism, 128)[0])
