"""Group aggregation a row at a time, in plain Python: what Apache Flink sends without mini-batch, and what it amounts to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from flowrun.api.aggregate import BoundAggregate
from flowrun.core.elements import RecordBatch, RowKind
from flowrun.core.schema import Field, Schema
from flowrun.core.types import TypeRoot
from flowrun.functions.contract import Argument
from flowrun.functions.registry import aggregate
from flowrun.testing.output import rows_of

Row = tuple[Any, ...]
Change = tuple[bool, Row]
"""(adds, row)."""


def bound(
    function: str, schema: Schema, column: str | None = None, *, where: str | None = None, distinct: bool = False
) -> BoundAggregate:
    """An aggregate over named columns."""
    registered = aggregate(function)
    assert registered is not None
    arguments = [] if column is None else [Argument(schema.types[schema.names.index(column)], None, False)]
    _, kernel = registered.type_rule(arguments)
    name = f"{function}_{column}_{where}_{distinct}"
    return BoundAggregate(
        name,
        kernel,
        None if column is None else schema.names.index(column),
        None if where is None else schema.names.index(where),
        distinct,
    )


def output_schema(schema: Schema, keys: Sequence[int], aggregates: Sequence[BoundAggregate]) -> Schema:
    """Keys, aggregates."""
    return Schema((*(schema.fields[k] for k in keys), *(Field(a.name, a.kernel.result) for a in aggregates)))


@dataclass
class _Group:
    rows: int = 0
    values: dict[int, list[Any]] = field(default_factory=dict)
    seen: dict[int, Counter[Any]] = field(default_factory=dict)
    result: Row | None = None


class GroupOracle:
    """Keeps every group's values; `changes` counts what a row at a time would have sent."""

    def __init__(self, keys: Sequence[int], aggregates: Sequence[BoundAggregate]) -> None:
        self._keys = keys
        self._aggregates = aggregates
        self._groups: dict[Row, _Group] = {}
        self.changes = 0

    def apply(self, change: Change) -> None:
        """One row comes, or is taken back."""
        adds, row = change
        key = tuple(_same(row[k]) for k in self._keys)
        group = self._groups.setdefault(key, _Group())
        if not adds and group.rows == 0:
            del self._groups[key]
            return
        group.rows += 1 if adds else -1
        for number, call in enumerate(self._aggregates):
            self._fold(group, number, call, adds, row)
        before = group.result
        if group.rows == 0:
            del self._groups[key]
            self.changes += 1
            return
        group.result = (*(row[k] for k in self._keys), *(self._value(group, n) for n in range(len(self._aggregates))))
        if before is None:
            self.changes += 1
        elif repr(before) != repr(group.result):
            self.changes += 2

    def _fold(self, group: _Group, number: int, call: BoundAggregate, adds: bool, row: Row) -> None:
        if call.filter is not None and row[call.filter] is not True:
            return
        value = True if call.argument is None else row[call.argument]
        if value is None and not call.kernel.keeps_nulls:
            return
        values = group.values.setdefault(number, [])
        if call.distinct:
            seen = group.seen.setdefault(number, Counter())
            seen[_same(value)] += 1 if adds else -1
            if seen[_same(value)] != (1 if adds else 0):
                return
        if adds:
            values.append(value)
        else:
            values.pop([_same(v) for v in values].index(_same(value)))

    def _value(self, group: _Group, number: int) -> Any:
        call = self._aggregates[number]
        return _RESULTS[call.kernel.function](group.values.get(number, []), call)

    def rows(self) -> Counter[str]:
        """The results of all groups."""
        return Counter(normal(g.result) for g in self._groups.values() if g.result is not None)


def _same(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def _sum(values: list[Any], call: BoundAggregate) -> Any:
    if not values:
        return None
    return math.fsum(values) if isinstance(values[0], float) else sum(values)


def _average(values: list[Any], call: BoundAggregate) -> Any:
    if not values:
        return None
    total = _sum(values, call)
    result = call.kernel.result
    if result.root is TypeRoot.DECIMAL:
        return (total / len(values)).quantize(Decimal(1).scaleb(-(result.scale or 0)), ROUND_HALF_UP)
    if result.is_integer:
        return int(total / len(values)) if abs(total) < 1 << 52 else math.trunc(Decimal(total) / len(values))
    return total / len(values)


def _variance(sample: bool, root: bool) -> Callable[[list[Any], BoundAggregate], Any]:
    def of(values: list[Any], call: BoundAggregate) -> Any:
        if len(values) <= sample:
            return None
        mean = math.fsum(values) / len(values)
        spread = math.fsum((v - mean) ** 2 for v in values) / (len(values) - sample)
        return math.sqrt(spread) if root else spread

    return of


_RESULTS: dict[str, Callable[[list[Any], BoundAggregate], Any]] = {
    "COUNT": lambda values, _: len(values),
    "SUM": _sum,
    "SUM0": lambda values, call: _sum(values, call) or 0,
    "AVG": _average,
    "MIN": lambda values, _: _extreme(min, values),
    "MAX": lambda values, _: _extreme(max, values),
    "VAR_POP": _variance(sample=False, root=False),
    "VAR_SAMP": _variance(sample=True, root=False),
    "STDDEV_POP": _variance(sample=False, root=True),
    "STDDEV_SAMP": _variance(sample=True, root=True),
    "FIRST_VALUE": lambda values, _: values[0] if values else None,
    "LAST_VALUE": lambda values, _: values[-1] if values else None,
    "LISTAGG": lambda values, _: ",".join(values) if values else None,
    "ARRAY_AGG": lambda values, _: list(values) or None,
    "COLLECT": lambda values, _: sorted(Counter(values).items(), key=repr),
}


def _extreme(pick: Callable[[list[Any]], Any], values: list[Any]) -> Any:
    numbers = [v for v in values if not (isinstance(v, float) and math.isnan(v))]
    return pick(numbers) if numbers else (values[0] if values else None)


def normal(row: Row) -> str:
    """A row as text: floating point numbers to nine digits, multisets in some fixed order, −0.0 as 0.0."""
    return repr(tuple(_normal(v) for v in row))


def _normal(value: Any) -> Any:
    if isinstance(value, float):
        rounded = float(f"{value:.9g}")
        return 0.0 if abs(rounded) < 1e-7 else rounded
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return sorted(value, key=repr)
    return value


class FoldedChanges:
    """Applies what an operator sends; every removal must be of a row that is there, pairs must be adjacent."""

    def __init__(self) -> None:
        self.rows: Counter[str] = Counter()
        self.changes = 0

    def take(self, batches: Sequence[object]) -> None:
        """Apply batches in order."""
        for batch in batches:
            if not isinstance(batch, RecordBatch):
                continue
            kinds = [RowKind.INSERT] * batch.num_rows if batch.row_kinds is None else batch.row_kinds.to_pylist()
            rows = [normal(r) for r in rows_of(batch.columns)]
            for i, (kind, row) in enumerate(zip(kinds, rows, strict=True)):
                self.changes += 1
                if kind == RowKind.UPDATE_BEFORE:
                    assert kinds[i + 1] == RowKind.UPDATE_AFTER
                if kind == RowKind.UPDATE_AFTER:
                    assert kinds[i - 1] == RowKind.UPDATE_BEFORE
                if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER):
                    self.rows[row] += 1
                else:
                    assert self.rows[row] > 0, f"{row} was not sent, sent is {self.rows}"
                    self.rows[row] -= 1
        self.rows = +self.rows
