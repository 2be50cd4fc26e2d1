"""Several streams on their way into one operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flowrun.api.co_process_function import CoFlatMapFunction, CoMapFunction
from flowrun.api.operator import OperatorRecipe, OperatorSpec, OutputTag
from flowrun.api.process_function import RichFunction
from flowrun.core.schema import Schema
from flowrun.datastream.functions import FunctionLike, co_process_factory
from flowrun.datastream.schemas import SchemaLike, as_schema
from flowrun.errors import PipelineError
from flowrun.graph.transformation import CoFeedbackTransformation, MultiInputTransformation, TwoInputTransformation
from flowrun.operators.process.function_kinds import FunctionInputs

if TYPE_CHECKING:
    from flowrun.datastream.stream import DataStream


class ConnectedStreams:
    """Two streams on their way into one operator."""

    def __init__(self, left: DataStream, right: DataStream) -> None:
        self._left = left
        self._right = right

    def key_by(self, left: str | Sequence[str], right: str | Sequence[str]) -> ConnectedStreams:
        """Both streams keyed: rows of equal key meet in one subtask. The key columns must have equal types.

        A column may be named more than once: `key_by(["a", "a"], ["b", "c"])` lets rows meet where `a = b` and `a = c`.
        """
        left, right = ((names,) if isinstance(names, str) else tuple(names) for names in (left, right))
        keyed = ConnectedStreams(self._left.keyed(left), self._right.keyed(right))
        keyed.check_keys("key_by of connected streams")
        return keyed

    def check_keys(self, place: str) -> None:
        """Raises PipelineError if only one stream has keys, or both have keys of other types; `place` begins the message."""
        streams = (self._left, self._right)
        types = [None if s.state_keys is None else [s.schema.types[k] for k in s.state_keys] for s in streams]
        if None in types and types[0] is not types[1]:
            keyed, other = ("first", "second") if types[1] is None else ("second", "first")
            raise PipelineError.of(
                f"{place}: the {keyed} of the connected streams has keys, the {other} has none",
                "key both: first.connect(second).key_by([…], […])",
            )
        if types[0] != types[1]:
            shown = " and ".join(f"({', '.join(map(str, side or ()))})" for side in types)
            raise PipelineError.of(f"{place}: the keys have the types {shown}", "cast one side's key")

    def map(
        self,
        function: CoMapFunction | type[CoMapFunction] | str,
        schema: SchemaLike,
        *,
        name: str = "co-map",
        arguments: Mapping[str, object] | None = None,
    ) -> DataStream:
        """One row for each row of either stream: `map1` and `map2` of a `CoMapFunction`."""
        return self.process(function, schema, name=name, arguments=arguments)

    def flat_map(
        self,
        function: CoFlatMapFunction | type[CoFlatMapFunction] | str,
        schema: SchemaLike,
        *,
        name: str = "co-flat-map",
        arguments: Mapping[str, object] | None = None,
    ) -> DataStream:
        """Any number of rows for each row of either stream: `flat_map1` and `flat_map2` of a `CoFlatMapFunction`."""
        return self.process(function, schema, name=name, arguments=arguments)

    def process(
        self,
        function: OperatorRecipe | FunctionLike,
        schema: SchemaLike,
        *,
        name: str = "co-process",
        side_outputs: Sequence[OutputTag] = (),
        arguments: Mapping[str, object] | None = None,
    ) -> DataStream:
        """Run a function of two streams, or an operator with two inputs.

        Args:
            function: one of `flowrun.api.co_process_function` (each subtask gets a copy), its class or `module:Class`; or an operator
                factory.
            schema: the columns it puts out.
            name: of the operator.
            side_outputs: the tags it may send to.
            arguments: of the class, by name.

        Raises:
            PipelineError: the function does not keep to the rules, or only one of both streams has keys.
        """
        schema = as_schema(schema, name)
        keys = (self._left.state_keys, self._right.state_keys)
        if isinstance(function, str | type | RichFunction):
            self.check_keys(name)
            schemas = (self._left.schema, self._right.schema)
            function = co_process_factory(
                function, arguments or {}, FunctionInputs.TWO, schemas, schema, tuple(side_outputs), keys, name
            )
        elif not isinstance(function, OperatorSpec) and not hasattr(function, "create"):
            raise PipelineError.of(
                f"{name}: connected streams take a function of both or an operator factory, got {type(function).__name__}",
                "extend a class of flowrun.api.co_process_function",
            )
        transformation = TwoInputTransformation(
            name=name,
            schema=schema,
            factory=function,
            left=self._left.transformation,
            right=self._right.transformation,
            state_keys=None if keys[0] is None or keys[1] is None else (keys[0], keys[1]),
        )
        return self._left.derived(transformation, side_outputs)


class MultipleConnectedStreams:
    """Any number of streams on their way into one operator.

    Raises:
        PipelineError: there are fewer than two, or they belong to different environments.
    """

    def __init__(self, *streams: DataStream) -> None:
        if len(streams) < 2:
            raise PipelineError.of(
                f"an operator with several inputs was given {len(streams)} streams", "give two or more"
            )
        for other in streams[1:]:
            streams[0].check_environment(other)
        self._streams = streams

    def key_by(self, *columns: str | Sequence[str]) -> MultipleConnectedStreams:
        """All streams keyed, each by its columns: rows of equal key meet in one subtask. The key columns must have equal types."""
        if len(columns) != len(self._streams):
            raise PipelineError.of(
                f"key_by of {len(self._streams)} connected streams: got columns of {len(columns)}", "give those of each"
            )
        names = [(c,) if isinstance(c, str) else tuple(c) for c in columns]
        keyed = [stream.keyed(n) for stream, n in zip(self._streams, names, strict=True)]
        for other in keyed[1:]:
            ConnectedStreams(keyed[0], other).check_keys("key_by of connected streams")
        return MultipleConnectedStreams(*keyed)

    def transform(
        self,
        factory: OperatorRecipe,
        schema: SchemaLike,
        *,
        name: str = "multiple input",
        side_outputs: Sequence[OutputTag] = (),
    ) -> DataStream:
        """Run an operator with as many inputs as there are streams: `process_batch(batch, input_index)` gets their rows.

        Args:
            factory: makes an operator for each subtask.
            schema: the columns it puts out.
            name: of the operator.
            side_outputs: the tags it may send to.

        Raises:
            PipelineError: some streams have keys, others have none.
        """
        keys = [stream.state_keys for stream in self._streams]
        given = [k for k in keys if k is not None]
        if given and len(given) < len(keys):
            raise PipelineError.of(
                f"{name}: stream {keys.index(None) + 1} of {len(keys)} has no keys, others have",
                "key all: streams.key_by(…, …)",
            )
        transformation = MultiInputTransformation(
            name=name,
            schema=as_schema(schema, name),
            factory=factory,
            members=tuple(stream.transformation for stream in self._streams),
            state_keys=tuple(given) or None,
        )
        return self._streams[0].derived(transformation, side_outputs)


class ConnectedIterativeStreams(ConnectedStreams):
    """A stream, and the rows that are fed back, as the two inputs of one operator."""

    def __init__(self, stream: DataStream, schema: Schema, wait_ms: int) -> None:
        self._feedback = CoFeedbackTransformation(
            name="iteration", schema=schema, wait_ms=wait_ms, parallelism=stream.transformation.parallelism
        )
        super().__init__(stream, stream.derived(self._feedback))

    def close_with(self, feedback: DataStream) -> DataStream:
        """Send the rows of `feedback` back to the second input; returns `feedback`."""
        self._left.check_environment(feedback)
        self._feedback.feedback_edges.append(feedback.transformation)
        return feedback
