"""Runs a node of a plan with the streaming operators: it is lowered over rows that exist, run as stages, and folded to its final table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from flowrun.api.changelog import ChangelogMode
from flowrun.api.source import Boundedness, Delivery, JsonValue, ReaderContext, Source
from flowrun.core.clock import Clock, ManualClock
from flowrun.core.record import record
from flowrun.core.row_errors import DEAD_LETTER_SCHEMA, DEAD_LETTER_TAG, OnError
from flowrun.core.schema import Schema
from flowrun.core.types import timestamp
from flowrun.errors import InternalError
from flowrun.graph.job_graph import JobGraph, JobVertex
from flowrun.graph.job_graph_generator import build_job_graph
from flowrun.graph.stream_graph_generator import build_stream_graph
from flowrun.lowering import lower
from flowrun.lowering.settings import graph_settings
from flowrun.plan import nodes
from flowrun.plan.changelog import changelog_modes
from flowrun.plan.co_process import CoProcess
from flowrun.plan.expressions import ColumnRef, Literal
from flowrun.plan.rewrites.traversal import with_inputs
from flowrun.plan.row_errors import on_error_of, rows_may_fail
from flowrun.spark.arrival import goes_by_count
from flowrun.spark.context import Context
from flowrun.spark.frame import SparkFrame
from flowrun.spark.hosted import flows
from flowrun.spark.hosted.destinations import Destination, Form
from flowrun.spark.hosted.job import OpenVertex, edges_by_result, exchange_by_hash, input_flows, open_vertex
from flowrun.spark.hosted.sources import SourceRun, find_splits, read_splits
from flowrun.spark.hosted.task import EndOfInput, Stage
from flowrun.spark.input.scan import as_it_is
from flowrun.spark.times import within
from flowrun.spark.translated import Translated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MAIN = "main"


def host_node(node: nodes.PlanNode, frames: tuple[SparkFrame, ...], context: Context, reason: str) -> Translated:
    """Run the streaming operators of a node over its inputs.

    Rows come to the operators in the order of event time, in large batches, each followed by the watermark that its last row allows; then
    the input ends. The node's changes are folded to its final table. Each partition runs as if it were the operators' only subtask.
    Processing time stands still at `context.now_ms`.

    Args:
        node: a node that is no sink.
        frames: the rows of each input.
        context: the context of the translation.
        reason: why the node is hosted.

    Raises:
        UnsupportedPlanError: the streaming operators cannot run it either.
    """
    return _HostedNode(node, frames, context).run(reason)


def host_changes(node: nodes.Scan, context: Context) -> SparkFrame:
    """The changes of a source that the stream's operators read, in the order in which they come, as a frame with `ARRIVAL` and `KIND`.

    Raises:
        UnsupportedPlanError: the streaming operators cannot run it.
    """
    return _HostedNode(node, (), context, folds=False).changes()


class _HostedNode:
    def __init__(
        self, node: nodes.PlanNode, frames: tuple[SparkFrame, ...], context: Context, *, folds: bool = True
    ) -> None:
        self._folds_changes = folds
        self._node = node
        self._frames = frames
        self._context = context
        configured = context.session.conf.get("spark.sql.shuffle.partitions") or "200"
        self._partitions = int(configured)
        self._source_run: SourceRun | None = None
        self._graph, self._changing, self._sides = self._lowered()

    def run(self, reason: str) -> Translated:
        plain = self._plain()
        if plain is not None:
            return Translated(plain, {}, reason)
        return self._translated(self._taken(), reason)

    def changes(self) -> SparkFrame:
        """The changes that the node sends, not folded."""
        frame = flows.changes_of_flow(self._taken()[_MAIN], event_time=self._node.event_time)
        return within(frame, self._context.range_of(self._node))

    def _taken(self) -> dict[str, flows.Flow]:
        """Run the node; gives name of a sink → the rows that it gets."""
        by_data_set: dict[str, flows.Flow] = {}
        taken: dict[str, flows.Flow] = {}
        for vertex in self._graph.vertices:
            opened = open_vertex(vertex, checked=False)
            source = vertex.operators[0].source
            if isinstance(source, NodeInputSource):
                given = self._given(source)
                if opened.is_passing and not opened.sinks:
                    by_data_set.update({r.data_set_id: given for r in vertex.results})
                    continue
                stage = self._run(opened, [(0, given)])
            elif source is not None:
                stage = self._run(opened, [(0, self._read(vertex, source))])
            else:
                stage = self._run(opened, input_flows(vertex, by_data_set))
            self._collect(opened, stage, by_data_set, taken)
        return taken

    def _lowered(self) -> tuple[JobGraph, bool, dict[str, Schema]]:
        """(the job graph, whether the node's rows are updated, tag → the columns of a side output)."""
        node = self._node
        settings = replace(self._context.settings, parallelism=self._partitions, checkpoint=None, restart=None)
        modes = changelog_modes(nodes.Plan("hosted", (_sink(_MAIN, node),)))
        scans = tuple(node_input_scan(n, i) for i, n in enumerate(node.inputs))
        sources = {
            id(scan): NodeInputSource(i, scan.schema, modes[id(n)])
            for i, (scan, n) in enumerate(zip(scans, node.inputs, strict=True))
        }
        inner = with_inputs(node, scans)
        if isinstance(inner, nodes.Scan):
            inner = replace(inner, table=as_it_is(inner.table))
        inner = replace(inner, hints=replace(inner.hints, uid=None, place=None, slot_sharing_group=None))
        sides = dict(_side_schemas(node))
        if rows_may_fail(node) and on_error_of(node, settings) is OnError.DEAD_LETTER:
            sides[DEAD_LETTER_TAG] = DEAD_LETTER_SCHEMA
        sinks = [_sink(_MAIN, inner)]
        for tag, schema in sides.items():
            sinks.append(_sink(f"side {tag}", nodes.SideOutput(schema, nodes.NodeHints(), inner, tag)))
        plan = nodes.Plan(self._node.hints.name or "hosted", tuple(sinks), settings)
        lowered = lower(plan, sources)
        streaming = graph_settings(replace(settings, embedded_mode="streaming"))
        graph = build_job_graph(build_stream_graph(plan.name, lowered, streaming))
        return graph, modes[id(node)] is not ChangelogMode.APPEND, sides

    def _given(self, source: NodeInputSource) -> flows.Flow:
        return flows.flow_of(self._frames[source.number])

    def _read(self, vertex: JobVertex, source: Source) -> flows.Flow:
        """The rows of the node if it is itself a source."""
        until_ms = self._context.range_of(self._node).stop
        found = find_splits(source, 1, ManualClock(self._context.now_ms), until_ms)
        run = SourceRun(
            vertex, self._graph.settings, self._context.now_ms, splits=found.splits, tally=self._context.node_tally()
        )
        self._source_run = run
        return flows.destination_flow(
            read_splits(self._context.session, run), 0, vertex.operators[0].schema, only=False
        )

    def _run(self, opened: OpenVertex, inputs: list[tuple[int, flows.Flow]]) -> DataFrame:
        exchange = exchange_by_hash(opened.vertex, self._partitions)
        if exchange is None:  # rows that come out are numbered partition by partition
            inputs = [(n, flows.in_order_of_arrival(f, self._partitions) if f.arrived else f) for n, f in inputs]
        sorting = self._sorting(opened)
        data = flows.stage_input(inputs, exchange, sorting)
        return flows.run_on(
            data, self._stage(opened, flows.input_schemas(inputs), ordered=sorting is flows.Sorting.TIME)
        )

    def _sorting(self, opened: OpenVertex) -> flows.Sorting:
        """By event time if something may happen between two rows because time passes.

        Else by arrival, if the rows have it, and event time stands still until the input ends.
        """
        if opened.goes_row_by_row:
            return flows.Sorting.NONE
        if isinstance(self._node, nodes.Process | CoProcess) or (
            isinstance(self._node, nodes.WindowAggregate) and not goes_by_count(self._node)
        ):
            return flows.Sorting.TIME
        return flows.Sorting.SENT if any(f.arrival for f in self._frames) else flows.Sorting.TIME

    def _stage(self, opened: OpenVertex, inputs: tuple[Schema, ...], *, ordered: bool) -> Stage:
        return Stage(
            vertex=opened.vertex,
            inputs=inputs,
            destinations=tuple(
                Destination(edge.schema, Form.FINAL if self._folds(opened, result) else Form.CHANGES)
                for result, edge in enumerate(edges_by_result(opened.vertex))
            ),
            settings=self._graph.settings,
            now_ms=self._context.now_ms,
            ending=EndOfInput(),
            ordered=ordered,
            lags=(0,) * len(inputs),
            alone=True,
            tally=self._context.node_tally() if rows_may_fail(self._node) else None,
        )

    def _plain(self) -> SparkFrame | None:
        """The rows of a node that processes each row by itself; None: it is no such node."""
        if len(self._graph.vertices) > 1 or self._changing or self._wants_arrival:
            return None
        vertex = self._graph.vertices[0]
        opened = open_vertex(vertex, checked=False)
        source = vertex.operators[0].source
        one_place = len(opened.vertex.results) == 1 and vertex.parallelism == self._partitions
        if not isinstance(source, NodeInputSource) or not opened.goes_row_by_row or not one_place:
            return None
        frame = self._frames[source.number]
        stage = self._stage(opened, (frame.schema,), ordered=False)
        return flows.run_plainly(frame, replace(stage, plain=True, timed=self._node.event_time))

    def _folds(self, opened: OpenVertex, result: int) -> bool:
        return self._changing and self._folds_changes and any(s.result == result for s in opened.sinks)

    def _collect(
        self, opened: OpenVertex, stage: DataFrame, by_data_set: dict[str, flows.Flow], taken: dict[str, flows.Flow]
    ) -> None:
        vertex: JobVertex = opened.vertex
        edges = edges_by_result(vertex)
        if len(edges) > 1:
            stage = stage.persist()
            self._context.kept.append(stage)
        sinks = {s.result: s.operator.name.removeprefix("Sink: ") for s in opened.sinks}
        for edge in edges:
            flow = flows.destination_flow(stage, edge.result, edge.schema, only=len(edges) == 1)
            if edge.result in sinks:
                taken[sinks[edge.result]] = flow
            else:
                by_data_set[vertex.results[edge.result].data_set_id] = flow

    @property
    def _wants_arrival(self) -> bool:
        return self._context.needs_arrival(self._node)

    def _translated(self, taken: dict[str, flows.Flow], reason: str) -> Translated:
        sides = {tag: self._frame(taken[f"side {tag}"], tag) for tag in self._sides}
        main = self._frame(taken[_MAIN])
        if isinstance(self._node, nodes.Scan) and self._source_run is not None:
            sides[DEAD_LETTER_TAG] = self._letters(self._source_run)
            main = within(main, self._context.range_of(self._node))
        return Translated(main, sides, reason)

    def _letters(self, run: SourceRun) -> SparkFrame:
        """The dead letters of a source, which is read again for them."""
        letters = read_splits(self._context.session, replace(run, letters=True))
        return flows.frame_of(
            flows.destination_flow(letters, 0, DEAD_LETTER_SCHEMA, only=False), event_time=False, arrival=False
        )

    def _frame(self, flow: flows.Flow, tag: str | None = None) -> SparkFrame:
        if tag == DEAD_LETTER_TAG:
            return flows.frame_of(flow, event_time=False, arrival=False)
        timed = self._node.event_time
        if self._wants_arrival and timed and any(f.event_time for f in self._frames):
            flow = flows.renumbered_by_time(flow, self._partitions)
        return flows.frame_of(flow, event_time=timed, arrival=self._wants_arrival)


def _sink(name: str, node: nodes.PlanNode) -> nodes.Sink:
    return nodes.Sink(node.schema, nodes.NodeHints(name=name), node, nodes.TableReference(name, "blackhole", {}))


def _side_schemas(node: nodes.PlanNode) -> dict[str, Schema]:
    """Columns of the side outputs that have rows in a batch, in which nothing is late."""
    if isinstance(node, nodes.Process):
        return dict(node.side_schemas)
    if isinstance(node, nodes.PythonMap | nodes.AsyncMap | CoProcess):
        return dict(node.side_outputs)
    if isinstance(node, nodes.Split):
        return {tag: node.schema for tag, _ in node.branches}
    return {}


@record
class NodeInputSource:
    """Stands for input `number` of a node."""

    number: int
    schema: Schema
    changelog_mode: ChangelogMode

    @property
    def boundedness(self) -> Boundedness:
        """Bounded: a batch ends."""
        return Boundedness.BOUNDED

    @property
    def delivery(self) -> Delivery:
        """Exactly once: a batch that fails is run again from its beginning."""
        return Delivery.EXACTLY_ONCE

    def create_enumerator(self, parallelism: int, clock: Clock, restored: JsonValue = None) -> NoReturn:
        """Never called."""
        raise InternalError(f"input {self.number} of a hosted node has no splits")

    def create_reader(self, context: ReaderContext) -> NoReturn:
        """Never called."""
        raise InternalError(f"input {self.number} of a hosted node has no reader")


def node_input_scan(node: nodes.PlanNode, number: int) -> nodes.Scan:
    """A scan with the columns of a node, and with event time if its rows have one."""
    schema = node.schema
    columns = tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(schema))
    time = nodes.WatermarkSpec(nodes.WatermarkKind.NONE, Literal(timestamp(3), None)) if node.event_time else None
    name = f"input {number + 1}"
    return nodes.Scan(
        schema, nodes.NodeHints(name=name), nodes.TableReference(name, "hosted", {}), schema, columns, time
    )
