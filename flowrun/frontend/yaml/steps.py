"""Steps of the document as plan nodes: filter, select, map, window aggregation or process function, having and split, in this order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flowrun.core.schema import Field, Schema
from flowrun.core.types import DataType
from flowrun.errors import Location
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.yaml.aggregations import AggregationReader
from flowrun.frontend.yaml.expressions import ExpressionReader
from flowrun.frontend.yaml.hints import node_hints, part_hints
from flowrun.frontend.yaml.nodes import YamlScalar
from flowrun.frontend.yaml.python_functions import PythonReader
from flowrun.frontend.yaml.spec import Section
from flowrun.functions.coercion import common_type
from flowrun.plan.expressions import Cast, ColumnRef, Expression
from flowrun.plan.nodes import Calc, NodeHints, PlanNode, SideOutput, Split, Union


class StepReader:
    """Turns checked sections of `steps` into nodes, reporting what is wrong."""

    def __init__(
        self,
        diagnostics: Diagnostics,
        expressions: ExpressionReader,
        aggregations: AggregationReader,
        functions: PythonReader,
    ) -> None:
        self._diagnostics = diagnostics
        self._expressions = expressions
        self._aggregations = aggregations
        self._functions = functions

    def read(
        self, name: str, section: Section, inputs: Sequence[PlanNode | None], at: Location
    ) -> dict[str, PlanNode | None]:
        """The step's outputs by name: its own, its split branches and its late rows; None where they are not known.

        Args:
            name: of the step.
            section: the step as written.
            inputs: the nodes that `from` or `union` name, None for those that could not be built.
            at: where the step's name stands.
        """
        self._check_keys(section)
        hints = node_hints("steps", name, section, at)
        stages = _Stages(section, hints)
        node = self._input(section, inputs, stages)
        outputs: dict[str, PlanNode | None] = dict.fromkeys(section.named("split"))
        node = self._calc(section, node, stages)
        node = self._python(section, node, stages)
        window = section.section("window")
        if window is not None and section.has("aggregate"):
            found = self._aggregations.read(section, window, node, stages.hints)
            late = window.scalar("late_output")
            if late is not None:
                outputs[late.text] = found.late if found is not None else None
            node = found.node if found is not None else None
            node = self._having(section, node, stages)
        if section.has("process"):
            node = self._process(section, node, stages, outputs)
        outputs[name] = self._split(section, node, stages, outputs)
        return outputs

    # -- keys -------------------------------------------------------------------------------------------------------

    def _check_keys(self, section: Section) -> None:
        error = self._diagnostics.error
        if section.has("from") and section.has("union"):
            error("a step has either 'from' or 'union'", section.at("union"), hint="remove one of them")
        elif not section.has("from") and not section.has("union"):
            error("a step needs the key 'from' (or 'union')", section.location, hint="name the source or step to read")
        if section.has("map") and section.has("flat_map"):
            error("a step has either 'map' or 'flat_map'", section.at("flat_map"), hint="use a second step")
        if section.has("window") and not section.has("aggregate"):
            error("'window' needs 'aggregate'", section.at("window"), hint='e.g. aggregate: ["COUNT(*) AS n"]')
        if section.has("aggregate") and not section.has("window"):
            error(
                "'aggregate' without 'window' would update its results for ever, which this version cannot do",
                section.at("aggregate"),
                hint="add window: {type: tumbling, size: 1m}, or {type: global, time: processing} for one result at the end",
            )
        if section.has("process") and (section.has("window") or section.has("aggregate")):
            error(
                "a step has either 'process' or 'window' and 'aggregate'",
                section.at("process"),
                hint="use a second step",
            )
        if section.has("key_by") and not any(section.has(k) for k in ("window", "aggregate", "process")):
            error(
                "'key_by' has no effect without 'window' and 'aggregate', or 'process'",
                section.at("key_by"),
                hint="remove it",
            )
        if section.has("having") and not section.has("aggregate"):
            error("'having' filters results of 'aggregate'", section.at("having"), hint="use filter")
        if section.has("null_keys") and not section.has("key_by"):
            error("'null_keys' has no effect without 'key_by'", section.at("null_keys"), hint="remove it")

    # -- parts ------------------------------------------------------------------------------------------------------

    def _input(self, section: Section, inputs: Sequence[PlanNode | None], stages: _Stages) -> PlanNode | None:
        known = [i for i in inputs if i is not None]
        if not known or len(known) < len(inputs) or (section.has("from") and section.has("union")):
            return None
        if not section.has("union"):
            return known[0]
        return self._union(section, known, stages)

    def _union(self, section: Section, members: list[PlanNode], stages: _Stages) -> PlanNode | None:
        """All rows of the members, whose columns must agree; texts of different lengths take the longest."""
        scalars = section.scalars("union")
        first = members[0].schema
        types: list[DataType] = list(first.types)
        nullable = [f.nullable for f in first]
        for scalar, member in zip(scalars[1:], members[1:], strict=True):
            if not self._same_columns(scalars[0], first, scalar, member.schema, types):
                return None
            nullable = [a or f.nullable for a, f in zip(nullable, member.schema, strict=True)]
        schema = Schema(tuple(Field(n, t, o) for n, t, o in zip(first.names, types, nullable, strict=True)))
        widened = tuple(_as_schema(m, schema, stages.hints("union")) for m in members)
        return Union(schema=schema, hints=stages.hints("union"), members=widened)

    def _same_columns(
        self, first_name: YamlScalar, first: Schema, scalar: YamlScalar, schema: Schema, types: list[DataType]
    ) -> bool:
        for position in range(max(len(first), len(schema))):
            left = first.fields[position] if position < len(first) else None
            right = schema.fields[position] if position < len(schema) else None
            same_name = left is not None and right is not None and left.name == right.name
            if same_name and left is not None and right is not None:
                common = types[position] if right.type == types[position] else None
                if right.type.is_character and types[position].is_character:
                    common = common_type((types[position], right.type))
                if common is not None:
                    types[position] = common
                    continue
            names = (first_name.text, scalar.text)
            shown = [
                f"'{f.name} {f.type}' in {n}" if f else f"missing in {n}"
                for f, n in zip((left, right), names, strict=True)
            ]
            self._diagnostics.error(
                f"the inputs of a union have different columns: column {position + 1} is {shown[0]}, but {shown[1]}",
                scalar.location,
                hint="bring them to the same names and types, in the same order, with select",
            )
            return False
        return True

    def _calc(self, section: Section, node: PlanNode | None, stages: _Stages) -> PlanNode | None:
        filter_text = section.scalar("filter")
        if node is None:
            return None
        condition = None
        if filter_text is not None:
            condition = self._expressions.condition(filter_text, node.schema)
        if not section.has("select"):
            return node if condition is None else _filtered(node, condition, stages.hints("filter"))
        items = self._expressions.projections(section.scalars("select"), node.schema)
        if section.broken("select") or items is None:
            return None
        return Calc(
            schema=Schema(tuple(f for f, _ in items)),
            hints=stages.hints("select"),
            input=node,
            projections=tuple(e for _, e in items),
            condition=condition,
        )

    def _python(self, section: Section, node: PlanNode | None, stages: _Stages) -> PlanNode | None:
        for key in ("map", "flat_map"):
            if section.has(key):
                node = self._functions.read(section, key, node, stages.hints("map"))
        return node

    def _process(
        self, section: Section, node: PlanNode | None, stages: _Stages, outputs: dict[str, PlanNode | None]
    ) -> PlanNode | None:
        """The process function's rows; its side outputs are added to `outputs`."""
        keys: tuple[int, ...] | None = None
        if section.has("key_by") and node is not None:
            keyed = self._aggregations.keys(section, node, stages.hints("keys"))
            node, keys = keyed if keyed is not None else (None, None)
        process = self._functions.read_process(section, node, keys, stages.hints("process"))
        spec = section.section("process")
        for name, named in spec.named("side_outputs").items() if spec is not None else ():
            outputs[name] = None
            if process is not None:
                hints = NodeHints(name=name, location=named.location)
                outputs[name] = SideOutput(schema=process.side_outputs[name], hints=hints, input=process, tag=name)
        return process

    def _having(self, section: Section, node: PlanNode | None, stages: _Stages) -> PlanNode | None:
        text = section.scalar("having")
        if text is None or node is None:
            return node
        condition = self._expressions.condition(text, node.schema)
        return node if condition is None else _filtered(node, condition, stages.hints("having"))

    def _split(
        self, section: Section, node: PlanNode | None, stages: _Stages, outputs: dict[str, PlanNode | None]
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


class _Stages:
    """Hints of the nodes of one step: the main node has the step's own, the others derived ones."""

    def __init__(self, section: Section, hints: NodeHints) -> None:
        self._hints = hints
        self._main = _main_part(section)

    def hints(self, part: str) -> NodeHints:
        """Hints of the node that does `part` of the step."""
        return self._hints if part == self._main else part_hints(self._hints, part)


def _main_part(section: Section) -> str:
    """The part that carries the step's uid and name: the one with state if there is one, else the last."""
    for stateful in ("window", "process"):
        if section.has(stateful):
            return stateful
    order = (("split", "split"), ("flat_map", "map"), ("map", "map"), ("select", "select"), ("filter", "filter"))
    return next((part for key, part in order if section.has(key)), "union")


def _filtered(node: PlanNode, condition: Expression, hints: NodeHints) -> PlanNode:
    identity = tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(node.schema))
    return Calc(schema=node.schema, hints=hints, input=node, projections=identity, condition=condition)


def _as_schema(node: PlanNode, schema: Schema, hints: NodeHints) -> PlanNode:
    """The node with columns cast to the types of `schema`, if any differs."""
    if node.schema.types == schema.types:
        return node
    projections: list[Expression] = []
    for position, (have, want) in enumerate(zip(node.schema, schema, strict=True)):
        column = ColumnRef(have.type, position, have.name)
        projections.append(column if have.type == want.type else Cast(want.type, column))
    return Calc(
        schema=schema,
        hints=replace(part_hints(hints, "cast"), uid=None, place=None),
        input=node,
        projections=tuple(projections),
    )
