"""OVER row at a time, over Python lists: what the vectorised operators must give."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from flowrun.api.aggregate import BoundAggregate
from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import FrameUnit
from flowrun.core.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, DataType, timestamp
from flowrun.core.types import decimal as decimal_type
from flowrun.functions.contract import Argument
from flowrun.functions.registry import aggregate
from flowrun.operators.over.calls import FrameCall, OverFrame, Place, PlaceCall

Row = tuple[Any, ...]

MONEY = decimal_type(10, 2)
ROWS = Schema.of(id=BIGINT, k=STRING, n=INT, price=MONEY, x=DOUBLE, s=STRING, chosen=BOOLEAN, ts=timestamp(3))
K, N, PRICE, X, S, CHOSEN, TS = range(1, 8)


def call(
    function: str, argument: int | None = None, *, filter: int | None = None, distinct: bool = False
) -> BoundAggregate:
    """An aggregate over a column of `ROWS`."""
    known = aggregate(function)
    assert known is not None
    arguments = [] if argument is None else [Argument(ROWS.types[argument], None, False)]
    _, kernel = known.type_rule(arguments)
    name = f"{function}_{argument}_{filter}_{distinct}".lower()
    return BoundAggregate(name, kernel, argument, filter, distinct)


def shift(place: Place, argument: int, offset: int, default: Any = None, column: int | None = None) -> PlaceCall:
    """LAG or LEAD over a column of `ROWS`."""
    name = f"{place.value}_{argument}_{offset}_{column}".lower()
    return PlaceCall(name, place, ROWS.types[argument], argument, offset, column, default)


def number(place: Place) -> PlaceCall:
    """ROW_NUMBER, RANK or DENSE_RANK."""
    return PlaceCall(place.value.lower(), place, BIGINT)


FOLDING = (
    call("COUNT"),
    call("COUNT", S),
    call("COUNT", filter=CHOSEN),
    call("SUM", N),
    call("SUM", PRICE, filter=CHOSEN),
    call("SUM", X),
    call("AVG", N),
    call("AVG", PRICE),
    call("AVG", X),
    call("MIN", S),
    call("MAX", PRICE),
    call("MIN", X, filter=CHOSEN),
    call("MAX", X),
    call("MAX", TS),
    call("FIRST_VALUE", S),
    call("LAST_VALUE", N, filter=CHOSEN),
    call("VAR_POP", N),
    call("COUNT", S, distinct=True),
    call("SUM", N, distinct=True),
    call("SUM", X, distinct=True),
    call("SUM", PRICE, filter=CHOSEN, distinct=True),
    call("MAX", N, distinct=True),
    call("FIRST_VALUE", S, distinct=True),
    call("LAST_VALUE", S, distinct=True),
    call("LAST_VALUE", N, filter=CHOSEN, distinct=True),
)
COLLECTING = (call("LISTAGG", S), call("ARRAY_AGG", N), call("LISTAGG", S, distinct=True, filter=CHOSEN))
BACKWARD = (
    number(Place.ROW_NUMBER),
    number(Place.RANK),
    number(Place.DENSE_RANK),
    shift(Place.LAG, S, 1),
    shift(Place.LAG, N, 3, -1),
    shift(Place.LAG, PRICE, 2, None, PRICE),
)
FORWARD = (
    shift(Place.LEAD, N, 1),
    shift(Place.LEAD, S, 2, "none"),
    PlaceCall("ntile", Place.NTILE, INT, offset=3),
    PlaceCall("percent_rank", Place.PERCENT_RANK, DOUBLE),
    PlaceCall("cume_dist", Place.CUME_DIST, DOUBLE),
)


def output_schema(calls: Sequence[FrameCall], schema: Schema = ROWS) -> Schema:
    """The columns of `schema`, then those of the calls."""
    results = [
        Field(f"{c.name}_{i}", c.type if isinstance(c, PlaceCall) else c.kernel.result) for i, c in enumerate(calls)
    ]
    return Schema((*schema.fields, *results))


def some_row(dice: random.Random, number: int, time: int) -> Row:
    """A row of `ROWS` with few keys, many NULLs and ties."""
    return (
        number,
        dice.choice(["a", "b", None]),
        dice.choice([None, *range(-3, 4)]),
        dice.choice([None, decimal.Decimal(dice.randrange(-999, 999)) / 100, decimal.Decimal("12345678.90")]),
        dice.choice([None, 0.5, 0.25, -1.75, 1e3, math.nan]),
        dice.choice([None, "x", "y", "zz"]),
        dice.choice([None, True, False]),
        time,
    )


def columns(rows: Sequence[Row]) -> dict[str, pa.Array]:
    """Rows as `OperatorHarness.push` takes them; times are ms."""
    return {f.name: pa.array([r[i] for r in rows], f.type.arrow) for i, f in enumerate(ROWS)}


def plain(row: Row) -> Row:
    """A row with times as ms, floats rounded to what may differ, and NaN as text, which equals itself."""
    return tuple(_plain(v) for v in row)


def _plain(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return round(value.replace(tzinfo=dt.UTC).timestamp() * 1000)
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else round(value, 9) + 0.0
    return value


def results(partition: Sequence[Row], order: Sequence[Any], frame: OverFrame, calls: Sequence[FrameCall]) -> list[Row]:
    """Each row of a partition with its results.

    Args:
        partition: rows in order.
        order: what each is ordered by: its time, or anything for frames without a bound in time.
    """
    found = []
    for at, row in enumerate(partition):
        frame_rows = [r for i, r in enumerate(partition) if _inside(i, at, order, frame)]
        values = [
            _place(c, partition, at, order) if isinstance(c, PlaceCall) else _aggregated(c, frame_rows) for c in calls
        ]
        found.append(plain((*row, *values)))
    return found


def _inside(row: int, at: int, order: Sequence[Any], frame: OverFrame) -> bool:
    before, behind = frame.preceding, frame.following
    if frame.unit is FrameUnit.ROWS:
        return (before is None or row >= at - before) and (behind is None or row <= at + behind)
    peer = order[row] == order[at]
    begun = before is None or (row >= at or peer if before == 0 else order[row] >= order[at] - before)
    ended = behind is None or (row <= at or peer if behind == 0 else order[row] <= order[at] + behind)
    return bool(begun and ended)


def _place(call: PlaceCall, rows: Sequence[Row], at: int, order: Sequence[Any]) -> Any:
    peers = [i for i in range(len(rows)) if order[i] == order[at]]
    match call.place:
        case Place.ROW_NUMBER:
            return at + 1
        case Place.RANK:
            return peers[0] + 1
        case Place.DENSE_RANK:
            return 1 + sum(order[i] != order[i - 1] for i in range(1, at + 1))
        case Place.PERCENT_RANK:
            return peers[0] / (len(rows) - 1) if len(rows) > 1 else 0.0
        case Place.CUME_DIST:
            return (peers[-1] + 1) / len(rows)
        case Place.NTILE:
            buckets = [
                b for b in range(call.offset) for _ in range(len(rows) // call.offset + (b < len(rows) % call.offset))
            ]
            return buckets[at] + 1
    assert call.argument is not None
    other = at - call.offset if call.place is Place.LAG else at + call.offset
    if 0 <= other < len(rows):
        return rows[other][call.argument]
    return rows[at][call.default] if call.default is not None else call.default_value


def _aggregated(aggregate: BoundAggregate, rows: Sequence[Row]) -> Any:
    kept = [r for r in rows if aggregate.filter is None or r[aggregate.filter] is True]
    function, kind = aggregate.kernel.function, aggregate.kernel.result
    if aggregate.argument is None:
        return len(kept)
    values = [r[aggregate.argument] for r in kept]
    if function == "ARRAY_AGG":
        return values or None
    values = [v for v in values if v is not None]
    if aggregate.distinct:
        values = list(dict.fromkeys(values))
    if function == "COUNT":
        return len(values)
    if not values:
        return None
    return _folded(function, kind, values)


def _folded(function: str, kind: DataType, values: list[Any]) -> Any:
    match function:
        case "SUM":
            return sum(values)
        case "MIN":
            return min(_numbers(values))
        case "MAX":
            return max(_numbers(values))
        case "FIRST_VALUE":
            return values[0]
        case "LAST_VALUE":
            return values[-1]
        case "LISTAGG":
            return ",".join(values)
        case "AVG" if kind.is_integer:
            return int(sum(values) / len(values))
        case "AVG" if kind.is_approximate:
            return sum(values) / len(values)
        case "AVG":
            mean = decimal.Decimal(sum(values)) / len(values)
            return mean.quantize(decimal.Decimal(1).scaleb(-(kind.scale or 0)), decimal.ROUND_HALF_UP)
        case "VAR_POP":
            mean = sum(values) / len(values)
            variance = sum((v - mean) ** 2 for v in values) / len(values)
            return int(variance + 1e-9) if kind.is_integer else variance
        case _:
            raise ValueError(function)


def _numbers(values: list[Any]) -> list[Any]:
    """The values without NaN, unless there is nothing else."""
    return [v for v in values if v == v] or values  # noqa: PLR0124
