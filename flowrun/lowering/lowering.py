"""Lowers a plan node by node: each becomes a transformation with the factory of the operator that does its work."""

from __future__ import annotations

from collections.abc import Mapping

from flowrun.api.operator import OutputTag
from flowrun.api.source import Boundedness, Source
from flowrun.errors import DataError, Location, PipelineError
from flowrun.graph.transformation import (
    OneInputTransformation,
    PhysicalTransformation,
    SideOutputTransformation,
    Transformation,
    UnionTransformation,
)
from flowrun.lowering.change_order import keep_changes_in_order
from flowrun.lowering.inputs import Inputs
from flowrun.lowering.keyed import with_hints
from flowrun.lowering.row_tests import row_tests
from flowrun.lowering.sinks import lower_sink
from flowrun.lowering.sources import changing_projection, lower_scan, source_of
from flowrun.operators.factories import CalcFactory, PythonFunctionFactory, SplitFactory
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.plan import nodes
from flowrun.plan.changelog import ChangelogMode, changelog_modes
from flowrun.plan.co_process import CoProcess
from flowrun.plan.compiled import Predicate, predicate_of
from flowrun.plan.row_errors import row_errors_of
from flowrun.plan.window_inputs import prepare_window_inputs


def lower(plan: nodes.Plan, given: Mapping[int, Source] | None = None) -> tuple[Transformation, ...]:
    """The transformations of the plan's sinks, in the plan's order; everything else is reached from them.

    A node that two others read becomes one transformation. Sources and sinks are created here, without I/O.

    Args:
        plan: optimised.
        given: sources by `id` of their scan, for scans that no connector reads; of all others the connectors make them.

    Raises:
        PipelineError: a table's options do not fit after all (names the source or sink), or rows are to be grouped or matched by columns
            that have no order and no hash, as maps (names the column).
        UnsupportedPlanError: no operator can do what a node asks for; names the node and the nearest thing that works.
    """
    prepared = prepare_window_inputs(plan)
    made = given or {}
    sources = {id(n): made.get(id(n)) or source_of(n) for n in nodes.walk_plan(prepared) if isinstance(n, nodes.Scan)}
    unbounded = any(s.boundedness is Boundedness.UNBOUNDED for s in sources.values())
    modes = changelog_modes(prepared, sources)
    lowering = _Lowering(plan.settings, sources, unbounded, modes)
    for node in nodes.walk_plan(prepared):
        try:
            lowering.add(node)
        except DataError as error:  # a type that no operator can compare
            raise PipelineError.of(error.message, error.hint, node.hints.location) from error
        _tell_place(lowering.of(node), node.hints.location, {id(lowering.of(i)) for i in node.inputs})
    return tuple(lowering.of(sink) for sink in prepared.sinks)


class _Lowering:
    """The memo of transformations by node identity, and one method a kind of node."""

    def __init__(
        self, settings: nodes.Settings, sources: dict[int, Source], unbounded: bool, modes: dict[int, ChangelogMode]
    ) -> None:
        self._settings = settings
        self._sources = sources
        self._unbounded = unbounded
        self._modes = modes
        self._done: dict[int, Transformation] = {}

    def of(self, node: nodes.PlanNode) -> Transformation:
        """The transformation of a node that has been added."""
        return self._done[id(node)]

    def add(self, node: nodes.PlanNode) -> None:
        """Lower a node whose inputs have been added."""
        changing = any(self._modes[id(i)] is not ChangelogMode.APPEND for i in node.inputs)
        match node:
            case nodes.Scan():
                lowered: Transformation = with_hints(
                    lower_scan(node, self._sources[id(node)], self._settings), node.hints
                )
            case nodes.Calc():
                lowered = self._calc(node)
            case nodes.Union():
                members = tuple(self.of(m) for m in node.members)
                lowered = UnionTransformation(name=_name(node), schema=node.schema, members=members)
            case nodes.Split():
                lowered = self._split(node)
            case nodes.SideOutput():
                lowered = self._side_output(node)
            case nodes.PythonMap():
                lowered = self._python(node)
            case nodes.AsyncMap():
                from flowrun.lowering.asynchronous import lower_async

                lowered = lower_async(node, self.of(node.input), row_errors_of(node, self._settings), changing=changing)
            case nodes.Process():
                # Imported here: what keeps state for users is much code, and few pipelines need it.
                from flowrun.lowering.process import lower_process, lower_window_process

                if node.windows is not None:
                    lowered = lower_window_process(node, node.windows, self.of(node.input))
                else:
                    lowered = lower_process(node, self.of(node.input), row_errors_of(node, self._settings))
            case CoProcess():
                from flowrun.lowering.process import lower_co_process

                left, right = self.of(node.left), self.of(node.right)
                lowered = lower_co_process(node, left, right, row_errors_of(node, self._settings))
            case nodes.WindowAggregate():
                from flowrun.lowering.windows import lower_window

                lowered = lower_window(node, self.of(node.input), self._settings)
            case nodes.Sink():
                lowered = self._sink(node)
            case _:
                # Imported here: relational operators are much code, and a pipeline needs few of them.
                from flowrun.lowering.relational import lower_relational

                lowered = lower_relational(
                    node, Inputs(tuple(self.of(i) for i in node.inputs), changing), self._settings
                )
        if changing:
            keep_changes_in_order(lowered, self._settings.parallelism)
        self._done[id(node)] = lowered

    def _calc(self, node: nodes.Calc) -> Transformation:
        required = node.required
        factory = CalcFactory(
            predicate_of(node.condition),
            changing_projection(node, node.input.schema.names),
            _name(node),
            row_errors_of(node, self._settings),
            *(
                ()
                if required is None
                else (required.columns, required.fault, row_tests(node, required, self._settings))
            ),
        )
        return self._one_input(node, factory_of=factory)

    def _split(self, node: nodes.Split) -> Transformation:
        branches = tuple((OutputTag(name, node.schema), Predicate(condition)) for name, condition in node.branches)
        return self._one_input(
            node, factory_of=SplitFactory(branches, _name(node), row_errors_of(node, self._settings))
        )

    def _side_output(self, node: nodes.SideOutput) -> Transformation:
        tag = OutputTag(node.tag, node.schema)
        return SideOutputTransformation(name=_name(node), schema=node.schema, input=self.of(node.input), tag=tag)

    def _python(self, node: nodes.PythonMap) -> Transformation:
        factory = PythonFunctionFactory(
            function=FunctionRecipe(node.function, search_path=node.search_path),
            input_schema=node.input.schema,
            output_schema=node.schema,
            flat=node.flat,
            row=node.row,
            name=_name(node),
            side_outputs=tuple(OutputTag(tag, schema) for tag, schema in node.side_outputs.items()),
            errors=row_errors_of(node, self._settings),
        )
        return self._one_input(node, factory_of=factory)

    def _one_input(
        self,
        node: nodes.Calc | nodes.Split | nodes.PythonMap,
        factory_of: CalcFactory | SplitFactory | PythonFunctionFactory,
    ) -> Transformation:
        transformation = OneInputTransformation(
            name=_name(node), schema=node.schema, factory=factory_of, input=self.of(node.input)
        )
        return with_hints(transformation, node.hints)

    def _sink(self, node: nodes.Sink) -> Transformation:
        source = self.of(node.input)
        return with_hints(lower_sink(node, source, self._modes[id(node)], self._settings, self._unbounded), node.hints)


def _tell_place(made: Transformation, location: Location | None, inputs: set[int]) -> None:
    """Note where in the user's text the operators stand that a node became: `made` and what is between it and the node's inputs."""
    if id(made) in inputs:
        return
    if isinstance(made, PhysicalTransformation) and made.written_at is None:
        made.written_at = location
    for upstream in made.inputs:
        _tell_place(upstream, location, inputs)


def _name(node: nodes.PlanNode) -> str:
    return node.hints.name or type(node).__name__
