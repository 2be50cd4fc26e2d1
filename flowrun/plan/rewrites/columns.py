"""Which columns of its inputs a node uses, and the node over inputs with fewer columns: both from what nodes say of themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.plan.description import (
    Added,
    Columns,
    Each,
    FieldDescription,
    Meaning,
    NodeDescription,
    Passed,
    Taken,
    node_description,
    part_description,
)
from flowrun.plan.expressions import ColumnRef, Expression, columns_used, remap_columns, transform, walk
from flowrun.plan.nodes import Calc, NodeHints, PlanNode
from flowrun.plan.rewrites.traversal import with_inputs

Positions = dict[int, int]
"""Where columns are now, by where they were."""


@record
class Pruned:
    """A rebuilt node, and where each kept column of the old one is now."""

    node: PlanNode
    positions: Positions


def used_columns(node: PlanNode, child: PlanNode, own: set[int]) -> set[int]:
    """Columns of the input `child` that a node uses to produce its columns `own`."""
    description = node_description(type(node))
    if description.output is None or description.needs_all:
        return set(range(len(child.schema)))
    layout = _Layout(node, description, own)
    sides = [layout.used(name) for name in description.inputs if getattr(node, name) is child]
    return set().union(*sides)


def made_of(node: PlanNode, column: int) -> list[tuple[PlanNode, int]] | None:
    """The columns of a node's inputs that the values of one of its columns are made of; None: it does not say, and may use any."""
    description = node_description(type(node))
    if description.output is None:
        return None
    return _Layout(node, description, {column}).made_of(column)


def is_added(node: PlanNode, column: int) -> bool:
    """Whether a column is of no input and of no expression: it comes with the node."""
    description = node_description(type(node))
    return description.output is not None and _Layout(node, description, {column}).is_added(column)


def deciding(node: PlanNode) -> list[tuple[PlanNode, int]]:
    """The columns of a node's inputs by which it decides which rows there are and what belongs together, whatever is read of it."""
    description = node_description(type(node))
    own = {part.field for part in description.output or () if isinstance(part, Each)}
    layout = _Layout(node, description, set())
    fields = (f for f in description.over_inputs if f.name not in own)
    return [found for f in fields for found in layout.columns_of_value(f, getattr(node, f.name))]


def pruned(node: PlanNode, own: set[int], children: Mapping[int, Pruned]) -> Pruned:
    """The node over its rewritten inputs with the columns `own` at least.

    One that keeps rows gets only those columns that it uses, others all that their input still has.
    """
    description = node_description(type(node))
    if description.output is None or description.needs_all:
        rebuilt = with_inputs(node, tuple(children[id(i)].node for i in node.inputs))
        return Pruned(rebuilt, {i: i for i in range(len(node.schema))})
    layout = _Layout(node, description, own)
    inputs = {name: children[id(getattr(node, name))] for name in description.inputs}
    if description.keeps_rows:
        inputs = {name: narrowed(child, layout.used(name), node.hints) for name, child in inputs.items()}
    positions = layout.positions(inputs)
    old = {new: old for old, new in positions.items()}
    schema = Schema(tuple(node.schema.fields[old[i]] for i in range(len(old))))
    changes: dict[str, Any] = {"schema": schema, **{name: child.node for name, child in inputs.items()}}
    changes |= {name: layout.kept_value(name) for name in layout.kept}
    for f in description.over_inputs:
        changes[f.name] = moved(layout.kept_value(f.name), f.meaning, layout.moves(f, inputs))
    return Pruned(replace(node, **changes), positions)


def narrowed(child: Pruned, wanted: Iterable[int], hints: NodeHints) -> Pruned:
    """The input with the wanted columns of the old one only: by a Calc if others read more of it."""
    kept = sorted(set(wanted)) or [min(child.positions)]
    if len(kept) == len(child.node.schema):
        return child
    fields = [child.node.schema.fields[child.positions[i]] for i in kept]
    columns = tuple(ColumnRef(f.type, child.positions[i], f.name) for i, f in zip(kept, fields, strict=True))
    calc_hints = NodeHints(
        name=f"{hints.name}.input" if hints.name else None,
        parallelism=child.node.hints.parallelism,
        slot_sharing_group=hints.slot_sharing_group,
        location=hints.location,
    )
    calc = Calc(schema=Schema(tuple(fields)), hints=calc_hints, input=child.node, projections=columns)
    return Pruned(calc, {old: new for new, old in enumerate(kept)})


class _Layout:
    """Where the columns of a node's output come from, and which entries stay of the fields that have one a column (`kept`)."""

    def __init__(self, node: PlanNode, description: NodeDescription, own: set[int]) -> None:
        self._node = node
        self._description = description
        self._own = own
        self._parts: list[tuple[Columns, int, int]] = []
        output = description.output or ()
        widths = [self._width(part) for part in output]
        start = 0
        for part, width in zip(output, widths, strict=True):
            columns = len(node.schema) - sum(widths) if isinstance(part, Added) else width
            self._parts.append((part, start, columns))
            start += columns
        self.kept = {p.field: self._kept(p, start, width) for p, start, width in self._parts if isinstance(p, Each)}

    def _width(self, part: Columns) -> int:
        match part:
            case Passed(input=name, when=when):
                return len(getattr(self._node, name).schema) if not when or getattr(self._node, when) else 0
            case Taken(field=name):
                return len(getattr(self._node, name))
            case Each(field=name, across=across):
                entries = getattr(self._node, name)
                return len(entries[0] if across else entries)
            case Added():
                return 0  # what is left

    def _kept(self, part: Each, start: int, width: int) -> list[int]:
        """Entries that somebody reads, the node itself too; the first if there must be one, or there were no column at all."""
        asked = self._own | {
            start + i
            for f in self._description.over_inputs
            if part.field in f.over
            for i in self._used_in(f, part.field, getattr(self._node, f.name))
        }
        found = [i for i in range(width) if start + i in asked]
        alone = width == len(self._node.schema)
        return found or list(range(min(width, part.least or int(alone))))

    def kept_value(self, name: str) -> Any:  # Any: what a field holds
        """The value of a field without the entries that nobody reads."""
        value = getattr(self._node, name)
        kept = self.kept.get(name)
        if kept is None:
            return value
        if any(isinstance(p, Each) and p.field == name and p.across for p, _, _ in self._parts):
            return tuple(tuple(entries[i] for i in kept) for entries in value)
        return tuple(value[i] for i in kept)

    def made_of(self, column: int) -> list[tuple[PlanNode, int]] | None:
        """The input columns of one column of the output; none if it comes with the node, such as the bounds of a window."""
        for part, start, width in self._parts:
            if not start <= column < start + width:
                continue
            match part:
                case Passed(input=name):
                    return [(getattr(self._node, name), column - start)]
                case Taken(field=field):
                    return self._columns_of_entry(field, getattr(self._node, field)[column - start])
                case Each(field=field, across=across):
                    value = getattr(self._node, field)
                    entry = tuple(row[column - start] for row in value) if across else value[column - start]
                    return self._columns_of_entry(field, entry)
        return []

    def is_added(self, column: int) -> bool:
        """Whether a column of the output comes with the node."""
        return any(isinstance(part, Added) and start <= column < start + width for part, start, width in self._parts)

    def _columns_of_entry(self, field: str, entry: object) -> list[tuple[PlanNode, int]]:
        return self.columns_of_value(self._description.fields[field], entry)

    def columns_of_value(self, f: FieldDescription, value: object) -> list[tuple[PlanNode, int]]:
        """The columns of inputs of which a value of a field, or a part of one, speaks."""
        found = []
        start = 0
        columns = set(columns_in(value, f.meaning))
        for name in f.over:
            width = self._columns_of(name)
            if name in self._description.inputs:
                found += [(getattr(self._node, name), c - start) for c in sorted(columns) if start <= c < start + width]
            start += width
        return found

    def used(self, name: str) -> set[int]:
        """Columns of the input `name` that are used."""
        used: set[int] = set()
        for part, start, width in self._parts:
            if isinstance(part, Passed) and part.input == name:
                used |= {i - start for i in self._own if start <= i < start + width}
        for f in self._description.over_inputs:
            if name in f.over:
                used |= self._used_in(f, name, self.kept_value(f.name))
        return used

    def _used_in(self, f: FieldDescription, name: str, value: object) -> set[int]:
        """Columns of `name` of which the value of a field speaks."""
        start = sum(self._columns_of(n) for n in f.over[: f.over.index(name)])
        width = self._columns_of(name)
        return {c - start for c in columns_in(value, f.meaning) if start <= c < start + width}

    def _columns_of(self, name: str) -> int:
        """How many columns an input has, or a field with one entry a column."""
        value = getattr(self._node, name)
        return len(value.schema) if name in self._description.inputs else len(value)

    def moves(self, f: FieldDescription, inputs: Mapping[str, Pruned]) -> Positions:
        """Where the columns are now of which a field speaks."""
        found: Positions = {}
        start = new_start = 0
        for name in f.over:
            if name in inputs:
                places, width = inputs[name].positions, len(inputs[name].node.schema)
            else:
                places, width = {old: new for new, old in enumerate(self.kept[name])}, len(self.kept[name])
            found |= {start + old: new_start + new for old, new in places.items()}
            start, new_start = start + self._columns_of(name), new_start + width
        return found

    def positions(self, inputs: Mapping[str, Pruned]) -> Positions:
        """Where the columns of the output are now that are left."""
        found: Positions = {}
        new_start = 0
        for part, start, width in self._parts:
            match part:
                case Passed(input=name):
                    kept = dict(inputs[name].positions) if width else {}
                case Each(field=name):
                    kept = {old: new for new, old in enumerate(self.kept[name])}
                case _:
                    kept = {i: i for i in range(width)}
            found |= {start + old: new_start + new for old, new in kept.items()}
            new_start += len(kept)
        return found


# -- values of fields ----------------------------------------------------------------------------------------------------------


def columns_in(value: object, meaning: Meaning) -> Iterator[int]:
    """The columns of which the value of a field with this meaning speaks."""
    match value:
        case tuple():
            for entry in value:
                yield from columns_in(entry, meaning)
        case int() if meaning is Meaning.POSITIONS:
            yield value
        case Expression() if meaning is Meaning.PATTERN:
            for inner in walk(value):
                yield from _columns_in_part(inner)
        case Expression():
            yield from columns_used(value)
        case _:
            yield from _columns_in_part(value)


def _columns_in_part(value: object) -> Iterator[int]:
    description = part_description(type(value))
    if description is not None:
        for f in description.speaking:
            yield from columns_in(getattr(value, f.name), f.meaning)


def moved(value: Any, meaning: Meaning, positions: Positions) -> Any:  # Any: what a field holds, and the same again
    """The value of a field with this meaning, with every column where it is now."""
    match value:
        case tuple():
            return tuple(moved(entry, meaning, positions) for entry in value)
        case int() if meaning is Meaning.POSITIONS:
            return positions[value]
        case Expression() if meaning is Meaning.PATTERN:
            return transform(value, lambda inner: _moved_part(inner, positions))
        case Expression():
            return remap_columns(value, positions)
        case _:
            return _moved_part(value, positions)


def _moved_part(value: Any, positions: Positions) -> Any:
    description = part_description(type(value))
    if description is None:
        return value
    return replace(value, **{f.name: moved(getattr(value, f.name), f.meaning, positions) for f in description.speaking})
