"""Settings of one operator, as methods that return the stream they are called on."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from flowrun.api.operator import ChainingStrategy
from flowrun.core.resources import ResourceSpec, SlotSharingGroup
from flowrun.core.row_errors import OnError
from flowrun.core.semantics import NullKeys
from flowrun.errors import PipelineError
from flowrun.graph.transformation import PhysicalTransformation, Transformation

S = TypeVar("S", bound="OperatorSettings")


class OperatorSettings:
    """The settings that every operator has. They change the operator that made this stream, wherever else it is used."""

    def __init__(self, transformation: Transformation) -> None:
        self.transformation = transformation

    def _operator(self, setting: str) -> PhysicalTransformation:
        if not isinstance(self.transformation, PhysicalTransformation):
            raise PipelineError.of(
                f"{setting} cannot be set on '{self.transformation.name}': it is no operator of its own",
                "set it on the operator before or after it",
            )
        return self.transformation

    def uid(self: S, uid: str) -> S:
        """The stable id that state of a savepoint is mapped by."""
        self._operator("uid").uid = uid
        return self

    def user_hash(self: S, user_hash: str) -> S:
        """The operator id itself (32 hex digits), to take over state that was written without a uid."""
        self._operator("user_hash").user_hash = user_hash
        return self

    def named(self: S, name: str) -> S:
        """The name that explain, metrics and errors show."""
        self._operator("name").name = name
        return self

    def set_parallelism(self: S, parallelism: int) -> S:
        """The number of subtasks."""
        self._operator("parallelism").parallelism = parallelism
        return self

    def set_max_parallelism(self: S, max_parallelism: int) -> S:
        """The number of key groups: the limit for later rescaling."""
        self._operator("max_parallelism").max_parallelism = max_parallelism
        return self

    def set_buffer_timeout(self: S, timeout_ms: int) -> S:
        """The longest wait before a partial buffer of this operator's output is sent; 0: none."""
        self._operator("buffer_timeout").buffer_timeout_ms = timeout_ms
        return self

    def slot_sharing_group(self: S, group: str | SlotSharingGroup) -> S:
        """Only operators of one group share slots; operators below inherit it.

        With `SlotSharingGroup("heavy", cpu=2, memory=512 << 20)` each slot of the group has so much. It is enough that one operator
        says so; operators that say different things of one group are an error when the job is built.
        """
        operator = self._operator("slot_sharing_group")
        named = SlotSharingGroup(group) if isinstance(group, str) else group
        operator.slot_sharing_group = named.name
        operator.slot_resources = None if named.resources.is_unspecified else named.resources
        return self

    def co_location_key(self: S, key: str) -> S:
        """Subtasks i of all operators with one key run in one slot."""
        self._operator("co_location_key").co_location_key = key
        return self

    def set_resources(self: S, minimum: ResourceSpec, preferred: ResourceSpec | None = None) -> S:
        """Resources that one subtask needs, and those that it would like: a slot has these if so much is free when it is given."""
        operator = self._operator("resources")
        operator.min_resources = minimum
        operator.preferred_resources = preferred or minimum
        return self

    def on_error(self: S, mode: OnError | str) -> S:
        """What becomes of rows that the operator cannot process: `fail`, `skip` or `dead-letter`.

        Raises:
            PipelineError: there is no such mode, or it is an operator that cannot leave rows out.
        """
        from flowrun.datastream.row_errors import leaves_rows_out, on_error_of

        operator, wanted = self._operator("on_error"), on_error_of(mode)
        if wanted is not OnError.FAIL and not leaves_rows_out(operator):
            raise PipelineError.of(
                f"'{operator.name}' cannot leave out rows that it fails on",
                "set on_error on sources, maps, filters, splits, process functions on rows, windows and functions with null_keys(FAIL), "
                "and sinks",
            )
        operator.on_error = wanted
        return self

    def null_keys(self: S, policy: NullKeys | str) -> S:
        """What happens to rows that reach a process function of keyed streams, one or two, with a key that is NULL.

        `group`, the default: NULL is a key like any other; `drop`; `fail`: they cannot be processed (`on_error`).

        Raises:
            PipelineError: there is no such policy, or it is no process function with keys.
        """
        from flowrun.operators.process.factories import CoProcessFunctionFactory, ProcessFunctionFactory

        operator = self._operator("null_keys")
        factory = operator.factory
        keys = factory.keys if isinstance(factory, ProcessFunctionFactory | CoProcessFunctionFactory) else None
        if not isinstance(factory, ProcessFunctionFactory | CoProcessFunctionFactory) or keys in (None, (None, None)):
            raise PipelineError.of(
                f"'{operator.name}' is no process function with keys",
                "set null_keys on process functions of keyed streams; of windows before the aggregation: window(…).null_keys(…)",
            )
        known = ", ".join(p.value for p in NullKeys)
        if policy not in (*NullKeys, *(p.value for p in NullKeys)):
            raise PipelineError.of(f"null_keys is {known}, not '{policy}'")
        operator.factory = replace(factory, null_keys=NullKeys(policy))
        return self

    def start_new_chain(self: S) -> S:
        """Begin a task here; operators below may still join it."""
        self._operator("chaining").chaining = ChainingStrategy.HEAD
        return self

    def disable_chaining(self: S) -> S:
        """Give the operator a task of its own."""
        self._operator("chaining").chaining = ChainingStrategy.NEVER
        return self


class DataStreamSink(OperatorSettings):
    """The end of a stream; only its settings can still be changed."""
