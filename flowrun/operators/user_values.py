"""Values between Arrow columns and users' functions: what a function takes, as its annotations say, and what it gives.

| a parameter takes | NULL is |
|---|---|
| the value of one row | None |
| an Arrow array, or chunked array | NULL |
| a NumPy array | not there: rows in which such an argument is NULL are left out, and have NULL as their result |
| a pandas Series, of Arrow's types | `pd.NA` |
| a polars Series | null |
"""

from __future__ import annotations

import builtins
import dataclasses
import importlib
import typing
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.annotated_values import Convert, as_annotated, as_storable, guarded, same
from flowrun.api.annotations import Form, Unknown, bare, is_nullable, row_fields
from flowrun.api.signatures import Signature
from flowrun.core.arrays import Bools, Integers
from flowrun.core.record import record
from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import DataError, PipelineError

UNFIT = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""What Arrow raises of values that are none of a type."""

_MOST_SHOWN = 80
_NESTED = (TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.ROW)


def python_values(column: pa.Array) -> list[Any]:
    """The values of a column as functions of single rows get them: naive datetimes for TIMESTAMP, UTC ones for TIMESTAMP_LTZ.

    Nanoseconds are cut to microseconds, the finest that Python's datetimes hold.
    """
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = pc.cast(column, pa.timestamp("us", tz=column.type.tz), safe=False)
    elif column.type == pa.time64("ns"):
        column = pc.cast(column, pa.time64("us"), safe=False)
    values: list[Any] = column.to_pylist()
    return values


def array_of(values: Sequence[Any], type: DataType) -> pa.Array:
    """The column of values that a function gave, one a row.

    Raises:
        what `UNFIT` names: one is no value of the type.
    """
    convert = guarded(as_storable(type))
    stored = values if convert is None else [convert(v) for v in values]
    _refuse_fractions(stored, type)
    return pa.array(stored, type.arrow)


def _refuse_fractions(values: Iterable[Any], type: DataType) -> None:
    """Raise ValueError for a number that is not whole where integers are expected, also in nested values: Arrow would cut it."""
    if pa.types.is_integer(type.arrow):
        if any(issubclass(kind, float | np.floating | Decimal) for kind in set(map(builtins.type, values))):
            for value in values:
                if isinstance(value, float | np.floating | Decimal) and not _is_whole(value):
                    raise ValueError(f"{value} is no whole number")
    elif type.root in _NESTED and _holds_integers(type):
        given = [v for v in values if v is not None]
        match type.root:
            case TypeRoot.ARRAY:
                _refuse_fractions(list(chain.from_iterable(given)), type.children[0])
            case TypeRoot.MAP:
                pairs = list(chain.from_iterable(given))
                for position, child in enumerate(type.children):
                    _refuse_fractions([pair[position] for pair in pairs], child)
            case _:
                for name, child in zip(type.names, type.children, strict=True):
                    _refuse_fractions([v[name] for v in given if name in v], child)


def _holds_integers(type: DataType) -> bool:
    return pa.types.is_integer(type.arrow) or any(map(_holds_integers, type.children))


def _is_whole(value: Any) -> bool:
    try:
        return bool(value % 1 == 0)
    except ArithmeticError:  # what is infinite
        return False


def misfit(values: Sequence[Any], type: DataType) -> tuple[int, str] | None:
    """The first of the values that is none of the type, and how it is shown; None: each of them is."""
    for row, value in enumerate(values):
        try:
            array_of([value], type)
        except UNFIT:
            text = repr(value)
            return row, text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 1] + "…"
    return None


# ---- what functions take


@record
class TakenColumns:
    """Arguments of a vectorised function.

    Attributes:
        columns: one an argument.
        rows: how many rows they have.
        positions: of these rows among those that there were; None: they are all of them.
    """

    columns: tuple[Any, ...]
    rows: int
    positions: Integers | None = None

    def sliced(self, start: int, stop: int) -> tuple[Any, ...]:
        """The columns of some of the rows."""
        return tuple(_slice(c, start, stop) for c in self.columns)

    def rows_before(self, rows: int) -> Integers | None:
        """How many of these rows are before each of all `rows`, and before their end; None: all are here."""
        if self.positions is None:
            return None
        here = np.zeros(rows, np.int64)
        here[self.positions] = 1
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(here)])

    def spread(self, result: pa.Array, rows: int) -> pa.Array:
        """What was given for these rows, as a column of all `rows`: NULL for those that were left out."""
        if self.positions is None:
            return result
        places = np.full(rows, -1, np.int64)
        places[self.positions] = np.arange(self.rows)
        return result.take(pa.array(places, mask=places < 0))


def _slice(column: Any, start: int, stop: int) -> Any:
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return column.slice(start, stop - start)
    if hasattr(column, "iloc"):
        return column.iloc[start:stop].reset_index(drop=True)
    return column[start:stop]


class Intake:
    """How a function takes its arguments.

    Args:
        signature: of what is called.
        count: how many arguments it is given.
        vectorised: parameters that say nothing take Arrow arrays, else values of one row.
    """

    def __init__(self, signature: Signature, count: int, *, vectorised: bool) -> None:
        given = [p.annotation for p in signature.parameters][:count]
        given += [None] * (count - len(given))
        forms = (*signature.forms, *[Form.VALUE] * count)[:count]
        self.forms = tuple(Form.ARROW if vectorised and f is Form.VALUE else f for f in forms)
        self.names = tuple(p.name for p in signature.parameters[:count])
        self.nullable = tuple(
            f is not Form.VALUE or isinstance(a, Unknown) or is_nullable(a)
            for f, a in zip(self.forms, given, strict=True)
        )
        self._conversions = [guarded(as_annotated(a)) for a in given]
        self._makers = [_record_maker(a) for a in given]

    def values(self, columns: Sequence[pa.Array]) -> list[list[Any]]:
        """The values of each argument, a list an argument, for functions of single rows."""
        takers = zip(columns, self._makers, self._conversions, strict=True)
        return [_values(column, maker, convert) for column, maker, convert in takers]

    def columns(self, columns: Sequence[pa.Array], rows: int) -> TakenColumns:
        """The columns as a vectorised function takes them."""
        kept = self._without_nulls(columns)
        positions = None
        if kept is not None:
            positions = np.flatnonzero(kept)
            columns, rows = [c.filter(pa.array(kept)) for c in columns], len(positions)
        return TakenColumns(tuple(_FORMS[f](c) for f, c in zip(self.forms, columns, strict=True)), rows, positions)

    def _without_nulls(self, columns: Sequence[pa.Array]) -> Bools | None:
        kept = None
        for form, column in zip(self.forms, columns, strict=True):
            if form is Form.NUMPY and column.null_count:
                valid = column.is_valid().to_numpy(zero_copy_only=False)
                kept = valid if kept is None else kept & valid
        return kept


@record
class _RecordMaker:
    """A class of records that is called with the values of its fields in order.

    Attributes:
        names: of the fields.
        conversions: what makes the value of each as it is annotated.
    """

    kind: Any
    names: tuple[str, ...]
    conversions: tuple[Convert | None, ...]


def _record_maker(annotation: Any) -> _RecordMaker | None:
    """The class that an annotation names; None: it is no such class."""
    kind = bare(annotation)
    fields = row_fields(kind)
    if fields is None or typing.is_typeddict(kind):
        return None
    if dataclasses.is_dataclass(kind) and not all(f.init and not f.kw_only for f in dataclasses.fields(kind)):
        return None
    return _RecordMaker(kind, tuple(fields), tuple(guarded(as_annotated(a)) for a in fields.values()))


def _values(column: pa.Array, maker: _RecordMaker | None, convert: Convert | None) -> list[Any]:
    """The values of a column. Records are made of the columns of their fields where that can be, which takes less than by dicts."""
    if maker is not None and not column.null_count and tuple(f.name for f in column.type) == maker.names:
        fields = zip(column.flatten(), maker.conversions, strict=True)
        return list(map(maker.kind, *(_values(field, None, inner) for field, inner in fields)))
    values = python_values(column)
    return values if convert is None else list(map(convert, values))


def check_forms(signature: Signature) -> str | None:
    """What is wrong with the parameters of a vectorised function; None: nothing.

    A parameter with a type of one row's values beside one that takes a column could be given neither.
    """
    single = next((p for p in signature.parameters if p.form is Form.VALUE and p.type is not None), None)
    column = next((p for p in signature.parameters if p.form is not Form.VALUE), None)
    if single is None or column is None:
        return None
    where = f" ({single.place})" if single.place else ""
    return f"parameter '{single.name}' takes the value of one row, but '{column.name}' takes {column.form.value}{where}"


def _pandas_series(column: pa.Array) -> Any:
    pandas = _library("pandas")
    return pandas.Series(column, dtype=pandas.ArrowDtype(column.type))


def _polars_series(column: pa.Array) -> Any:
    return _library("polars").Series(column)


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise PipelineError.of(
            f"a function takes a Series of {name}, which is not installed", f"pip install {name}"
        ) from error


_FORMS: Mapping[Form, Convert] = {
    Form.VALUE: same,
    Form.ARROW: same,
    Form.CHUNKED: lambda column: pa.chunked_array([column]),
    Form.NUMPY: lambda column: column.to_numpy(zero_copy_only=False),
    Form.PANDAS: _pandas_series,
    Form.POLARS: _polars_series,
}


# ---- what vectorised functions give


def column_of(given: Any, type: DataType, rows: int, what: str) -> pa.Array:
    """What a vectorised function gave as a column of a type: an array or Series of any of the libraries, a list, or one Arrow scalar.

    Args:
        given: by the function.
        type: that it should be of.
        rows: how many values there should be.
        what: names the function; begins messages.

    Raises:
        DataError: it is something else, has another length, or other values.
    """
    column = _as_arrow(given, type, rows, what)
    if len(column) != rows:
        raise DataError(f"{what} gave {len(column)} values for {rows} rows", hint="give one a row")
    try:
        return column if column.type == type.arrow else pc.cast(column, type.arrow)
    except pa.ArrowException as error:
        raise DataError(f"{what} gave {column.type}, expected {type}: {error}") from error


def _as_arrow(given: Any, type: DataType, rows: int, what: str) -> pa.Array:
    if isinstance(given, pa.Scalar):
        return pa.repeat(given, rows)
    try:
        if not isinstance(given, pa.Array | pa.ChunkedArray):
            given = _of_library(given, type)
        return given.combine_chunks() if isinstance(given, pa.ChunkedArray) else given
    except UNFIT as error:
        kind = given.__class__.__name__
        raise DataError(
            f"{what} gave a {kind}, expected an array of {type}", hint=f"give a column of {type}: {error}"
        ) from error


def _of_library(given: Any, type: DataType) -> Any:
    if isinstance(given, np.ndarray):
        if given.ndim != 1:
            raise ValueError(f"it has the shape {given.shape}, not one dimension")
        if given.dtype.kind not in "OV":
            return pa.array(given)
        return array_of(np.ma.asarray(given, object).tolist(), type)
    module = given.__class__.__module__.partition(".")[0]
    if module == "pandas" and hasattr(given, "array"):
        return _of_pandas(given, type)
    if module == "polars" and hasattr(given, "to_arrow"):
        return given.to_arrow()
    if isinstance(given, str | bytes | Mapping):
        raise TypeError("it is one value")
    return array_of(list(given), type)


def _of_pandas(given: Any, type: DataType) -> Any:
    if given.dtype == object:
        return array_of([None if v is None or v != v else v for v in given.tolist()], type)  # noqa: PLR0124 - NaN
    return pa.Array.from_pandas(given)


def row_batch(given: Any) -> pa.RecordBatch | None:
    """Rows that a function gave as a batch, a table, or a DataFrame of pandas or polars; None: it is none of these."""
    module = given.__class__.__module__.partition(".")[0]
    if module == "pandas" and hasattr(given, "columns"):
        given = pa.Table.from_pandas(given, preserve_index=False)
    elif module == "polars" and hasattr(given, "to_arrow") and hasattr(given, "columns"):
        given = given.to_arrow()
    if isinstance(given, pa.Table):
        batches = given.combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], given.schema)
    return given if isinstance(given, pa.RecordBatch) else None
