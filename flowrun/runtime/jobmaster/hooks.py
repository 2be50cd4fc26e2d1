"""Master hooks: parts of a job that live beside it, not in a subtask, and take part in its checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from flowrun.api.source import JsonValue
from flowrun.core.shapes import Shape, ShapeError
from flowrun.errors import InternalError, StateError
from flowrun.state.checkpoints import CheckpointMetadata


class MasterHook(Protocol):
    """All calls come from the job master's thread and must not block for long. A call that raises fails what it is part of: the
    checkpoint (`trigger`) or the job (the others).
    """

    @property
    def name(self) -> str:
        """Unique in the job, and the same in every run."""
        ...

    def trigger(self, checkpoint_id: int) -> JsonValue:
        """A checkpoint begins: what to remember. Called before any subtask takes its snapshot."""
        ...

    def restore(self, checkpoint_id: int, state: JsonValue) -> None:
        """The whole job goes back to this checkpoint: what `trigger` returned for it; None if it knew nothing of this hook.

        Checkpoint 0 is the beginning.
        """
        ...

    def complete(self, checkpoint_id: int) -> None:
        """The checkpoint exists; earlier ones that are neither complete nor aborted never will be."""
        ...

    def abort(self, checkpoint_id: int) -> None:
        """The checkpoint will never exist."""
        ...


@runtime_checkable
class DeclaresHookState(Protocol):
    """A hook that says what it remembers: what is not so is refused by name before any hook is restored."""

    @property
    def state_shape(self) -> Shape:
        """Of what `trigger` returns; None, if a checkpoint knows nothing of the hook, is always right."""
        ...


class MasterHooks:
    """The hooks of one job, in the order of their registration. Used by the job master's thread only."""

    def __init__(self, hooks: Sequence[MasterHook]) -> None:
        names = [hook.name for hook in hooks]
        twice = {n for n in names if names.count(n) > 1}
        if twice:
            raise InternalError(f"two master hooks have one name: {', '.join(sorted(twice))}")
        self._hooks = tuple(hooks)

    def trigger(self, checkpoint_id: int) -> dict[str, JsonValue]:
        """Name → what the hook wants to be remembered.

        Raises:
            StateError: one failed; names it.
        """
        states = {}
        for hook in self._hooks:
            try:
                states[hook.name] = hook.trigger(checkpoint_id)
            except Exception as error:
                raise StateError(f"master hook '{hook.name}' failed: {error}") from error
        return states

    def restore(self, metadata: CheckpointMetadata | None) -> None:
        """The whole job goes back to a checkpoint; None: to its beginning.

        Raises:
            StateError: a hook failed, or the checkpoint has the state of one that is not registered, or not as the hook declares it.
        """
        states: Mapping[str, JsonValue] = {} if metadata is None else metadata.hooks
        missing = sorted(set(states) - {h.name for h in self._hooks})
        if missing and metadata is not None:
            raise StateError(
                f"checkpoint {metadata.checkpoint_id} has state of the master hooks {', '.join(missing)}, "
                "which are not registered",
                hint="register them when the job is submitted",
            )
        for hook in self._hooks:
            state = states.get(hook.name)
            if state is not None and isinstance(hook, DeclaresHookState):
                try:
                    hook.state_shape(state, f"hooks.{hook.name}")
                except ShapeError as error:
                    raise StateError(f"master hook '{hook.name}' could not be restored: {error}") from None
        for hook in self._hooks:
            try:
                hook.restore(0 if metadata is None else metadata.checkpoint_id, states.get(hook.name))
            except Exception as error:
                told = not isinstance(error, KeyError | IndexError | TypeError | AttributeError)
                reason = str(error) if told else f"{type(error).__name__}: {error}"
                raise StateError(f"master hook '{hook.name}' could not be restored: {reason}") from error

    def complete(self, checkpoint_id: int) -> None:
        """The checkpoint exists."""
        for hook in self._hooks:
            hook.complete(checkpoint_id)

    def abort(self, checkpoint_id: int) -> None:
        """The checkpoint will never exist."""
        for hook in self._hooks:
            hook.abort(checkpoint_id)
