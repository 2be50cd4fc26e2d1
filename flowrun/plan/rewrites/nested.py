"""The rule that reads only those fields of ROW columns that something uses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from flowrun.connectors.registry import connector_named
from flowrun.core.schema import Field, Schema
from flowrun.core.types import DataType, TypeRoot
from flowrun.plan.expressions import ColumnRef, Expression, FieldAccess, transform
from flowrun.plan.nodes import Calc, Plan, PlanNode, Scan, WindowAggregate, walk_plan
from flowrun.plan.relational import GroupAggregate
from flowrun.plan.rewrites.traversal import map_expressions, with_inputs, with_sinks
from flowrun.plan.windows import sees_whole_rows

Path = tuple[str, ...]
_WHOLE: Path = ()
_READERS = (Calc, GroupAggregate, WindowAggregate)


def prune_nested_columns(plan: Plan) -> Plan:
    """ROW columns of Scans keep the fields that their readers, computed columns and watermark access.

    Only where every reader is a Calc or an aggregation that accesses fields of the column and never the column itself, and the
    connector can do it.
    """
    readers: dict[int, list[PlanNode]] = {}
    for node in walk_plan(plan):
        for child in node.inputs:
            readers.setdefault(id(child), []).append(node)
    done: dict[int, PlanNode] = {}
    narrowed: dict[int, dict[int, DataType]] = {}  # new types of output columns, by rewritten scan
    for node in walk_plan(plan):
        rebuilt = with_inputs(node, tuple(done[id(i)] for i in node.inputs))
        if isinstance(node, Scan):
            rebuilt, types = _narrowed(node, readers.get(id(node), []))
            narrowed[id(rebuilt)] = types
        elif isinstance(rebuilt, _READERS) and narrowed.get(id(rebuilt.input)):
            types = narrowed[id(rebuilt.input)]
            rebuilt = map_expressions(rebuilt, lambda e, t=types: _retyped(e, t))  # type: ignore[misc]
        done[id(node)] = rebuilt
    return with_sinks(plan, tuple(done[id(s)] for s in plan.sinks))


def _narrowed(scan: Scan, readers: list[PlanNode]) -> tuple[Scan, dict[int, DataType]]:
    """The scan with narrower ROWs, and the new types of its output columns."""
    if not any(t.root is TypeRoot.ROW for t in scan.physical.types) or not _reads_fields(scan):
        return scan, {}
    inner = [p for p in scan.projections if not isinstance(p, ColumnRef)]
    if scan.watermark is not None:
        inner += [
            scan.watermark.time,
            *([scan.watermark.punctuation] if scan.watermark.punctuation is not None else []),
        ]
    used = _paths(inner)
    outer = _used_by_readers(scan, readers)
    for position, projection in enumerate(scan.projections):
        if isinstance(projection, ColumnRef):
            used.setdefault(projection.index, set()).update(outer.get(position, set()))
    types = {
        i: kept
        for i, old in enumerate(scan.physical.types)
        if old.root is TypeRoot.ROW and (kept := _kept_type(old, used.get(i, {_WHOLE}))) != old
    }
    if not types:
        return scan, {}
    outputs = {
        i: types[p.index] for i, p in enumerate(scan.projections) if isinstance(p, ColumnRef) and p.index in types
    }
    retyped = map_expressions(scan, lambda e: _retyped(e, types))
    assert isinstance(retyped, Scan)
    changed = replace(
        retyped,
        physical=_with_types(scan.physical, types),
        schema=_with_types(scan.schema, outputs),
        declared=scan.declared or scan.physical,
    )
    return changed, outputs


def _reads_fields(scan: Scan) -> bool:
    return connector_named(scan.table.connector).reads_fields


def _used_by_readers(scan: Scan, readers: list[PlanNode]) -> dict[int, set[Path]]:
    """Paths below each output column that readers access; the empty path stands for the whole column."""
    whole = {i: {_WHOLE} for i in range(len(scan.schema))}
    if not all(isinstance(r, _READERS) for r in readers):
        return whole
    expressions: list[Expression] = []
    for reader in readers:
        if isinstance(reader, Calc):
            expressions += [*reader.projections, *([reader.condition] if reader.condition is not None else [])]
            continue
        assert isinstance(reader, GroupAggregate | WindowAggregate)
        if isinstance(reader, WindowAggregate) and (
            reader.late_tag is not None
            or reader.trigger is not None
            or sees_whole_rows(reader.window, None, reader.evictor)
        ):
            return whole  # late rows leave as they came
        fields = scan.schema.fields
        expressions += [ColumnRef(fields[k].type, k, fields[k].name) for k in reader.keys]
        for call in reader.aggregates:
            expressions += [*call.arguments, *([call.filter] if call.filter is not None else [])]
    return _paths(expressions)


def _paths(expressions: Iterable[Expression]) -> dict[int, set[Path]]:
    found: dict[int, set[Path]] = {}
    for expression in expressions:
        _collect(expression, (), found)
    return found


def _collect(expression: Expression, path: Path, found: dict[int, set[Path]]) -> None:
    match expression:
        case FieldAccess(operand=operand, name=name) if isinstance(operand, FieldAccess | ColumnRef):
            _collect(operand, (name, *path), found)
        case ColumnRef(index=index):
            found.setdefault(index, set()).add(path)
        case _:
            for child in expression.children:
                _collect(child, (), found)


def _kept_type(type: DataType, paths: set[Path]) -> DataType:
    """The ROW with the fields that paths begin with; the whole of it if a path ends here, or if none goes on."""
    if type.root is not TypeRoot.ROW or _WHOLE in paths or not paths:
        return type
    names = [n for n in type.names if any(p[0] == n for p in paths)]
    children = []
    for name in names:
        child = type.field(name)
        assert child is not None
        children.append(_kept_type(child, {p[1:] for p in paths if p[0] == name}))
    return replace(type, names=tuple(names), children=tuple(children))


def _retyped(expression: Expression, types: dict[int, DataType]) -> Expression:
    def retype(node: Expression) -> Expression:
        if isinstance(node, ColumnRef) and node.index in types:
            return replace(node, type=types[node.index])
        if isinstance(node, FieldAccess):
            inner = node.operand.type.field(node.name)
            return replace(node, type=inner) if inner is not None else node
        return node

    return transform(expression, retype)


def _with_types(schema: Schema, types: dict[int, DataType]) -> Schema:
    return Schema(tuple(Field(f.name, types.get(i, f.type), f.nullable) for i, f in enumerate(schema)))
