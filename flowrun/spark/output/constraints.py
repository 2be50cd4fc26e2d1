"""Enforces the constraints of a sink's columns in Spark SQL text, as `flowrun.operators.sink_constraints` does on batches."""

from __future__ import annotations

from collections.abc import Callable

from flowrun.core.constraints import (
    Lengths,
    NotNull,
    SinkConstraints,
    is_fixed,
    is_limited,
    length_problem,
    null_problem,
)
from flowrun.core.record import record
from flowrun.core.schema import Field
from flowrun.core.types import DataType, TypeRoot
from flowrun.functions.spark_text import quote_text, quoted

_Test = Callable[[str, DataType, bool], str | None]


@record
class EnforcedColumn:
    """Spark SQL of a column whose values keep the constraints, and of which rows are written (None: all)."""

    text: str
    condition: str | None = None


def enforced_column(text: str, field: Field, constraints: SinkConstraints, place: str) -> EnforcedColumn:
    """A column of a sink with its constraints enforced.

    Args:
        text: Spark SQL of the column.
        field: the field of the sink.
        constraints: how constraints are enforced.
        place: the beginning of messages.
    """
    value, condition = text, None
    missing = _any(text, field.type, not field.nullable, constraints, _is_missing)
    if missing is not None:
        if constraints.not_null is NotNull.DROP:
            condition = f"NOT ({missing})"
        else:
            value = _or_error(value, missing, *null_problem(place, field.name))
    if constraints.lengths is Lengths.ERROR:
        misfits = _any(text, field.type, False, constraints, _is_misfit)
        if misfits is not None:
            value = _or_error(value, misfits, *length_problem(place, field.name, field.type))
    elif constraints.lengths is Lengths.TRIM_PAD:
        value = _fitted(value, field.type, constraints)
    return EnforcedColumn(value, condition)


def _or_error(value: str, wrong: str, message: str, hint: str) -> str:
    return f"CASE WHEN {wrong} THEN raise_error({quote_text(f'{message}; {hint}')}) ELSE {value} END"


def _is_missing(text: str, type: DataType, required: bool) -> str | None:  # noqa: ARG001
    return f"{text} IS NULL" if required else None


def _is_misfit(text: str, type: DataType, required: bool) -> str | None:  # noqa: ARG001
    if not is_limited(type):
        return None
    binary = type.root in (TypeRoot.BINARY, TypeRoot.VARBINARY)
    length = f"octet_length({text})" if binary else f"char_length({text})"
    return f"coalesce({length} {'<>' if is_fixed(type) else '>'} {type.length}, false)"


def _any(
    text: str, type: DataType, required: bool, constraints: SinkConstraints, test: _Test, depth: int = 0
) -> str | None:
    """Spark SQL that is true if the test is true for a value or for a value inside it; None: it never is."""
    tests = [test(text, type, required)]
    if constraints.looks_into(type):
        tests += [f"({text} IS NOT NULL AND ({t}))" for t in _tests_inside(text, type, constraints, test, depth)]
    found = [t for t in tests if t is not None]
    return " OR ".join(found) if found else None


def _tests_inside(text: str, type: DataType, constraints: SinkConstraints, test: _Test, depth: int) -> list[str]:
    if type.root is TypeRoot.ROW:
        parts = [f"({text}).{quoted(name)}" for name in type.names]
        tests = [
            _any(part, child, type.is_required(i), constraints, test, depth)
            for i, (part, child) in enumerate(zip(parts, type.children, strict=True))
        ]
        return [t for t in tests if t is not None]
    variable = f"x{depth}"
    found = []
    for i, (part, child) in enumerate(zip(_collections(text, type), type.children, strict=True)):
        inner = _any(variable, child, type.is_required(i), constraints, test, depth + 1)
        if inner is not None:
            found.append(f"exists({part}, {variable} -> {inner})")
    return found


def _collections(text: str, type: DataType) -> tuple[str, ...]:
    return (f"map_keys({text})", f"map_values({text})") if type.root is TypeRoot.MAP else (text,)


def _fitted(text: str, type: DataType, constraints: SinkConstraints, depth: int = 0) -> str:
    """Spark SQL of a value, and of the values inside it, cut to their lengths and, for CHAR and BINARY, padded."""
    if is_limited(type):
        if not is_fixed(type):
            return f"substring({text}, 1, {type.length})"
        return f"rpad({text}, {type.length}, {_filler(type)})"
    if not constraints.looks_into(type):
        return text
    if type.root is TypeRoot.ROW:
        parts = [f"({text}).{quoted(name)}" for name in type.names]
        fitted = [_fitted(part, child, constraints, depth) for part, child in zip(parts, type.children, strict=True)]
        if fitted == parts:
            return text
        fields = ", ".join(f"{quote_text(n)}, {f}" for n, f in zip(type.names, fitted, strict=True))
        return f"CASE WHEN {text} IS NULL THEN NULL ELSE named_struct({fields}) END"
    variable = f"x{depth}"
    fitted = [_fitted(variable, child, constraints, depth + 1) for child in type.children]
    if all(f == variable for f in fitted):
        return text
    changed = [f"transform({p}, {variable} -> {f})" for p, f in zip(_collections(text, type), fitted, strict=True)]
    return f"map_from_arrays({', '.join(changed)})" if type.root is TypeRoot.MAP else changed[0]


def _filler(type: DataType) -> str:
    return "X'00'" if type.root is TypeRoot.BINARY else "' '"
