"""The relational plan: typed, frozen nodes from sources to sinks, shared by YAML and SQL, streaming and Spark.

A plan is a DAG by object identity: a node that two others read is one object. Every node knows its output schema and whether
its rows carry event time; nodes check their own invariants when built.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from enum import Enum

import pyarrow as pa

from flowrun.api.connector import Distribution, PushedFilter
from flowrun.core.constraints import SinkConstraints
from flowrun.core.local_time import UTC_ZONE
from flowrun.core.record import record
from flowrun.core.recovery import DEFAULT_CANCELLATION_TIMEOUT_MS, CheckpointSettings, RestartSettings
from flowrun.core.resources import SlotSettings, SlotSharingGroup
from flowrun.core.row_errors import DEAD_LETTER_TAG, LetterLimit, LetterOrigin, OnError, RowFault
from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import NullKeys, OnDisorder, OutputMode, TimeDomain, WatermarkEmit
from flowrun.core.types import BIGINT, timestamp
from flowrun.errors import Location
from flowrun.plan import description as describe
from flowrun.plan.expressions import AggregateCall, Expression
from flowrun.plan.windows import CountWindow, EvictorSpec, GlobalWindow, TriggerSpec, WindowSpec

WINDOW_START = "window_start"
WINDOW_END = "window_end"


@record
class NodeHints:
    """What the user said about a node besides its meaning; `name` is the step's or source's name.

    `place` is where the node stands in the user's text, if that tells it from all others: state is found by it unless there is a uid.
    `state_ttl_ms` is how long what is kept of each input lives, 0: for ever, None: as the settings say; empty: all as the settings say.
    """

    name: str | None = None
    uid: str | None = None
    parallelism: int | None = None
    slot_sharing_group: str | None = None
    chaining: bool = True
    location: Location | None = field(default=None, compare=False)
    place: str | None = None
    state_ttl_ms: tuple[int | None, ...] = ()
    on_error: OnError | None = None
    """What becomes of rows that cannot be processed; None: as the settings say."""
    letters_to: str | None = None
    """The sink that gets the dead letters; None: as the settings say."""
    letter_limit: LetterLimit | None = None
    """How many there may be of a source; None: as the settings say."""

    @property
    def stable_id(self) -> str | None:
        """By what the node's state is found again; None: by what is upstream of it."""
        return self.uid or self.place


class WatermarkKind(Enum):
    """How a source derives watermarks from its rows."""

    BOUNDED = "bounded"
    MONOTONOUS = "monotonous"
    PUNCTUATED = "punctuated"
    SOURCE = "source"
    """The source sends them itself."""
    NONE = "none"


@describe.part
class WatermarkSpec:
    """Event time and watermarks of a scan.

    Attributes:
        time: expression over the scan's physical columns giving TIMESTAMP(p) or TIMESTAMP_LTZ(p): the event time.
        delay_ms: watermark = highest event time − delay − 1 (bounded); with `emit` highest event time − delay.
        punctuation: expression over the physical columns giving the watermark (timestamp) or NULL, per row (punctuated).
        idle_timeout_ms: without rows for so long, the source's channel counts as idle; None: never.
        column: output column that holds the event time, if one does.
        emit: when the watermark is sent, which then has exactly the value that was declared; None: the rule of the DataStream API.
        emit_interval_ms: sent periodically: how long no row may have come before the exact value is sent.
    """

    kind: WatermarkKind = describe.parameter()
    time: Expression = describe.expressions()
    delay_ms: int = describe.parameter(default=0)
    punctuation: Expression | None = describe.expressions(default=None)
    idle_timeout_ms: int | None = describe.parameter(default=None)
    column: str | None = describe.parameter(default=None)
    on_disorder: OnDisorder = describe.parameter(default=OnDisorder.FAIL)
    emit: WatermarkEmit | None = describe.parameter(default=None)
    emit_interval_ms: int = describe.parameter(default=200)


@record
class TableReference:
    """A source or sink table as declared: connector, flat options as given (already checked), format and keys."""

    name: str
    connector: str
    options: Mapping[str, object]
    format: str | None = None
    partition_keys: tuple[str, ...] = ()
    primary_key: tuple[str, ...] = ()
    secret_options: frozenset[str] = frozenset()
    """Keys of `options` that are never shown."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Columns of its scans that hold metadata, with their keys: connector or format fill them, they are not part of the stored rows."""
    written_metadata: Mapping[str, str] = field(default_factory=dict)
    """Columns of its sinks, behind the physical ones, that the connector takes as metadata, with their keys."""
    distribution: Distribution | None = None
    source_watermarks: bool = False
    """Whether its scans ask the source for watermarks of its own."""
    event_time: Expression | None = None
    """Event time over all physical columns, for a connector that asks for it (`Connector.uses_event_time`); else None."""


# Nodes compare by identity, because sharing a node (scan once) differs from repeating it.
@describe.node()
class PlanNode:
    """A step of a plan. `schema` is its main output."""

    schema: Schema = describe.row_schema()
    hints: NodeHints = describe.label()

    @property
    def inputs(self) -> tuple[PlanNode, ...]:
        """Nodes that this one reads, in order. `@node` makes it for each kind, of the fields that hold them."""
        return ()

    @property
    def event_time(self) -> bool:
        """Whether the output rows carry event-time timestamps."""
        return any(i.event_time for i in self.inputs)


@describe.node(output=(describe.Each("projections"),))
class Scan(PlanNode):
    """Reads a table. `physical` are the columns the connector delivers; `schema` adds the computed ones.

    Attributes:
        physical: columns asked of the connector.
        projections: one expression an output column, over `physical`.
        watermark: event time of the rows, or None.
        filters: hints for the connector.
        declared: all physical columns of the table, those that are not read too; None: `physical` is all.
    """

    table: TableReference = describe.parameter()
    physical: Schema = describe.row_schema()
    projections: tuple[Expression, ...] = describe.expressions("physical")
    watermark: WatermarkSpec | None = describe.parts("physical", default=None)
    filters: tuple[PushedFilter, ...] = describe.parameter(default=())
    declared: Schema | None = describe.row_schema(default=None)

    @property
    def event_time(self) -> bool:
        return self.watermark is not None


@describe.part
class Required:
    """Columns of an input that must not be NULL, in whose name (`sink 'out'`), and what rows are called where one is.

    Attributes:
        writes: the table, with its columns, whose sink must be able to write the rows, where it may not be.
        evaluates: what must not fail, over the columns of the input.
        folds: calls of users' aggregates that must be able to take the rows, over the columns of the input.
    """

    columns: tuple[int, ...] = describe.positions()
    place: str = describe.parameter()
    fault: RowFault = describe.parameter()
    writes: tuple[TableReference, Schema] | None = describe.parameter(default=None)
    evaluates: tuple[Expression, ...] = describe.expressions(default=())
    folds: tuple[AggregateCall, ...] = describe.parts(default=())


@describe.node(output=(describe.Each("projections"),), rows=describe.Rows.SOME, row_by_row=True)
class Calc(PlanNode):
    """Filters rows, then projects: `schema` has one column per projection. `condition` reads the input's columns.

    `required`: rows with NULL there cannot be processed; only where such rows are left out, see `flowrun.plan.row_errors`.
    """

    input: PlanNode = describe.input_node()
    projections: tuple[Expression, ...] = describe.expressions("input")
    condition: Expression | None = describe.expressions("input", default=None)
    required: Required | None = describe.parts("input", default=None)


@describe.node()
class Union(PlanNode):
    """All rows of all inputs (UNION ALL); schemas are equal."""

    members: tuple[PlanNode, ...] = describe.input_nodes()

    @property
    def event_time(self) -> bool:
        return all(i.event_time for i in self.members)


@describe.node(output=(describe.Passed("input"),), rows=describe.Rows.SOME)
class Split(PlanNode):
    """Sends each row to every branch whose predicate is true; rows of no branch go on to the main output."""

    input: PlanNode = describe.input_node()
    branches: tuple[tuple[str, Expression], ...] = describe.expressions("input")


@describe.node(rows=describe.Rows.SOME)
class SideOutput(PlanNode):
    """The rows that `input` sends to the side output `tag` (a split's branch, a window's late rows, a process function's)."""

    input: PlanNode = describe.input_node()
    tag: str = describe.parameter()

    @property
    def event_time(self) -> bool:
        return self.tag != DEAD_LETTER_TAG and self.input.event_time


@describe.node(rows=describe.Rows.USER)
class PythonMap(PlanNode):
    """A Python function over batches or rows; `flat` may change the number of rows. `function` is `module:name`, looked up in the
    folders of `search_path` before Python's own path; `side_outputs` are columns by tag.
    """

    input: PlanNode = describe.input_node()
    function: str = describe.user_function()
    flat: bool = describe.parameter(default=False)
    row: bool = describe.parameter(default=False)
    side_outputs: Mapping[str, Schema] = describe.parameter(default_factory=dict)
    search_path: tuple[str, ...] = describe.parameter(default=())


@describe.node(rows=describe.Rows.USER)
class AsyncMap(PlanNode):
    """A Python function that asks something outside for each row, for many at a time.

    Attributes:
        function: `module:Class`, looked up in the folders of `search_path` before Python's own path.
        arguments: of the class, by name.
        ordered: rows leave in the order in which they came; else as they are answered, but not beyond a watermark.
        capacity: how many calls a subtask has under way at most.
        timeout_ms: allowed for a row with all repetitions; None: as long as it takes.
        call_rows: of a function on batches: how many rows a call is given at most.
        retry: which calls are made again; None: none is.
        side_outputs: columns of the side outputs, by tag.
    """

    input: PlanNode = describe.input_node()
    function: str = describe.user_function()
    arguments: Mapping[str, object] = describe.parameter(default_factory=dict)
    ordered: bool = describe.parameter(default=True)
    capacity: int = describe.parameter(default=100)
    timeout_ms: int | None = describe.parameter(default=None)
    call_rows: int = describe.parameter(default=1000)
    retry: AsyncRetries | None = describe.parameter(default=None)
    side_outputs: Mapping[str, Schema] = describe.parameter(default_factory=dict)
    search_path: tuple[str, ...] = describe.parameter(default=())


@record
class AsyncRetries:
    """Which calls of an asynchronous function are made again; see `flowrun.api.async_function.AsyncRetryStrategy`.

    Attributes:
        result_predicate: `module:function`; None: no result is a reason.
        exception_predicate: `module:function`; None: every exception is one.
    """

    max_attempts: int
    delay_ms: int
    multiplier: float = 1.0
    max_delay_ms: int | None = None
    result_predicate: str | None = None
    exception_predicate: str | None = None


@describe.node(rows=describe.Rows.USER)
class Process(PlanNode):
    """A Python process function, with state and timers a key if it has keys.

    Attributes:
        function: `module:Class`, looked up in the folders of `search_path` before Python's own path.
        arguments: of the class, by name.
        keys: positions of the key columns in the input; None: a function without keys.
        side_outputs: columns of the side outputs, by tag.
        called: how a query calls it; None: it is a step by itself, and its rows are the node's.
        tables: columns of the tables of its keyed state, by name, which the front end has looked at; None: nobody has.
        windows: it is a window function: called with the rows of windows when they fire; None: with each row or batch.
    """

    input: PlanNode = describe.input_node()
    function: str = describe.user_function()
    arguments: Mapping[str, object] = describe.parameter(default_factory=dict)
    keys: tuple[int, ...] | None = describe.positions("input", default=None)
    null_keys: NullKeys = describe.parameter(default=NullKeys.FAIL)
    side_outputs: Mapping[str, Schema] = describe.parameter(default_factory=dict)
    search_path: tuple[str, ...] = describe.parameter(default=())
    called: TableFunction | None = describe.parts("input", default=None)
    tables: tuple[tuple[str, pa.Schema], ...] | None = describe.parameter(default=None)
    windows: FunctionWindows | None = describe.parts("input", default=None)

    @property
    def side_schemas(self) -> Mapping[str, Schema]:
        """Columns of all side outputs, that of late rows too."""
        late = None if self.windows is None else self.windows.late_tag
        return self.side_outputs if late is None else {**self.side_outputs, late: self.input.schema}


@describe.part
class FunctionWindows:
    """The windows whose rows a window function sees; their fields are those of `WindowAggregate`."""

    window: WindowSpec = describe.parameter()
    domain: TimeDomain = describe.parameter(default=TimeDomain.EVENT)
    allowed_lateness_ms: int = describe.parameter(default=0)
    late_tag: str | None = describe.parameter(default=None)
    trigger: TriggerSpec | None = describe.parts(default=None)
    evictor: EvictorSpec | None = describe.parameter(default=None)


@describe.part
class TableFunction:
    """What a query adds to the rows of a process function, which then only takes rows that never change.

    Attributes:
        leading: positions of the input columns that go before the function's: the keys, or all.
        columns: of the function itself.
        time: position of the input column that is the rows' event time; the event time is then the last column. None: neither.
    """

    leading: tuple[int, ...] = describe.positions()
    columns: Schema = describe.row_schema()
    time: int | None = describe.positions(default=None)


@describe.node(
    output=(describe.Taken("keys"), describe.Added(), describe.Each("aggregates")),
    final=True,
    inserts_only=describe.InsertsOnly(
        "a window aggregate",
        hint="group by the window's bounds in a plain GROUP BY over them, whose results are updated",
    ),
)
class WindowAggregate(PlanNode):
    """Groups by `keys` and window, and aggregates. Output columns: keys, window_start, window_end, aggregates.

    Count and global windows have no bounds: their output has neither window_start nor window_end.
    The output rows' event time is window_end − 1 (count and global windows: the newest row's).

    Attributes:
        keys: positions of the key columns in the input; may be empty (one global group).
        allowed_lateness_ms: late rows that still belong to an open-for-lateness window re-fire it.
        late_tag: side output for rows that are later than that; None: they are counted and dropped.
        output_mode: what comes out of windows that fire more than once; None: each firing's result is a row by itself.
    """

    input: PlanNode = describe.input_node()
    keys: tuple[int, ...] = describe.positions("input", groups=True)
    window: WindowSpec = describe.parameter()
    aggregates: tuple[AggregateCall, ...] = describe.parts("input")
    domain: TimeDomain = describe.clock(default=TimeDomain.EVENT)
    allowed_lateness_ms: int = describe.parameter(default=0)
    late_tag: str | None = describe.parameter(default=None)
    trigger: TriggerSpec | None = describe.parts("input", default=None)
    evictor: EvictorSpec | None = describe.parameter(default=None)
    null_keys: NullKeys = describe.parameter(default=NullKeys.GROUP)
    output_mode: OutputMode | None = describe.parameter(default=None)

    @property
    def event_time(self) -> bool:
        return self.domain is TimeDomain.EVENT and self.input.event_time


@describe.node(rows=describe.Rows.EACH)
class Sink(PlanNode):
    """Writes its input to a table; `schema` is the table's, equal in types to the input's."""

    input: PlanNode = describe.input_node()
    table: TableReference = describe.parameter()
    constraints: SinkConstraints = describe.parameter(default=SinkConstraints())


def window_aggregate_schema(
    input_schema: Schema, keys: tuple[int, ...], window: WindowSpec, aggregates: tuple[AggregateCall, ...]
) -> Schema:
    """Output columns of a `WindowAggregate`: keys, then window bounds (TIMESTAMP(3)) if the window has any, then aggregates."""
    bounds = () if isinstance(window, CountWindow | GlobalWindow) else (WINDOW_START, WINDOW_END)
    return Schema(
        (
            *(input_schema.fields[k] for k in keys),
            *(Field(b, timestamp(3)) for b in bounds),
            *(Field(a.name, a.type, nullable=a.type != BIGINT or a.function != "COUNT") for a in aggregates),
        )
    )


@record
class Settings:
    """Settings of a pipeline that its meaning or its graph depends on; runtime tuning included. Durations in ms, sizes in bytes."""

    parallelism: int = 1
    auto_parallelism: bool = False
    """Whether `parallelism` is what this process has cores for: others are told the number."""
    max_parallelism: int | None = None
    buffer_timeout_ms: int = 100
    object_reuse: bool = True
    chaining: bool = True
    mode: str = "streaming"
    embedded_mode: str = "streaming"
    """How the embedded engine runs it: the value of an `ExecutionMode`."""
    batch_rows: int = 131_072
    latency_interval_ms: int | None = None
    cancellation_timeout_ms: int = DEFAULT_CANCELLATION_TIMEOUT_MS
    memory_watch: bool = True
    """Whether the job ends with a clear message before the system would end its process for want of memory."""
    traces: bool = False
    """Whether checkpoints, starts and restarts are reported as traces."""
    local_aggregation: bool = True
    checkpoint: CheckpointSettings | None = None
    restart: RestartSettings | None = None
    slots: SlotSettings = SlotSettings()
    slot_sharing_groups: tuple[SlotSharingGroup, ...] = ()
    """What each slot of a group has."""
    state_ttl_ms: int = 0
    """How long updating operators (aggregates, joins, top-N, …) keep the state of a key that gets no rows, ms; 0: for ever."""
    on_error: OnError = OnError.FAIL
    """What becomes of rows that cannot be processed."""
    dead_letters: str | None = None
    """The folder of dead letters; None: there are none but those of sources with a folder of their own, and of sinks."""
    dead_letter_sink: str | None = None
    """The sink of dead letters, instead of a folder."""
    letter_limit: LetterLimit = LetterLimit()
    """How many dead letters there may be of a source that says nothing else."""
    letter_origin: LetterOrigin = LetterOrigin()
    """What dead letters say of the pipeline; set when it is known which operators have some."""
    split_distinct: bool = False
    """Whether aggregates over distinct values are computed in two levels, so that a key's values spread over subtasks."""
    split_distinct_buckets: int = 1024
    """Into how many parts by value a key's rows are split then."""
    join_reorder: bool = True
    """Whether inner joins are put in an order by the sizes of their tables, where the run ends and all are known."""
    constraints: SinkConstraints = SinkConstraints()
    """How the constraints of sinks' columns are enforced."""
    time_zone: str = UTC_ZONE
    """The zone of the session: in whose local time a TIMESTAMP_LTZ is cut into days and windows, cast and shown by functions."""
    cdc_events_duplicate: bool = False
    """Whether sources of changes may give a change twice: those are left out then, by the primary key."""

    @property
    def is_batch(self) -> bool:
        """Whether Spark runs the pipeline, over all rows of its sources at once."""
        return self.mode == "batch"


def with_constraints(sinks: Iterable[Sink], settings: Settings) -> tuple[Sink, ...]:
    """The sinks of a job with these settings."""
    if settings.constraints == SinkConstraints():
        return tuple(sinks)
    return tuple(replace(sink, constraints=settings.constraints) for sink in sinks)


@record(slots=False)
class Plan:
    """A whole pipeline: its sinks (everything else is reached from them), name, settings and original text.

    `letter_sinks` are those that dead letters go to, by name, over `flowrun.plan.row_errors.LETTERS`; only of some of them there are any.
    """

    name: str
    sinks: tuple[Sink, ...]
    settings: Settings = field(default_factory=Settings)
    text: str = ""
    letter_sinks: Mapping[str, Sink] = field(default_factory=dict)


def walk_plan(plan: Plan) -> Iterator[PlanNode]:
    """Every node once, inputs before the nodes that read them, in a stable order. A chain of steps may be any length."""
    seen: set[int] = set()
    stack: list[tuple[PlanNode, bool]] = [(sink, False) for sink in reversed(plan.sinks)]
    while stack:
        node, inputs_done = stack.pop()
        if inputs_done:
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            for child in reversed(node.inputs):
                stack.append((child, False))  # noqa: PERF401 - a generator here takes a third longer
