"""Python values of a declared type: checked when they are stored, and never shared with the function that stored them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from flowrun.api.annotated_values import as_annotated, as_storable
from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import DataError

Convert = Callable[[Any], Any]

_BITS = {TypeRoot.TINYINT: 8, TypeRoot.SMALLINT: 16, TypeRoot.INTEGER: 32, TypeRoot.BIGINT: 64}
_NAN = math.nan


class ValueType:
    """How values of one state are kept: as plain immutable Python objects, nested ones as Arrow scalars.

    Args:
        place: begins the message of errors, e.g. `state 'count'`.
        type: declared.
        python: annotation of the values; None: they are given as Arrow gives them.

    Attributes:
        store: what is kept of a given value. Raises DataError if the value is not of the type.
        load: the value of what is kept; None: that is the value.
    """

    def __init__(self, place: str, type: DataType, python: Any = None) -> None:
        self.place = place
        self.type = type
        self.store: Convert = self._quick_store() or self._slow_store
        self.load: Convert | None = _as_python if type.is_nested else None
        self._storable = as_storable(type)
        made = as_annotated(python)
        if made is not None and self.load is not None:
            self.load = lambda kept: None if kept is None else made(kept.as_py())

    def _quick_store(self) -> Convert | None:
        root = self.type.root
        slow = self._slow_store
        if root in _BITS:
            low, high = -(1 << (_BITS[root] - 1)), (1 << (_BITS[root] - 1)) - 1
            return lambda v: v if type(v) is int and low <= v <= high else slow(v)
        if root is TypeRoot.DOUBLE:
            return lambda v: v if type(v) is float else slow(v)
        if root is TypeRoot.BOOLEAN:
            return lambda v: v if v is True or v is False else slow(v)
        if root is TypeRoot.VARBINARY and self.type.length is None:
            return lambda v: v if type(v) is bytes else slow(v)
        if root is TypeRoot.VARCHAR and self.type.length is None:
            return lambda v: v if type(v) is str and v.isascii() else slow(v)
        return None

    def _slow_store(self, value: Any) -> Any:
        kind = self.type.arrow
        if isinstance(value, pa.Scalar):
            value = value.as_py()
        elif hasattr(value, "item") and hasattr(value, "dtype"):  # a NumPy scalar
            value = value.item()
        if value is None or (self.type.is_integer and isinstance(value, float)):
            raise self.refused(value)
        try:
            if self._storable is not None:
                value = self._storable(value)
            scalar = pa.scalar(value, kind)
            return scalar if self.type.is_nested else scalar.as_py()
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise self.refused(value, error) from error

    def refused(self, value: Any, error: Exception | None = None) -> DataError:
        """The error for a value that is not of the type."""
        shown = repr(value) if len(repr(value)) <= 80 else repr(value)[:79] + "…"
        reason = f": {error}" if error is not None else ""
        return DataError(
            f"{self.place} is {self.type}, got {shown} of type {type(value).__name__}{reason}",
            hint=f"store a value that fits {self.type}, or declare the state with another type",
        )

    def array(self, stored: list[Any], kind: pa.DataType | None = None) -> pa.Array:
        """Stored values (None: NULL) as a column."""
        return pa.array(stored, kind or self.type.arrow)

    def stored(self, column: pa.Array) -> list[Any]:
        """A column as stored values."""
        return list(column) if self.type.is_nested else column.to_pylist()


def map_key_type(place: str, type: DataType) -> ValueType:
    """How the keys of a map are kept: as plain objects that equal themselves.

    Raises:
        DataError: nested types cannot be keys.
    """
    if type.is_nested:
        raise DataError(f"{place}: {type} cannot be the key type of a map", hint="use its parts, or STRING")
    found = ValueType(place, type)
    if type.is_approximate:
        store = found.store
        found.store = lambda v: _canonical(store(v))
    return found


def _canonical(value: float) -> float:
    return _NAN if math.isnan(value) else value + 0.0  # one object for all NaN: equal by identity


def _as_python(scalar: Any) -> Any:
    return scalar.as_py() if scalar is not None else None
