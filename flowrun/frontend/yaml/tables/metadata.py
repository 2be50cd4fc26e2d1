"""Metadata columns of the document: what a source reads beside its rows, and what a sink gives the connector beside them."""

from __future__ import annotations

from collections.abc import Mapping

from flowrun.connectors.registry import connector_names
from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.core.types import DataType
from flowrun.errors import did_you_mean
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.trees.nodes import YamlScalar
from flowrun.frontend.trees.spec import Section
from flowrun.frontend.yaml.columns import find_column
from flowrun.functions.coercion import castable
from flowrun.plan.expressions import ColumnRef, Expression
from flowrun.plan.tables import known_metadata, scanned_name

_KEY = "metadata"


@record
class ReadColumns:
    """The columns of a source before the computed ones.

    Attributes:
        scanned: what is asked of the connector: the physical columns, then one a metadata key.
        keys: of the metadata columns of `scanned`, by name.
        schema: the physical columns, then the metadata columns as the document calls them.
        projections: each column of `schema` over `scanned`.
    """

    scanned: Schema
    keys: Mapping[str, str]
    schema: Schema
    projections: tuple[Expression, ...]


def read_columns(section: Section, physical: Schema, diagnostics: Diagnostics) -> ReadColumns | None:
    """The physical columns of a source, and those of `metadata`; None if one of these is wrong, which is reported."""
    if section.broken(_KEY):
        return None
    connector = section.text("connector") or ""
    readable, writable = known_metadata(connector)
    scanned, fields = list(physical.fields), list(physical.fields)
    projections: list[Expression] = [ColumnRef(f.type, i, f.name) for i, f in enumerate(fields)]
    names: dict[str, str] = {}
    complete = True
    for name, key in _pairs(section).items():
        if name in physical:
            diagnostics.error(
                f"column '{name}' is metadata and in the schema",
                section.named(_KEY)[name].location,
                hint="rename one of them",
            )
            complete = False
        elif key.text not in readable:
            _report_unknown(connector, key, readable, writable, diagnostics)
            complete = False
        else:
            if key.text not in names:
                names[key.text] = scanned_name(key.text, {*physical.names, *names.values()})
                scanned.append(Field(names[key.text], readable[key.text]))
            position = len(physical) + list(names).index(key.text)
            fields.append(Field(name, readable[key.text]))
            projections.append(ColumnRef(readable[key.text], position, names[key.text]))
    if not complete:
        return None
    keys = {column: key for key, column in names.items()}
    return ReadColumns(Schema(tuple(scanned)), keys, Schema(tuple(fields)), tuple(projections))


@record
class WrittenColumn:
    """A column of a sink's input that the connector takes beside the row.

    Attributes:
        name: of the column.
        key: of the metadata.
        type: what the connector takes.
    """

    name: str
    key: str
    type: DataType


def written_columns(
    section: Section, given: Schema | None, schema: Schema | None, diagnostics: Diagnostics
) -> tuple[WrittenColumn, ...] | None:
    """What `metadata` of a sink says; None if something is wrong, which is reported.

    Args:
        section: of the sink.
        given: the columns of the input, if they are known.
        schema: the columns that `schema` declares, if it does.
        diagnostics: receives what is wrong.
    """
    if section.broken(_KEY):
        return None
    connector = section.text("connector") or ""
    readable, writable = known_metadata(connector)
    found: list[WrittenColumn] = []
    by_key: dict[str, str] = {}
    pairs = _pairs(section)
    for name, key in pairs.items():
        column = section.named(_KEY)[name].key
        if schema is not None and name in schema:
            hint = "remove it there; for both, select it under a second name in a step"
            diagnostics.error(f"column '{name}' is metadata and in the schema", column.location, hint=hint)
        elif key.text not in writable:
            _report_unknown(connector, key, writable, readable, diagnostics, verbs=("written", "read"))
        elif key.text in by_key:
            diagnostics.error(
                f"the metadata '{key.text}' would be written by two columns, '{by_key[key.text]}' and '{name}'",
                key.location,
                hint="remove one of them",
            )
        elif _converts(given, column, key, writable[key.text], diagnostics):
            found.append(WrittenColumn(name, key.text, writable[key.text]))
        by_key.setdefault(key.text, name)
    return tuple(found) if len(found) == len(pairs) else None


def _converts(
    given: Schema | None, column: YamlScalar, key: YamlScalar, wanted: DataType, diagnostics: Diagnostics
) -> bool:
    """Whether the input has the column, in a type that becomes what the connector takes; else that is reported."""
    if given is None:
        return True
    position = find_column(given, column, "the input", diagnostics)
    if position is None:
        return False
    type = given.types[position]
    if castable(type, wanted):
        return True
    diagnostics.error(
        f"the metadata '{key.text}' is written as {wanted}, to which '{column.text}' of type {type} does not convert",
        column.location,
        hint=f"select a column of type {wanted} in a step",
    )
    return False


def _pairs(section: Section) -> dict[str, YamlScalar]:
    """The metadata keys by column."""
    named = section.named(_KEY)
    return {name: entry.value for name, entry in named.items() if isinstance(entry.value, YamlScalar)}


def _report_unknown(
    connector: str,
    key: YamlScalar,
    known: Mapping[str, DataType],
    others: Mapping[str, DataType],
    diagnostics: Diagnostics,
    verbs: tuple[str, str] = ("read", "written"),
) -> None:
    """Report a key that the connector does not know in this role; nothing of a connector that is itself unknown."""
    if connector not in connector_names():
        return
    able, instead = verbs
    listed = f"connector '{connector}' has {', '.join(f'{k} {t}' for k, t in known.items())}"
    if key.text in others:
        message = f"the metadata '{key.text}' can be {instead}, but not {able}"
        diagnostics.error(message, key.location, hint=listed if known else "remove it")
    elif known:
        near = did_you_mean(key.text, known)
        diagnostics.error(f"there is no metadata '{key.text}' that can be {able}", key.location, hint=near or listed)
    else:
        hint = f"connector '{connector}' has no metadata that can be {able}"
        diagnostics.error(f"there is no metadata '{key.text}'", key.location, hint=hint)
