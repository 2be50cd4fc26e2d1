"""Users' triggers among the triggers of the general window operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from flowrun.api import windowing
from flowrun.api.keyed_state import declared_states
from flowrun.api.state import ListStateDescriptor, ReducingStateDescriptor, StateDescriptor, ValueStateDescriptor
from flowrun.api.window_function import Window
from flowrun.api.windowing import TriggerResult
from flowrun.core.record import record
from flowrun.core.types import TypeRoot
from flowrun.errors import DataError, FlowrunError, PipelineError
from flowrun.operators.function_loading import describe, where
from flowrun.operators.function_recipe import FunctionRecipe, class_recipe
from flowrun.operators.user_classes import Wanted, check_call, made_of
from flowrun.operators.windows.general.trigger_contract import Trigger, TriggerContext
from flowrun.state.backend.values import ValueType

_WANTED = Wanted("a trigger", "name a class that extends flowrun.api.windowing.Trigger")
_CALLS = {
    "on_element": ("row", "timestamp", "window", "context"),
    "on_event_time": ("time", "window", "context"),
    "on_processing_time": ("time", "window", "context"),
    "on_merge": ("window", "context"),
    "clear": ("window", "context"),
    "can_merge": (),
}
_PLAIN = frozenset(
    {
        TypeRoot.BOOLEAN,
        TypeRoot.TINYINT,
        TypeRoot.SMALLINT,
        TypeRoot.INTEGER,
        TypeRoot.BIGINT,
        TypeRoot.FLOAT,
        TypeRoot.DOUBLE,
        TypeRoot.VARCHAR,
    }
)
_REDUCTIONS: Mapping[str, Callable[[Any, Any], Any]] = {"sum": lambda a, b: a + b, "min": min, "max": max}


@record(slots=False)
class UserTrigger(Trigger):
    """A user's trigger as it is sent to tasks. Raises PipelineError, when it is first looked at, if it does not keep to the rules."""

    recipe: FunctionRecipe
    reads_rows = True

    def __repr__(self) -> str:
        return f"{self.recipe.reference.rpartition(':')[2].rpartition('.')[2]}()"

    @cached_property
    def can_merge(self) -> bool:  # type: ignore[override]
        """As the user's trigger says."""
        return bool(_instance(self.recipe).can_merge())

    def check(self) -> None:
        """Raise PipelineError if it cannot be made, or does not keep to the rules."""
        _instance(self.recipe)

    def loaded(self) -> Trigger:
        """One of a subtask's own."""
        return LoadedUserTrigger(self.recipe)


def as_trigger(given: Any, arguments: Mapping[str, Any] | None = None) -> Trigger:
    """A trigger of the operator as it is; one of the user's, its class or `module:Class` as a `UserTrigger`.

    Args:
        given: that.
        arguments: of the class, by name.

    Raises:
        PipelineError: it is none of these, or cannot be sent to tasks.
    """
    if isinstance(given, Trigger):
        return given
    return UserTrigger(class_recipe(given, windowing.Trigger, arguments or {}, "trigger"))


def _instance(recipe: FunctionRecipe) -> windowing.Trigger:
    """A new trigger of the user's.

    Raises:
        PipelineError: it cannot be found or made, or does not keep to the rules.
    """
    trigger = made_of(recipe.load(), recipe, windowing.Trigger, _WANTED)
    for name, parameters in _CALLS.items():
        check_call(trigger, name, parameters, recipe.reference)
    if type(trigger).on_element is windowing.Trigger.on_element:
        raise PipelineError.of(
            f"'{recipe.reference}' has no on_element", "add on_element(self, row, timestamp, window, context)"
        )
    for attribute, declaration in declared_states(trigger).items():
        descriptor = declaration.descriptor(attribute)
        kind = isinstance(descriptor, (ValueStateDescriptor, ReducingStateDescriptor, ListStateDescriptor))
        if not kind or descriptor.type.root not in _PLAIN or descriptor.ttl is not None or declaration.redistribution:
            raise PipelineError.of(
                f"'{recipe.reference}': a trigger cannot keep the state '{descriptor.name}'",
                "declare value_state, reducing_state or list_state of a number, BOOLEAN or STRING, without time to live",
            )
    return trigger


class LoadedUserTrigger(Trigger):
    """A user's trigger in a subtask: shows it rows and windows one by one, and turns its answers into decisions."""

    reads_rows = True

    def __init__(self, recipe: FunctionRecipe) -> None:
        self._trigger = trigger = _instance(recipe)
        self._place = f"trigger '{recipe.reference}'"
        self._context = _Context()
        self._handles: list[_Handle] = []
        for attribute, declaration in declared_states(trigger).items():
            handle = _handle(declaration.descriptor(attribute), self._context, self._place)
            self._handles.append(handle)
            setattr(trigger, attribute, handle)

    def on_element(self, time: int, value: Any, window: Window, context: TriggerContext) -> TriggerResult:
        """Ask the user's trigger."""
        return self._asked("on_element", context, value, time, window)

    def on_event_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:
        """Ask the user's trigger."""
        return self._asked("on_event_time", context, time, window)

    def on_processing_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:
        """Ask the user's trigger."""
        return self._asked("on_processing_time", context, time, window)

    def on_merge(self, window: Window, merged: Sequence[TriggerContext], context: TriggerContext) -> None:
        """Tell the user's trigger."""
        self._context.merged = merged
        self._called("on_merge", context, window)
        self._context.merged = ()

    def clear(self, window: Window, context: TriggerContext) -> None:
        """Tell the user's trigger, and forget what it remembers."""
        self._called("clear", context, window)
        context.state.clear()

    def _asked(self, method: str, context: TriggerContext, *arguments: Any) -> TriggerResult:
        result = self._called(method, context, *arguments)
        if not isinstance(result, TriggerResult):
            raise DataError(
                f"{self._place}: {method} gave {result!r}", hint="give one of flowrun.api.windowing.TriggerResult"
            )
        return result

    def _called(self, method: str, context: TriggerContext, *arguments: Any) -> Any:
        self._context.inner = context
        try:
            return getattr(self._trigger, method)(*arguments, self._context)
        except Exception as error:
            if isinstance(error, FlowrunError) and not isinstance(error, DataError):
                raise
            shown = ", ".join(map(repr, arguments))
            raise DataError(
                f"{self._place}: {method} raised {describe(error)}{where(error, __file__)}; it was called with {shown}"
            ) from error


class _Context:
    """See `windowing.TriggerContext`. Shows the window at hand."""

    inner: TriggerContext
    merged: Sequence[TriggerContext] = ()

    @property
    def current_watermark(self) -> int:
        return self.inner.current_watermark

    @property
    def current_processing_time(self) -> int:
        return self.inner.current_processing_time

    def register_event_time_timer(self, time: int) -> None:
        self.inner.register(False, _checked(time))

    def register_processing_time_timer(self, time: int) -> None:
        self.inner.register(True, _checked(time))

    def delete_event_time_timer(self, time: int) -> None:
        self.inner.delete(False, _checked(time))

    def delete_processing_time_timer(self, time: int) -> None:
        self.inner.delete(True, _checked(time))

    def merge_partitioned_state(self, state: Any) -> None:
        if not isinstance(state, _Handle) or isinstance(state, _Value):
            raise DataError("only reducing and list states can be merged", hint="declare reducing_state or list_state")
        for context in self.merged:
            state.take_over(context)


def _checked(time: Any) -> int:
    if isinstance(time, bool) or not hasattr(time, "__index__") or not -(2**63) <= time.__index__() < 2**63:
        raise DataError(f"a timer needs a time in whole ms since 1970 that fits 64 bits, got {time!r}")
    return int(time.__index__())


class _Handle:
    """What the states of triggers share: what is kept is an entry of the window's."""

    def __init__(self, descriptor: StateDescriptor, context: _Context, place: str) -> None:
        self._name = descriptor.name
        self._context = context
        self._type = ValueType(f"state '{descriptor.name}' of {place}", descriptor.type, descriptor.python)

    def _stored(self, value: Any) -> Any:
        stored = self._type.store(value)
        if isinstance(stored, float) and not math.isfinite(stored):
            raise DataError(f"{self._type.place} got {stored}, which is no number", hint="store finite numbers")
        return stored

    def _kept(self) -> Any:
        return self._context.inner.get(self._name)

    def _keep(self, value: Any) -> None:
        self._context.inner.put(self._name, value)

    def take_over(self, other: TriggerContext) -> None:
        """Combine with what another window has."""
        raise NotImplementedError

    def clear(self) -> None:
        """Forget it."""
        self._context.inner.remove(self._name)


class _Value(_Handle):
    """A `ValueState`."""

    def value(self) -> Any:
        """The value, None if there is none."""
        return self._kept()

    def update(self, value: Any) -> None:
        """Replace the value; None removes it."""
        if value is None:
            self.clear()
        else:
            self._keep(self._stored(value))


class _Reducing(_Handle):
    """An `AppendingState` that keeps one value."""

    def __init__(self, descriptor: ReducingStateDescriptor, context: _Context, place: str) -> None:
        super().__init__(descriptor, context, place)
        function: Any = descriptor.function
        self._reduce: Callable[[Any, Any], Any] = _REDUCTIONS[function] if isinstance(function, str) else function

    def get(self) -> Any:
        """The value, None if nothing was added."""
        return self._kept()

    def add(self, value: Any) -> None:
        """Combine with a value."""
        kept, value = self._kept(), self._stored(value)
        self._keep(value if kept is None else self._stored(self._reduce(kept, value)))

    def take_over(self, other: TriggerContext) -> None:
        """Combine with the value of another window."""
        value = other.get(self._name)
        if value is not None:
            self.add(value)


class _List(_Handle):
    """A `ListState`."""

    def get(self) -> list[Any]:
        """The elements."""
        return list(self._kept() or ())

    def add(self, value: Any) -> None:
        """Append an element."""
        self._keep([*(self._kept() or ()), self._stored(value)])

    def update(self, values: Any) -> None:
        """Replace all elements."""
        self._keep([self._stored(v) for v in values])

    def take_over(self, other: TriggerContext) -> None:
        """Append the elements of another window."""
        self._keep([*(self._kept() or ()), *(other.get(self._name) or ())])


def _handle(descriptor: StateDescriptor, context: _Context, place: str) -> _Handle:
    if isinstance(descriptor, ReducingStateDescriptor):
        return _Reducing(descriptor, context, place)
    return (_List if isinstance(descriptor, ListStateDescriptor) else _Value)(descriptor, context, place)
