"""Windows of the document: kind, times, trigger and evictor, with the rules that tie them together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.semantics import OutputMode, TimeDomain
from flowrun.core.units import format_duration, parse_duration_ms
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.settings.reading import read_zone
from flowrun.frontend.trees.spec import Section
from flowrun.frontend.yaml.expressions import ExpressionReader
from flowrun.frontend.yaml.steps.python_functions import PythonReader
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.plan import windows

if TYPE_CHECKING:
    from flowrun.api.windowing import WindowAssigner


@record
class WindowParts:
    """Everything that a `window` mapping says."""

    window: windows.WindowSpec
    domain: TimeDomain
    allowed_lateness_ms: int
    late_tag: str | None
    trigger: windows.TriggerSpec | None
    evictor: windows.EvictorSpec | None
    output_mode: OutputMode | None = None

    @property
    def needs_event_time(self) -> bool:
        """Whether the input's rows must carry event time."""
        if self.domain is TimeDomain.PROCESSING or isinstance(self.window, windows.CountWindow):
            return False
        if isinstance(self.window, windows.GlobalWindow):
            return self.trigger is not None and self.trigger.every_ms is not None
        return True


class WindowReader:
    """Turns checked `window` sections into window specifications, reporting what is wrong."""

    def __init__(self, diagnostics: Diagnostics, expressions: ExpressionReader, functions: PythonReader) -> None:
        self._diagnostics = diagnostics
        self._expressions = expressions
        self._functions = functions

    def read(self, section: Section, schema: Schema | None) -> WindowParts | None:
        """The window; None if its shape is wrong, which is reported. `schema` is that of the rows it collects, None if not known."""
        window = self._window(section)
        domain = self._domain(section, window)
        if domain is TimeDomain.PROCESSING:
            for key in ("allowed_lateness", "late_output"):
                if section.has(key):
                    self._diagnostics.error(
                        f"'{key}' has no meaning in processing time: no row is late",
                        section.at(key),
                        hint=f"remove '{key}'",
                    )
        late = section.scalar("late_output")
        trigger = self._trigger(section, schema)
        evictor = self._evictor(section)
        zone = read_zone(section, self._diagnostics)
        if window is None:
            return None
        return WindowParts(
            window=window
            if isinstance(window, windows.CountWindow | windows.GlobalWindow | windows.CustomWindow)
            else replace(window, time_zone=zone),
            domain=domain,
            allowed_lateness_ms=section.integer("allowed_lateness") or 0,
            late_tag=late.text if late is not None else None,
            trigger=trigger,
            evictor=evictor,
            output_mode=self._output_mode(section, domain, trigger),
        )

    def _output_mode(
        self, section: Section, domain: TimeDomain, trigger: windows.TriggerSpec | None
    ) -> OutputMode | None:
        text = section.text("output_mode")
        if text is None:
            return None
        wrong = None
        if domain is TimeDomain.PROCESSING:
            wrong = "windows of processing time are never final", "remove 'output_mode'"
        elif trigger is not None and trigger.purge:
            wrong = "with 'purge' a firing's result is not the window's", "remove 'purge' or 'output_mode'"
        elif section.has("late_output"):
            wrong = "'late_output' and 'output_mode' cannot be in one window", "remove one of them"
        if wrong is not None:
            self._diagnostics.error(wrong[0], section.at("output_mode"), hint=wrong[1])
        return OutputMode(text)

    def _window(self, section: Section) -> windows.WindowSpec | None:
        size = section.integer("size")
        match section.variant:
            case "session":
                gap = section.integer("gap")
                return None if gap is None else windows.SessionWindow(gap)
            case "count":
                return None if size is None else windows.CountWindow(size, section.integer("slide") or size)
            case "global":
                return windows.GlobalWindow()
            case "custom":
                return self._custom(section)
        offset = self._offset(section)
        if size is None or offset is None:
            return None
        if not -size < offset < size:
            self._diagnostics.error(
                f"'offset' must be less than the window's size, {format_duration(size)}", section.value_at("offset")
            )
            return None
        match section.variant:
            case "sliding":
                return self._sliding(section, size, offset)
            case "cumulative":
                return self._cumulative(section, size, offset)
            case _:
                return windows.TumblingWindow(size, offset)

    def _domain(self, section: Section, window: windows.WindowSpec | None) -> TimeDomain:
        if isinstance(window, windows.CustomWindow):
            return TimeDomain.EVENT if _assigner(window.assigner).is_event_time() else TimeDomain.PROCESSING
        return TimeDomain(section.text("time") or "event")

    def _custom(self, section: Section) -> windows.WindowSpec | None:
        assigner = self._functions.user_class(section, _assigner)
        return None if assigner is None else windows.CustomWindow(assigner, _assigner(assigner).merging)

    def _offset(self, section: Section) -> int | None:
        scalar = section.scalar("offset")
        if scalar is None:
            return None if section.broken("offset") else 0
        text = scalar.text.strip()
        negative = text.startswith("-")
        try:
            offset = parse_duration_ms(text[1:] if negative else text)
        except ValueError as error:
            self._diagnostics.error(
                f"'offset' expects a duration, got '{scalar.text}'", scalar.location, hint=str(error)
            )
            return None
        return -offset if negative else offset

    def _sliding(self, section: Section, size: int, offset: int) -> windows.WindowSpec | None:
        slide = section.integer("slide")
        if slide is None:
            return None
        if slide > size:
            self._diagnostics.warning(
                f"'slide' ({format_duration(slide)}) is longer than 'size' ({format_duration(size)}): "
                "rows between two windows are dropped",
                section.value_at("slide"),
            )
        return windows.SlidingWindow(size, slide, offset)

    def _cumulative(self, section: Section, size: int, offset: int) -> windows.WindowSpec | None:
        step = section.integer("step")
        if step is None:
            return None
        if size % step:
            self._diagnostics.error(
                f"'size' ({format_duration(size)}) must be a multiple of 'step' ({format_duration(step)})",
                section.value_at("step"),
            )
            return None
        return windows.CumulativeWindow(size, step, offset)

    def _trigger(self, section: Section, schema: Schema | None) -> windows.TriggerSpec | None:
        trigger = section.section("trigger")
        if trigger is None:
            return None
        delta_text, threshold = trigger.scalar("delta"), trigger.number("threshold")
        for key, other in (("delta", "threshold"), ("threshold", "delta")):
            if trigger.has(key) and not trigger.has(other):
                self._diagnostics.error(f"'{key}' needs '{other}' beside it", trigger.at(key))
        delta = None if delta_text is None or schema is None else self._expressions.scalar(delta_text, schema)
        if delta is not None and delta_text is not None and not delta.type.is_numeric:
            self._diagnostics.error(f"'delta' must be a number, but it is {delta.type}", delta_text.location)
        if section.variant == "session" and trigger.has("delta"):
            self._diagnostics.error(
                "'delta' cannot be used with session windows, which merge",
                trigger.at("delta"),
                hint="use count or every",
            )
        if not trigger.given:
            self._diagnostics.error(
                "trigger is empty", trigger.location, hint="give count, every, late_count, delta, purge or function"
            )
        function = self._functions.user_class(trigger, _check_trigger)
        for key in ("count", "every", "late_count", "delta", "threshold") if trigger.has("function") else ():
            if trigger.has(key):
                self._diagnostics.error(
                    f"'{key}' has no effect beside 'function'", trigger.at(key), hint=f"remove '{key}'"
                )
        self._check_with(trigger)
        return windows.TriggerSpec(
            function=function,
            count=trigger.integer("count"),
            every_ms=trigger.integer("every"),
            late_count=trigger.integer("late_count") or 1,
            delta=delta,
            threshold=threshold,
            purge=bool(trigger.flag("purge")),
        )

    def _evictor(self, section: Section) -> windows.EvictorSpec | None:
        evictor = section.section("evictor")
        if evictor is None:
            return None
        if sum(evictor.has(k) for k in ("count", "time", "function")) != 1:
            self._diagnostics.error("evictor needs either 'count' or 'time' or 'function'", evictor.location)
        self._check_with(evictor)
        function = self._functions.user_class(evictor, _check_evictor)
        return windows.EvictorSpec(count=evictor.integer("count"), time_ms=evictor.integer("time"), function=function)

    def _check_with(self, section: Section) -> None:
        if section.has("with") and not section.has("function"):
            self._diagnostics.error("'with' has no effect without 'function'", section.at("with"), hint="remove 'with'")


# Imported in these: what runs users' windows is much code, and few pipelines have any.


def _assigner(given: windows.UserClass) -> WindowAssigner:
    from flowrun.operators.windows.general.user_assigners import CustomAssigner

    return CustomAssigner(_recipe(given)).assigner


def _check_trigger(given: windows.UserClass) -> None:
    from flowrun.operators.windows.general.user_triggers import UserTrigger

    UserTrigger(_recipe(given)).check()


def _check_evictor(given: windows.UserClass) -> None:
    from flowrun.operators.windows.general.user_evictors import CustomEvictor

    CustomEvictor(_recipe(given)).check()


def _recipe(given: windows.UserClass) -> FunctionRecipe:
    return FunctionRecipe(given.reference, dict(given.arguments), given.search_path)
