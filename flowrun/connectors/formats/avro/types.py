"""The Avro schema that stands for the columns of a table, as Flink derives it."""

from __future__ import annotations

import json
import re
from typing import Any

from flowrun.connectors.formats.avro.schema import AvroType, Kind
from flowrun.core.schema import Schema
from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import OptionError

RECORD_NAME = "org.apache.flink.avro.generated.record"
"""The name of the record, which is Flink's, so that both register the same schema."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN = {
    TypeRoot.BOOLEAN: "boolean",
    TypeRoot.TINYINT: "int",
    TypeRoot.SMALLINT: "int",
    TypeRoot.INTEGER: "int",
    TypeRoot.BIGINT: "long",
    TypeRoot.FLOAT: "float",
    TypeRoot.DOUBLE: "double",
    TypeRoot.CHAR: "string",
    TypeRoot.VARCHAR: "string",
    TypeRoot.BINARY: "bytes",
    TypeRoot.VARBINARY: "bytes",
}


def schema_text(schema: Schema, *, legacy_timestamps: bool, name: str = RECORD_NAME) -> str:
    """The JSON text of the record that stands for a table's columns.

    >>> from flowrun.core.types import BIGINT
    >>> schema_text(Schema.of(id=BIGINT), legacy_timestamps=True, name="r")
    '{"type": "record", "name": "r", "fields": [{"name": "id", "type": ["null", "long"], "default": null}]}'
    """
    return json.dumps(table_record(schema, legacy_timestamps=legacy_timestamps, name=name))


def table_record(schema: Schema, *, legacy_timestamps: bool, name: str = RECORD_NAME) -> dict[str, Any]:
    """The record that stands for a table's columns, as JSON values."""
    fields = [
        _field(f.name, _avro_type(f.type, f"{name}_{f.name}", legacy_timestamps), nullable=f.nullable) for f in schema
    ]
    return {"type": "record", "name": name, "fields": fields}


def check_types(schema: Schema, format: str) -> None:
    """Check that Avro can hold the columns.

    Raises:
        OptionError: it cannot hold one.
    """
    for field in schema:
        _check_name(field.name, field.name, format)
        _check(field.name, field.type, format)


def _check(column: str, type: DataType, format: str) -> None:
    if type.is_interval:
        raise OptionError("format", f"{format}: column '{column}' is {type}, which Avro cannot hold")
    if type.root is TypeRoot.TIME and (type.precision or 0) > 6:
        raise OptionError("format", f"{format}: column '{column}' is {type}, but Avro's times end at microseconds")
    if type.root is TypeRoot.MAP and not type.children[0].is_character:
        raise OptionError("format", f"{format}: column '{column}' is {type}, but keys of Avro's maps are text")
    for name in type.names:
        _check_name(name, column, format)
    for child in type.children:
        _check(column, child, format)


def _check_name(name: str, column: str, format: str) -> None:
    if not _NAME.fullmatch(name):
        raise OptionError(
            "format",
            f"{format}: column '{column}': '{name}' is no name for a field in Avro",
            hint="names in Avro are made of the letters A to Z, digits and _, and begin with no digit",
        )


def _field(name: str, type: Any, *, nullable: bool) -> dict[str, Any]:
    if nullable and type != "null":
        return {"name": name, "type": ["null", type], "default": None}
    return {"name": name, "type": type}


def _avro_type(type: DataType, name: str, legacy: bool) -> Any:
    match type.root:
        case TypeRoot.NULL:
            return "null"
        case TypeRoot.DECIMAL:
            return {"type": "bytes", "logicalType": "decimal", "precision": type.precision, "scale": type.scale}
        case TypeRoot.DATE:
            return {"type": "int", "logicalType": "date"}
        case TypeRoot.TIME if (type.precision or 0) <= 3:
            return {"type": "int", "logicalType": "time-millis"}
        case TypeRoot.TIME:
            return {"type": "long", "logicalType": "time-micros"}
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            local = "local-" if type.root is TypeRoot.TIMESTAMP and not legacy else ""
            return {"type": "long", "logicalType": f"{local}timestamp-{_UNITS[type.arrow.unit]}"}
        case TypeRoot.ARRAY:
            return {"type": "array", "items": _child(type, 0, name, legacy)}
        case TypeRoot.MAP:
            return {"type": "map", "values": _child(type, 1, name, legacy)}
        case TypeRoot.ROW:
            fields = [
                _field(n, _avro_type(c, f"{name}_{n}", legacy), nullable=not type.is_required(i))
                for i, (n, c) in enumerate(zip(type.names, type.children, strict=True))
            ]
            return {"type": "record", "name": name, "fields": fields}
        case _:
            return _PLAIN[type.root]


_UNITS = {"ms": "millis", "us": "micros", "ns": "nanos"}


def _child(type: DataType, index: int, name: str, legacy: bool) -> Any:
    inner = _avro_type(type.children[index], name, legacy)
    return inner if type.is_required(index) or inner == "null" else ["null", inner]


def same_meaning(given: AvroType, table: AvroType, place: str = "") -> str | None:
    """How a schema differs from the table's in more than names of types; None: what is written with one is read with the other."""
    if given.kind is not table.kind or given.logical != table.logical:
        return f"{place or 'the schema'} is {given.text}, expected {table.text}"
    if (given.precision, given.scale, given.names) != (table.precision, table.scale, table.names):
        return f"{place or 'the schema'} is {_details(given)}, expected {_details(table)}"
    if len(given.children) != len(table.children):
        return f"{place or 'the schema'} has {len(given.children)} branches, expected {len(table.children)}"
    for i, (mine, theirs) in enumerate(zip(given.children, table.children, strict=True)):
        inner = f"{place}.{given.names[i]}".lstrip(".") if given.names else place
        difference = same_meaning(mine, theirs, inner)
        if difference is not None:
            return difference
    return None


def _details(type: AvroType) -> str:
    if type.kind is Kind.RECORD:
        return f"a record of {', '.join(type.names)}"
    return f"{type.text}({type.precision}, {type.scale})"
