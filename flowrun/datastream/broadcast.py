"""A broadcast stream, and a stream that is connected with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from flowrun.api.broadcast_function import BroadcastProcessFunction
from flowrun.api.keyed_state import StateDeclaration
from flowrun.api.operator import OutputTag
from flowrun.api.state import StateDescriptor
from flowrun.datastream.functions import co_process_factory
from flowrun.datastream.schemas import SchemaLike, as_schema
from flowrun.errors import PipelineError, did_you_mean
from flowrun.graph.transformation import TwoInputTransformation
from flowrun.operators.process.function_kinds import FunctionInputs
from flowrun.operators.process.loading import broadcast_states

if TYPE_CHECKING:
    from flowrun.datastream.stream import DataStream

NamedState: TypeAlias = StateDeclaration | str
"""A broadcast state, by its declaration or its name."""


class BroadcastStream:
    """A stream whose rows reach every subtask, and the broadcast states that its rows change: `stream.connect` takes it.

    Attributes:
        stream: its rows.
        states: at least one.

    Raises:
        PipelineError: one of them is no broadcast state.
    """

    def __init__(self, stream: DataStream, states: Sequence[NamedState]) -> None:
        for state in states:
            if not isinstance(state, str) and not getattr(state, "is_broadcast", False):
                raise PipelineError.of(
                    f"broadcast takes broadcast states, got {type(state).__name__}",
                    "give broadcast_state(key type, type), or the name of one that the function declares",
                )
        self.stream = stream
        self.states = tuple(states)


class BroadcastConnectedStream:
    """A stream, with keys or without, and a broadcast stream on their way into one function."""

    def __init__(self, stream: DataStream, broadcast: BroadcastStream) -> None:
        self._stream = stream
        self._broadcast = broadcast

    def process(
        self,
        function: BroadcastProcessFunction | type[BroadcastProcessFunction] | str,
        schema: SchemaLike,
        *,
        name: str = "broadcast process",
        side_outputs: Sequence[OutputTag] = (),
        arguments: Mapping[str, object] | None = None,
    ) -> DataStream:
        """Run a function of a stream and a broadcast stream.

        Args:
            function: one of `flowrun.api.broadcast_function` (each subtask gets a copy), its class or `module:Class`.
            schema: the columns it puts out.
            name: of the operator.
            side_outputs: the tags it may send to.
            arguments: of the class, by name.

        Raises:
            PipelineError: the function does not keep to the rules, or does not declare the states that `broadcast` was given.
        """
        schema = as_schema(schema, name)
        left, right = self._stream, self._broadcast.stream
        factory = co_process_factory(
            function,
            arguments or {},
            FunctionInputs.BROADCAST,
            (left.schema, right.schema),
            schema,
            tuple(side_outputs),
            (left.state_keys, None),
            name,
        )
        _check_states(self._broadcast.states, broadcast_states(factory.function, keyed=factory.is_keyed), name)
        transformation = TwoInputTransformation(
            name=name,
            schema=schema,
            factory=factory,
            left=left.transformation,
            right=right.transformation,
            state_keys=None if left.state_keys is None else (left.state_keys, ()),
        )
        return left.derived(transformation, side_outputs)


def _check_states(given: Sequence[NamedState], declared: Mapping[str, StateDescriptor], name: str) -> None:
    named = set()
    for state in given:
        if isinstance(state, str):
            found = state if state in declared else None
        else:
            found = next((n for n, d in declared.items() if state.descriptor(n) == d), None)
        if found is None:
            shown = f"'{state}'" if isinstance(state, str) else f"a broadcast state {state.descriptor('').type}"
            raise PipelineError.of(
                f"{name}: broadcast was given {shown}, which the function does not declare",
                did_you_mean(str(state), declared) or f"it declares: {', '.join(declared) or 'no broadcast state'}",
            )
        named.add(found)
    missing = next((n for n in declared if n not in named), None)
    if missing is not None:
        raise PipelineError.of(
            f"{name}: the function declares the broadcast state '{missing}', which broadcast was not given",
            f"write stream.broadcast({', '.join(map(repr, declared))})",
        )
