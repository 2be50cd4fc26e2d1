"""The recipe of aggregations over sessions; see `windows.recipes` for what all recipes share.

Within `allowed_lateness_ms` each late row emits the updated result of each fired session that it belongs to, as a plain insert.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import pyarrow as pa

from flowrun.api.operator import BatchForm
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.operators.aggregation.layout import SESSION_BOUNDS, PartialLayout
from flowrun.operators.state_meanings import Meanings
from flowrun.operators.timed.assigners import check_session_gap
from flowrun.operators.windows.meanings import partial_meanings
from flowrun.operators.windows.partials.partial_tables import partial_schemas
from flowrun.operators.windows.recipes import TimeWindowFactory


@record(slots=False)
class SessionWindowFactory(TimeWindowFactory):
    """Keyed aggregation over sessions: windows that `gap_ms` without rows close; windows that touch merge.

    Raises:
        ValueError: the gap is not positive.
    """

    gap_ms: int
    input_schema: Schema
    output_schema: Schema

    batch_form = BatchForm.BY_KEYS

    def __post_init__(self) -> None:
        check_session_gap(self.gap_ms)

    @cached_property
    def layout(self) -> PartialLayout:
        """Columns of the partial results."""
        return PartialLayout.of(self.input_schema, self.keys, self.aggregates)

    def state_schemas(self) -> Mapping[str, pa.Schema]:
        """Partial results by key and session."""
        return partial_schemas(self.layout, SESSION_BOUNDS)

    def state_meanings(self) -> Meanings:
        """What the columns of the state tables hold."""
        return partial_meanings(self.layout, self.aggregates, {})
