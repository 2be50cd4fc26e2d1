"""Steps of the document as plan nodes: its parts one after the other, each over the rows of the one before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flowrun.core.schema import Schema
from flowrun.errors import Location
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.trees.nodes import YamlScalar
from flowrun.frontend.trees.spec import Section
from flowrun.frontend.yaml.expressions import ExpressionReader
from flowrun.frontend.yaml.hints import node_hints
from flowrun.frontend.yaml.names import SECOND_INPUTS, Reference
from flowrun.frontend.yaml.queries.entries import EntryReader
from flowrun.frontend.yaml.queries.step_queries import SET_PARTS
from flowrun.frontend.yaml.steps.aggregations import AggregationReader
from flowrun.frontend.yaml.steps.connections import ConnectionReader
from flowrun.frontend.yaml.steps.keys import KeyedRows, keyed
from flowrun.frontend.yaml.steps.python_functions import PythonReader
from flowrun.frontend.yaml.steps.relational_parts import RelationalParts, Tables
from flowrun.frontend.yaml.steps.stages import Stages
from flowrun.frontend.yaml.steps.step_checks import check_parts
from flowrun.frontend.yaml.steps.unions import union_of
from flowrun.plan.expressions import Expression
from flowrun.plan.nodes import NodeHints, PlanNode, SideOutput, Split


class StepReader:
    """Turns checked sections of `steps` into nodes, reporting what is wrong."""

    def __init__(
        self,
        diagnostics: Diagnostics,
        expressions: ExpressionReader,
        entries: EntryReader,
        aggregations: AggregationReader,
        functions: PythonReader,
        relational: RelationalParts,
        connections: ConnectionReader,
    ) -> None:
        self._diagnostics = diagnostics
        self._expressions = expressions
        self._entries = entries
        self._aggregations = aggregations
        self._functions = functions
        self._relational = relational
        self._connections = connections

    def read(
        self,
        name: str,
        section: Section,
        references: Sequence[Reference],
        nodes: Mapping[str, PlanNode | None],
        at: Location,
    ) -> dict[str, PlanNode | None]:
        """The step's outputs by name: its own, its split branches and its late rows; None where they are not known.

        Args:
            name: of the step.
            section: the step as written.
            references: the names that it reads.
            nodes: what they name, None for those that could not be built.
            at: where the step's name stands.
        """
        fits = check_parts(section, self._diagnostics)
        stages = Stages(name, section, node_hints("steps", name, section, at))
        tables = {r.text: node for r in references if (node := nodes.get(r.text)) is not None}
        complete = len(tables) == len({r.text for r in references})
        outputs: dict[str, PlanNode | None] = dict.fromkeys(section.named("split"))
        node = self._rows(section, tables, stages) if fits and complete else None
        node = self._python(section, node, stages, outputs)
        node = self._relational_rows(section, node, stages)
        node = self._keyed(section, node, tables, stages, outputs)
        if section.has("top_n"):
            node = self._relational.top_n(section, node, stages)
        if section.has("order_by") or section.has("limit"):
            node = self._relational.ordered(section, node, stages)
        outputs[name] = self._split(section, node, stages, outputs)
        return outputs

    # -- parts ------------------------------------------------------------------------------------------------------

    def _rows(self, section: Section, tables: Tables, stages: Stages) -> PlanNode | None:
        """The input, joined, filtered and projected."""
        relational = self._relational
        if section.has("join") or section.has("unnest"):
            return relational.selected(section, tables, stages)
        node: PlanNode | None
        part = next((p for p in SET_PARTS if section.has(p)), None)
        if section.has("sql"):
            node = relational.query(section, tables, stages)
        elif part is not None:
            node = None if section.broken(part) else relational.combined(part, section, tables, stages)
        elif section.has("union"):
            members = [tables[s.text] for s in section.scalars("union")]
            node = union_of(section, members, stages.hints, self._diagnostics) if members else None
        else:
            node = tables.get(section.text("from") or "")
        if node is None or not (section.has("filter") or section.has("select")):
            return node
        return relational.selected(section, {stages.input: node}, stages)

    def _relational_rows(self, section: Section, node: PlanNode | None, stages: Stages) -> PlanNode | None:
        """match_recognize, windows without aggregates, distinct and over."""
        if section.has("match_recognize"):
            node = self._relational.matched(section, node, stages)
        window = section.section("window")
        if window is not None and not section.has("aggregate") and not section.has("process"):
            node = self._aggregations.with_windows(section, window, node, stages)
        node = self._relational.distinct(section, node, stages)
        if section.has("over"):
            node = self._relational.with_window_functions(section, node, stages)
        return node

    def _keyed(
        self,
        section: Section,
        node: PlanNode | None,
        tables: Tables,
        stages: Stages,
        outputs: dict[str, PlanNode | None],
    ) -> PlanNode | None:
        """key_by with process, aggregate or deduplicate; late and side outputs are added to `outputs`."""
        window = section.section("window")
        if section.has("aggregate"):
            if section.has("window"):
                node = self._windowed(section, window, node, stages, outputs)
            else:
                node = self._aggregations.updating(section, node, stages)
            node = self._relational.having(section, node, stages)
        if section.has("deduplicate"):
            node = self._relational.deduplicated(section, node, stages)
        if section.has("process"):
            two = any(map(section.has, SECOND_INPUTS))
            node = (
                self._co_process(section, node, tables, stages, outputs)
                if two
                else self._process(section, node, stages, outputs)
            )
        return node

    def _windowed(
        self,
        section: Section,
        window: Section | None,
        node: PlanNode | None,
        stages: Stages,
        outputs: dict[str, PlanNode | None],
    ) -> PlanNode | None:
        if window is None:
            return None
        found = self._aggregations.windowed(section, window, node, stages)
        late = window.scalar("late_output")
        if late is not None:
            outputs[late.text] = found.late if found is not None else None
        return found.node if found is not None else None

    def _python(
        self, section: Section, node: PlanNode | None, stages: Stages, outputs: dict[str, PlanNode | None]
    ) -> PlanNode | None:
        """Map or flat_map, then async; their side outputs are added to `outputs`."""
        for key in ("map", "flat_map"):
            if section.has(key):
                mapped = self._functions.read(section, key, node, stages.hints("map"))
                _add_side_outputs(
                    section.section(key), mapped, None if mapped is None else mapped.side_outputs, outputs
                )
                node = mapped
        if section.has("async"):
            asked = self._functions.read_async(section, node, stages.hints("async"))
            _add_side_outputs(section.section("async"), asked, None if asked is None else asked.side_outputs, outputs)
            node = asked
        return node

    def _process(
        self, section: Section, node: PlanNode | None, stages: Stages, outputs: dict[str, PlanNode | None]
    ) -> PlanNode | None:
        """The process function's rows; its side outputs are added to `outputs`."""
        first = self._keyed_rows(section, node, stages)
        node, keys = (None, None) if first is None else (first.node, first.keys)
        window = section.section("window")
        windows = None if window is None else self._aggregations.function_windows(window, node)
        if windows is None and section.has("window"):
            node = None
        main = "process" if window is None else "window"
        process = self._functions.read_process(section, node, keys, stages.hints(main), windows)
        late = None if window is None else window.scalar("late_output")
        if late is not None:
            hints = NodeHints(name=late.text, location=late.location)
            outputs[late.text] = late_rows = None
            if process is not None:
                late_rows = SideOutput(schema=process.input.schema, hints=hints, input=process, tag=late.text)
                outputs[late.text] = late_rows
        sides = None if process is None else process.side_outputs
        _add_side_outputs(section.section("process"), process, sides, outputs)
        return process

    def _co_process(
        self,
        section: Section,
        node: PlanNode | None,
        tables: Tables,
        stages: Stages,
        outputs: dict[str, PlanNode | None],
    ) -> PlanNode | None:
        """The rows of a function of two streams; its side outputs are added to `outputs`."""
        first = self._keyed_rows(section, node, stages)
        second = None if first is None else self._connections.second(section, first, tables, stages)
        process = self._functions.read_co_process(section, first, second, stages.hints("process"))
        sides = None if process is None else process.side_outputs
        _add_side_outputs(section.section("process"), process, sides, outputs)
        return process

    def _keyed_rows(self, section: Section, node: PlanNode | None, stages: Stages) -> KeyedRows | None:
        """The rows of a step with their keys; None if they are not known, or the keys are wrong, which is reported."""
        if node is None or not section.has("key_by"):
            return None if node is None else KeyedRows(node, None)
        found = keyed(section, node, stages, self._entries)
        return None if found is None else KeyedRows(*found)

    def _split(
        self, section: Section, node: PlanNode | None, stages: Stages, outputs: dict[str, PlanNode | None]
    ) -> PlanNode | None:
        branches = section.named("split")
        if node is None or not branches:
            return node
        bound: list[tuple[str, Expression]] = []
        for name, named in branches.items():
            if isinstance(named.value, YamlScalar):
                condition = self._expressions.condition(named.value, node.schema)
                if condition is not None:
                    bound.append((name, condition))
        if not bound:
            return None
        split = Split(schema=node.schema, hints=stages.hints("split"), input=node, branches=tuple(bound))
        for name, _ in bound:
            hints = NodeHints(name=name, location=branches[name].location)
            outputs[name] = SideOutput(schema=node.schema, hints=hints, input=split, tag=name)
        return split


def _add_side_outputs(
    function: Section | None,
    node: PlanNode | None,
    schemas: Mapping[str, Schema] | None,
    outputs: dict[str, PlanNode | None],
) -> None:
    """The side outputs that a function declares, by name; None for those of one that could not be built."""
    for name, named in function.named("side_outputs").items() if function is not None else ():
        outputs[name] = None
        if node is not None and schemas is not None:
            hints = NodeHints(name=name, location=named.location)
            outputs[name] = SideOutput(schema=schemas[name], hints=hints, input=node, tag=name)
