"""Changes as rows that are inserted, and back: the operators of TO_CHANGELOG and FROM_CHANGELOG."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.arrays import Kinds
from flowrun.core.elements import RecordBatch, RowKind
from flowrun.errors import DataError
from flowrun.operators.base import AbstractOperator
from flowrun.operators.data_errors import describe_row
from flowrun.operators.rows.factories import FromChangelogFactory, ToChangelogFactory

_ARROW_INT8 = pa.int8()


class ToChangelogOperator(AbstractOperator):
    """Sends changes as inserts."""

    def __init__(self, factory: ToChangelogFactory) -> None:
        texts = {kind: text for text, kind in factory.codes}
        self._texts = pa.array([texts.get(kind) for kind in RowKind], pa.string())
        self._schema = factory.schema.arrow

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Send the changes that have a text."""
        kinds = batch.row_kinds
        if kinds is None:
            kinds = pa.repeat(pa.scalar(int(RowKind.INSERT), _ARROW_INT8), batch.num_rows)
        texts = self._texts.take(kinds)
        columns = pa.RecordBatch.from_arrays([*batch.columns.columns, texts], schema=self._schema)
        sent = RecordBatch(columns, batch.timestamps)
        self.output.emit(sent.take(pc.indices_nonzero(texts.is_valid())) if texts.null_count else sent)


class FromChangelogOperator(AbstractOperator):
    """Sends inserts as the changes that they say."""

    def __init__(self, factory: FromChangelogFactory) -> None:
        self._factory = factory
        self._known = pa.array([text for text, _ in factory.codes], pa.string())
        self._kinds = np.array([kind for _, kind in factory.codes], np.int8)
        self._schema = factory.schema.arrow

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Send the rows as changes."""
        factory = self._factory
        found = pc.index_in(batch.columns.column(factory.operation), value_set=self._known)
        if found.null_count:
            if not factory.skip:
                self._fail(batch.columns, int(pc.index(found.is_null(), True).as_py()))
            batch, found = batch.take(pc.indices_nonzero(found.is_valid())), found.drop_null()
        kinds = self._kinds[found.to_numpy()]
        if not factory.upsert:
            kinds = _paired(kinds)
        columns = batch.columns.columns
        del columns[factory.operation]
        changed = None if not kinds.any() else pa.array(kinds)
        rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        self.output.emit(RecordBatch(rows, batch.timestamps, changed))

    def _fail(self, rows: pa.RecordBatch, row: int) -> None:
        given = rows.column(self._factory.operation)[row].as_py()
        column = rows.schema.names[self._factory.operation]
        what = "is NULL" if given is None else f"is '{given}', which op_mapping does not know"
        raise DataError(
            f"FROM_CHANGELOG '{self._factory.name}': the operation in '{column}' of row {row} {describe_row(rows, row)} {what}",
            row=row,
            hint=f"known are {', '.join(repr(t) for t, _ in self._factory.codes)}; error_handling => 'SKIP' leaves such rows out",
        )


def _paired(kinds: Kinds) -> Kinds:
    """The kinds with the halves of updates that do not stand side by side as deletes and inserts."""
    before, after = kinds == RowKind.UPDATE_BEFORE, kinds == RowKind.UPDATE_AFTER
    first = np.zeros(len(kinds), np.bool_)
    first[:-1] = before[:-1] & after[1:]
    second = np.zeros(len(kinds), np.bool_)
    second[1:] = first[:-1]
    made = kinds.copy()
    made[before & ~first] = RowKind.DELETE
    made[after & ~second] = RowKind.INSERT
    return made
