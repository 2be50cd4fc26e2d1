"""One translator per kind of transformation: what it adds to the stream graph, in streaming and in batch mode.

A translator is called once for each transformation, after all its inputs, and returns where the transformation's rows now come
from. Physical ones add a node; virtual ones only pass on their inputs' places with a tag or a partitioner written onto them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from flowrun.api.operator import BatchForm, ChainingStrategy, OperatorRecipe, OutputTag, batch_form
from flowrun.api.source import Boundedness
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import InternalError, PipelineError, UnsupportedPlanError
from flowrun.graph import transformation as transformations
from flowrun.graph.partitioner import Partitioner
from flowrun.graph.stream_graph import ExecutionMode, Iteration, NodeKind, StreamNode


@record
class Upstream:
    """Where rows come from: a node's main or side output, and how the next edge is to deal them out (None: by default)."""

    node: int
    schema: Schema
    tag: OutputTag | None = None
    partitioner: Partitioner | None = None


Upstreams = tuple[Upstream, ...]
"""Several upstreams together are a union."""


class GraphUnderConstruction(Protocol):
    """What translators may do to the stream graph that is being built."""

    def upstreams(self, transformation: transformations.Transformation) -> Upstreams:
        """Where the rows of an already translated transformation come from."""
        ...

    def parallelism_of(self, transformation: transformations.Transformation) -> int:
        """Its own parallelism, else the job's."""
        ...

    def max_parallelism_of(self, transformation: transformations.Transformation, parallelism: int) -> int:
        """Its own, else the job's, else derived from `parallelism`."""
        ...

    def max_parallelism_given(self, transformation: transformations.Transformation) -> bool:
        """Whether `max_parallelism_of` is the user's choice."""
        ...

    def node(self, node_id: int) -> StreamNode:
        """A node that was added."""
        ...

    def add_node(self, node: StreamNode, transformation: transformations.Transformation) -> int:
        """Add a node (its `id` is ignored); the id it got."""
        ...

    def replace_node(self, node: StreamNode) -> None:
        """Put `node` in the place of the one with its id."""
        ...

    def add_edges(self, upstreams: Upstreams, target: int, input_index: int) -> None:
        """Connect all upstreams with one input."""
        ...

    def new_iteration(self, wait_ms: int) -> Iteration:
        """The identity of one more iteration."""
        ...

    def defer(self, roots: Sequence[transformations.Transformation], action: Callable[[], None]) -> None:
        """Once everything else is translated, translate `roots` too, then call `action`."""
        ...


T = TypeVar("T", bound=transformations.Transformation)


@record
class Translator(Generic[T]):
    """How one kind of transformation is translated in either mode."""

    streaming: Callable[[T, GraphUnderConstruction], Upstreams]
    batch: Callable[[T, GraphUnderConstruction], Upstreams]

    def translate(self, transformation: T, graph: GraphUnderConstruction, mode: ExecutionMode) -> Upstreams:
        """Add the transformation to the graph; where its rows come from."""
        function = self.batch if mode is ExecutionMode.BATCH else self.streaming
        return function(transformation, graph)


def slot_sharing_group(
    transformation: transformations.Transformation, graph: GraphUnderConstruction, inputs: Sequence[Upstreams]
) -> str:
    """The transformation's own group, else the one that all its inputs share, else `default`."""
    if transformation.slot_sharing_group is not None:
        return transformation.slot_sharing_group
    groups = {graph.node(upstream.node).slot_sharing_group for upstreams in inputs for upstream in upstreams}
    return groups.pop() if len(groups) == 1 else transformations.DEFAULT_SLOT_SHARING_GROUP


def _add_physical(
    transformation: transformations.PhysicalTransformation,
    graph: GraphUnderConstruction,
    kind: NodeKind,
    inputs: Sequence[transformations.Transformation],
    state_keys: tuple[tuple[int, ...], ...] | None = None,
    *,
    sorted_inputs: bool = False,
) -> Upstreams:
    upstreams = [graph.upstreams(i) for i in inputs]
    parallelism = graph.parallelism_of(transformation)
    chaining = transformation.chaining or transformation.factory.chaining
    if sorted_inputs and chaining is ChainingStrategy.ALWAYS:
        chaining = ChainingStrategy.HEAD  # what is sorted is the input of a task
    node = StreamNode(
        id=0,
        kind=kind,
        name=transformation.name,
        schema=transformation.schema,
        factory=transformation.factory,
        chaining=chaining,
        parallelism=parallelism,
        max_parallelism=graph.max_parallelism_of(transformation, parallelism),
        max_parallelism_given=graph.max_parallelism_given(transformation),
        slot_sharing_group=slot_sharing_group(transformation, graph, upstreams),
        uid=transformation.uid,
        user_hash=transformation.user_hash,
        co_location_key=transformation.co_location_key,
        state_keys=state_keys,
        min_resources=transformation.min_resources,
        preferred_resources=transformation.preferred_resources,
        slot_resources=transformation.slot_resources,
        source=transformation.source if isinstance(transformation, transformations.SourceTransformation) else None,
        sink=transformation.sink if isinstance(transformation, transformations.SinkTransformation) else None,
        sorted_inputs=sorted_inputs,
        written_at=transformation.written_at,
    )
    node_id = graph.add_node(node, transformation)
    for index, several in enumerate(upstreams):
        graph.add_edges(several, node_id, index)
    return (Upstream(node_id, transformation.schema),)


def translate_source(transformation: transformations.SourceTransformation, graph: GraphUnderConstruction) -> Upstreams:
    """A node without inputs."""
    return _add_physical(transformation, graph, NodeKind.SOURCE, ())


def translate_batch_source(
    transformation: transformations.SourceTransformation, graph: GraphUnderConstruction
) -> Upstreams:
    """As in streaming mode, but the source must end by itself.

    Raises:
        UnsupportedPlanError: it does not.
    """
    if transformation.source.boundedness is Boundedness.UNBOUNDED:
        raise UnsupportedPlanError(
            f"source '{transformation.name}' is unbounded, and batch mode reads every source to its end",
            hint="run it in streaming mode, or bound the source (number of rows, end of the range)",
        )
    return translate_source(transformation, graph)


def translate_one_input(
    transformation: transformations.OneInputTransformation, graph: GraphUnderConstruction
) -> Upstreams:
    """A node with one input."""
    keys = None if transformation.state_keys is None else (transformation.state_keys,)
    return _add_physical(transformation, graph, NodeKind.ONE_INPUT, transformation.inputs, keys)


def translate_two_input(
    transformation: transformations.TwoInputTransformation, graph: GraphUnderConstruction
) -> Upstreams:
    """A node with two inputs."""
    return _add_physical(transformation, graph, NodeKind.TWO_INPUT, transformation.inputs, transformation.state_keys)


def translate_multi_input(
    transformation: transformations.MultiInputTransformation, graph: GraphUnderConstruction
) -> Upstreams:
    """A node with one input a member."""
    return _add_physical(transformation, graph, NodeKind.MULTI_INPUT, transformation.inputs, transformation.state_keys)


def sorts_inputs(factory: OperatorRecipe, keys: Sequence[Sequence[int]] | None) -> bool:
    """Whether an operator has its inputs sorted in batch mode: it has keys, and a form for that."""
    return batch_form(factory) is not BatchForm.NONE and any(keys or ())


def translate_batch_one_input(
    transformation: transformations.OneInputTransformation, graph: GraphUnderConstruction
) -> Upstreams:
    """A node whose input is sorted by key, if it can make use of that."""
    keys = None if transformation.state_keys is None else (transformation.state_keys,)
    return _add_sorted(transformation, graph, NodeKind.ONE_INPUT, keys)


def translate_batch_two_input(
    transformation: transformations.TwoInputTransformation, graph: GraphUnderConstruction
) -> Upstreams:
    """A node whose inputs with keys are merged by them, if it can make use of that."""
    return _add_sorted(transformation, graph, NodeKind.TWO_INPUT, transformation.state_keys)


def translate_batch_multi_input(
    transformation: transformations.MultiInputTransformation, graph: GraphUnderConstruction
) -> Upstreams:
    """As `translate_batch_two_input`, for any number of inputs."""
    return _add_sorted(transformation, graph, NodeKind.MULTI_INPUT, transformation.state_keys)


def _add_sorted(
    transformation: transformations.PhysicalTransformation,
    graph: GraphUnderConstruction,
    kind: NodeKind,
    keys: tuple[tuple[int, ...], ...] | None,
) -> Upstreams:
    sorted_inputs = sorts_inputs(transformation.factory, keys)
    return _add_physical(transformation, graph, kind, transformation.inputs, keys, sorted_inputs=sorted_inputs)


def translate_sink(transformation: transformations.SinkTransformation, graph: GraphUnderConstruction) -> Upstreams:
    """A node whose rows go nowhere else."""
    keys = None if transformation.state_keys is None else (transformation.state_keys,)
    return _add_physical(transformation, graph, NodeKind.SINK, transformation.inputs, keys)


def translate_union(transformation: transformations.UnionTransformation, graph: GraphUnderConstruction) -> Upstreams:
    """No node: the members' upstreams side by side.

    Raises:
        PipelineError: there are no members, or they have different columns.
    """
    if not transformation.members:
        raise PipelineError.of(f"union '{transformation.name}' has no members")
    first = transformation.members[0]
    for member in transformation.members[1:]:
        if member.schema.arrow != first.schema.arrow:
            raise PipelineError.of(
                f"union '{transformation.name}': members must have the same columns; "
                f"'{first.name}' has ({first.schema}), '{member.name}' has ({member.schema})",
                hint="select the same columns, in the same order and of the same types, in every member",
            )
    return tuple(upstream for member in transformation.members for upstream in graph.upstreams(member))


def translate_side_output(
    transformation: transformations.SideOutputTransformation, graph: GraphUnderConstruction
) -> Upstreams:
    """No node: the tag is written onto the upstreams; of two tags in a row the one nearer to the reader counts."""
    return tuple(
        replace(upstream, tag=transformation.tag, schema=transformation.tag.schema)
        for upstream in graph.upstreams(transformation.input)
    )


def translate_partition(
    transformation: transformations.PartitionTransformation, graph: GraphUnderConstruction
) -> Upstreams:
    """No node: the partitioner is written onto the upstreams; of two in a row the one nearer to the reader counts."""
    return tuple(
        replace(upstream, partitioner=transformation.partitioner) for upstream in graph.upstreams(transformation.input)
    )


def translate_feedback(
    transformation: transformations.FeedbackTransformation, graph: GraphUnderConstruction
) -> Upstreams:
    """An iteration head beside the input; its tail follows once the feedback edges, which read this very output, are known."""
    inputs = graph.upstreams(transformation.input)
    parallelism = transformation.parallelism or graph.node(inputs[0].node).parallelism
    return (*inputs, _iteration(transformation, graph, parallelism, [inputs]))


def translate_co_feedback(
    transformation: transformations.CoFeedbackTransformation, graph: GraphUnderConstruction
) -> Upstreams:
    """An iteration head alone: everything comes from the feedback edges."""
    parallelism = graph.parallelism_of(transformation)
    return (_iteration(transformation, graph, parallelism, []),)


def _iteration(
    transformation: transformations.FeedbackTransformation | transformations.CoFeedbackTransformation,
    graph: GraphUnderConstruction,
    parallelism: int,
    inputs: Sequence[Upstreams],
) -> Upstream:
    feedback = tuple(transformation.feedback_edges)
    if not feedback:
        raise PipelineError.of(
            f"iteration '{transformation.name}' has no feedback edge", hint="close it with the stream that is fed back"
        )
    iteration = graph.new_iteration(transformation.wait_ms)
    head = StreamNode(
        id=0,
        kind=NodeKind.ITERATION_HEAD,
        name=f"{transformation.name} (head)",
        schema=transformation.schema,
        factory=None,
        chaining=ChainingStrategy.NEVER,
        parallelism=parallelism,
        max_parallelism=graph.max_parallelism_of(transformation, parallelism),
        max_parallelism_given=graph.max_parallelism_given(transformation),
        slot_sharing_group=slot_sharing_group(transformation, graph, inputs),
        co_location_key=transformation.co_location_key or iteration.iteration_id,
        iteration=iteration,
    )
    head_id = graph.add_node(head, transformation)

    def close() -> None:
        _close_iteration(transformation, feedback, graph, head_id)

    graph.defer(feedback, close)
    return Upstream(head_id, transformation.schema)


def _close_iteration(
    transformation: transformations.Transformation,
    feedback: Sequence[transformations.Transformation],
    graph: GraphUnderConstruction,
    head_id: int,
) -> None:
    """Add the tail, and give both ends the group that the feedback edges agree on, so that they can share slots."""
    ends = [graph.upstreams(edge) for edge in feedback]
    head = graph.node(head_id)
    for edge, upstreams in zip(feedback, ends, strict=True):
        for upstream in upstreams:
            if graph.node(upstream.node).parallelism != head.parallelism:
                raise PipelineError.of(
                    f"iteration '{transformation.name}' has parallelism {head.parallelism}, but what is fed back, "
                    f"'{graph.node(upstream.node).name}', has {graph.node(upstream.node).parallelism}",
                    hint="give both the same parallelism",
                )
        if edge.schema.arrow != transformation.schema.arrow:
            raise PipelineError.of(
                f"iteration '{transformation.name}' carries ({transformation.schema}), "
                f"but '{edge.name}' feeds back ({edge.schema})",
                hint="feed back the same columns, in the same order and of the same types",
            )
    head = replace(head, slot_sharing_group=slot_sharing_group(transformation, graph, ends))
    graph.replace_node(head)
    tail = replace(head, kind=NodeKind.ITERATION_TAIL, name=f"{transformation.name} (tail)")
    tail_id = graph.add_node(tail, transformation)
    for upstreams in ends:
        graph.add_edges(upstreams, tail_id, 0)


def translate_batch_iteration(
    transformation: transformations.Transformation, _graph: GraphUnderConstruction
) -> Upstreams:
    """Refused: a blocking exchange cannot be part of a circle.

    Raises:
        UnsupportedPlanError: always.
    """
    raise UnsupportedPlanError(
        f"iteration '{transformation.name}' cannot run in batch mode: its input would have to end before it begins",
        hint="run it in streaming mode",
    )


def _same(function: Callable[[T, GraphUnderConstruction], Upstreams]) -> Translator[T]:
    return Translator(function, function)


TRANSLATORS: Mapping[type[transformations.Transformation], Translator[Any]] = {
    transformations.SourceTransformation: Translator(translate_source, translate_batch_source),
    transformations.OneInputTransformation: Translator(translate_one_input, translate_batch_one_input),
    transformations.WatermarkTransformation: _same(translate_one_input),
    transformations.TwoInputTransformation: Translator(translate_two_input, translate_batch_two_input),
    transformations.MultiInputTransformation: Translator(translate_multi_input, translate_batch_multi_input),
    transformations.SinkTransformation: _same(translate_sink),
    transformations.UnionTransformation: _same(translate_union),
    transformations.SideOutputTransformation: _same(translate_side_output),
    transformations.PartitionTransformation: _same(translate_partition),
    transformations.FeedbackTransformation: Translator(translate_feedback, translate_batch_iteration),
    transformations.CoFeedbackTransformation: Translator(translate_co_feedback, translate_batch_iteration),
}
"""Every kind of transformation; a subclass is translated as its nearest base in this table."""


def translator_of(transformation: transformations.Transformation) -> Translator[Any]:
    """The translator of a transformation's type.

    Raises:
        InternalError: neither its type nor a base of it has one.
    """
    for kind in type(transformation).__mro__:
        if kind in TRANSLATORS:
            return TRANSLATORS[kind]
    raise InternalError(f"no translator for {type(transformation).__name__} '{transformation.name}'")
