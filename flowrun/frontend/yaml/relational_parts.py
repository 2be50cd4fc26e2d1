"""Parts of steps that are SQL in other words, bound as queries: their nodes are the general ones that recognition knows."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from flowrun.core.semantics import TimeDomain
from flowrun.core.types import BOOLEAN
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.trees.nodes import YamlScalar
from flowrun.frontend.trees.spec import Section
from flowrun.frontend.yaml import step_queries
from flowrun.frontend.yaml.aggregations import AggregationReader
from flowrun.frontend.yaml.expressions import ExpressionReader
from flowrun.frontend.yaml.queries import QueryReader, StepQuery, StepSql, quoted, step_hints
from flowrun.frontend.yaml.stages import Stages, filtered
from flowrun.frontend.yaml.times import time_column
from flowrun.plan.conditions import conjunction
from flowrun.plan.expressions import Call, ColumnRef, Expression
from flowrun.plan.nodes import PlanNode

Tables = Mapping[str, PlanNode]
"""What a step may read, by name."""

_JOINS = frozenset(("join", "temporal-join", "semi", "anti"))
_SETS = frozenset(("intersect", "except", "distinct"))


class RelationalParts:
    """Turns relational parts of steps into nodes, reporting what is wrong: then None is given."""

    def __init__(
        self,
        diagnostics: Diagnostics,
        queries: QueryReader,
        expressions: ExpressionReader,
        aggregations: AggregationReader,
    ) -> None:
        self._diagnostics = diagnostics
        self._queries = queries
        self._expressions = expressions
        self._aggregations = aggregations

    def query(self, section: Section, tables: Tables, stages: Stages) -> PlanNode | None:
        """The rows of `sql`."""
        text = section.scalar("sql")
        if text is None:
            return None
        hints = step_hints(stages.hints("sql"))
        return self._queries.rows(StepQuery(step_queries.plain_query(text), tables, stages.name, hints), named=False)

    def combined(self, part: str, section: Section, tables: Tables, stages: Stages) -> PlanNode | None:
        """The rows of `intersect`, `except` and the like."""
        names = section.scalars(part)
        return self._bound(step_queries.combined(part, names, section.at(part)), tables, part, _SETS, stages)

    def selected(self, section: Section, tables: Tables, stages: Stages) -> PlanNode | None:
        """`join`, `unnest`, `filter` and `select` over the input, as one query."""
        parts = [section.section(k) for k in ("join", "unnest")]
        needed = (("join", ("with", "on")), ("unnest", ("column", "as")))
        for part, (key, required) in zip(parts, needed, strict=True):
            if section.broken(key) or (part is not None and any(k not in part.values for k in required)):
                return None
            if part is not None and any(part.broken(k) for k in part.given):
                return None
        if section.broken("select") or section.broken("filter"):
            return None
        key = next((k for k in ("join", "unnest", "select", "filter") if section.has(k)), "from")
        sql = step_queries.selected(section, stages.input, section.at(key))
        main = "join" if section.has("join") else "select" if section.has("select") else "filter"
        return self._bound(sql, tables, main, _JOINS if section.has("join") else frozenset((main,)), stages)

    def matched(self, section: Section, node: PlanNode | None, stages: Stages) -> PlanNode | None:
        """`match_recognize` over the rows of `node`."""
        text = section.scalar("match_recognize")
        if text is None or node is None:
            return None
        return self._over_rows(step_queries.matched(text, stages.input), node, "match_recognize", ("match",), stages)

    def with_window_functions(self, section: Section, node: PlanNode | None, stages: Stages) -> PlanNode | None:
        """The columns of `over` behind those of `node`."""
        if node is None or section.broken("over"):
            return None
        return self._over_rows(
            step_queries.with_window_functions(section, stages.input), node, "over", ("over",), stages
        )

    def distinct(self, section: Section, node: PlanNode | None, stages: Stages) -> PlanNode | None:
        """Each row once, if `distinct` says so."""
        if node is None or section.flag("distinct") is not True:
            return node
        return self._over_rows(
            step_queries.distinct(section, stages.input), node, "distinct", ("distinct", "aggregate"), stages
        )

    def grouped(self, section: Section, node: PlanNode | None, stages: Stages) -> PlanNode | None:
        """`key_by` and `aggregate` without a window."""
        if node is None or section.broken("aggregate"):
            return None
        keyed = self._keys(section, node, stages)
        if keyed is None:
            return None
        rows, keys = keyed
        if not keys:
            self._aggregations.check_one_group(section, stages.hints("aggregate"), "an aggregate")
        return self._over_rows(
            step_queries.grouped(section, keys, stages.input), rows, "aggregate", ("aggregate",), stages
        )

    def deduplicated(self, section: Section, node: PlanNode | None, stages: Stages) -> PlanNode | None:
        """`key_by` and `deduplicate`."""
        deduplicate = section.section("deduplicate")
        if node is None or deduplicate is None or deduplicate.text("keep") is None or deduplicate.broken("order_by"):
            return None
        keyed = self._keys(section, node, stages)
        if keyed is None:
            return None
        rows, keys = keyed
        order: YamlScalar | str | None = deduplicate.scalar("order_by")
        if order is None:
            time = time_column(node, TimeDomain.EVENT)
            order = quoted(node.schema.names[time]) if time is not None else "PROCTIME()"
        sql = step_queries.deduplicated(section, node.schema.names, keys, order, stages.input)
        return self._over_rows(sql, rows, "deduplicate", ("over",), stages)

    def top_n(self, section: Section, node: PlanNode | None, stages: Stages) -> PlanNode | None:
        """`top_n`."""
        top = section.section("top_n")
        if node is None or top is None or any(top.broken(k) for k in top.given) or top.integer("n") is None:
            return None
        if not top.has("order_by"):
            return None
        rank = top.scalar("rank")
        if rank is not None and rank.text in node.schema:
            hint = "give the rank another name"
            self._diagnostics.error(f"the input has a column '{rank.text}' already", rank.location, hint=hint)
            return None
        sql = step_queries.top_n(section, node.schema.names, stages.input)
        return self._over_rows(sql, node, "top_n", ("over",), stages)

    def ordered(self, section: Section, node: PlanNode | None, stages: Stages) -> PlanNode | None:
        """`order_by`, `limit` and `offset`."""
        if node is None or any(section.broken(k) for k in ("order_by", "limit", "offset")):
            return None
        return self._over_rows(step_queries.ordered(section, stages.input), node, "order_by", ("limit", "sort"), stages)

    # -- binding -----------------------------------------------------------------------------------------------------

    def _keys(self, section: Section, node: PlanNode, stages: Stages) -> tuple[PlanNode, tuple[str, ...]] | None:
        """The rows with a column for each key, without those that `null_keys` drops, and the names of the keys."""
        keyed = self._aggregations.keys(section, node, stages.hints("keys"))
        if keyed is None:
            return None
        rows, positions = keyed
        present = conjunction(_is_not_null(rows, k) for k in positions)
        if section.text("null_keys") == "drop" and present is not None:
            rows = filtered(rows, present, stages.hints("null_keys"))
        return rows, tuple(rows.schema.names[k] for k in positions)

    def _over_rows(
        self, sql: StepSql, node: PlanNode, part: str, main: Collection[str], stages: Stages
    ) -> PlanNode | None:
        return self._bound(sql, {stages.input: node}, part, main, stages)

    def _bound(self, sql: StepSql, tables: Tables, part: str, main: Collection[str], stages: Stages) -> PlanNode | None:
        return self._queries.rows(StepQuery(sql, tables, stages.name, step_hints(stages.hints(part), main)))

    @property
    def has_functions(self) -> bool:
        """Whether expressions may call functions of the document."""
        return self._queries.has_functions


def _is_not_null(node: PlanNode, column: int) -> Expression:
    field = node.schema.fields[column]
    return Call(BOOLEAN, "IS NOT NULL", (ColumnRef(field.type, column, field.name),))
