"""Which windows rows belong to, when they fire and which of their rows they keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from flowrun.core.local_time import UTC_ZONE
from flowrun.core.record import record
from flowrun.plan.description import expressions, parameter, part
from flowrun.plan.expressions import Expression


@record
class TumblingWindow:
    """Aligned, back to back; windows start at multiples of `size_ms` plus `offset_ms` since 1970 on the clocks of `time_zone`.

    In a zone other than UTC, which all windows by time may have, their bounds are local times, see `operators.timed.local_time`.
    """

    size_ms: int
    offset_ms: int = 0
    time_zone: str = UTC_ZONE


@record
class SlidingWindow:
    """Aligned, of `size_ms`, one every `slide_ms`."""

    size_ms: int
    slide_ms: int
    offset_ms: int = 0
    time_zone: str = UTC_ZONE


@record
class CumulativeWindow:
    """Aligned windows of `size_ms` that also fire every `step_ms` with what came so far; `step_ms` divides `size_ms`."""

    size_ms: int
    step_ms: int
    offset_ms: int = 0
    time_zone: str = UTC_ZONE


@record
class SessionWindow:
    """Per key, closed by `gap_ms` without rows; windows that touch merge."""

    gap_ms: int
    time_zone: str = UTC_ZONE


@record
class CountWindow:
    """Per key, over the last `size` rows, fired every `slide` rows (`slide` = `size`: tumbling)."""

    size: int
    slide: int


@record
class GlobalWindow:
    """One window per key for ever; fires by its trigger, or once at the end of bounded input."""


@record
class UserClass:
    """A class of the user's: `reference` is `module:Class`, looked up in the folders of `search_path` before Python's own path.

    Attributes:
        arguments: of the class, by name.
    """

    reference: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    search_path: tuple[str, ...] = ()


@record
class CustomWindow:
    """Per key, as a user's assigner says; they have bounds.

    Attributes:
        merges: windows of one key that touch are one.
    """

    assigner: UserClass
    merges: bool = False
    time_zone: str = UTC_ZONE


WindowSpec = (
    TumblingWindow | SlidingWindow | CumulativeWindow | SessionWindow | CountWindow | GlobalWindow | CustomWindow
)


@part
class TriggerSpec:
    """When a window fires, besides its default.

    Attributes:
        count: fire after so many rows since the last firing.
        every_ms: fire at this interval of the window's time domain while the window is open (continuous; early firing).
        late_count: after the watermark passed, fire after so many late rows (default 1).
        delta: fire when this column has moved more than `threshold` since the last firing.
        purge: forget the content after each firing.
        function: a user's trigger decides instead; all but `purge` are left out then.
    """

    count: int | None = parameter(default=None)
    every_ms: int | None = parameter(default=None)
    late_count: int = parameter(default=1)
    delta: Expression | None = expressions(default=None)
    threshold: float | None = parameter(default=None)
    purge: bool = parameter(default=False)
    function: UserClass | None = parameter(default=None)


@record
class EvictorSpec:
    """Which rows are dropped: before a firing all but the last `count`, or those more than `time_ms` older than the newest; or as a
    user's evictor says.
    """

    count: int | None = None
    time_ms: int | None = None
    function: UserClass | None = None


def window_zone(window: WindowSpec) -> str:
    """The zone whose clocks a window goes by; UTC if it goes by no clock."""
    return UTC_ZONE if isinstance(window, CountWindow | GlobalWindow) else window.time_zone


def sees_whole_rows(window: WindowSpec, trigger: TriggerSpec | None, evictor: EvictorSpec | None) -> bool:
    """Whether a class of the user's is shown the rows: all their columns are needed then."""
    own = (part is not None and part.function is not None for part in (trigger, evictor))
    return isinstance(window, CustomWindow) or any(own)
