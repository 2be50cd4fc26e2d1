"""Two streams on their way into one operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flowrun.api.operator import OperatorRecipe, OutputTag
from flowrun.core.schema import Schema
from flowrun.errors import PipelineError
from flowrun.graph.transformation import CoFeedbackTransformation, TwoInputTransformation

if TYPE_CHECKING:
    from flowrun.datastream.stream import DataStream


class ConnectedStreams:
    """Two streams on their way into one operator."""

    def __init__(self, left: DataStream, right: DataStream) -> None:
        self._left = left
        self._right = right

    def key_by(self, left: Sequence[str], right: Sequence[str]) -> ConnectedStreams:
        """Both streams keyed: rows of equal key meet in one subtask. The key columns must have equal types.

        A column may be named more than once: `key_by(["a", "a"], ["b", "c"])` lets rows meet where `a = b` and `a = c`.
        """
        keyed = ConnectedStreams(self._left.keyed(left), self._right.keyed(right))
        types = [[s.schema.field(n).type for n in names] for s, names in ((self._left, left), (self._right, right))]
        if types[0] != types[1]:
            shown = " and ".join(f"({', '.join(map(str, side))})" for side in types)
            raise PipelineError.of(
                f"key_by of connected streams: the keys have the types {shown}", "cast one side's key"
            )
        return keyed

    def process(
        self,
        factory: OperatorRecipe,
        schema: Schema,
        *,
        name: str = "co-process",
        side_outputs: Sequence[OutputTag] = (),
    ) -> DataStream:
        """Run an operator with two inputs."""
        keys = (self._left.state_keys, self._right.state_keys)
        transformation = TwoInputTransformation(
            name=name,
            schema=schema,
            factory=factory,
            left=self._left.transformation,
            right=self._right.transformation,
            state_keys=None if keys[0] is None or keys[1] is None else (keys[0], keys[1]),
        )
        return self._left.derived(transformation, side_outputs)


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
