"""What general plan nodes mean, row set by row set: an oracle that shares nothing with operators, for bounded input.

Rows are Arrow tables. Time attributes mean nothing here: windows and sorts are those of the whole input.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pyarrow as pa

from flowrun.core.schema import Schema
from flowrun.core.semantics import NullOrder, SortKey
from flowrun.plan.compiled import Predicate, Projection
from flowrun.plan.expressions import AggregateCall, Expression, Literal
from flowrun.plan.joins import Join
from flowrun.plan.nodes import Calc, PlanNode, Scan, Union
from flowrun.plan.relational import (
    Expand,
    GroupAggregate,
    Over,
    OverCall,
    Rank,
    TemporalSort,
    Unnest,
    Values,
    WindowTableFunction,
)
from flowrun.plan.windows import SlidingWindow, TumblingWindow

Rows = list[tuple[Any, ...]]


class Interpreter:
    """Evaluates plans over tables by name; each node once."""

    def __init__(self, tables: Mapping[str, pa.Table]) -> None:
        self._tables = tables
        self._done: dict[int, Rows] = {}

    def rows(self, node: PlanNode) -> Rows:
        """All rows of a node, as Python values."""
        if id(node) not in self._done:
            self._done[id(node)] = self._evaluated(node)
        return self._done[id(node)]

    def _evaluated(self, node: PlanNode) -> Rows:
        match node:
            case Scan():
                table = self._tables[node.table.name]
                return [tuple(row[n] for n in node.schema.names) for row in table.to_pylist()]
            case Values():
                return [tuple(v.value for v in row if isinstance(v, Literal)) for row in node.rows]
            case Calc():
                rows = self.rows(node.input)
                if node.condition is not None:
                    rows = kept(rows, node.input.schema, node.condition)
                return projected(rows, node.input.schema, node.projections, node.schema)
            case Union():
                return [row for member in node.members for row in self.rows(member)]
            case Expand():
                return [
                    row
                    for given in self.rows(node.input)
                    for p in node.projections
                    for row in projected([given], node.input.schema, p, node.schema)
                ]
            case Join():
                return self._joined(node)
            case GroupAggregate():
                return self._grouped(node)
            case Over():
                return self._over(node)
            case Rank():
                return self._ranked(node)
            case TemporalSort():
                return ordered(self.rows(node.input), node.order)
            case Unnest():
                return self._unnested(node)
            case WindowTableFunction():
                return self._windowed(node)
        raise AssertionError(f"{type(node).__name__} is not interpreted")

    def _joined(self, node: Join) -> Rows:
        left, right = self.rows(node.left), self.rows(node.right)
        schema = both(node.left.schema, node.right.schema)
        pairs = [
            (i, j) for i in range(len(left)) for j in range(len(right)) if self._keys_match(node, left[i], right[j])
        ]
        if node.condition is not None and pairs:
            batch = as_batch([left[i] + right[j] for i, j in pairs], schema)
            mask = Predicate(node.condition).compile()(batch).to_pylist()
            pairs = [p for p, m in zip(pairs, mask, strict=True) if m]
        hit_left, hit_right = {i for i, _ in pairs}, {j for _, j in pairs}
        if node.kind.left_only:
            wanted = node.kind.value == "semi"
            return [row for i, row in enumerate(left) if (i in hit_left) == wanted]
        found = [left[i] + right[j] for i, j in pairs]
        nothing_left, nothing_right = (None,) * len(node.left.schema), (None,) * len(node.right.schema)
        if node.kind.keeps_left:
            found += [row + nothing_right for i, row in enumerate(left) if i not in hit_left]
        if node.kind.keeps_right:
            found += [nothing_left + row for j, row in enumerate(right) if j not in hit_right]
        return found

    def _keys_match(self, node: Join, left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
        null_safe = node.null_safe or (False,) * len(node.left_keys)
        return all(
            left[a] == right[b] and (safe or left[a] is not None)
            for a, b, safe in zip(node.left_keys, node.right_keys, null_safe, strict=True)
        )

    def _grouped(self, node: GroupAggregate) -> Rows:
        rows = self.rows(node.input)
        groups: dict[tuple[Any, ...], list[int]] = {}
        for number, row in enumerate(rows):
            groups.setdefault(hashable(tuple(row[k] for k in node.keys)), []).append(number)
        columns = [aggregate_inputs(c, rows, node.input.schema) for c in node.aggregates]
        return [
            key + tuple(aggregated(c, [v[i] for i in members]) for c, v in zip(node.aggregates, columns, strict=True))
            for key, members in ((tuple(rows[m[0]][k] for k in node.keys), m) for m in groups.values())
        ]

    def _over(self, node: Over) -> Rows:
        rows = self.rows(node.input)
        added = [self._over_column(c, rows, node.input.schema) for c in node.calls]
        return [row + tuple(column[i] for column in added) for i, row in enumerate(rows)]

    def _over_column(self, call: OverCall, rows: Rows, schema: Schema) -> list[Any]:
        values = aggregate_inputs(call.call, rows, schema)
        found: list[Any] = [None] * len(rows)
        partitions: dict[tuple[Any, ...], list[int]] = {}
        for number, row in enumerate(rows):
            partitions.setdefault(hashable(tuple(row[k] for k in call.partition)), []).append(number)
        for members in partitions.values():
            by_row = {id(rows[m]): m for m in members}
            sequence = [by_row[id(r)] for r in ordered([rows[m] for m in members], call.order)]
            keys = [tuple(rows[m][k.column] for k in call.order) for m in sequence]
            for place, member in enumerate(sequence):
                found[member] = over_value(call, place, keys, [values[m] for m in sequence])
        return found

    def _ranked(self, node: Rank) -> Rows:
        partitions: dict[tuple[Any, ...], Rows] = {}
        for row in self.rows(node.input):
            partitions.setdefault(hashable(tuple(row[k] for k in node.partition)), []).append(row)
        return [r for rows in partitions.values() for r in ordered(rows, node.order)[node.first - 1 : node.last]]

    def _unnested(self, node: Unnest) -> Rows:
        found: Rows = []
        wide = len(node.schema) - len(node.input.schema)
        for row in self.rows(node.input):
            elements = list(row[node.collection] or ())
            if not elements and node.outer:
                found.append(row + (None,) * wide)
            for number, element in enumerate(elements, 1):
                values = tuple(element.values()) if isinstance(element, dict) else element
                values = values if isinstance(values, tuple) else (values,)
                found.append(row + values + ((number,) if node.ordinality else ()))
        return found

    def _windowed(self, node: WindowTableFunction) -> Rows:
        found: Rows = []
        for row in self.rows(node.input):
            time = pa.scalar(row[node.time], pa.timestamp("ms")).value
            match node.window:
                case TumblingWindow(size_ms=size, offset_ms=offset):
                    starts = [time - (time - offset) % size]
                case SlidingWindow(size_ms=size, slide_ms=slide, offset_ms=offset):
                    last = time - (time - offset) % slide
                    starts = list(range(last, time - size, -slide))
                case _:
                    raise AssertionError(f"{node.window} is not interpreted")
            for start in starts:
                bounds = (start, start + size, start + size - 1)
                found.append(row + tuple(pa.scalar(b, pa.timestamp("ms")).as_py() for b in bounds))
        return found


def hashable(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """A key of values, of which some may be arrays."""
    return tuple(tuple(v) if isinstance(v, list) else v for v in key)


def both(left: Schema, right: Schema) -> Schema:
    """Columns of both sides under names of no meaning."""
    return Schema.from_pairs((f"c{i}", f.type) for i, f in enumerate((*left, *right)))


def as_batch(rows: Rows, schema: Schema) -> pa.RecordBatch:
    """Rows as a batch."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(list(c), t.arrow) for c, t in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=[f"c{i}" for i in range(len(schema))])


def kept(rows: Rows, schema: Schema, condition: Expression) -> Rows:
    """The rows for which a condition is true."""
    mask = Predicate(condition).compile()(as_batch(rows, schema)).to_pylist() if rows else []
    return [r for r, m in zip(rows, mask, strict=True) if m]


def projected(rows: Rows, schema: Schema, expressions: tuple[Expression, ...], target: Schema) -> Rows:
    """The expressions over each row."""
    if not rows:
        return []
    batch = Projection(expressions, target).compile()(as_batch(rows, schema))
    return list(zip(*(c.to_pylist() for c in batch.columns), strict=True))


def ordered(rows: Rows, order: tuple[SortKey, ...]) -> Rows:
    """The rows in order; equal ones as they came."""
    for key in reversed(order):
        present = [r for r in rows if r[key.column] is not None]
        absent = [r for r in rows if r[key.column] is None]
        present.sort(key=lambda r: r[key.column], reverse=key.descending)
        rows = absent + present if key.nulls is NullOrder.FIRST else present + absent
    return rows


def aggregate_inputs(call: AggregateCall, rows: Rows, schema: Schema) -> list[tuple[bool, tuple[Any, ...]]]:
    """Whether each row counts, and the arguments for it."""
    if not rows:
        return []
    target = Schema.from_pairs((f"a{i}", a.type) for i, a in enumerate(call.arguments))
    arguments = projected(rows, schema, call.arguments, target) if call.arguments else [()] * len(rows)
    mask = [True] * len(rows)
    if call.filter is not None:
        mask = [bool(m) for m in Predicate(call.filter).compile()(as_batch(rows, schema)).to_pylist()]
    return list(zip(mask, arguments, strict=True))


def aggregated(call: AggregateCall, inputs: list[tuple[bool, tuple[Any, ...]]]) -> Any:
    """An aggregate of a group."""
    rows = [a for counts, a in inputs if counts]
    if call.function == "COUNT" and not call.arguments:
        return len(rows)
    values = [a[0] for a in rows]
    if call.function == "SINGLE_VALUE":
        assert len(values) <= 1, "several rows for one value"
        return values[0] if values else None
    values = [v for v in values if v is not None]
    if call.distinct:
        values = list(dict.fromkeys(tuple(v.items()) if isinstance(v, dict) else v for v in values))
    match call.function:
        case "COUNT":
            return len(values)
        case "SUM":
            return sum(values) if values else None
        case "MIN":
            return min(values, default=None)
        case "MAX":
            return max(values, default=None)
        case "AVG":
            if not values:
                return None
            mean = sum(values) / len(values)
            if isinstance(mean, Decimal):
                return mean.quantize(Decimal(1).scaleb(-(call.type.scale or 0)), ROUND_HALF_UP)
            return int(mean) if call.type.is_integer else mean
    raise AssertionError(f"{call.function} is not interpreted")


def over_value(call: OverCall, place: int, keys: list[Any], inputs: list[tuple[bool, tuple[Any, ...]]]) -> Any:
    """An OVER call for the row at `place` of its ordered partition."""
    match call.call.function:
        case "ROW_NUMBER":
            return place + 1
        case "RANK":
            return keys.index(keys[place]) + 1
        case "DENSE_RANK":
            return len(list(itertools.groupby(keys[: place + 1])))
        case "LAG" | "LEAD":
            _, (_, offset, default) = inputs[place]
            other = place - offset if call.call.function == "LAG" else place + offset
            return inputs[other][1][0] if 0 <= other < len(inputs) else default
    assert call.frame is not None
    before, behind = call.frame.preceding, call.frame.following
    if call.frame.unit.value == "rows":
        start = 0 if before is None else max(0, place - int(before))
        stop = len(inputs) if behind is None else max(start, place + int(behind) + 1)
        return aggregated(call.call, inputs[start:stop])
    assert not before, "a RANGE of units is not interpreted"
    assert not behind, "a RANGE of units is not interpreted"
    equal = [i for i, k in enumerate(keys) if k == keys[place]]
    start = 0 if before is None else equal[0]
    stop = len(inputs) if behind is None else equal[-1] + 1
    return aggregated(call.call, inputs[start:stop])


def comparable(rows: Rows) -> list[tuple[Any, ...]]:
    """Rows as a sorted multiset in which numbers compare by value."""

    def plain(value: Any) -> Any:
        if isinstance(value, Decimal | float):
            return round(float(value), 6)
        if isinstance(value, dict):
            return tuple(value.items())
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value

    return sorted((tuple(plain(v) for v in row) for row in rows), key=repr)
