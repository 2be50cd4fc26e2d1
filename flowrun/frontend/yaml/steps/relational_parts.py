"""Parts of steps that are SQL in other words, bound as queries: their nodes are the general ones that recognition knows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import TimeDomain
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.trees.nodes import YamlScalar
from flowrun.frontend.trees.spec import Section
from flowrun.frontend.yaml.queries import step_queries
from flowrun.frontend.yaml.queries.entries import Entries, EntryQuery, EntryReader, Wording
from flowrun.frontend.yaml.queries.queries import QueryReader, StepQuery, StepSql, quoted, renamed, step_hints
from flowrun.frontend.yaml.steps.keys import keyed
from flowrun.frontend.yaml.steps.stages import Stages, present_only
from flowrun.frontend.yaml.steps.times import time_column
from flowrun.plan.expressions import ColumnRef, Expression
from flowrun.plan.nodes import Calc, NodeHints, PlanNode

Tables = Mapping[str, PlanNode]
"""What a step may read, by name."""

_JOINS = frozenset(("join", "temporal-join", "semi", "anti"))
_SELECT = Wording(twice=("column '{name}' is selected twice", "rename one: expression AS name"))
_SETS = frozenset(("intersect", "except", "distinct"))


class RelationalParts:
    """Turns relational parts of steps into nodes, reporting what is wrong: then None is given."""

    def __init__(self, diagnostics: Diagnostics, queries: QueryReader, entries: EntryReader) -> None:
        self._diagnostics = diagnostics
        self._queries = queries
        self._entries = entries

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
        if not self._is_whole(section):
            return None
        at = section.at(next((k for k in ("join", "unnest", "select", "filter") if section.has(k)), "from"))
        texts, condition = section.scalars("select"), section.scalar("filter")

        def compose(entries: Sequence[YamlScalar], conditions: bool) -> StepSql:
            return step_queries.selected(
                section, entries, stages.input, at, condition=condition if conditions else None
            )

        alone = not section.has("join") and not section.has("unnest")
        part = "join" if section.has("join") else "select" if section.has("select") else "filter"
        hints = stages.hints(part)
        query = StepQuery(
            compose(texts, True),
            tables,
            stages.name,
            step_hints(hints, _JOINS if part == "join" else (part,)),
            row_by_row=True,
            input=stages.input if alone else None,
        )
        width = len(tables[stages.input].schema) if alone else None
        conditions = (condition,) if condition is not None else ()
        entries = self._entries.read(EntryQuery(compose, texts, query, _SELECT, conditions, width=width))
        if entries is None:  # after a wrong condition the step's other parts are looked at nevertheless
            return tables[stages.input] if alone and not texts else None
        if alone:
            return _in_one_pass(entries, tables[stages.input], hints)
        return renamed(entries.node, entries.names, hints)

    @staticmethod
    def _is_whole(section: Section) -> bool:
        """Whether all that the query of `selected` is made of is there and right in itself."""
        for key, required in (("join", ("with", "on")), ("unnest", ("column", "as"))):
            part = section.section(key)
            if section.broken(key) or (part is not None and any(k not in part.values for k in required)):
                return False
            if part is not None and any(part.broken(k) for k in part.given):
                return False
        return not section.broken("select") and not section.broken("filter")

    def having(self, section: Section, node: PlanNode | None, stages: Stages) -> PlanNode | None:
        """The results for which `having` is true."""
        condition = section.scalar("having")
        if condition is None or node is None:
            return node
        hints = stages.hints("having")

        def compose(_: Sequence[YamlScalar], conditions: bool) -> StepSql:
            return step_queries.filtered(condition if conditions else None, stages.input, condition.location)

        query = StepQuery(
            compose((), True), {stages.input: node}, stages.name, step_hints(hints, ("filter",)), input=stages.input
        )
        found = self._entries.read(EntryQuery(compose, (), query, _SELECT, (condition,)))
        return node if found is None else _in_one_pass(found, node, hints)

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

    def deduplicated(self, section: Section, node: PlanNode | None, stages: Stages) -> PlanNode | None:
        """`key_by` and `deduplicate`."""
        deduplicate = section.section("deduplicate")
        if node is None or deduplicate is None or deduplicate.text("keep") is None or deduplicate.broken("order_by"):
            return None
        found = keyed(section, node, stages, self._entries)
        if found is None:
            return None
        rows, keys = present_only(section, *found, stages)
        order: YamlScalar | str | None = deduplicate.scalar("order_by")
        if order is None:
            time = time_column(node, TimeDomain.EVENT)
            order = quoted(node.schema.names[time]) if time is not None else "PROCTIME()"
        names = [rows.schema.names[k] for k in keys]
        sql = step_queries.deduplicated(section, node.schema.names, names, order, stages.input)
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

    def _over_rows(
        self, sql: StepSql, node: PlanNode, part: str, main: Collection[str], stages: Stages
    ) -> PlanNode | None:
        return self._bound(sql, {stages.input: node}, part, main, stages)

    def _bound(self, sql: StepSql, tables: Tables, part: str, main: Collection[str], stages: Stages) -> PlanNode | None:
        return self._queries.rows(StepQuery(sql, tables, stages.name, step_hints(stages.hints(part), main)))


def _in_one_pass(entries: Entries, input: PlanNode, hints: NodeHints) -> PlanNode:
    """A query that filters rows and computes columns, as one node that does both; one that does more as it is."""
    node: PlanNode = entries.node
    condition: Expression | None = None
    if node is not input and isinstance(node, Calc) and node.condition is None:
        node = node.input
    if node is not input and isinstance(node, Calc) and node.condition is not None:
        condition = node.condition
        node = node.input
    if node is not input:
        return renamed(entries.node, entries.names, hints)
    fields = tuple(
        Field(n, c.type, input.schema.fields[c.index].nullable if isinstance(c, ColumnRef) else True)
        for n, c in zip(entries.names, entries.columns, strict=True)
    )
    return Calc(Schema(fields), hints, input, entries.columns, condition)
