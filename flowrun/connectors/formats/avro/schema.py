"""Avro schemas: the JSON text of a schema as a tree of types. The names are those of the Avro specification, version 1.12."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Any, TypeGuard

from flowrun.core.record import record

MAX_NESTING = 100
"""How deeply a schema may be nested."""
MAX_FIXED_BYTES = 1 << 20
"""The largest `fixed` type."""


class Kind(Enum):
    """The kinds of Avro types; the value is the word in a schema."""

    NULL = "null"
    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    BYTES = "bytes"
    STRING = "string"
    FIXED = "fixed"
    ENUM = "enum"
    ARRAY = "array"
    MAP = "map"
    UNION = "union"
    RECORD = "record"


_PRIMITIVE = {
    k.value: k for k in Kind if k.value in ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
}


class AvroSchemaError(ValueError):
    """A text is no Avro schema."""


@record(frozen=False, eq=False)
class AvroType:
    """One type of a schema. Types that are named may contain themselves.

    Attributes:
        kind: what it is.
        name: full name of a record, enum or fixed.
        logical: the logical type, as the schema says it; empty: none, or one that does not fit the type.
        precision: digits of a decimal.
        scale: digits of a decimal behind the point.
        size: bytes of a fixed.
        symbols: of an enum.
        children: the item type of an array, the value type of a map, the branches of a union, the types of a record's fields.
        names: of a record's fields.
    """

    kind: Kind
    name: str = ""
    logical: str = ""
    precision: int = 0
    scale: int = 0
    size: int = 0
    symbols: tuple[str, ...] = ()
    children: tuple[AvroType, ...] = field(default=(), repr=False)
    names: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What the type is called in messages: `timestamp-millis`, `record Order`."""
        if self.logical:
            return self.logical
        return f"{self.kind.value} {self.name}".rstrip()


def parse_schema(text: str, references: Mapping[str, str] | None = None) -> AvroType:
    """The type that a schema's JSON text describes.

    Args:
        text: JSON; a bare name such as `string` is taken, too.
        references: texts of other schemas by the full names of the types that they define, which this one may use.

    Raises:
        AvroSchemaError: it is no schema.

    >>> parse_schema('{"type": "array", "items": "int"}').children[0].kind
    <Kind.INT: 'int'>
    """
    reader = _Reader()
    for name, referred in (references or {}).items():
        reader.waiting[name] = referred
    return reader.read(_loaded(text), "", 0)


def _loaded(text: str) -> Any:
    if text.strip() in _PRIMITIVE:
        return text.strip()
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AvroSchemaError(f"the Avro schema is no JSON: {error}") from None


class _Reader:
    """Reads a schema; knows the named types so far."""

    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}
        self.waiting: dict[str, str] = {}

    def read(self, given: Any, namespace: str, depth: int) -> AvroType:
        if depth > MAX_NESTING:
            raise AvroSchemaError(f"the Avro schema is nested more than {MAX_NESTING} levels deep")
        if isinstance(given, str):
            return self._by_name(given, namespace, depth)
        if isinstance(given, list):
            return self._union(given, namespace, depth)
        if not isinstance(given, dict):
            raise AvroSchemaError(f"{_shown(given)} is no Avro type")
        kind = given.get("type")
        if isinstance(kind, list | dict):
            return self.read(kind, namespace, depth + 1)
        match kind:
            case "record" | "error":
                return self._record(given, namespace, depth)
            case "enum":
                return self._enum(given, namespace)
            case "fixed":
                return self._fixed(given, namespace)
            case "array":
                return AvroType(Kind.ARRAY, children=(self.read(given.get("items"), namespace, depth + 1),))
            case "map":
                return AvroType(Kind.MAP, children=(self.read(given.get("values"), namespace, depth + 1),))
            case str() if kind in _PRIMITIVE:
                return _with_logical(AvroType(_PRIMITIVE[kind]), given)
            case str():
                return self._by_name(kind, namespace, depth)
        raise AvroSchemaError(f"{_shown(given)} is no Avro type: it has no 'type'")

    def _by_name(self, name: str, namespace: str, depth: int) -> AvroType:
        if name in _PRIMITIVE:
            return AvroType(_PRIMITIVE[name])
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        for known in (full, name):
            if known in self._named:
                return self._named[known]
            if known in self.waiting:
                self.read(_loaded(self.waiting.pop(known)), "", depth + 1)
                if known in self._named:
                    return self._named[known]
        raise AvroSchemaError(f"the Avro schema uses the type '{name}', which it does not define")

    def _union(self, given: list[Any], namespace: str, depth: int) -> AvroType:
        branches = tuple(self.read(branch, namespace, depth + 1) for branch in given)
        if not branches or any(b.kind is Kind.UNION for b in branches):
            raise AvroSchemaError("an Avro union has branches, and none of them is a union")
        return AvroType(Kind.UNION, children=branches)

    def _define(self, made: AvroType, given: Mapping[str, Any], namespace: str) -> str:
        """Name a type; gives the namespace of what is in it."""
        name = given.get("name")
        if not isinstance(name, str) or not name:
            raise AvroSchemaError(f"{_shown(given)} has no name")
        space = given.get("namespace")
        if "." in name:
            space, full = name.rpartition(".")[0], name
        else:
            space = space if isinstance(space, str) else namespace
            full = f"{space}.{name}" if space else name
        if full in self._named:
            raise AvroSchemaError(f"the Avro schema defines the type '{full}' twice")
        made.name = full
        self._named[full] = made
        return space

    def _record(self, given: Mapping[str, Any], namespace: str, depth: int) -> AvroType:
        made = AvroType(Kind.RECORD)
        inner = self._define(made, given, namespace)
        fields = given.get("fields")
        if not isinstance(fields, list):
            raise AvroSchemaError(f"record '{made.name}' has no fields")
        names: list[str] = []
        types: list[AvroType] = []
        for member in fields:
            if not isinstance(member, dict) or not isinstance(member.get("name"), str) or "type" not in member:
                raise AvroSchemaError(f"record '{made.name}': {_shown(member)} is no field")
            names.append(member["name"])
            types.append(self.read(member["type"], inner, depth + 1))
        if len(set(names)) < len(names):
            raise AvroSchemaError(f"record '{made.name}' has two fields of one name")
        made.names, made.children = tuple(names), tuple(types)
        return made

    def _enum(self, given: Mapping[str, Any], namespace: str) -> AvroType:
        made = AvroType(Kind.ENUM)
        self._define(made, given, namespace)
        symbols = given.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(s, str) for s in symbols):
            raise AvroSchemaError(f"enum '{made.name}' has no symbols")
        made.symbols = tuple(symbols)
        return made

    def _fixed(self, given: Mapping[str, Any], namespace: str) -> AvroType:
        made = AvroType(Kind.FIXED)
        self._define(made, given, namespace)
        size = given.get("size")
        if not _is_count(size) or not 0 <= size <= MAX_FIXED_BYTES:
            raise AvroSchemaError(f"fixed '{made.name}' needs a size of at most {MAX_FIXED_BYTES} bytes")
        made.size = size
        return _with_logical(made, given)


_LOGICAL = {
    "date": (Kind.INT,),
    "time-millis": (Kind.INT,),
    "time-micros": (Kind.LONG,),
    "timestamp-millis": (Kind.LONG,),
    "timestamp-micros": (Kind.LONG,),
    "timestamp-nanos": (Kind.LONG,),
    "local-timestamp-millis": (Kind.LONG,),
    "local-timestamp-micros": (Kind.LONG,),
    "local-timestamp-nanos": (Kind.LONG,),
    "decimal": (Kind.BYTES, Kind.FIXED),
    "uuid": (Kind.STRING, Kind.FIXED),
}
_UUID_BYTES = 16


def _with_logical(made: AvroType, given: Mapping[str, Any]) -> AvroType:
    """The type with its logical type; one that does not fit is ignored, as the specification says."""
    logical = given.get("logicalType")
    if not isinstance(logical, str) or made.kind not in _LOGICAL.get(logical, ()):
        return made
    if logical == "uuid" and made.kind is Kind.FIXED and made.size != _UUID_BYTES:
        return made
    if logical == "decimal":
        precision, scale = given.get("precision"), given.get("scale", 0)
        if not (_is_count(precision) and _is_count(scale)) or not precision or not 0 <= scale <= precision:
            return made
        made.precision, made.scale = precision, scale
    made.logical = logical
    return made


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:60] + "…"
