"""FOR SYSTEM_TIME AS OF: joins with the version of a row at a time, and lookups in outside tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flowrun.connectors.registry import connector_named
from flowrun.core.record import record
from flowrun.core.semantics import JoinKind, RankFunction, TimeDomain
from flowrun.errors import OptionError
from flowrun.plan.changelog_nodes import ChangelogNormalize
from flowrun.plan.conditions import conjunction, conjuncts
from flowrun.plan.expressions import (
    Cast,
    ColumnRef,
    Expression,
    columns_used,
    remap_columns,
    substitute,
)
from flowrun.plan.joins import LookupJoin, TemporalJoin
from flowrun.plan.nodes import Calc, PlanNode, Scan
from flowrun.plan.recognition.context import Context, RecognitionError
from flowrun.plan.recognition.joins import Sides
from flowrun.plan.recognition.keys import KeyPair, split_keys
from flowrun.plan.recognition.nodes_made import (
    Extension,
    auxiliary,
    columns,
    renamed,
)
from flowrun.plan.recognition.sides import is_true
from flowrun.plan.recognition.windows import time_domain
from flowrun.plan.relational import Deduplicate, Keep, Rank
from flowrun.plan.unique_keys import unique_keys

_WHAT = "FOR SYSTEM_TIME AS OF"
_VERSIONED_HINT = (
    "give the table a PRIMARY KEY (…) NOT ENFORCED and a WATERMARK, or read a view of the last row of each key: SELECT … FROM "
    "(SELECT *, ROW_NUMBER() OVER (PARTITION BY key ORDER BY ts DESC) AS rn FROM versions) WHERE rn = 1"
)


def recognise_temporal_join(node: TemporalJoin, context: Context) -> PlanNode:
    """The join with its keys and times, or a lookup.

    Raises:
        RecognitionError: the time is no attribute, the right side has no versions, or its key is not joined on.
    """
    if node.left_keys:
        return node
    if node.kind not in (JoinKind.INNER, JoinKind.LEFT):
        raise RecognitionError(
            node,
            f"{_WHAT} takes JOIN and LEFT JOIN, not {node.kind.name} JOIN",
            "put the table whose versions are read on the right of JOIN or LEFT JOIN",
        )
    domain = time_domain(node, node.left, node.left_time, _WHAT, context)
    parts = [c for c in conjuncts(node.condition) if not is_true(c)]
    right = _below_calcs(node.right)
    if domain is TimeDomain.PROCESSING:
        if isinstance(right.base, Scan) and _can_be_looked_up(right.base):
            return _lookup(node, right, right.base, parts)
        return _current_version(node, parts)
    return _version_at(node, _versions(node, right, context), parts)


@record
class _Below:
    """What is below a chain of Calcs.

    Attributes:
        columns: the chain's output columns over `base`.
        filters: its conditions over `base`.
    """

    base: PlanNode
    columns: tuple[Expression, ...]
    filters: tuple[Expression, ...]


def _below_calcs(node: PlanNode) -> _Below:
    found: tuple[Expression, ...] = columns(node.schema)
    filters: tuple[Expression, ...] = ()
    while isinstance(node, Calc):
        below = node.projections
        found = tuple(substitute(c, below) for c in found)
        filters = (*conjuncts(node.condition), *(substitute(f, below) for f in filters))
        node = node.input
    return _Below(node, found, filters)


# -- versions -----------------------------------------------------------------------------------------------------------------


@record
class _Versions:
    """The right side as versions.

    Attributes:
        rows: each is a version from its time on; a deletion ends the last one of its key.
        columns: what the join sees, over the columns of the rows.
        filters: of the right side, over the columns of the rows.
        key: columns of the rows.
        time: column of the rows.
        judged: whether a version that does not pass the filters still ends the one before: then they are asked of the version that the
            join has found.
    """

    rows: PlanNode
    columns: tuple[Expression, ...]
    filters: tuple[Expression, ...]
    key: tuple[int, ...]
    time: int
    judged: bool


def _versions(node: TemporalJoin, right: _Below, context: Context) -> _Versions:
    base = right.base
    match base:
        case Deduplicate(keep=Keep.LAST, domain=TimeDomain.EVENT) if len(base.schema) == len(base.input.schema):
            # all rows are versions: the join needs no deduplication, which would correct instead of append
            return _Versions(base.input, right.columns, right.filters, base.keys, base.time, judged=True)
        case Rank(function=RankFunction.ROW_NUMBER, first=1, last=1, rank_column=False, order=(order,)) if (
            order.descending and context.traits(base.input).attribute(order.column) is TimeDomain.EVENT
        ):
            # the last rows of a table that changes: which of them a top-N would show depends on how rows come in batches
            return _Versions(base.input, right.columns, right.filters, base.partition, order.column, judged=True)
        case ChangelogNormalize(input=Scan() as scan, keys=key) if (
            scan.watermark is not None and scan.watermark.column is not None
        ):
            time = base.schema.index(scan.watermark.column)
            return _Versions(base, right.columns, right.filters, key, time, judged=bool(right.filters))
        case Scan() if base.table.primary_key and base.watermark is not None and base.watermark.column is not None:
            if set(base.table.primary_key) <= set(base.schema.names):
                key = tuple(base.schema.index(k) for k in base.table.primary_key)
                time = base.schema.index(base.watermark.column)
                judged = bool(right.filters) and not context.appends(base)
                return _Versions(base, right.columns, right.filters, key, time, judged)
    at = node.left.schema.names[node.left_time]
    lookup = "" if not isinstance(base, Scan) else "; or look the row up as of processing time: a column AS PROCTIME()"
    raise RecognitionError(
        node,
        f"{_WHAT} '{at}' needs versions on its right side: one row a key, with a rowtime",
        _VERSIONED_HINT + lookup,
    )


def _version_at(node: TemporalJoin, versions: _Versions, parts: Sequence[Expression]) -> PlanNode:
    pairs, rest = split_keys(parts, len(node.left.schema))
    keys = []
    for key in versions.key:
        pair = next((p for p in pairs if not p.null_safe and _is_column(p.right, key, versions.columns)), None)
        if pair is None:
            raise _missing_key(node, [versions.rows.schema.names[k] for k in versions.key])
        keys.append(pair)
    rest += [p.condition for p in pairs if p not in keys]
    right: PlanNode = node.right
    time = next(
        (i for i, c in enumerate(versions.columns) if isinstance(c, ColumnRef) and c.index == versions.time), None
    )
    if versions.judged:
        right, time, passes = _judged(node, versions)
        rest += [] if passes is None else [passes]
    elif time is None:
        right, time = _rebuilt(node, versions)
    sides = Sides.of(node, node.left, right)
    return _joined(node, sides, keys, rest, time, TimeDomain.EVENT)


def _judged(node: TemporalJoin, versions: _Versions) -> tuple[PlanNode, int, Expression | None]:
    """The right side's columns over all versions, the position of their time, and the filters as a condition of the join."""
    condition = conjunction(versions.filters)
    right, time = _rebuilt(node, replace(versions, filters=()), *([] if condition is None else [condition]))
    if condition is None:
        return right, time, None
    last = len(right.schema) - 1
    return right, time, ColumnRef(condition.type, len(node.left.schema) + last, right.schema.names[last])


def _rebuilt(node: TemporalJoin, versions: _Versions, *more: Expression) -> tuple[PlanNode, int]:
    """The right side's columns, and at the end `more`, over the versions themselves, with the position of their time."""
    extension = Extension.of(versions.rows, auxiliary(node.hints, "versions"))
    positions = [extension.position(c) for c in versions.columns]
    behind = [extension.position(c) for c in more]
    time = versions.time
    below = extension.build()
    if [*positions, *behind] == list(range(len(below.schema))) and not versions.filters and time in positions:
        return below, time
    names = node.right.schema.names
    wanted = [*positions, *([] if time in positions else [time]), *behind]
    fields = [replace(below.schema.fields[p], name=f"${i}") for i, p in enumerate(wanted)]
    fields[: len(names)] = [replace(f, name=n) for f, n in zip(fields, names, strict=False)]
    schema = type(below.schema)(tuple(fields))
    condition = conjunction(versions.filters)
    chosen = tuple(columns(below.schema)[p] for p in wanted)
    return Calc(schema, auxiliary(node.hints, "versions"), below, chosen, condition), wanted.index(time)


def _current_version(node: TemporalJoin, parts: Sequence[Expression]) -> PlanNode:
    """In processing time the right side must say by itself which row of a key is the current one."""
    pairs, rest = split_keys(parts, len(node.left.schema))
    equal = {p.right.index: p for p in pairs if isinstance(p.right, ColumnRef) and not p.null_safe}
    known = unique_keys(node.right)
    key = next((k for k in sorted(known, key=len) if k and k <= set(equal)), None)
    if key is None:
        if known and any(known):
            raise _missing_key(node, [node.right.schema.names[k] for k in sorted(sorted(known, key=len)[0])])
        raise RecognitionError(
            node,
            f"{_WHAT} a processing time needs a table that can be looked up, or one row a key, on its right side",
            "use a connector with a lookup, or a view of the last row of each key",
        )
    keys = [equal[k] for k in sorted(key)]
    rest += [p.condition for p in pairs if p not in keys]
    return _joined(node, Sides.of(node, node.left, node.right), keys, rest, None, TimeDomain.PROCESSING)


def _joined(
    node: TemporalJoin,
    sides: Sides,
    keys: Sequence[KeyPair],
    rest: Sequence[Expression],
    right_time: int | None,
    domain: TimeDomain,
) -> PlanNode:
    left_keys, right_keys = sides.keys(keys)
    left, right = sides.left.build(), sides.right.build()
    wide = [*left.schema.fields, *right.schema.fields]
    names = node.schema.names
    width, given = len(node.left.schema), len(node.right.schema)
    positions = [*range(width), *range(len(left.schema), len(left.schema) + given)]
    taken = set(names)
    fields = []
    for i, field in enumerate(wide):
        name = names[positions.index(i)] if i in positions else field.name
        while i not in positions and name in taken:
            name += "_"
        taken.add(name)
        fields.append(replace(field, name=name))
    schema = node.schema if len(wide) == len(node.schema) else type(node.schema)(tuple(fields))
    joined = TemporalJoin(
        schema, node.hints, left, right, node.kind, left_keys, right_keys, node.left_time, right_time, domain,
        sides.condition(rest),
    )  # fmt: skip
    return renamed(joined, node.schema, positions, auxiliary(node.hints, "columns"))


def _is_column(expression: Expression, index: int, over: Sequence[Expression]) -> bool:
    """Whether the key expression of the join is the base column `index`, perhaps widened for the comparison."""
    while isinstance(expression, Cast) and not expression.safe:
        expression = expression.operand
    if not isinstance(expression, ColumnRef):
        return False
    base = over[expression.index]
    return isinstance(base, ColumnRef) and base.index == index


def _missing_key(node: TemporalJoin, key: Sequence[str]) -> RecognitionError:
    names = ", ".join(key)
    return RecognitionError(
        node,
        f"{_WHAT} needs an equality on the key of its right side ({names})",
        f"join ON … = {names.partition(',')[0]}" + (" AND …" if len(key) > 1 else ""),
    )


# -- lookups ------------------------------------------------------------------------------------------------------------------


def _can_be_looked_up(scan: Scan) -> bool:
    try:
        return connector_named(scan.table.connector).create_lookup is not None
    except OptionError:
        return False


def _lookup(node: TemporalJoin, right: _Below, scan: Scan, parts: Sequence[Expression]) -> PlanNode:
    pairs, rest = split_keys(parts, len(node.left.schema))
    wanted = [substitute(c, scan.projections) for c in right.columns]
    keys: list[tuple[Expression, str]] = []
    for pair in pairs:
        found = substitute(pair.right, tuple(wanted))
        if isinstance(found, ColumnRef) and not pair.null_safe:
            keys.append((pair.left, scan.physical.names[found.index]))
        else:
            rest.append(pair.condition)
    if not keys:
        raise RecognitionError(
            node,
            f"{_WHAT}: looking up '{scan.table.name}' needs an equality with one of its columns",
            f"join ON left.key = {scan.table.name}.key; a column of another type must be cast on the left side",
        )
    width = len(node.left.schema)
    filters = []
    for condition in right.filters:
        places: dict[int, int] = {}
        for index in columns_used(condition):
            physical = scan.projections[index]
            if physical not in wanted:
                wanted.append(physical)
            places[index] = width + wanted.index(physical)
        filters.append(remap_columns(condition, places))
    fields = list(node.schema.fields)
    for number, expression in enumerate(wanted[len(right.columns) :]):
        fields.append(replace(scan.schema.fields[0], name=f"$lookup{number}", type=expression.type, nullable=True))
    lookup = LookupJoin(
        type(node.schema)(tuple(fields)), node.hints, node.left, node.kind, scan.table, scan.physical, tuple(wanted),
        tuple(keys), conjunction([*rest, *filters]),
    )  # fmt: skip
    return renamed(lookup, node.schema, range(len(node.schema)), auxiliary(node.hints, "columns"))
