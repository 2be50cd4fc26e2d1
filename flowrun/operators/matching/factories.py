"""The spec of the operator that searches rows for a pattern."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from flowrun.api.functions import ColumnsFunction
from flowrun.api.operator import BatchForm, OperatorSpec
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.semantics import SortKey
from flowrun.operators.keyed.row_store import ROW_COLUMN, row_store_schema
from flowrun.operators.matching.pattern import Pattern, Reference

ROWS = "rows"
"""Name of the state table."""
ROLE = "__role"
"""State column: what a row is remembered for."""


@record
class MatchFactory(OperatorSpec):
    """An operator that searches rows for a pattern.

    Attributes:
        input_schema: of the rows.
        output_schema: partition columns, then measures.
        keys: positions of the partition columns.
        time: position of the time attribute; None: processing time, rows are searched as they arrive.
        order: further sort keys.
        pattern: what is searched for.
        measures: over the columns of `measure_references`, evaluated where a match ends.
    """

    input_schema: Schema
    output_schema: Schema
    keys: tuple[int, ...]
    time: int | None
    order: tuple[SortKey, ...]
    pattern: Pattern
    measures: ColumnsFunction
    measure_references: tuple[Reference, ...]

    batch_form = BatchForm.BY_KEYS

    def state_schemas(self) -> Mapping[str, pa.Schema]:
        """The remembered rows."""
        return {ROWS: row_store_schema(self.input_schema, self.keys, (ROLE,))}

    def state_meanings(self) -> Mapping[str, Mapping[str, str]]:
        """What the columns of the state table hold."""
        role = "2: the row waits for its turn; 1: a match may begin with it; 0: it is kept for what looks back"
        return {ROWS: {ROW_COLUMN: "arrival number", ROLE: role}}
