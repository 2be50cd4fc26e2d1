"""Column lists of the document as schemas: types parsed, each problem at its place in the text."""

from __future__ import annotations

import re
from collections.abc import Mapping

from flowrun.core.schema import Field, Schema
from flowrun.core.type_parser import TypeTextError, parse_type
from flowrun.errors import did_you_mean
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.trees.nodes import YamlScalar
from flowrun.frontend.trees.spec import Named

_NOT_NULL = re.compile(r"\s+NOT\s+NULL\s*$", re.IGNORECASE)


def read_schema(columns: Mapping[str, Named], diagnostics: Diagnostics) -> Schema | None:
    """The schema that `name: type` entries declare; None if any type is wrong, which is reported."""
    fields = [_field(name, named, diagnostics) for name, named in columns.items()]
    known = [f for f in fields if f is not None]
    return Schema(tuple(known)) if len(known) == len(fields) else None


def _field(name: str, named: Named, diagnostics: Diagnostics) -> Field | None:
    scalar = named.value
    if not isinstance(scalar, YamlScalar):
        return None
    text = _NOT_NULL.sub("", scalar.text)
    try:
        return Field(name, parse_type(text), nullable=text == scalar.text)
    except TypeTextError as error:
        hint = error.hint
        if text.count("(") > text.count(")") or text.count("<") > text.count(">"):
            hint = f'inside {{ }} quote types that contain commas: {name}: "DECIMAL(10,2)"'
        reason = error.reason.removesuffix(f" in type '{text.strip()}'")  # the caret shows the type
        diagnostics.error(f"column '{name}': {reason}", scalar.locate(error.offset, error.length), hint=hint)
        return None


def find_column(schema: Schema, name: YamlScalar, where: str, diagnostics: Diagnostics) -> int | None:
    """Position of a column that the document names; None if there is none, which is reported with near matches."""
    if name.text in schema:
        return schema.index(name.text)
    diagnostics.error(f"{where} has no column '{name.text}'", name.location, hint=did_you_mean(name.text, schema.names))
    return None
