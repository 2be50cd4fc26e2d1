"""What the tests of count, global and general windows share: plain oracles' helpers and a driver that restores half way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flowrun.api.operator import OperatorFactory
from flowrun.core.schema import Schema
from flowrun.operators.timed.assigners import CumulativeSlices, SlidingSlices, TumblingSlices
from flowrun.testing.harness import OperatorHarness
from tests.operators.stored import stored
from tests.operators.windows.flink_oracle import cumulative, sliding, tumbling
from tests.operators.windows.streams import INPUT, LATE, columns, plain


def unbounded_schema(keys: Sequence[int], aggregates: Sequence[Any], schema: Schema = INPUT) -> Schema:
    """Output columns of windows without bounds."""
    return Schema.from_pairs(
        [
            *((schema.fields[k].name, schema.fields[k].type) for k in keys),
            *((a.name, a.kernel.result) for a in aggregates),
        ]
    )


def push_cut(harness: OperatorHarness, rows: Sequence[Any], cuts: int) -> None:
    """Rows are (row, event time or None)."""
    for start in range(0, len(rows), cuts):
        part = rows[start : start + cuts]
        times = None if part[0][1] is None else [t for _, t in part]
        harness.push(columns([r for r, _ in part]), timestamps=times)


def emitted(harness: OperatorHarness) -> list[tuple[Any, ...]]:
    """Rows with their event time at the end."""
    return [(*r, t) for r, t in zip(plain(harness.rows()), harness.timestamps(), strict=True)]


def rescaled(
    factory: OperatorFactory,
    keys: Sequence[int],
    before: Callable[[OperatorHarness], None],
    after: Callable[[OperatorHarness], None],
    *,
    first: int,
    second: int,
) -> list[tuple[Any, ...]]:
    """All rows that `first` subtasks emit in `before` and the `second` ones restored from them in `after`."""
    rows: list[tuple[Any, ...]] = []
    state_keys = [list(keys)]
    olds = [
        OperatorHarness(factory, schema=INPUT, state_keys=state_keys, subtask=i, parallelism=first)
        for i in range(first)
    ]
    for old in olds:
        before(old)
        rows += emitted(old)
    snapshots = [stored(old.snapshot()) for old in olds]
    for i in range(second):
        new = OperatorHarness.restore(
            factory, snapshots, subtask=i, parallelism=second, schema=INPUT, state_keys=state_keys
        )
        after(new)
        rows += emitted(new)
        new.close()
    return rows


CASES = (
    (TumblingSlices(10), tumbling(10)),
    (TumblingSlices(7, offset_ms=3), tumbling(7, 3)),
    (SlidingSlices(10, 5), sliding(10, 5)),
    (SlidingSlices(15, 6, offset_ms=-2), sliding(15, 6, -2)),
    (SlidingSlices(4, 10), sliding(4, 10)),
    (SlidingSlices(40, 2), sliding(40, 2)),
    (CumulativeSlices(20, 5), cumulative(20, 5)),
)


@dataclass
class Driven:
    """What an operator did with a stream: ("rows" or "fired", rows) in turn, and its late rows."""

    log: list[Any] = field(default_factory=list)
    late: list[Any] = field(default_factory=list)
    dropped: int = 0


def driven(factory: OperatorFactory, events: Sequence[Any], cuts: int) -> Driven:
    """Push rows in batches of at most `cuts`, and the watermarks between them."""
    harness = OperatorHarness(factory, schema=INPUT)
    done = Driven()
    waiting: list[Any] = []

    def take(kind: str) -> None:
        done.log.append((kind, plain(harness.rows())))
        done.late += harness.side_rows(LATE)
        harness.clear()

    for event in events:
        if not isinstance(event, int):
            waiting.append(event)
            continue
        push_cut(harness, waiting, cuts)
        waiting.clear()
        take("rows")
        harness.watermark(event)
        take("fired")
    push_cut(harness, waiting, cuts)
    take("rows")
    done.dropped = sum(harness.metrics.count(name) for name in ("numLateRecordsDropped", "numLateRecordsSideOutput"))
    return done
