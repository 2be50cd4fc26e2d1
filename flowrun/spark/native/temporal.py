"""Temporal joins (FOR SYSTEM_TIME AS OF): each row with the version that was valid at its time.

The rows and the versions of a key are in one partition, in the order of time, and versions come before rows of the same time: the version
of a row is the last one before it. So each is sorted once, however many versions there are. The deletion of a key is a version, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowrun.api.changelog import ChangelogMode
from flowrun.core.elements import RowKind
from flowrun.core.record import record
from flowrun.core.semantics import JoinKind, TimeDomain
from flowrun.errors import UnsupportedPlanError
from flowrun.plan.changelog import node_mode
from flowrun.plan.joins import Join, TemporalJoin
from flowrun.plan.nodes import Calc, PlanNode, Scan
from flowrun.plan.relational import Deduplicate, Keep
from flowrun.spark.context import Context
from flowrun.spark.expressions import spark_text
from flowrun.spark.frame import ARRIVAL, EVENT_TIME, KIND, SparkFrame, named, quoted
from flowrun.spark.input.scan import read_changes
from flowrun.spark.native.joins import translate_join
from flowrun.spark.native.sides import LEFT, RIGHT, Side, residual, sides
from flowrun.spark.times import millis_of
from flowrun.spark.translated import Inputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_VALID = "$valid"
"""BOOLEAN: whether the version is a row; else the key has no row from its time on."""


@record(eq=False, slots=False)
class _Versions:
    """All versions of all keys: a frame with `_VALID`, and perhaps further columns that order versions of the same time."""

    frame: SparkFrame
    data: DataFrame
    newer: tuple[str, ...]


def translate_temporal_join(node: PlanNode, inputs: Inputs, context: Context) -> SparkFrame:
    """Each row with the version of its key at its time, or, by processing time, with the present version.

    Raises:
        UnsupportedPlanError: a batch cannot read the versions of the right side.
    """
    assert isinstance(node, TemporalJoin)
    if node.domain is TimeDomain.PROCESSING or node.right_time is None:
        return _with_present(node, inputs, context)
    versions = _versions(node.right, node, inputs, context)
    left, _ = sides(inputs.frames)
    right = Side(versions.frame, RIGHT)
    joined = _as_of(node, left, right, versions)
    fits = " AND ".join([quoted(_VALID), *residual(node.condition, left, right)])
    if node.kind is JoinKind.INNER:
        joined = joined.where(fits)
        theirs: list[str] = list(right.columns)
    else:
        theirs = [f"CASE WHEN {fits} THEN {column} END" for column in right.columns]
    columns = named([*left.columns, *theirs], node.schema.names)
    hidden = [f"coalesce(`$at`, {h}) AS {h}" if h == quoted(EVENT_TIME) else h for h in left.frame.hidden]
    return SparkFrame(joined.selectExpr(*columns, *hidden), node.schema, left.frame.event_time, left.frame.arrival)


def _with_present(node: TemporalJoin, inputs: Inputs, context: Context) -> SparkFrame:
    plain = Join(
        schema=node.schema,
        hints=node.hints,
        left=node.left,
        right=node.right,
        kind=node.kind,
        left_keys=node.left_keys,
        right_keys=node.right_keys,
        condition=node.condition,
    )
    return translate_join(plain, inputs, context)


def _as_of(node: TemporalJoin, left: Side, right: Side, versions: _Versions) -> DataFrame:
    """Left rows with their time `$at`, and the columns of their version with `_VALID`, which are all NULL if there is no version."""
    from pyspark.sql import Window, functions

    assert node.right_time is not None
    keys = [f"{LEFT}key{i}" for i in range(len(node.left_keys))]
    left_key = named((left.columns[k] for k in node.left_keys), keys)
    right_key = named((right.columns[k] for k in node.right_keys), keys)
    row_names, version_names = left.frame.schema.names, right.frame.schema.names
    row = ", ".join(left.columns) + "".join(f", {h}" for h in left.frame.hidden)
    version = ", ".join((*right.columns, quoted(_VALID)))
    left_type, right_type = left.frame.schema.types[node.left_time], right.frame.schema.types[node.right_time]
    rows = left.frame.data.selectExpr(*left.selected(*left.frame.hidden)).selectExpr(
        *left_key,
        f"{millis_of(left.columns[node.left_time], left_type)} AS `$at`",
        "1 AS `$turn`",
        *(f"CAST(NULL AS BIGINT) AS {quoted(f'$newer{i}')}" for i in range(len(versions.newer))),
        f"struct({row}) AS `$row`",
    )
    changes = versions.data.selectExpr(
        *right_key,
        f"{millis_of(right.columns[node.right_time], right_type)} AS `$at`",
        "0 AS `$turn`",
        *(f"{text} AS {quoted(f'$newer{i}')}" for i, text in enumerate(versions.newer)),
        f"struct({version}) AS `$version`",
    ).where(" AND ".join(f"{quoted(k)} IS NOT NULL" for k in ("$at", *keys)))
    order = ["$at", "$turn", *(f"$newer{i}" for i in range(len(versions.newer)))]
    window = (
        Window.partitionBy(*map(quoted, keys)).orderBy(*map(quoted, order)).rowsBetween(Window.unboundedPreceding, 0)
    )
    together = rows.unionByName(changes, allowMissingColumns=True)
    found = together.withColumn("$version", functions.last("$version", ignorenulls=True).over(window))
    names = [*(f"{LEFT}{n}" for n in row_names), *(h.strip("`") for h in left.frame.hidden)]
    mine = [f"`$row`.{quoted(n)} AS {quoted(n)}" for n in names]
    theirs = [f"`$version`.{quoted(RIGHT + n)} AS {quoted(RIGHT + n)}" for n in version_names]
    valid = f"coalesce(`$version`.{quoted(_VALID)}, false) AS {quoted(_VALID)}"
    return found.where("`$turn` = 1").selectExpr("`$at`", *mine, *theirs, valid)


def _versions(node: PlanNode, join: TemporalJoin, inputs: Inputs, context: Context) -> _Versions:
    """The history of the right side: all rows of an append-only table, the rows before a deduplication, or all changes."""
    if _mode(node) is ChangelogMode.APPEND:
        return _all_valid(inputs.of(node).main)
    match node:
        case Scan():
            return _changes(read_changes(node, context))
        case Deduplicate(keep=Keep.LAST, domain=TimeDomain.EVENT, rank_column=False):
            return _versions(node.input, join, inputs, context)
        case Calc():
            return _calculated(node, _versions(node.input, join, inputs, context))
        case _:
            name = join.hints.name or "temporal join"
            raise UnsupportedPlanError(
                f"'{name}' asks for old versions of what {type(node).__name__} gives, of which a batch knows the last only",
                hint="join a table of changes, or a view that keeps the last row of each key by event time",
            )


def _mode(node: PlanNode) -> ChangelogMode:
    return node_mode(node, [_mode(i) for i in node.inputs])


def _all_valid(frame: SparkFrame) -> _Versions:
    side = Side(frame, RIGHT)
    newer = (quoted(ARRIVAL),) if frame.arrival else ()
    data = frame.data.selectExpr(*side.selected(*newer, f"true AS {quoted(_VALID)}"))
    return _Versions(frame, data, newer)


def _changes(frame: SparkFrame) -> _Versions:
    kind = quoted(KIND)
    kept = frame.data.where(f"{kind} <> {RowKind.UPDATE_BEFORE.value}")
    items = Side(frame, RIGHT).selected(quoted(ARRIVAL), f"({kind} <> {RowKind.DELETE.value}) AS {quoted(_VALID)}")
    return _Versions(frame, kept.selectExpr(*items), (quoted(ARRIVAL),))


def _calculated(node: Calc, versions: _Versions) -> _Versions:
    """The versions after a filter and projection; a version that does not pass the filter becomes a deletion of its key."""
    side = Side(versions.frame, RIGHT)
    frame = SparkFrame(versions.frame.data, node.schema, versions.frame.event_time, versions.frame.arrival)
    valid = quoted(_VALID)
    if node.condition is not None:
        valid = f"({valid} AND coalesce({spark_text(node.condition, side.columns)}, false))"
    texts = (spark_text(p, side.columns) for p in node.projections)
    items = named(texts, (RIGHT + n for n in node.schema.names))
    data = versions.data.selectExpr(*items, *versions.newer, f"{valid} AS {quoted(_VALID)}")
    return _Versions(frame, data, versions.newer)
