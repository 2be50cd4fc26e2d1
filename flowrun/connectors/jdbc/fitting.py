"""Columns that a database sends, as the declared types."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.connectors.formats.arrow_fit import MisfitError as ArrowMisfit
from flowrun.connectors.formats.arrow_fit import fit_column
from flowrun.connectors.formats.text_values import is_textual, parse_text
from flowrun.connectors.jdbc.relation import Dialect, MisfitError, Relation, Selection
from flowrun.core.schema import Field
from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import ConnectorError, DataError

_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31, days since 1970."""


def selection_of(dialect: Dialect, relation: Relation, fields: Sequence[Field]) -> Selection:
    """What to select for columns of declared types, in order; `fitted` makes arrays of what comes.

    Raises:
        ConnectorError: there is no such column, or it cannot be read as declared.
    """
    expressions = [_expression(dialect, relation, f) for f in fields]
    guard = dialect.guard(relation, fields)
    text = ", ".join(expressions if guard is None else [*expressions, guard])
    return Selection(text or "1", tuple(fields), guard is not None)


def _expression(dialect: Dialect, relation: Relation, field: Field) -> str:
    column = relation.column(field.name)
    try:
        return dialect.expression(column, field.type)
    except MisfitError as error:
        detail = str(error)
        raise ConnectorError(
            f"column '{field.name}' of {relation.name} is {column.shown}, which cannot be read as {field.type}",
            retryable=False,
            hint=detail or "declare a type that holds its values; STRING holds nearly all",
        ) from None


def fitted(columns: Sequence[pa.Array], selection: Selection, relation: Relation) -> list[pa.Array]:
    """Arrays of the declared types, in the order of the selection.

    Raises:
        DataError: a value is none of its column's declared type.
    """
    fields = selection.fields
    if selection.guarded:
        *columns, guard = columns
        wrong = pc.max(guard).as_py()
        if wrong:
            raise _misfit(fields[wrong - 1], relation, "its type is another one")
    return [_fit(values, field, relation) for values, field in zip(columns, fields, strict=True)]


def _misfit(field: Field, relation: Relation, why: str) -> DataError:
    return DataError(
        f"column '{field.name}' of {relation.name} holds a value that is no {field.type}: {why[:200]}",
        hint="declare a type that holds all its values",
    )


def _fit(values: pa.Array, field: Field, relation: Relation) -> pa.Array:
    plain = _without_extension(values)
    _check_years(plain, field, relation)
    try:
        return fit_array(plain, field.type)
    except (pa.ArrowInvalid, ArrowMisfit) as error:
        raise _misfit(field, relation, str(error)) from None


def _check_years(values: pa.Array, field: Field, relation: Relation) -> None:
    """Databases have dates before and after those of SQL, and `infinity`, which client libraries give as some number."""
    kind = values.type
    if not (pa.types.is_timestamp(kind) or pa.types.is_date32(kind)) or not len(values):
        return
    numbers = values.view(pa.int32() if pa.types.is_date32(kind) else pa.int64())
    a_day = 1 if pa.types.is_date32(kind) else 86_400 * _UNITS[kind.unit]
    found = pc.min_max(numbers)
    least, most = found["min"].as_py(), found["max"].as_py()
    if least is not None and (least < _FIRST_DAY * a_day or most >= (_LAST_DAY + 1) * a_day):
        raise DataError(
            f"column '{field.name}' of {relation.name} holds a date before the year 1 or after 9999, or 'infinity'",
            hint=f"declare it STRING, or read a view that leaves such rows out: {field.type} has no such values",
        )


def fit_array(values: pa.Array, declared: DataType) -> pa.Array:
    """The values as the declared type: texts of numbers, dates and times are read, integers are booleans, doubles become floats.

    Raises:
        ArrowInvalid: a value is none of the type.
    """
    if pa.types.is_string(values.type) and not declared.is_character and is_textual(declared):
        parsed = parse_text(values, declared)
        if parsed.bad:
            raise pa.ArrowInvalid(next(iter(parsed.bad.values())))
        return parsed.values
    if declared.root is TypeRoot.BOOLEAN and pa.types.is_integer(values.type):
        return pc.cast(values, pa.bool_())
    if declared.root is TypeRoot.FLOAT and pa.types.is_float64(values.type):
        return pc.cast(values, pa.float32())
    if declared.root is TypeRoot.ARRAY and declared.children[0].root is TypeRoot.DECIMAL:
        elements = fit_array(values.values, declared.children[0])
        mask = values.is_null() if values.null_count else None
        return pa.ListArray.from_arrays(values.offsets, elements, type=declared.arrow, mask=mask)
    fit = fit_column(values.type, declared)
    return values if fit is None else fit(values)


def _without_extension(values: pa.Array) -> pa.Array:
    """The storage of a type that the client library made up for one of the server's."""
    return values.storage if isinstance(values, pa.ExtensionArray) else values
