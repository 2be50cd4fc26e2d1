"""The rule for limits above limits, and above what is computed for rows that they drop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import RankFunction
from flowrun.plan.expressions import ColumnRef, columns_used, remap_columns
from flowrun.plan.fallibility import is_deterministic
from flowrun.plan.nodes import Calc, Plan, PlanNode
from flowrun.plan.relational import Rank
from flowrun.plan.rewrites.traversal import SoleInputs, map_with_sole_inputs


def merge_limits(plan: Plan) -> Plan:
    """A LIMIT or top-N goes below a projection that computes something, so that only its rows are computed; one over another with the
    same order and partition becomes one.

    Not if the rows to remember would become wider, nor past random values.
    """
    return map_with_sole_inputs(plan, lambda node, sole: _limited(node, sole) if isinstance(node, Rank) else node)


def _limited(rank: Rank, sole: SoleInputs) -> PlanNode:
    below = rank.input
    if id(below) not in sole:
        return rank
    if isinstance(below, Rank):
        return _merged(rank, below)
    if not isinstance(below, Calc) or below.condition is not None or not _only_passed(rank, below):
        return rank
    needed = sorted({c for p in below.projections for c in columns_used(p)})
    if isinstance(below.input, Rank):
        # dropping a column would make some changes of what is ranked below changes of nothing
        merges = len(needed) == len(below.input.schema) and all(isinstance(p, ColumnRef) for p in below.projections)
    else:
        merges = not rank.order and _computes(below) and 0 < len(needed) <= len(below.projections)
    return _below_projection(rank, below, needed, sole) if merges else rank


def _computes(calc: Calc) -> bool:
    """Whether there is something to save, and it is the same for each row at any time."""
    computed = any(not isinstance(p, ColumnRef) and columns_used(p) for p in calc.projections)
    return computed and all(is_deterministic(p) for p in calc.projections)


def _only_passed(rank: Rank, calc: Calc) -> bool:
    """Whether partition and order are columns that the Calc passes on."""
    used = (*rank.partition, *(k.column for k in rank.order))
    plain = calc.hints.parallelism is None and calc.hints.slot_sharing_group is None and calc.hints.chaining
    return plain and all(isinstance(calc.projections[c], ColumnRef) for c in used)


def _below_projection(rank: Rank, calc: Calc, needed: list[int], sole: SoleInputs) -> Calc:
    source = calc.input
    if len(needed) < len(source.schema) and not isinstance(source, Rank):
        fields = [source.schema.fields[c] for c in needed]
        columns = tuple(ColumnRef(f.type, c, f.name) for c, f in zip(needed, fields, strict=True))
        hints = replace(calc.hints, uid=None, place=None)
        source = Calc(Schema(tuple(fields)), hints, source, columns)
        places = {old: new for new, old in enumerate(needed)}
    else:
        places = {c: c for c in range(len(source.schema))}

    def place(column: int) -> int:
        projection = calc.projections[column]
        assert isinstance(projection, ColumnRef)
        return places[projection.index]

    fields = list(source.schema.fields)
    if rank.rank_column:
        last = rank.schema.fields[-1]
        fields.append(Field(_unlike(last.name, source.schema.names), last.type, last.nullable))
    inner = replace(
        rank,
        schema=Schema(tuple(fields)),
        input=source,
        partition=tuple(place(c) for c in rank.partition),
        order=tuple(replace(k, column=place(k.column)) for k in rank.order),
    )
    ranked = _merged(inner, source) if isinstance(source, Rank) and id(source) in sole else inner
    return _projected(rank, calc, ranked, places)


def _projected(rank: Rank, calc: Calc, ranked: PlanNode, places: Mapping[int, int]) -> Calc:
    """The Calc's columns over what is ranked now, and the rank."""
    projections = [remap_columns(p, dict(places)) for p in calc.projections]
    if rank.rank_column:
        last = ranked.schema.fields[-1]
        projections.append(ColumnRef(last.type, len(ranked.schema) - 1, last.name))
    hints = replace(calc.hints, uid=None, place=None)
    return Calc(rank.schema, hints, ranked, tuple(projections))


def _unlike(name: str, taken: tuple[str, ...]) -> str:
    while name in taken:
        name += "_"
    return name


def _merged(outer: Rank, inner: Rank) -> Rank:
    """One top-N for two; the outer one as it is where that would not be the same."""
    numbered = outer.function is RankFunction.ROW_NUMBER and inner.function is RankFunction.ROW_NUMBER
    alike = set(outer.partition) == set(inner.partition) and outer.order == inner.order
    if not numbered or not alike or inner.rank_column or inner.hints.uid is not None:
        return outer
    if outer.rank_column and inner.first != 1:
        return outer
    first = inner.first + outer.first - 1
    last = min(inner.last, inner.first + outer.last - 1)
    return outer if first > last else replace(outer, input=inner.input, first=first, last=last)
