"""Assembles decoded records: columns with bad values become good rows and bad records."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from flowrun.api.format import BadRecord, DecodedRecords, Offsets, ParsedColumn, RecordEncoder, RefusingEncoder
from flowrun.api.sink import RowCheck
from flowrun.core.elements import RowKind
from flowrun.core.schema import Schema


def refusing(encoder: RecordEncoder | None) -> RefusingEncoder | None:
    """The encoder if, with its options, there is a value that it cannot write; else None."""
    return encoder if isinstance(encoder, RefusingEncoder) and encoder.refuses else None


def message_check(encoder: RecordEncoder, columns: Sequence[str]) -> RowCheck | None:
    """What looks whether rows can be messages; None: all can. A message may hold what a line may not: it is not the encoder's own check.

    Args:
        encoder: of the messages.
        columns: those that it is given of each row.
    """
    if refusing(encoder) is None:
        return None
    names = list(columns)

    def check(rows: pa.RecordBatch) -> None:
        encoder.encode_messages(rows.select(names))

    return check


def batch_of(arrays: Sequence[pa.Array], schema: Schema, rows: int) -> pa.RecordBatch:
    """A batch of the schema with `rows` rows, also if there are no columns. Without arrays all its values are NULL."""
    if not schema.fields:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    if not arrays:
        arrays = [pa.nulls(rows, f.type) for f in schema.arrow]
    return pa.RecordBatch.from_arrays(list(arrays), schema=schema.arrow)


def assemble(
    schema: Schema, columns: Sequence[ParsedColumn], records: Offsets, bad: Sequence[BadRecord] = ()
) -> DecodedRecords:
    """Decoded records: the rows whose values are all good, and the bad records, each with its first problem.

    Args:
        schema: the columns of the rows.
        columns: the values of each column, all of the same length.
        records: for each row the index of its record, ascending.
        bad: records that gave no row at all.
    """
    reasons: dict[int, str] = {}
    for column, parsed in zip(schema, columns, strict=True):
        for row, reason in parsed.bad.items():
            reasons.setdefault(row, f"column '{column.name}': {reason}")
    batch = batch_of([c.values for c in columns], schema, len(records))
    if not reasons:
        return DecodedRecords(batch, records, tuple(bad))
    good = np.ones(len(records), np.bool_)
    good[list(reasons)] = False
    found = [*bad, *(BadRecord(int(records[row]), reason) for row, reason in reasons.items())]
    found.sort(key=lambda b: b.index)
    return DecodedRecords(batch.filter(pa.array(good)), records[good], tuple(found))


def reject_nulls(decoded: DecodedRecords, schema: Schema, *, upserts: bool = False) -> DecodedRecords:
    """Decoded records in which rows with NULL in a NOT NULL column are bad records. Deletions of `upserts` may have such NULLs."""
    required = [(i, f.name) for i, f in enumerate(schema) if not f.nullable]
    if not any(decoded.columns.column(i).null_count for i, _ in required):
        return decoded
    found = {b.index: b for b in decoded.bad}
    adds = np.ones(len(decoded.records), np.bool_)
    if upserts and decoded.kinds is not None:
        adds = decoded.kinds.to_numpy() != RowKind.DELETE
    for i, name in required:
        missing = decoded.columns.column(i).is_null().to_numpy(zero_copy_only=False)
        for record in decoded.records[missing & adds]:
            found.setdefault(
                int(record), BadRecord(int(record), f"column '{name}' is NOT NULL, but the value is missing")
            )
    good = ~np.isin(decoded.records, np.fromiter(found, np.int64, len(found)))  # all rows of a bad record are removed
    mask = pa.array(good)
    kinds = None if decoded.kinds is None else decoded.kinds.filter(mask)
    bad = tuple(found[i] for i in sorted(found))
    return DecodedRecords(decoded.columns.filter(mask), decoded.records[good], bad, kinds)


def concat_decoded(pieces: Sequence[tuple[int, DecodedRecords]], schema: Schema) -> DecodedRecords:
    """The decoded records of several consecutive pieces, each of which comes with the index of its first record."""
    if len(pieces) == 1:
        return pieces[0][1]
    batches = [d.columns for _, d in pieces if d.columns.num_rows]
    columns = pa.concat_batches(batches) if batches else batch_of([], schema, 0)
    records = np.concatenate([d.records + first for first, d in pieces])
    bad = tuple(BadRecord(b.index + first, b.reason) for first, d in pieces for b in d.bad)
    kinds = None
    if any(d.kinds is not None for _, d in pieces):
        inserts = [pa.array(np.zeros(d.columns.num_rows, np.int8)) for _, d in pieces]
        kinds = pa.concat_arrays([k if d.kinds is None else d.kinds for (_, d), k in zip(pieces, inserts, strict=True)])
    return DecodedRecords(columns, records, bad, kinds)


def merge_decoded(some: DecodedRecords, others: DecodedRecords, places: Offsets) -> DecodedRecords:
    """The decoded records of one chunk whose records were decoded in two parts. None of `some` is bad, and both hold inserts only.

    Args:
        some: with the indices of its records in the chunk.
        others: with their indices among the others.
        places: the index in the chunk of each of the others, ascending.
    """
    records = np.concatenate([some.records, places[others.records]])
    bad = tuple(BadRecord(int(places[b.index]), b.reason) for b in others.bad)
    if not others.columns.num_rows:
        return DecodedRecords(some.columns, some.records, bad)
    order = np.argsort(records, kind="stable")
    columns = pa.concat_batches([some.columns, others.columns]).take(pa.array(order))
    return DecodedRecords(columns, records[order], bad)
