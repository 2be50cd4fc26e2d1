"""Transformations → StreamGraph: from the sinks back, each transformation once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from flowrun.api.operator import takes_exact_watermarks
from flowrun.api.source import Boundedness
from flowrun.errors import InternalError, PipelineError
from flowrun.graph.partitioner import ForwardPartitioner, Partitioner, RebalancePartitioner
from flowrun.graph.stream_graph import (
    ExchangeMode,
    ExecutionMode,
    GraphSettings,
    Iteration,
    StreamEdge,
    StreamGraph,
    StreamNode,
)
from flowrun.graph.transformation import (
    CoFeedbackTransformation,
    FeedbackTransformation,
    SourceTransformation,
    Transformation,
)
from flowrun.graph.translators import Upstream, Upstreams, translator_of
from flowrun.state.key_groups import MAX_MAX_PARALLELISM, default_max_parallelism


def build_stream_graph(
    name: str, sinks: Sequence[Transformation], settings: GraphSettings | None = None
) -> StreamGraph:
    """The stream graph of a job.

    Args:
        name: of the job.
        sinks: where to start from: usually sinks, but any transformation will do; everything else is reached through inputs.
        settings: defaults of operators, mode and chaining.

    Raises:
        PipelineError: the operators do not fit together: forward across unequal parallelism, a union of different columns, an
            iteration that is not closed, a circle without an iteration, a parallelism out of range, nothing to run; or batch mode
            with checkpoints.
        UnsupportedPlanError: batch mode with an unbounded source or an iteration.
    """
    if not sinks:
        raise PipelineError.of(f"job '{name}' has no sink: there is nothing to run", hint="add a sink")
    resolved = resolve_mode(sinks, settings or GraphSettings())
    if resolved.mode is ExecutionMode.BATCH and resolved.job.checkpoint is not None:
        raise PipelineError.of(
            f"job '{name}' runs in batch mode, which takes no checkpoints, but its settings ask for some",
            hint="leave the checkpoints out, or run it in streaming mode",
        )
    generator = _StreamGraphGenerator(resolved)
    generator.translate_all(sinks)
    return generator.finish(name)


def resolve_mode(sinks: Sequence[Transformation], settings: GraphSettings) -> GraphSettings:
    """The settings with AUTOMATIC decided: BATCH if all sources end, nothing is fed back and no checkpoints are asked for."""
    if settings.mode is not ExecutionMode.AUTOMATIC:
        return settings
    seen: set[Transformation] = set()
    waiting, fits = list(sinks), settings.job.checkpoint is None
    while waiting and fits:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        waiting += current.inputs
        if isinstance(current, SourceTransformation):
            fits = current.source.boundedness is Boundedness.BOUNDED
        elif isinstance(current, FeedbackTransformation | CoFeedbackTransformation):
            fits = False
    return replace(settings, mode=ExecutionMode.BATCH if fits else ExecutionMode.STREAMING)


def resolve_partitioner(partitioner: Partitioner | None, upstream: StreamNode, downstream: StreamNode) -> Partitioner:
    """The partitioner of an edge: what was asked for, else forward between equal parallelisms and rebalance between others.

    Raises:
        PipelineError: forward was asked for between unequal parallelisms.
    """
    equal = upstream.parallelism == downstream.parallelism
    if partitioner is None:
        return ForwardPartitioner() if equal else RebalancePartitioner()
    if isinstance(partitioner, ForwardPartitioner) and not equal:
        raise PipelineError.of(
            f"forward partitioning needs equal parallelism, but '{upstream.name}' has {upstream.parallelism} "
            f"and '{downstream.name}' has {downstream.parallelism}",
            hint="use rebalance or rescale between them, or give both the same parallelism",
        )
    return partitioner


class _StreamGraphGenerator:
    """Holds the graph while translators add to it; implements `translators.GraphUnderConstruction`.

    Transformations compare by identity, so the memo is by identity too. Translation is a loop, not a recursion: a pipeline may
    be longer than Python's stack.
    """

    def __init__(self, settings: GraphSettings) -> None:
        self._settings = settings
        self._translated: dict[Transformation, Upstreams] = {}
        self._nodes: list[StreamNode] = []
        self._buffer_timeouts: list[int] = []
        self._edges: list[StreamEdge] = []
        self._pairs: dict[tuple[int, int], int] = {}
        self._iterations = 0
        self._deferred: deque[tuple[tuple[Transformation, ...], Callable[[], None]]] = deque()

    def translate_all(self, roots: Sequence[Transformation]) -> None:
        self._translate_with_inputs(roots)
        while self._deferred:
            later, action = self._deferred.popleft()
            self._translate_with_inputs(later)
            action()

    def finish(self, name: str) -> StreamGraph:
        order = {node.id: position for position, node in enumerate(self._nodes)}
        edges = sorted(self._edges, key=lambda e: (order[e.target], e.input_index))  # stable: a union keeps its order
        unbounded = any(n.source is not None and n.source.boundedness is Boundedness.UNBOUNDED for n in self._nodes)
        batch_mode = self._settings.mode is ExecutionMode.BATCH
        job = replace(self._settings.job, unbounded=unbounded, batch_mode=batch_mode)
        settings = replace(self._settings, job=job)
        return StreamGraph(name, self._nodes_with_exact_watermarks(), tuple(edges), settings)

    def _nodes_with_exact_watermarks(self) -> tuple[StreamNode, ...]:
        """The nodes, told whether they or one behind them take watermarks in their exact order; in batch mode there is but one."""
        if self._settings.mode is ExecutionMode.BATCH:
            return tuple(self._nodes)
        inputs: dict[int, list[int]] = {}
        for edge in self._edges:
            inputs.setdefault(edge.target, []).append(edge.source)
        waiting = [n.id for n in self._nodes if n.factory is not None and takes_exact_watermarks(n.factory)]
        found: set[int] = set()
        while waiting:
            node = waiting.pop()
            if node not in found:
                found.add(node)
                waiting += inputs.get(node, ())
        behind = {source for node in found for source in inputs.get(node, ())}
        return tuple(
            replace(n, exact_watermarks=True, exact_behind=n.id in behind) if n.id in found else n for n in self._nodes
        )

    def _translate_with_inputs(self, roots: Sequence[Transformation]) -> None:
        for root in roots:
            path: dict[Transformation, int] = {}  # the transformations being visited, with the number of inputs done
            stack = [root]
            while stack:
                current = stack[-1]
                if current in self._translated:
                    stack.pop()
                    continue
                done = path.setdefault(current, 0)
                if done < len(current.inputs):
                    path[current] = done + 1
                    following = current.inputs[done]
                    if following in path and following not in self._translated:
                        raise PipelineError.of(
                            f"'{following.name}' reads its own output",
                            hint="a circle needs an iteration, which says where rows come back in",
                        )
                    stack.append(following)
                else:
                    translator = translator_of(current)
                    self._translated[current] = translator.translate(current, self, self._settings.mode)
                    stack.pop()

    def upstreams(self, transformation: Transformation) -> Upstreams:
        return self._translated[transformation]

    def parallelism_of(self, transformation: Transformation) -> int:
        parallelism = transformation.parallelism
        if parallelism is None:
            parallelism = self._settings.parallelism
        if not 1 <= parallelism <= MAX_MAX_PARALLELISM:
            raise PipelineError.of(
                f"'{transformation.name}' has parallelism {parallelism}; it must be between 1 and {MAX_MAX_PARALLELISM}"
            )
        return parallelism

    def max_parallelism_of(self, transformation: Transformation, parallelism: int) -> int:
        given = transformation.max_parallelism
        if given is None:
            given = self._settings.max_parallelism
        if given is None:
            return default_max_parallelism(parallelism)
        if not parallelism <= given <= MAX_MAX_PARALLELISM:
            raise PipelineError.of(
                f"'{transformation.name}' has parallelism {parallelism} and max parallelism {given}; "
                f"the latter must be between the former and {MAX_MAX_PARALLELISM}",
                hint=f"lower the parallelism, or set max_parallelism to at least {parallelism}",
            )
        return given

    def max_parallelism_given(self, transformation: Transformation) -> bool:
        return transformation.max_parallelism is not None or self._settings.max_parallelism is not None

    def node(self, node_id: int) -> StreamNode:
        return self._nodes[node_id - 1]

    def add_node(self, node: StreamNode, transformation: Transformation) -> int:
        node_id = len(self._nodes) + 1
        self._nodes.append(replace(node, id=node_id))
        timeout = transformation.buffer_timeout_ms
        self._buffer_timeouts.append(self._settings.job.buffer_timeout_ms if timeout is None else timeout)
        return node_id

    def replace_node(self, node: StreamNode) -> None:
        self._nodes[node.id - 1] = node

    def add_edges(self, upstreams: Upstreams, target: int, input_index: int) -> None:
        for upstream in upstreams:
            self._add_edge(upstream, target, input_index)

    def _add_edge(self, upstream: Upstream, target: int, input_index: int) -> None:
        if upstream.node >= target:
            raise InternalError(f"stream edge {upstream.node} → {target} goes backwards")
        pair = (upstream.node, target)
        number = self._pairs[pair] = self._pairs.get(pair, -1) + 1
        partitioner = resolve_partitioner(upstream.partitioner, self.node(upstream.node), self.node(target))
        self._edges.append(
            StreamEdge(
                edge_id=f"{upstream.node}_{target}_{number}",
                source=upstream.node,
                target=target,
                input_index=input_index,
                partitioner=partitioner,
                exchange=self._exchange(partitioner),
                schema=upstream.schema,
                tag=upstream.tag,
                buffer_timeout_ms=self._buffer_timeouts[upstream.node - 1],
            )
        )

    def _exchange(self, partitioner: Partitioner) -> ExchangeMode:
        """In batch mode a redistribution waits for all rows; forward edges are left to chaining."""
        if self._settings.mode is ExecutionMode.STREAMING:
            return ExchangeMode.PIPELINED
        return ExchangeMode.UNDEFINED if isinstance(partitioner, ForwardPartitioner) else ExchangeMode.BATCH

    def new_iteration(self, wait_ms: int) -> Iteration:
        self._iterations += 1
        return Iteration(f"iteration-{self._iterations}", wait_ms)

    def defer(self, roots: Sequence[Transformation], action: Callable[[], None]) -> None:
        self._deferred.append((tuple(roots), action))
