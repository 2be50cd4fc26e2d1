"""Lookup joins on Spark: the lookup table is read once as a batch, and joined by its keys."""

from __future__ import annotations

from flowrun.core.schema import Schema
from flowrun.errors import OptionError
from flowrun.plan.expressions import ColumnRef
from flowrun.plan.joins import LookupJoin
from flowrun.plan.nodes import NodeHints, PlanNode, Scan
from flowrun.plan.tables import TableRole, usable_connector
from flowrun.spark.context import Context
from flowrun.spark.expressions import spark_text
from flowrun.spark.frame import NotNative, SparkFrame, named, quoted
from flowrun.spark.input.scan import read_scan
from flowrun.spark.native.sides import HOW, LEFT, RIGHT, Side, all_of
from flowrun.spark.translated import Inputs


def translate_lookup_join(node: PlanNode, inputs: Inputs, context: Context) -> SparkFrame:
    """Each row with the rows of the table as it is when the job runs.

    Raises:
        NotNative: the table's connector can look up rows by key, but not read them all.
    """
    assert isinstance(node, LookupJoin)
    try:
        usable_connector(node.table.connector, TableRole.SOURCE)
    except OptionError:
        raise NotNative(f"connector '{node.table.connector}' can only be asked by key") from None
    table = _table(node, inputs, context)
    left = Side(inputs.only, LEFT)
    right_names = [f"{RIGHT}{i}" for i in range(len(node.projections))]
    key_names = [f"{RIGHT}key{i}" for i in range(len(node.keys))]
    projected = named((spark_text(p, table.columns) for p in node.projections), right_names)
    keyed = named((quoted(column) for _, column in node.keys), key_names)
    right = table.data.selectExpr(*projected, *keyed)
    conditions = [
        f"{spark_text(expression, left.columns)} = {quoted(n)}"
        for (expression, _), n in zip(node.keys, key_names, strict=True)
    ]
    if node.condition is not None:
        conditions.append(f"({spark_text(node.condition, (*left.columns, *map(quoted, right_names)))})")
    from pyspark.sql import functions

    rows = left.frame.data.selectExpr(*left.selected(*left.frame.hidden))
    joined = rows.join(right, functions.expr(all_of(conditions)), HOW[node.kind])
    texts = (*left.columns, *map(quoted, right_names))
    columns = named(texts, node.schema.names)
    return SparkFrame(
        joined.selectExpr(*columns, *left.frame.hidden), node.schema, left.frame.event_time, left.frame.arrival
    )


def _table(node: LookupJoin, inputs: Inputs, context: Context) -> SparkFrame:
    """The lookup table with its wanted columns and its key columns."""
    declared = node.declared or node.physical
    wanted = {*node.physical.names, *(column for _, column in node.keys)}
    schema = Schema(tuple(f for f in declared if f.name in wanted))
    # projections are over the columns of `physical`, which come first
    ordered = Schema((*node.physical.fields, *(f for f in schema if f.name not in node.physical.names)))
    scan = Scan(
        schema=ordered,
        hints=NodeHints(name=node.table.name, location=node.hints.location),
        table=node.table,
        physical=schema,
        projections=tuple(ColumnRef(f.type, schema.index(f.name), f.name) for f in ordered),
        declared=declared,
    )
    return read_scan(scan, inputs, context)
