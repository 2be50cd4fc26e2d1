"""The rule that drops columns nobody needs, down into the sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from flowrun.core.schema import Schema
from flowrun.core.types import DataType
from flowrun.plan import nodes
from flowrun.plan.co_process import CoProcess
from flowrun.plan.description import node_description
from flowrun.plan.expressions import ColumnRef
from flowrun.plan.joins import LookupJoin
from flowrun.plan.rewrites.columns import Pruned, columns_in, moved, pruned, used_columns
from flowrun.plan.rewrites.traversal import with_sinks
from flowrun.plan.windows import sees_whole_rows

Table = TypeVar("Table", nodes.Scan, LookupJoin)


def prune_columns(plan: nodes.Plan) -> nodes.Plan:
    """Scans read, and Calcs compute, only columns that something after them uses. Nested columns are kept whole.

    Python functions and sinks use every column they are given. A node that needs no column at all (COUNT(*)) keeps its cheapest
    one, since rows without columns cannot be counted. Aggregates whose results nobody uses are not computed.
    """
    needed = _needed_columns(plan)
    done: dict[int, Pruned] = {}
    for node in nodes.walk_plan(plan):
        done[id(node)] = _prune(node, needed[id(node)], done)
    return with_sinks(plan, tuple(done[id(s)].node for s in plan.sinks))


def _needed_columns(plan: nodes.Plan) -> dict[int, set[int]]:
    """For each node, by identity, the positions of the output columns that its readers use, or it cannot do without."""
    inputs_first = list(nodes.walk_plan(plan))
    needed: dict[int, set[int]] = {id(n): set() for n in inputs_first}
    for node in reversed(inputs_first):  # readers before what they read
        own = needed[id(node)] = _asked_of(node, needed[id(node)])
        for child in node.inputs:
            needed[id(child)] |= _used_of_input(node, child, own)
    return needed


def _cheapest(schema: Schema) -> int:
    """Position of the column that costs least to carry: fixed width before text before nested."""

    def cost(position: int) -> tuple[bool, int]:
        type_ = schema.types[position]
        return type_.is_nested, _width(type_)

    return min(range(len(schema)), key=cost)


def _width(type_: DataType) -> int:
    """Bits of a value; text and bytes count as wide."""
    try:
        return int(type_.arrow.bit_width)
    except ValueError:
        return 1 << 10


def _asked_of(node: nodes.PlanNode, needed: set[int]) -> set[int]:
    """The columns that a node computes for those that its readers need."""
    if isinstance(node, nodes.WindowAggregate) and (node.trigger is not None or node.evictor is not None):
        return set(range(len(node.schema)))  # the content of a window is more than its aggregates
    return needed or {_cheapest(node.schema)}


def _used_of_input(node: nodes.PlanNode, child: nodes.PlanNode, own: set[int]) -> set[int]:
    """Columns of the input `child` that `node` uses to produce its columns `own`."""
    match node:
        case nodes.Union():
            return set(own)
        case nodes.SideOutput():
            # what columns of their own are made of is needed anyway: windows with late rows and functions keep all columns
            return set() if _has_own_columns(node) else set(own)
        case nodes.WindowAggregate() if node.late_tag is not None or sees_whole_rows(
            node.window, node.trigger, node.evictor
        ):
            return set(range(len(child.schema)))  # late rows leave as they came, and users' classes are shown them
        case _:
            return used_columns(node, child, own)


def _has_own_columns(node: nodes.SideOutput) -> bool:
    """Whether a side output's columns are not those of the main output: of a window's late rows, of a function's rows."""
    return isinstance(node.input, nodes.WindowAggregate | nodes.AsyncMap | nodes.Process | CoProcess | nodes.PythonMap)


def _prune(node: nodes.PlanNode, own: set[int], done: Mapping[int, Pruned]) -> Pruned:
    match node:
        case nodes.Scan():
            return _prune_scan(node, own)
        case nodes.Union():
            return _prune_union(node, sorted(own), done)
        case nodes.SideOutput():
            return _prune_side(node, done)
        case LookupJoin():
            made = pruned(node, own, done)
            assert isinstance(made.node, LookupJoin)
            return Pruned(_prune_table(made.node, 0), made.positions)
        case _:
            return pruned(node, own, done)


def _prune_scan(scan: nodes.Scan, own: set[int]) -> Pruned:
    mark = scan.watermark
    if mark is not None and mark.column not in {scan.schema.names[i] for i in own}:
        scan = replace(scan, watermark=replace(mark, column=None))
    made = pruned(scan, own, {})
    assert isinstance(made.node, nodes.Scan)
    return Pruned(_prune_table(made.node, _cheapest(scan.physical)), made.positions)


def _prune_table(node: Table, least: int) -> Table:
    """The node with those columns asked of the connector that it uses; the column `least` if there is none: rows must be counted."""
    of_table = [f for f in node_description(type(node)).fields.values() if f.over == ("physical",)]
    used = {c for f in of_table for c in columns_in(getattr(node, f.name), f.meaning)}
    physical = sorted(used or {least})
    positions = {old: new for new, old in enumerate(physical)}
    return replace(
        node,
        physical=Schema(tuple(node.physical.fields[i] for i in physical)),
        declared=node.declared or node.physical,
        **{f.name: moved(getattr(node, f.name), f.meaning, positions) for f in of_table},
    )


def _prune_union(union: nodes.Union, kept: list[int], done: Mapping[int, Pruned]) -> Pruned:
    """Members may have kept more (others read them too) or other positions: each is brought to the union's columns."""
    schema = Schema(tuple(union.schema.fields[i] for i in kept))
    members: list[nodes.PlanNode] = []
    for member in union.members:
        child = done[id(member)]
        wanted = [child.positions[i] for i in kept]
        if wanted == list(range(len(child.node.schema))):
            members.append(child.node)
            continue
        fields = child.node.schema.fields
        columns = tuple(ColumnRef(fields[w].type, w, fields[w].name) for w in wanted)
        members.append(
            nodes.Calc(
                schema=schema, hints=replace(union.hints, uid=None, place=None), input=child.node, projections=columns
            )
        )
    return Pruned(replace(union, schema=schema, members=tuple(members)), {old: new for new, old in enumerate(kept)})


def _prune_side(node: nodes.SideOutput, done: Mapping[int, Pruned]) -> Pruned:
    child = done[id(node.input)]
    own = {i: i for i in range(len(node.schema))}
    match child.node:
        case nodes.WindowAggregate():
            return Pruned(replace(node, schema=child.node.input.schema, input=child.node), own)
        case nodes.AsyncMap() | nodes.Process() | CoProcess() | nodes.PythonMap():
            return Pruned(replace(node, input=child.node), own)
        case _:
            return Pruned(replace(node, schema=child.node.schema, input=child.node), child.positions)
