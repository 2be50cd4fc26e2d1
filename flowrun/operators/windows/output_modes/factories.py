"""The recipe of the operator that brings results of windows into an output mode.

* Input: results of windows with bounds, one row a firing: keys, window_start, window_end, aggregates; no window forgets rows when it fires.
* `APPEND`: each window's last result, as an insert, once the watermark has passed its end by the allowed lateness. The watermark leaves
  the operator later by as much, so that none of these rows is late.
* `UPDATE`: the first result of a window is an insert, each other one the change from the result before; an equal one is left out.
  When windows merge, the results of those that became one are deleted before that of the whole comes.
* `COMPLETE`: all windows' last results as inserts, in order of their ends, before each watermark since whose predecessor one has changed;
  results are kept for ever.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from flowrun.api.operator import OperatorSpec
from flowrun.api.state import keyed_schema
from flowrun.core.local_time import UTC_ZONE
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.semantics import OutputMode

RESULTS = "results"


@record(slots=False)
class OutputModeFactory(OperatorSpec):
    """Brings results of windows into an output mode.

    Attributes:
        keys: how many key columns the results begin with; their bounds follow.
        schema: columns of the results.
        merging: windows of a key that overlap became one.
        allowed_lateness_ms: how long after its end a window may fire.
        time_zone: the zone whose clocks windows go by.
    """

    mode: OutputMode
    keys: int
    schema: Schema
    merging: bool = False
    allowed_lateness_ms: int = 0
    time_zone: str = UTC_ZONE

    def state_schemas(self) -> Mapping[str, pa.Schema]:
        """The last result of each window."""
        fields = list(self.schema.arrow)
        return {RESULTS: keyed_schema(fields[: self.keys], fields[self.keys :])}
