"""Key groups: how keys are hashed, grouped and dealt to subtasks. Frozen: a change breaks every checkpoint.

group = hash(key) mod max_parallelism; subtask = group · parallelism // max_parallelism (the formula of Apache Flink's
`KeyGroupRangeAssignment`). The hash is flowrun's own, vectorised over Arrow columns, and independent of process, machine and how
rows are cut into batches: integers, dates and times by a splitmix64 finaliser; floats by their canonical bits; strings and bytes by
folding their little-endian 8-byte words and their length; decimals as their text; rows and arrays by combining their parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.state import KeyGroupRange
from flowrun.core.arrays import Int32s, Integers, UInt64s
from flowrun.core.splitmix import splitmix64
from flowrun.errors import DataError

_NULL_HASH = np.uint64(0x9E3779B97F4A7C15)
_COMBINE = np.uint64(0x9DDFEA08EB382D69)
_WORD = 8
_BYTE_MASKS = np.array([(1 << (8 * n)) - 1 for n in range(_WORD + 1)], np.uint64)
MIN_MAX_PARALLELISM = 128
MAX_MAX_PARALLELISM = 32768


def default_max_parallelism(parallelism: int) -> int:
    """The number of key groups unless the user sets it: 1.5 × parallelism, rounded up to a power of two, 128 to 32768.

    >>> default_max_parallelism(1), default_max_parallelism(100)
    (128, 256)
    """
    wanted = parallelism + parallelism // 2
    power = 1 << max(wanted - 1, 0).bit_length()
    return min(max(power, MIN_MAX_PARALLELISM), MAX_MAX_PARALLELISM)


def key_group_range(subtask: int, parallelism: int, max_parallelism: int) -> KeyGroupRange:
    """The key groups that a subtask owns.

    >>> key_group_range(0, 3, 128), key_group_range(2, 3, 128)
    (KeyGroupRange(start=0, stop=43), KeyGroupRange(start=86, stop=128))
    """
    start = (subtask * max_parallelism + parallelism - 1) // parallelism
    stop = ((subtask + 1) * max_parallelism + parallelism - 1) // parallelism
    return KeyGroupRange(start, stop)


def key_groups(columns: Sequence[pa.Array], max_parallelism: int) -> Int32s:
    """The key group of each row, int32, from its key columns (all of one length)."""
    hashes = hash_columns(columns)
    if max_parallelism & (max_parallelism - 1) == 0:  # the usual case; a division costs four times a mask
        hashes &= np.uint64(max_parallelism - 1)
    else:
        hashes %= np.uint64(max_parallelism)
    return hashes.astype(np.int32)


def key_groups_or_zero(columns: Sequence[pa.Array], rows: int, max_parallelism: int) -> Int32s:
    """The key group of each of `rows` rows, int32; without key columns all rows are of one key, in group 0.

    >>> key_groups_or_zero([], 3, 128).tolist()
    [0, 0, 0]
    """
    return key_groups(columns, max_parallelism) if columns else np.zeros(rows, np.int32)


def subtask_of(groups: Int32s, parallelism: int, max_parallelism: int) -> Int32s:
    """The subtask that owns each key group."""
    return (groups.astype(np.int64) * parallelism // max_parallelism).astype(np.int32)


def hash_columns(columns: Sequence[pa.Array]) -> UInt64s:
    """One 64-bit hash a row over all columns.

    Raises:
        DataError: a column's type cannot be a key.
    """
    combined: UInt64s | None = None
    for column in columns:
        hashed = _hash_array(column)
        combined = hashed if combined is None else splitmix64(combined * _COMBINE + hashed)
    if combined is None:
        raise DataError("a key needs at least one column")
    return combined


def hashable_columns(schema: pa.Schema) -> tuple[int, ...]:
    """Positions of the columns that `hash_columns` takes: all but maps, what holds maps, and NULLs without a type.

    >>> hashable_columns(pa.schema({"id": pa.int64(), "tags": pa.map_(pa.string(), pa.string())}))
    (0,)
    """
    return tuple(i for i, field in enumerate(schema) if _is_hashable(field.type))


def _is_hashable(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return all(_is_hashable(kind.field(i).type) for i in range(kind.num_fields))
    if pa.types.is_list(kind):
        return _is_hashable(kind.value_type)
    return not (pa.types.is_map(kind) or pa.types.is_null(kind))


def _hash_array(array: pa.Array) -> UInt64s:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _gather(_hash_array(array.dictionary), array.indices)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        hashed = _hash_strings(array)
    elif pa.types.is_large_string(kind):
        hashed = _hash_strings(array.cast(pa.string()))
    elif pa.types.is_boolean(kind):
        hashed = splitmix64(pc.fill_null(array, False).cast(pa.int64()).to_numpy().view(np.uint64))
    elif pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        hashed = splitmix64(_as_int64(array).view(np.uint64))
    elif pa.types.is_floating(kind):
        hashed = _hash_floats(array)
    elif pa.types.is_decimal(kind):
        hashed = _hash_strings(array.cast(pa.string()))
    elif pa.types.is_struct(kind):
        hashed = hash_columns(array.flatten())
    elif pa.types.is_list(kind):
        hashed = _hash_lists(array)
    else:
        raise DataError(f"a column of type {kind} cannot be a key", hint="key by its parts, or cast it to STRING")
    if array.null_count:
        hashed = np.where(array.is_null().to_numpy(zero_copy_only=False), _NULL_HASH, hashed)
    return hashed


def _gather(hashes: UInt64s, indices: pa.Array) -> UInt64s:
    if len(hashes) == 0:
        return np.full(len(indices), _NULL_HASH)
    gathered: UInt64s = hashes[pc.fill_null(indices, 0).to_numpy()]
    if indices.null_count:
        gathered = np.where(indices.is_null().to_numpy(zero_copy_only=False), _NULL_HASH, gathered)
    return gathered


def _as_int64(array: pa.Array) -> Integers:
    if pa.types.is_temporal(array.type):
        array = array.view(pa.int64() if array.type.bit_width == 64 else pa.int32())
    if array.null_count:
        array = pc.fill_null(array, 0)
    values: Integers = array.to_numpy().astype(np.int64, copy=False)
    return values


def _hash_floats(array: pa.Array) -> UInt64s:
    values = pc.fill_null(array, 0.0).to_numpy().astype(np.float64)
    values = np.where(values == 0.0, 0.0, values)  # −0.0 and 0.0 are one key
    values = np.where(np.isnan(values), np.nan, values)
    return splitmix64(values.view(np.uint64))


def _hash_lists(array: pa.Array) -> UInt64s:
    lengths = pc.fill_null(array.value_lengths(), 0).to_numpy().astype(np.int64)
    items = _hash_array(array.flatten()) if lengths.sum() else np.zeros(0, np.uint64)
    starts = np.cumsum(lengths) - lengths
    return _hash_runs(lengths, lambda rows, step: items[starts[rows] + step], 1)


def _hash_strings(array: pa.Array) -> UInt64s:
    if len(array) == 0:
        return np.zeros(0, np.uint64)
    buffers = array.buffers()
    offsets = np.frombuffer(buffers[1], np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    lengths = np.diff(offsets)
    if array.null_count:  # a NULL slot may cover bytes
        lengths = np.where(array.is_null().to_numpy(zero_copy_only=False), 0, lengths)
    first, last = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(last - first + _WORD, np.uint8)
    if last > first:
        padded[: last - first] = np.frombuffer(buffers[2], np.uint8)[first:last]
    starts = offsets[:-1] - first
    words = np.ndarray(len(padded) - _WORD + 1, "<u8", padded, strides=(1,))  # the 8 bytes that start at each byte

    def word(rows: slice | Integers, step: int) -> UInt64s:
        left = np.minimum(lengths[rows] - _WORD * step, _WORD)
        read: UInt64s = words[starts[rows] + _WORD * step] & _BYTE_MASKS[left]
        return read

    return _hash_runs(lengths, word, _WORD)


def _hash_runs(lengths: Integers, part: Callable[[slice | Integers, int], UInt64s], width: int) -> UInt64s:
    """Hash of each run of parts: folds part 0, 1, … of all runs that are long enough, then the runs' lengths."""
    state = lengths.astype(np.uint64) * _NULL_HASH
    longest = int(lengths.max(initial=0))
    for step in range(-(-longest // width)):
        alive = np.flatnonzero(lengths > width * step)
        if len(alive) == len(lengths):
            state = splitmix64((state ^ part(slice(None), step)) * _COMBINE)
        else:
            state[alive] = splitmix64((state[alive] ^ part(alive, step)) * _COMBINE)
    return splitmix64(state)
