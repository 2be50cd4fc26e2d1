"""Changes by key that wait for their commit: the columns of the table and one that says which rows are deletes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from flowrun.api.refusals import retryable_io
from flowrun.connectors.lake.committables import Content, Handed
from flowrun.connectors.lake.storage import TableStorage
from flowrun.connectors.newest_rows import key_numbers
from flowrun.core.arrays import Bools
from flowrun.errors import ConnectorError

OPERATION = "_flowrun_delete"
"""The column that says of a change whether it is a delete."""


class ChangesGoneError(ConnectorError):
    """Changes that are to be committed are not there: somebody else has committed them just now, or they are lost."""


def last_changes(rows: pa.RecordBatch, keys: Sequence[str]) -> pa.RecordBatch:
    """The last change of each key, in the order in which they came."""
    ids = key_numbers(rows.columns, [rows.schema.get_field_index(k) for k in keys])
    last = np.zeros(int(ids.max()) + 1 if len(ids) else 0, np.int64)
    last[ids] = np.arange(len(ids))  # if a key occurs several times, the last assignment counts
    return rows if len(last) == len(ids) else rows.take(pa.array(np.sort(last)))


def read_changes(storage: TableStorage, given: Sequence[Handed], keys: Sequence[str]) -> pa.RecordBatch | None:
    """The last change of each key in the files of committables, in memory; None: they hold no changes. It blocks on I/O.

    Raises:
        ChangesGoneError: a file is not there.
        ConnectorError: a file cannot be read.
    """
    batches: list[pa.RecordBatch] = []
    for one in given:
        for file in one.files if one.content is Content.CHANGES else ():
            location = str(file["path"])
            if not storage.exists(location):
                raise ChangesGoneError(
                    f"{location}, whose changes a checkpoint says were written, is not there",
                    hint="changes are lost: somebody removed the file. Resume from an older checkpoint or savepoint",
                )
            try:
                with storage.open(location) as opened:
                    batches += pq.ParquetFile(opened).read().to_batches()
            except (OSError, pa.ArrowException) as error:
                raise ConnectorError(
                    f"{location} cannot be read: {error}", retryable=retryable_io(error, True)
                ) from error
    if not batches:
        return None
    return last_changes(pa.concat_batches(batches), keys)


def upserts_and_deletes(changes: pa.RecordBatch) -> tuple[pa.RecordBatch, Bools]:
    """(the columns of the table, which rows are deletes)."""
    at = changes.schema.get_field_index(OPERATION)
    removes: Bools = changes.column(at).to_numpy(zero_copy_only=False)
    return changes.select([i for i in range(changes.num_columns) if i != at]), removes


_PLAIN = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


def has_key(rows: pa.Table, wanted: pa.RecordBatch, keys: Sequence[str]) -> Bools:
    """Which rows have a key that occurs in `wanted`; their key columns have the same types."""
    both = []
    for key in keys:
        mine = rows.column(key).combine_chunks()
        column = mine.cast(_PLAIN.get(mine.type, mine.type))
        both.append(pa.concat_arrays([wanted.column(key).cast(column.type), column]))
    numbers = key_numbers(both, range(len(keys)))
    known = np.zeros(int(numbers.max()) + 1 if len(numbers) else 0, np.bool_)
    known[numbers[: wanted.num_rows]] = True
    found: Bools = known[numbers[wanted.num_rows :]]
    return found
