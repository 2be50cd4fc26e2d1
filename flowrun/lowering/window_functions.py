"""Lowering of window table functions: aligned windows row by row, sessions by collecting their rows."""

from __future__ import annotations

from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import TimeDomain
from flowrun.core.types import DataType, TypeRoot, array
from flowrun.errors import InternalError
from flowrun.graph.transformation import OneInputTransformation, Transformation
from flowrun.lowering.aligned_slices import aligned_slices
from flowrun.lowering.inputs import Inputs
from flowrun.lowering.keyed import with_hints
from flowrun.lowering.windows import lower_window
from flowrun.operators.factories import CalcFactory
from flowrun.operators.rows.factories import Collection, UnnestFactory, WindowFunctionFactory
from flowrun.plan.compiled import Projection
from flowrun.plan.expressions import AggregateCall, Call, ColumnRef, Expression
from flowrun.plan.nodes import Calc, PlanNode, Settings, WindowAggregate, window_aggregate_schema
from flowrun.plan.relational import WindowTableFunction
from flowrun.plan.traits import window_time
from flowrun.plan.windows import CumulativeWindow, SessionWindow, SlidingWindow, TumblingWindow

_ROW = "$row"
_ROWS = "$rows"


def lower_window_function(node: PlanNode, inputs: Inputs, settings: Settings) -> Transformation:
    """The transformation of a window table function.

    Raises:
        InternalError: its window is none that a table function has.
    """
    assert isinstance(node, WindowTableFunction)
    match node.window:
        case SessionWindow():
            return _Sessions(node, node.window, inputs.only).lower(settings)
        case TumblingWindow() | SlidingWindow() | CumulativeWindow():
            time = node.time if node.domain is TimeDomain.EVENT else None
            factory = WindowFunctionFactory(
                aligned_slices(node.window), time, node.schema, _name(node), node.window.time_zone
            )
            made = OneInputTransformation(name=_name(node), schema=node.schema, factory=factory, input=inputs.only)
            return with_hints(made, node.hints)
    raise InternalError(f"{node.window} is no window of a table function")


class _Sessions:
    """Sessions by a session window that collects whole rows into an array, which is unnested when the session closes.

    So the rows of open sessions are state of the session window, with all that it does for checkpoints, late rows and rescaling.
    Rows come out with the event time window_end − 1: their own is behind the watermark by then.
    """

    def __init__(self, node: WindowTableFunction, window: SessionWindow, source: Transformation) -> None:
        self._node = node
        self._window = window
        self._source = source
        self._schema = node.input.schema
        self._keys = len(node.keys)

    def lower(self, settings: Settings) -> Transformation:
        """The window, and what stands around it."""
        packed = self._packed()
        kept = self._calc(self._source, packed.projections, packed.schema, "rows")
        window = self._collecting(packed)
        collected = lower_window(window, kept, settings)
        fields = [Field(f"${i}", t) for i, t in enumerate(self._schema.types)]
        unnested_schema = Schema((*window.schema.fields, *fields))
        unnested = self._one_input(
            collected,
            UnnestFactory(len(window.schema) - 1, Collection.ARRAY, unnested_schema, keeps_collection=False),
            unnested_schema,
            "unnest",
        )
        columns: list[Expression] = [ColumnRef(f.type, len(window.schema) + i, f.name) for i, f in enumerate(fields)]
        start, end = (
            ColumnRef(window.schema.types[i], i, window.schema.names[i]) for i in (self._keys, self._keys + 1)
        )
        columns += [start, end, window_time(end, self._node.schema.types[-1], self._window.time_zone)]
        return self._calc(unnested, tuple(columns), self._node.schema, "columns")

    def _packed(self) -> Calc:
        """Key columns, and the whole row as one ROW."""
        references = tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(self._schema))
        names = tuple(f"f{i}" for i in range(len(references)))
        type = DataType(TypeRoot.ROW, children=self._schema.types, names=names)
        keys = tuple(references[k] for k in self._node.keys)
        fields = [Field(f"$key{i}", k.type) for i, k in enumerate(keys)]
        row = Call(type, "ROW", references)
        return Calc(Schema((*fields, Field(_ROW, type))), self._node.input.hints, self._node.input, (*keys, row))

    def _collecting(self, packed: Calc) -> WindowAggregate:
        row = packed.schema.types[self._keys]
        call = AggregateCall("ARRAY_AGG", (ColumnRef(row, self._keys, _ROW),), array(row), _ROWS)
        keys = tuple(range(self._keys))
        schema = window_aggregate_schema(packed.schema, keys, self._window, (call,))
        return WindowAggregate(schema, self._node.hints, packed, keys, self._window, (call,), self._node.domain)

    def _calc(
        self, source: Transformation, projections: tuple[Expression, ...], schema: Schema, part: str
    ) -> Transformation:
        factory = CalcFactory(None, Projection(projections, schema), f"{_name(self._node)} ({part})")
        return self._one_input(source, factory, schema, part)

    def _one_input(
        self, source: Transformation, factory: CalcFactory | UnnestFactory, schema: Schema, part: str
    ) -> Transformation:
        hints = self._node.hints
        return OneInputTransformation(
            name=f"{_name(self._node)} ({part})",
            schema=schema,
            uid=f"{hints.stable_id}:{part}" if hints.stable_id else None,
            parallelism=self._parallelism(part),
            slot_sharing_group=hints.slot_sharing_group,
            factory=factory,
            input=source,
        )

    def _parallelism(self, part: str) -> int | None:
        """That of the input before the window; after it that of the window."""
        if part == "rows":
            return self._node.input.hints.parallelism
        return self._node.hints.parallelism if self._keys else 1


def _name(node: PlanNode) -> str:
    return node.hints.name or "window"
