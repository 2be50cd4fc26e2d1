"""How fields of messages become columns and columns fields: Flink's mapping of types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import OptionError

Get = Callable[[Any], Any]
"""Takes the value of a column from a message, as Arrow takes values of its type."""
Put = Callable[[Any], Any]
"""Makes of a value of a column what a field of a message takes."""

_INTEGERS = (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INTEGER, TypeRoot.BIGINT)
_TEXTS = (TypeRoot.CHAR, TypeRoot.VARCHAR)
_FITTING: dict[str, tuple[TypeRoot, ...]] = {
    "INT32": (TypeRoot.INTEGER, TypeRoot.BIGINT),
    "UINT32": (TypeRoot.INTEGER, TypeRoot.BIGINT),
    "INT64": (TypeRoot.BIGINT,),
    "UINT64": (TypeRoot.BIGINT,),
    "FLOAT": (TypeRoot.FLOAT, TypeRoot.DOUBLE),
    "DOUBLE": (TypeRoot.DOUBLE,),
    "BOOL": (TypeRoot.BOOLEAN,),
    "STRING": _TEXTS,
    "BYTES": (TypeRoot.BINARY, TypeRoot.VARBINARY),
    "ENUM": (*_TEXTS, *_INTEGERS),
}
"""The kind of a field's values in Python → the columns that take them."""
_KINDS = ("", "INT32", "INT64", "UINT32", "UINT64", "DOUBLE", "FLOAT", "BOOL", "ENUM", "STRING", "MESSAGE", "BYTES")
"""`FieldDescriptor.cpp_type` → kind; BYTES have the cpp_type of STRING."""
_BYTES_TYPE = 12
_REPEATED_LABEL = 3


def kind_of(field: Any) -> str:
    """The kind of a field's values: a key of the table above, or MESSAGE."""
    if field.type == _BYTES_TYPE:
        return "BYTES"
    return _KINDS[field.cpp_type]


def is_map(field: Any) -> bool:
    """Whether a field is a map, which is a repeated field of messages with a key and a value."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def is_repeated(field: Any) -> bool:
    """Whether a field is a list or map."""
    found = getattr(field, "is_repeated", None)  # older versions of the library have the label alone
    return bool(field.label == _REPEATED_LABEL if found is None else found)


def check_field(field: Any, type: DataType, place: str) -> None:
    """Check that a field fits a column.

    Raises:
        OptionError: it does not.
    """
    if field is None:
        raise OptionError("format", f"protobuf: '{place}' is no field of the message")
    if is_map(field):
        _expect(type, TypeRoot.MAP, "map", place)
        key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
        _check_single(key, type.children[0], f"{place}, key")
        _check_single(value, type.children[1], f"{place}, value")
    elif is_repeated(field):
        _expect(type, TypeRoot.ARRAY, "repeated", place)
        _check_single(field, type.children[0], f"{place}, element")
    else:
        _check_single(field, type, place)


def _check_single(field: Any, type: DataType, place: str) -> None:
    kind = kind_of(field)
    if kind == "MESSAGE":
        _expect(type, TypeRoot.ROW, f"message {field.message_type.full_name}", place)
        for name, child in zip(type.names, type.children, strict=True):
            check_field(field.message_type.fields_by_name.get(name), child, f"{place}.{name}")
    elif type.root not in _FITTING[kind]:
        raise OptionError("format", f"protobuf: column '{place}' is {type}, but the field is {kind.lower()}")


def _expect(type: DataType, root: TypeRoot, given: str, place: str) -> None:
    if type.root is not root:
        raise OptionError("format", f"protobuf: column '{place}' is {type}, but the field is a {given}")


def getter(field: Any, type: DataType, *, defaults: bool) -> Get:
    """What takes a column from messages.

    Args:
        field: the field, which fits the column.
        type: the type of the column.
        defaults: whether fields that are absent have their default value. Else they are NULL, except those of proto3 of which a message
            does not say whether they are there: they are never absent.
    """
    name = field.name
    if is_map(field):
        value = _converter(field.message_type.fields_by_name["value"], type.children[1], defaults)

        def get_map(message: Any) -> Any:
            found = getattr(message, name)
            return [(k, value(found[k])) for k in found] if found or defaults else None

        return get_map
    if is_repeated(field):
        element = _converter(field, type.children[0], defaults)

        def get_list(message: Any) -> Any:
            found = getattr(message, name)
            return [element(v) for v in found] if found or defaults else None

        return get_list
    convert = _converter(field, type, defaults)
    if not field.has_presence or defaults:
        return lambda message: convert(getattr(message, name))
    return lambda message: convert(getattr(message, name)) if message.HasField(name) else None


def _converter(field: Any, type: DataType, defaults: bool) -> Get:
    """Values of a field, as Python has them → values of a column."""
    kind = kind_of(field)
    if kind == "MESSAGE":
        by_name = field.message_type.fields_by_name
        children = {n: getter(by_name[n], c, defaults=defaults) for n, c in zip(type.names, type.children, strict=True)}
        return lambda message: {n: get(message) for n, get in children.items()}
    if kind == "ENUM" and type.is_character:
        names = {v.number: v.name for v in field.enum_type.values}
        return lambda number: names[number]
    return lambda value: value


def putter(field: Any, type: DataType, null_text: str) -> Put:
    """What makes fields of values of a column; `null_text` stands for NULL among elements of lists and maps."""
    if is_map(field):
        entry = field.message_type.fields_by_name
        key = _single(entry["key"], type.children[0], null_text)
        value = _element(entry["value"], type.children[1], null_text)
        return lambda pairs: {key(k): value(v) for k, v in pairs}
    if is_repeated(field):
        element = _element(field, type.children[0], null_text)
        return lambda values: [element(v) for v in values]
    return _single(field, type, null_text)


def _element(field: Any, type: DataType, null_text: str) -> Put:
    """As `_single`, with a default for NULL, which lists and maps of messages cannot hold."""
    convert = _single(field, type, null_text)
    kind = kind_of(field)
    default: Any = {"STRING": null_text, "BYTES": b"", "MESSAGE": {}, "BOOL": False}.get(kind, 0)
    if kind == "ENUM":
        default = field.enum_type.values[0].number
    return lambda value: default if value is None else convert(value)


def _single(field: Any, type: DataType, null_text: str) -> Put:
    if kind_of(field) == "MESSAGE":
        by_name = field.message_type.fields_by_name
        children = {n: putter(by_name[n], c, null_text) for n, c in zip(type.names, type.children, strict=True)}
        return lambda row: {n: put(row[n]) for n, put in children.items() if row[n] is not None}
    return lambda value: value
