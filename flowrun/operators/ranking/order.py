"""Orders of rows, vectorised: sort keys of any comparable type, ascending or descending, NULLs first or last, ties by position.

A column becomes int64 *codes* that order as its values do. Codes do not depend on the other rows, so they are kept beside rows and
compared with those of later batches. They are exact for everything that fits 64 bits; those of strings (their first eight bytes) and of
wide decimals tell some values apart only: then rows are ranked by their columns.

Values compare as in SQL with NaN above all numbers and −0.0 equal to 0.0; strings and bytes by their bytes, as in Apache Flink.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.arrays import Bools, Integers
from flowrun.core.decimal_words import decimal_words_or_zero, fit_low_word
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.semantics import NullOrder, SortKey
from flowrun.state.storage.key_order import key_ranks

GREATEST_CODE = (1 << 63) - 1
"""Above the code of every value."""
_NULL_LAST = GREATEST_CODE - 1
_NULL_FIRST = -GREATEST_CODE
_CLIP = GREATEST_CODE - 2
_WORD_DIGITS = 18
_PREFIX_BYTES = 8


@record
class Codes:
    """Codes of one sort column: ascending as the rows are to be; `exact`: rows of equal codes are equal."""

    values: Integers
    exact: bool


class RowOrder:
    """The order of an operator's rows. Without keys all rows are equal, so that arrival decides.

    Codes are `exact` until a batch has values that 64 bits cannot tell apart; once they are not they never are again.
    """

    def __init__(self, schema: Schema, keys: Sequence[SortKey]) -> None:
        self.keys = tuple(keys)
        self.columns = tuple(k.column for k in keys)
        self.exact = not any(_is_text(schema.types[k.column].arrow) for k in keys)

    @property
    def width(self) -> int:
        """How many codes a row has: one a key while they are exact, and always the first."""
        return max(len(self.keys), 1)

    def codes(self, columns: Sequence[pa.Array], rows: int) -> list[Integers]:
        """`width` codes a row from its sort columns. Only the first means something when `exact` is not (any more) true."""
        if not self.keys:
            return [np.zeros(rows, np.int64)]
        made = [_codes(c, k) for c, k in zip(columns, self.keys, strict=True)]
        if not all(m.exact for m in made):
            self.exact = False
        return [m.values for m in made]

    def ranks(self, columns: Sequence[pa.Array]) -> Integers:
        """A number a row that orders these rows among each other; equal rows have equal numbers. There must be keys."""
        ranks = _ranks(columns[0], self.keys[0])
        for column, key in zip(columns[1:], self.keys[1:], strict=True):
            more = _ranks(column, key)
            _, ranks = np.unique(ranks * (int(more.max(initial=0)) + 1) + more, return_inverse=True)
        return ranks

    def values(self, columns: Sequence[pa.Array], rows: int) -> list[Integers]:
        """What to sort these rows by: exact codes, or their ranks."""
        if self.exact:
            codes = self.codes(columns, rows)
            if self.exact:
                return codes
        return [self.ranks(columns)]


def null_codes(codes: Integers) -> Bools:
    """Which codes are those of NULL."""
    found: Bools = (codes == _NULL_FIRST) | (codes == _NULL_LAST)
    return found


def shifted_codes(codes: Integers, units: int) -> Integers:
    """Codes of numbers and times moved by so many units; those of NULL, and what would leave 64 bits, end where they may."""
    units = max(-_CLIP, min(_CLIP, units))
    if units >= 0:
        moved = np.where(codes > _CLIP - units, _CLIP, codes + units)
    else:
        moved = np.where(codes < -_CLIP - units, -_CLIP, codes + units)
    result: Integers = np.where(null_codes(codes), codes, moved)
    return result


def shifted_float_codes(column: pa.Array, codes: Integers, key: SortKey, units: float) -> Integers:
    """The same of a column of floating point, whose codes are no numbers."""
    values = (pc.fill_null(column, 0) if column.null_count else column).to_numpy().astype(np.float64)
    moved = _float_codes(pa.array(values - units if key.descending else values + units))
    result: Integers = np.where(null_codes(codes), codes, -moved if key.descending else moved)
    return result


def sorted_order(parts: Sequence[Integers]) -> Integers:
    """Positions in order of the parts, of which the first counts most; rows of equal parts keep their order.

    >>> sorted_order([np.array([1, 0, 0]), np.array([5, 9, -9])]).tolist()
    [2, 1, 0]
    """
    rows = len(parts[0])
    if rows <= 1:
        return np.arange(rows)
    lows = [int(p.min()) for p in parts]
    widths = [(int(p.max()) - low).bit_length() for p, low in zip(parts, lows, strict=True)]
    position_bits = (rows - 1).bit_length()
    if sum(widths) + position_bits > 63:
        order: Integers = np.lexsort(tuple(reversed(parts)))
        return order
    packed = np.zeros(rows, np.int64)
    for part, low, width in zip(parts, lows, widths, strict=True):
        if width:
            packed <<= width
            packed |= part - low
    packed <<= position_bits
    packed |= np.arange(rows)
    packed.sort()  # twice as fast as a stable argsort, and stable since the positions are part of it
    return packed & ((1 << position_bits) - 1)


def differs_from_previous(parts: Sequence[Integers], order: Integers) -> Bools:
    """For each row in this order whether it differs from the one before it in any part; the first one does."""
    differs = np.zeros(len(order), np.bool_)
    differs[:1] = True
    for part in parts:
        ordered = part[order]
        differs[1:] |= ordered[1:] != ordered[:-1]
    return differs


def _codes(column: pa.Array, key: SortKey) -> Codes:
    kind = column.type
    if pa.types.is_null(kind):
        column, kind = pa.nulls(len(column), pa.int64()), pa.int64()
    if _is_text(kind):
        made = Codes(_prefixes(column), False)
    elif pa.types.is_decimal(kind):
        made = _decimal_codes(column)
    elif pa.types.is_floating(kind):
        made = Codes(_float_codes(column), True)
    elif pa.types.is_boolean(kind):
        made = Codes(pc.fill_null(column, False).to_numpy(zero_copy_only=False).astype(np.int64), True)
    elif pa.types.is_temporal(kind) or pa.types.is_integer(kind):
        made = _integer_codes(column)
    else:  # nested values: only their ranks order them
        made = Codes(np.zeros(len(column), np.int64), False)
    values = -made.values if key.descending else made.values
    if column.null_count:
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        values = np.where(nulls, _NULL_FIRST if key.nulls is NullOrder.FIRST else _NULL_LAST, values)
    return Codes(values, made.exact)


def _integer_codes(column: pa.Array) -> Codes:
    wide = column.type.bit_width == 64
    if pa.types.is_temporal(column.type):
        column = column.view(pa.int64() if wide else pa.int32())
    values = pc.fill_null(column, 0).to_numpy().astype(np.int64, copy=False) if column.null_count else column.to_numpy()
    return _clipped(values.astype(np.int64, copy=False), check=wide)


def _clipped(values: Integers, *, check: bool = True) -> Codes:
    """Codes away from those of NULL; the few values at the ends of 64 bits are not told apart."""
    if not check or not len(values) or (values.max() < _CLIP and values.min() > -_CLIP):
        return Codes(values, True)
    return Codes(np.clip(values, -_CLIP, _CLIP), False)


def _float_codes(column: pa.Array) -> Integers:
    values = (pc.fill_null(column, 0) if column.null_count else column).to_numpy().astype(np.float64)
    values = np.where(np.isnan(values), np.nan, values + 0.0)  # one NaN, and −0.0 is 0.0
    bits = values.view(np.int64)
    codes: Integers = np.where(bits < 0, np.int64(-GREATEST_CODE - 1) - bits, bits)
    return codes


def _decimal_codes(column: pa.Array) -> Codes:
    words = decimal_words_or_zero(column)
    low, high = words[:, 0], words[:, 1]
    if column.type.precision <= _WORD_DIGITS or (fits := fit_low_word(words)).all():
        return _clipped(low)
    return Codes(np.clip(np.where(fits, low, np.where(high < 0, -_CLIP, _CLIP)), -_CLIP, _CLIP), False)


def _prefixes(column: pa.Array) -> Integers:
    """The first eight bytes of each string as one big-endian number."""
    rows = len(column)
    if rows == 0:
        return np.zeros(0, np.int64)
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + rows + 1].astype(np.int64)
    data = column.buffers()[2]
    text = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    padded = np.append(text[: offsets[-1]], np.zeros(_PREFIX_BYTES, np.uint8)) if offsets[-1] else np.zeros(8, np.uint8)
    places = np.arange(_PREFIX_BYTES)
    prefix = padded[offsets[:-1, None] + places]
    prefix[places >= (offsets[1:] - offsets[:-1])[:, None]] = 0
    # halved: away from the codes of NULL, at the price of the last bit
    numbers = (prefix.view(">u8").ravel().astype(np.uint64) >> np.uint64(1)).astype(np.int64)
    centred: Integers = numbers - (1 << 62)
    return centred


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _ranks(column: pa.Array, key: SortKey) -> Integers:
    """Dense ranks from 0 in the direction of the key, NULLs where it wants them."""
    ranks = key_ranks([column])
    if column.null_count == 0:
        return -ranks + int(ranks.max(initial=0)) if key.descending else ranks
    nulls = column.is_null().to_numpy(zero_copy_only=False)
    most = int(ranks.max(initial=0))
    directed = most - ranks if key.descending else ranks
    placed: Integers = np.where(nulls, 0 if key.nulls is NullOrder.FIRST else most + 2, directed + 1)
    return placed
