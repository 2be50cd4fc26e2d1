"""What the recipes of all window operators share: what lowering builds and a job graph carries.

Contract for lowering
---------------------
* Input: `input_schema`, partitioned by `keys` (`KeyGroupPartitioner(keys)`); without keys it must be one subtask. `keys`,
  `BoundAggregate.argument` and `.filter` are positions in it. Argument columns already have the type `AggregateKernel.argument` (cast
  in a projection before), filters are BOOLEAN.
* Output: `output_schema` = keys, for windows that time bounds window_start TIMESTAMP(3) and window_end TIMESTAMP(3), aggregates in
  order; names are the caller's, the types of keys and aggregates must be those of the input columns and of `kernel.result`. Event time
  of a result: window_end − 1; of windows without bounds the newest of its rows' `timestamps`, none if the rows have none.
* Event time comes from the rows' `timestamps`; `time_column` (TIMESTAMP or TIMESTAMP_LTZ) overrides it. Rows never have a NULL time.
* Late rows (every window of the row is beyond watermark + `allowed_lateness_ms`) are counted in `numLateRecordsDropped` and sent,
  columns and timestamps untouched, to `late_tag` if there is one; `late_tag.schema` is `input_schema`.
* `TimeDomain.PROCESSING`: a row's time is the clock when its batch arrives, no row is late, lateness and `late_tag` have no effect.
  Timers close windows; what is open when bounded input ends (MAX watermark seen) fires then, as a user of bounded input expects.
* NULL keys: `null_keys` FAIL raises `DataError`, GROUP makes NULL a key of its own, DROP leaves the row out (counted in
  `numNullKeyRecordsDropped`).
* Rows of several firings come in the order of the rows (or times) that caused them. Results do not depend on batch borders.

Which recipe, for `WindowAggregate(window, trigger, evictor)`:

| window | trigger | evictor | recipe |
|---|---|---|---|
| tumbling, sliding, cumulative | none | none | `slices.factories.SliceWindowFactory` |
| session | none | none | `sessions.factories.SessionWindowFactory` |
| count | none | none | `counts.factories.CountWindowFactory` |
| count | any | any | none: a count window has its own trigger; report it as unsupported |
| global | none, or one that `global_fast_path` accepts | none | `counts.factories.GlobalWindowFactory(rule=…)` |
| global | others (delta, or count with every) | any | `general.factories.GeneralWindowFactory(GlobalAssigner(), rule=…, evictor=…)` |
| any other by time | any | any | `general.factories.GeneralWindowFactory` over the slices or `SessionAssigner(gap_ms)` |
"""

from __future__ import annotations

from dataclasses import KW_ONLY

from flowrun.api.aggregate import BoundAggregate
from flowrun.api.operator import OperatorSpec, OutputTag
from flowrun.core.local_time import UTC_ZONE
from flowrun.core.record import record
from flowrun.core.semantics import NullKeys, TimeDomain


@record(slots=False)
class KeyedWindowFactory(OperatorSpec):
    """What the recipes of all window operators have.

    Attributes:
        keys: positions of the key columns in the input; () for one global group.
        null_keys: what happens to rows one of whose keys is NULL.
        time_zone: the zone whose clocks windows go by, see `local_time`; in any but UTC the bounds of windows are local times.
    """

    keys: tuple[int, ...]
    aggregates: tuple[BoundAggregate, ...]
    _: KW_ONLY
    null_keys: NullKeys = NullKeys.GROUP
    time_zone: str = UTC_ZONE


@record(slots=False)
class TimeWindowFactory(KeyedWindowFactory):
    """What the recipes of operators have whose windows may close as time passes.

    Attributes:
        allowed_lateness_ms: how long after its end event time a window still takes rows.
        late_tag: where rows that are too late go; None: nowhere.
        domain: which clock closes windows.
        time_column: position of the column to read event time from; None: the rows' `timestamps`.
    """

    _: KW_ONLY
    allowed_lateness_ms: int = 0
    late_tag: OutputTag | None = None
    domain: TimeDomain = TimeDomain.EVENT
    time_column: int | None = None


@record
class TriggerRule:
    """When a window fires besides its default, as a user says it.

    Attributes:
        count: after so many rows since the last firing.
        every_ms: at this interval of the window's time.
        late_count: once the watermark has passed, after so many late rows.
        delta: position of a numeric column: when it has moved more than `threshold` since the last firing.
        purge: forget the rows after each firing.

    Raises:
        ValueError: a number is not positive, or only one of delta and threshold is given.
    """

    count: int | None = None
    every_ms: int | None = None
    late_count: int = 1
    delta: int | None = None
    threshold: float | None = None
    purge: bool = False

    def __post_init__(self) -> None:
        for name in ("count", "every_ms", "late_count"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} of a trigger must be positive, not {value}")
        if (self.delta is None) != (self.threshold is None):
            raise ValueError("a trigger needs both delta and threshold, or neither")
