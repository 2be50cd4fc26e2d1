"""Results of functions of a row's place in its partition."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.arrays import Integers
from flowrun.operators.over.calls import Place, PlaceCall
from flowrun.operators.over.sequence import Sequence


def place_result(
    call: PlaceCall, sequence: Sequence, first_new: Integers, rows_before: Integers, ranks_before: Integers
) -> pa.Array:
    """The result of a call for the targets of a sequence.

    Args:
        call: what is computed.
        sequence: for functions of the number of rows (NTILE, PERCENT_RANK, CUME_DIST) whole partitions.
        first_new: by partition, the row from which on rows are counted.
        rows_before: how many rows the partition had before that one.
        ranks_before: how many different orders those had.
    """
    targets = sequence.targets
    owners = sequence.owners[targets]
    if call.place in (Place.LAG, Place.LEAD):
        return _shifted(call, sequence)
    begin = first_new[owners]
    match call.place:
        case Place.ROW_NUMBER:
            numbers = rows_before[owners] + targets - begin + 1
        case Place.RANK:
            numbers = rows_before[owners] + sequence.tie_starts()[targets] - begin + 1
        case Place.DENSE_RANK:
            numbers = ranks_before[owners] + sequence.ties[targets] - sequence.ties[begin] + 1
        case _:
            return _share(call, sequence)
    return pa.array(numbers.astype(np.int64)).cast(call.type.arrow)


def _shifted(call: PlaceCall, sequence: Sequence) -> pa.Array:
    targets, kind = sequence.targets, call.type.arrow
    assert call.argument is not None
    at = targets + (call.offset if call.place is Place.LEAD else -call.offset)
    inside = (at >= 0) & (at < len(sequence))
    inside[inside] = sequence.owners[at[inside]] == sequence.owners[targets[inside]]
    values = sequence.column(call.argument)
    found = values.take(pa.array(at, mask=~inside)).cast(kind)
    if call.default is not None:
        default = sequence.column(call.default).take(pa.array(targets)).cast(kind)
    elif call.default_value is not None:
        default = pa.scalar(call.default_value, kind)
    else:
        return found
    return pc.if_else(pa.array(inside), found, default)


def _share(call: PlaceCall, sequence: Sequence) -> pa.Array:
    targets = sequence.targets
    owners = sequence.owners[targets]
    starts = sequence.starts
    sizes = (sequence.ends - starts + 1)[owners]
    place = targets - starts[owners]
    if call.place is Place.PERCENT_RANK:
        rank = sequence.tie_starts()[targets] - starts[owners]
        return pa.array(np.where(sizes > 1, rank / np.maximum(sizes - 1, 1), 0.0))
    if call.place is Place.CUME_DIST:
        return pa.array((sequence.tie_ends()[targets] - starts[owners] + 1) / sizes)
    # the first (rows mod buckets) buckets have one row more
    small, more = np.divmod(sizes, call.offset)
    in_big = place < more * (small + 1)
    bucket = np.where(in_big, place // (small + 1), more + (place - more * (small + 1)) // np.maximum(small, 1))
    return pa.array(bucket + 1).cast(call.type.arrow)
