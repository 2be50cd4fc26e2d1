"""The SQL types that Python annotations stand for, and whether a parameter takes the value of one row or a whole column.

| annotation | SQL type |
|---|---|
| `bool`, `int`, `float`, `str`, `bytes` | BOOLEAN, BIGINT, DOUBLE, STRING, BYTES |
| `Decimal`, `date`, `time`, `datetime`, `timedelta` | DECIMAL(38, 18), DATE, TIME(6), TIMESTAMP(6), INTERVAL DAY TO SECOND |
| `list[T]`, `dict[K, V]` | ARRAY<T>, MAP<K, V> |
| a dataclass, `NamedTuple` or `TypedDict` | ROW of its fields; those that are not `… | None` are NOT NULL |
| `T | None` | T, which may be NULL |
| `Annotated[…, "DECIMAL(10, 2)"]` | what the text says, whatever is annotated |
| `pa.Int64Array`, `npt.NDArray[np.float64]`, … | a column of the type that they name |
| `pa.Array`, `pa.ChunkedArray`, `np.ndarray`, `pd.Series`, `pl.Series` | a column of a type that is said elsewhere |
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from flowrun.core import types as sql
from flowrun.core.record import record
from flowrun.core.type_parser import parse_type
from flowrun.core.types import DataType

KNOWN = (
    "int, float, str, bool, bytes, Decimal, date, time, datetime, timedelta, list[…], dict[…, …], "
    "a dataclass, a NamedTuple or a TypedDict"
)
"""What messages list as annotations that have a type."""

_VALUES: dict[Any, DataType] = {
    str: sql.STRING,
    int: sql.BIGINT,
    float: sql.DOUBLE,
    bool: sql.BOOLEAN,
    bytes: sql.BYTES,
    Decimal: sql.decimal(38, 18),
    date: sql.DATE,
    datetime: sql.timestamp(6),
    time: sql.time(6),
    timedelta: sql.INTERVAL_DAY_TIME,
}
_ARROW_CLASSES: dict[type, DataType] = {
    pa.BooleanArray: sql.BOOLEAN,
    pa.Int8Array: sql.TINYINT,
    pa.Int16Array: sql.SMALLINT,
    pa.Int32Array: sql.INT,
    pa.Int64Array: sql.BIGINT,
    pa.FloatArray: sql.FLOAT,
    pa.DoubleArray: sql.DOUBLE,
    pa.StringArray: sql.STRING,
    pa.BinaryArray: sql.BYTES,
    pa.Date32Array: sql.DATE,
}
_UNTYPED = (Any, object, inspect.Parameter.empty, None)


class Form(Enum):
    """What a parameter takes; the value says so in messages."""

    VALUE = "the value of one row"
    ARROW = "an Arrow array"
    CHUNKED = "an Arrow chunked array"
    NUMPY = "a NumPy array"
    PANDAS = "a pandas Series"
    POLARS = "a polars Series"


class AnnotationError(ValueError):
    """An annotation has no SQL type. The message says which, `hint` what to write."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@record
class Unknown:
    """An annotation that names what is not there when it is looked at, as what only type checkers import is."""

    text: str
    reason: str


def hints_of(target: Any) -> Mapping[str, Any]:
    """The annotations of a function or class, evaluated one by one: what cannot be evaluated is an `Unknown`."""
    try:
        return typing.get_type_hints(target, include_extras=True)
    except Exception:  # a name that only type checkers know, or anything that evaluating text may raise
        inner = inspect.unwrap(target) if callable(target) else target
        module = sys.modules.get(getattr(inner, "__module__", "") or "")
        names = getattr(inner, "__globals__", None) or (vars(module) if module is not None else {})
        raw = getattr(inner, "__annotations__", {})
        return {name: _evaluated(name, given, names) for name, given in raw.items()}


def _evaluated(name: str, given: Any, names: Mapping[str, Any]) -> Any:
    try:
        return typing.get_type_hints(SimpleNamespace(__annotations__={name: given}), dict(names), include_extras=True)[
            name
        ]
    except Exception as error:
        return Unknown(given if isinstance(given, str) else repr(given), f"{type(error).__name__}: {error}")


def form_of(annotation: Any) -> Form:
    """What a parameter with this annotation takes.

    >>> form_of(typing.Annotated[np.ndarray, "BIGINT"]), form_of(pa.Int64Array), form_of(list[int])
    (<Form.NUMPY: 'a NumPy array'>, <Form.ARROW: 'an Arrow array'>, <Form.VALUE: 'the value of one row'>)
    """
    inner = bare(annotation)
    if isinstance(inner, Unknown):
        return _form_of_text(inner.text)
    kind = typing.get_origin(inner) or inner
    if not isinstance(kind, type):
        return Form.VALUE
    if issubclass(kind, pa.ChunkedArray):
        return Form.CHUNKED
    if issubclass(kind, pa.Array):
        return Form.ARROW
    if issubclass(kind, np.ndarray):
        return Form.NUMPY
    for module, form in (("pandas", Form.PANDAS), ("polars", Form.POLARS)):
        series = getattr(sys.modules.get(module), "Series", None)  # another thread may be in the middle of importing it
        if series is not None and issubclass(kind, series):
            return form
    return Form.VALUE


def type_of_annotation(annotation: Any) -> DataType | None:
    """The SQL type of a Python annotation; None if it says nothing of a type.

    Raises:
        AnnotationError: it says something that has no SQL type.

    >>> str(type_of_annotation(list[str])), str(type_of_annotation(int | None)), type_of_annotation(None)
    ('ARRAY<STRING>', 'BIGINT', None)
    >>> str(type_of_annotation(typing.Annotated[Decimal, "DECIMAL(10, 2)"]))
    'DECIMAL(10, 2)'
    """
    return _type(annotation, ())


def _type(annotation: Any, around: tuple[Any, ...]) -> DataType | None:
    if isinstance(annotation, Unknown):
        raise AnnotationError(
            f"'{annotation.text}', which cannot be evaluated: {annotation.reason}",
            "import what it names at the top of the module, not for type checkers alone",
        )
    said = _said_type(annotation)
    if said is not None:
        return said
    inner = bare(annotation)
    if _is_untyped(inner):
        return None
    if form_of(inner) is not Form.VALUE:
        return _column_type(inner)
    found = _value_type(inner, around)
    if found is None:
        raise AnnotationError(
            f"{shown(annotation)}, which has no SQL type",
            f'annotate it with {KNOWN}, or say the type: Annotated[{shown(inner)}, "STRING"]',
        )
    return found


def _is_untyped(kind: Any) -> bool:
    return any(kind is u for u in _UNTYPED) or isinstance(kind, typing.TypeVar)


def _said_type(annotation: Any) -> DataType | None:
    """The type that `Annotated` names, also within `… | None`."""
    for layer in _layers(annotation):
        for said in getattr(layer, "__metadata__", ()):
            if isinstance(said, DataType):
                return said
            if isinstance(said, pa.DataType):
                return sql.from_arrow(said)
            if isinstance(said, str):
                try:
                    return parse_type(said)
                except ValueError as error:
                    raise AnnotationError(
                        f'{shown(annotation)}, and "{said}" is no SQL type: {error}',
                        'write a type such as "DECIMAL(10, 2)"',
                    ) from error
    return None


def _layers(annotation: Any) -> list[Any]:
    """An annotation, and what is left of it when `Annotated`, `… | None`, `NewType` and the like are taken off, one by one."""
    found = [annotation]
    while (inner := _inside(found[-1])) is not found[-1]:
        found.append(inner)
    return found


def _inside(annotation: Any) -> Any:
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return inner[0]
    if origin in (typing.Required, typing.NotRequired):
        return inner[0]
    if origin in (typing.Union, types.UnionType):
        rest = [a for a in inner if a is not type(None)]
        return rest[0] if len(rest) == 1 else annotation
    if isinstance(annotation, typing.NewType):
        return annotation.__supertype__
    return annotation


def bare(annotation: Any) -> Any:
    """An annotation without `Annotated`, `… | None` and the like around it.

    >>> bare(typing.Annotated[int | None, "INT"])
    <class 'int'>
    """
    return _layers(annotation)[-1]


def is_nullable(annotation: Any) -> bool:
    """Whether an annotation allows None, or says nothing.

    >>> is_nullable(int | None), is_nullable(int)
    (True, False)
    """
    for layer in _layers(annotation):
        if typing.get_origin(layer) in (typing.Union, types.UnionType) and type(None) in typing.get_args(layer):
            return True
    return _is_untyped(bare(annotation))


def _value_type(kind: Any, around: tuple[Any, ...]) -> DataType | None:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (list, Sequence, tuple):
        if origin is tuple and (len(inner) != 2 or inner[1] is not ...):
            return None
        element = _type(inner[0], around)
        return None if element is None else sql.array(element)
    if origin in (dict, Mapping):
        key, value = _type(inner[0], around), _type(inner[1], around)
        return None if key is None or value is None else sql.map_of(key, value)
    if isinstance(kind, type) and (fields := row_fields(kind)) is not None:
        return _row_type(kind, fields, around)
    try:
        return _VALUES.get(kind)
    except TypeError:  # an annotation that cannot be hashed
        return None


def _row_type(kind: type, fields: Mapping[str, Any], around: tuple[Any, ...]) -> DataType:
    if kind in around:
        raise AnnotationError(f"{kind.__qualname__}, which contains itself", "give it fields of other types")
    children, required = [], []
    for name, annotation in fields.items():
        try:
            child = _type(annotation, (*around, kind))
        except AnnotationError as error:
            raise AnnotationError(f"{kind.__qualname__}, whose field '{name}' is {error}", error.hint) from None
        if child is None:
            raise AnnotationError(
                f"{kind.__qualname__}, whose field '{name}' is {shown(annotation)}, which has no SQL type",
                f"annotate it with {KNOWN}",
            )
        children.append((name, child))
        required.append(not is_nullable(annotation))
    return sql.with_required(sql.row(*children), tuple(required))


def row_fields(kind: Any) -> Mapping[str, Any] | None:
    """The fields of a dataclass, `NamedTuple` or `TypedDict` with their annotations, in order; None: it is something else."""
    if not isinstance(kind, type):
        return None
    if dataclasses.is_dataclass(kind):
        hints = hints_of(kind)
        return {f.name: hints[f.name] for f in dataclasses.fields(kind)}
    if typing.is_typeddict(kind):
        optional: frozenset[str] = getattr(kind, "__optional_keys__", frozenset())
        return {n: a | None if n in optional else a for n, a in hints_of(kind).items()}
    if issubclass(kind, tuple) and hasattr(kind, "_fields") and getattr(kind, "__annotations__", None):
        hints = hints_of(kind)
        return {n: hints[n] for n in kind._fields}
    return None


def rows_annotation(annotation: Any) -> Any:
    """What a function yields, by the annotation of its result: `T` of `Iterator[T]`, `Iterable[T]`, `Generator[T, …]`, `list[T]`.

    The annotation itself if it is none of these.
    """
    kind = bare(annotation)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(origin, type) and inner and issubclass(origin, Iterable) and not issubclass(origin, tuple | dict):
        return inner[0]
    return kind


def is_iterator(annotation: Any) -> bool:
    """Whether a function gives rows one after the other, as the annotation of its result says.

    >>> from collections.abc import Iterator
    >>> is_iterator(Iterator[int]), is_iterator(list[int])
    (True, False)
    """
    return typing.get_origin(bare(annotation)) in (Iterable, Iterator, Generator)


def columns_of_annotation(annotation: Any) -> DataType | None:
    """The columns of rows that a function yields, as a ROW: the fields of a record, f0, f1, … of a tuple, f0 of a lone value.

    Args:
        annotation: of its result. None: it says nothing of them.

    Raises:
        AnnotationError: a column has no SQL type.

    >>> from collections.abc import Iterator
    >>> str(columns_of_annotation(Iterator[tuple[str, int]])), str(columns_of_annotation(list[str]))
    ('ROW<f0 STRING, f1 BIGINT>', 'ROW<f0 STRING>')
    """
    if isinstance(annotation, Unknown):
        type_of_annotation(annotation)
    one = rows_annotation(annotation)
    if one is bare(annotation) and (_is_untyped(one) or one is type(None)):
        return None
    kept = bare(one)
    if _is_untyped(kept):
        return None
    if typing.get_origin(kept) is tuple and ... not in typing.get_args(kept):
        parts = typing.get_args(kept)
        found = [type_of_annotation(p) for p in parts]
        if None in found:
            return None
        columns = [(f"f{i}", t) for i, t in enumerate(found) if t is not None]
        return sql.with_required(sql.row(*columns), tuple(not is_nullable(p) for p in parts))
    kind = type_of_annotation(one)
    if kind is None or row_fields(kept) is not None:
        return kind
    return sql.with_required(sql.row(("f0", kind)), (not is_nullable(one),))


def _column_type(kind: Any) -> DataType | None:
    """The type of the values of an array, if the annotation says it."""
    if isinstance(kind, type) and kind in _ARROW_CLASSES:
        return _ARROW_CLASSES[kind]
    for inner in typing.get_args(kind):
        if typing.get_origin(inner) is np.dtype and isinstance(scalar := (typing.get_args(inner) or (None,))[0], type):
            try:
                return sql.from_arrow(pa.from_numpy_dtype(np.dtype(scalar)))
            except (
                ValueError,
                TypeError,
                pa.ArrowNotImplementedError,
            ):  # `np.generic`, `np.datetime64` without a unit, …
                return sql.STRING if issubclass(scalar, np.str_) else None
    return None


def _form_of_text(text: str) -> Form:
    """Of an annotation that cannot be evaluated: what its name says, so that no column is taken for values."""
    name = text.partition("[")[0].rpartition(".")[2]
    if name in ("ndarray", "NDArray"):
        return Form.NUMPY
    if name == "Series":
        return Form.POLARS if text.startswith(("pl.", "polars.")) else Form.PANDAS
    return Form.CHUNKED if name == "ChunkedArray" else Form.ARROW if name == "Array" else Form.VALUE


def shown(annotation: Any) -> str:
    """An annotation as it is written.

    >>> shown(complex), shown(dict[str, int])
    ('complex', 'dict[str, int]')
    """
    if isinstance(annotation, Unknown):
        return annotation.text
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return annotation.__qualname__
    return repr(annotation).replace("typing.", "")
