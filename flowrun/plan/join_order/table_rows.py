"""How many rows the tables of a plan have, where joins may be ordered by it and all sources say it without being read."""

from __future__ import annotations

from collections.abc import Mapping

from flowrun.api.source import Boundedness, KnowsRows
from flowrun.core.semantics import JoinKind
from flowrun.errors import OptionError
from flowrun.plan.joins import Join
from flowrun.plan.nodes import Plan, Scan, walk_plan
from flowrun.plan.tables import create_source


def table_rows(plan: Plan) -> Mapping[str, int]:
    """Estimated rows by name of the table; empty if joins stay in the order that is written.

    They do if `settings.join_reorder` is off, a source has no end, rows are forgotten after a time to live (when depends on the order), or
    there are no two inner joins. Tables whose source does not say are left out. May look at the sizes of local files.
    """
    nodes = list(walk_plan(plan))
    inner = sum(isinstance(n, Join) and n.kind is JoinKind.INNER and bool(n.left_keys) for n in nodes)
    if not plan.settings.join_reorder or plan.settings.state_ttl_ms or inner < 2:
        return {}
    found: dict[str, int] = {}
    for scan in nodes:
        if not isinstance(scan, Scan):
            continue
        try:
            source = create_source(scan.table, scan.physical, scan.declared, scan.filters)
        except OptionError:  # what is wrong is said where the plan is checked
            return {}
        if source.boundedness is Boundedness.UNBOUNDED:
            return {}
        rows = source.estimated_rows() if isinstance(source, KnowsRows) else None
        if rows is not None:
            found[scan.table.name] = rows
    return found
