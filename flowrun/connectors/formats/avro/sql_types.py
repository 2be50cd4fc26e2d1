"""The SQL types as which values of Avro types are read best."""

from __future__ import annotations

from flowrun.connectors.formats.avro.columns import MisfitError
from flowrun.connectors.formats.avro.schema import MAX_NESTING, AvroType, Kind
from flowrun.core import types
from flowrun.core.schema import Schema
from flowrun.core.types import DataType

_PLAIN = {
    Kind.NULL: types.STRING,
    Kind.BOOLEAN: types.BOOLEAN,
    Kind.INT: types.INT,
    Kind.LONG: types.BIGINT,
    Kind.FLOAT: types.FLOAT,
    Kind.DOUBLE: types.DOUBLE,
    Kind.BYTES: types.BYTES,
    Kind.STRING: types.STRING,
    Kind.FIXED: types.BYTES,
    Kind.ENUM: types.STRING,
}
_LOGICAL = {
    "date": types.DATE,
    "time-millis": types.time(3),
    "time-micros": types.time(6),
    "timestamp-millis": types.timestamp_ltz(3),
    "timestamp-micros": types.timestamp_ltz(6),
    "timestamp-nanos": types.timestamp_ltz(9),
    "local-timestamp-millis": types.timestamp(3),
    "local-timestamp-micros": types.timestamp(6),
    "local-timestamp-nanos": types.timestamp(9),
    "uuid": types.STRING,
}


def record_of(given: AvroType) -> AvroType:
    """The record that a schema describes, perhaps beside null.

    Raises:
        MisfitError: it describes none.
    """
    branches = given.children if given.kind is Kind.UNION else (given,)
    found = [b for b in branches if b.kind is Kind.RECORD]
    if len(found) != 1:
        raise MisfitError(f"the schema is a {given.text}, expected a record")
    return found[0]


def columns_of(given: AvroType) -> Schema:
    """The columns of a record.

    Raises:
        MisfitError: it contains itself.
    """
    return Schema.from_pairs((n, sql_type(t)) for n, t in zip(given.names, given.children, strict=True))


def sql_type(given: AvroType, depth: int = 0) -> DataType:
    """The SQL type for an Avro type: instants are TIMESTAMP_LTZ, enums STRING, a union is the branch that is not null.

    Raises:
        MisfitError: the type contains itself.

    >>> from flowrun.connectors.formats.avro.schema import parse_schema
    >>> str(sql_type(parse_schema('["null", {"type": "long", "logicalType": "timestamp-millis"}]')))
    'TIMESTAMP_LTZ(3)'
    """
    if depth > MAX_NESTING:
        raise MisfitError(f"the schema of {given.text} contains itself")
    if given.logical == "decimal" and given.scale <= types.MAX_DECIMAL_PRECISION:
        return types.decimal(min(given.precision, types.MAX_DECIMAL_PRECISION), given.scale)
    if given.logical in _LOGICAL:
        return _LOGICAL[given.logical]
    inner = [sql_type(child, depth + 1) for child in given.children if child.kind is not Kind.NULL]
    match given.kind:
        case Kind.ARRAY:
            return types.array(inner[0] if inner else types.STRING)
        case Kind.MAP:
            return types.map_of(types.STRING, inner[0] if inner else types.STRING)
        case Kind.RECORD:
            return types.row(
                *((n, sql_type(child, depth + 1)) for n, child in zip(given.names, given.children, strict=True))
            )
        case Kind.UNION:
            return _of_branches(inner)
        case _:
            return _PLAIN[given.kind]


def _of_branches(branches: list[DataType]) -> DataType:
    """The type of which values of several types are: of numbers the widest."""
    if len(set(branches)) == 1:
        return branches[0]
    if branches and all(b.is_numeric for b in branches):
        return types.DOUBLE if any(b.is_approximate for b in branches) else types.BIGINT
    return types.STRING
