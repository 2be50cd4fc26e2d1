"""Values of messages as bytes: `encode` and `decode` by type, in msgpack, without pickle.

What travels: frozen dataclasses (`@record`) by their fields in order, enums by name, None, bool, int of any size, float, str, bytes,
tuples, lists, mappings, sets, unions of these, JSON values, Arrow schemas, tables, batches and arrays, NumPy arrays of numbers, and
exceptions.
Both sides have the same release of flowrun, which their handshake checks, so fields and members of unions need no names. Sequences
arrive as tuples and mappings as dictionaries.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, ForwardRef

import numpy as np
import pyarrow as pa
from msgspec import DecodeError
from msgspec.msgpack import Decoder, Encoder

from flowrun.errors import InternalError, RpcError
from flowrun.runtime.rpc import arrow_values, coders
from flowrun.runtime.rpc.error_values import ErrorValue, error_from_value, error_to_value

_encoder = Encoder()
_decoder = Decoder(ext_hook=coders.read_extension)

_converted: dict[type, tuple[Any, coders.Convert, coders.Convert]] = {
    pa.Schema: (bytes, arrow_values.schema_to_bytes, arrow_values.schema_from_bytes),
    pa.Table: (bytes, arrow_values.table_to_bytes, arrow_values.table_from_bytes),
    pa.RecordBatch: (bytes, arrow_values.batch_to_bytes, arrow_values.batch_from_bytes),
    pa.Array: (bytes, arrow_values.array_to_bytes, arrow_values.array_from_bytes),
    BaseException: (ErrorValue, error_to_value, error_from_value),
    np.ndarray: (tuple[str, tuple[int, ...], bytes], arrow_values.numpy_to_parts, arrow_values.numpy_from_parts),
}
"""Type → the type as which its values and those of its subclasses travel, and the ways there and back."""


def register(kind: type, wire: Any, to_wire: coders.Convert, from_wire: coders.Convert) -> None:
    """Have values of a type, and of its subclasses, travel as values of another type.

    Args:
        kind: the type; before a message that contains it is first coded.
        wire: annotation of the other type.
        to_wire: value → value of the other type.
        from_wire: the way back; raises `ValueError` for what cannot be right.
    """
    _converted[kind] = (wire, to_wire, from_wire)


def encode(value: object, kind: Any) -> bytes:
    """The bytes of a value.

    >>> decode(encode((1, None), tuple[int | None, ...]), tuple[int | None, ...])
    (1, None)

    Args:
        value: of that type.
        kind: an annotation, such as a class or `tuple[int, ...]`.

    Raises:
        RpcError: the value is not of its type, or nested too deep.
        InternalError: values of this type do not travel between processes.
    """
    coder = _coder(kind)
    try:
        return _encoder.encode(coder.lower(value))
    except (coders.Misfit, TypeError, OverflowError, UnicodeError, pa.ArrowException) as error:
        raise RpcError(f"a value of {coder.name} cannot be sent to another process: {error}") from error
    except RecursionError:
        raise RpcError(f"a value of {coder.name} is nested too deep to be sent to another process") from None


def prepare(kind: Any) -> None:
    """Build what `encode` and `decode` need for a type."""
    _coder(kind)


def decode(data: bytes | memoryview, kind: Any) -> Any:
    """The value of some bytes, equal to the one that was encoded.

    Args:
        data: all of it, from a process that need not be right.
        kind: as in `encode`.

    Raises:
        RpcError: the bytes are no value of this type. Says where, and no part of the value.
        InternalError: values of this type do not travel between processes.
    """
    coder = _coder(kind)
    try:
        return coder.lift(_decoder.decode(data))
    except (DecodeError, coders.Misfit) as error:
        raise RpcError(f"bytes of another process are no value of {coder.name}: {error}") from error
    except (RecursionError, UnicodeDecodeError, TypeError) as error:
        # Nested too deep for the interpreter, text that is none, or a map whose keys cannot be keys.
        raise RpcError(f"bytes of another process are no value of {coder.name}: {type(error).__name__}") from error


@cache
def _coder(kind: Any) -> coders.Coder:
    """The coder of an annotation; dataclasses find those of their fields at first use."""
    kind = _without_decoration(kind)
    scalar = coders.SCALARS.get(kind) if isinstance(kind, type) else None
    if kind is None or scalar is not None:
        return coders.SCALARS[type(None)] if kind is None else coders.SCALARS[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return coders.JSON if _is_json(kind) else _coder_of_union(arguments)
    if origin is typing.Literal:
        return coders.literal_coder(arguments)
    found = _coder_of_generic(origin, arguments) if origin is not None else _coder_of_class(kind)
    if found is None:
        raise InternalError(f"values of {kind} do not travel between processes")
    return found


def _without_decoration(kind: Any) -> Any:
    """A type without its second name, and without what is only noted beside it."""
    while isinstance(kind, typing.NewType) or typing.get_origin(kind) is typing.Annotated:
        kind = kind.__supertype__ if isinstance(kind, typing.NewType) else typing.get_args(kind)[0]
    return kind


def _coder_of_union(arguments: tuple[Any, ...]) -> coders.Coder:
    """In the order of names: annotations that differ in the order of their members are equal, so either may be known first."""
    members = sorted(dict.fromkeys(map(_coder, arguments)), key=lambda member: member.name)
    if len({m.name for m in members}) < len(members):
        raise InternalError(f"members of a union are called the same: {', '.join(m.name for m in members)}")
    return coders.union_coder(members)


def _coder_of_generic(origin: Any, arguments: tuple[Any, ...]) -> coders.Coder | None:
    if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
        return coders.fixed_coder([_coder(a) for a in arguments])
    if isinstance(origin, type) and issubclass(origin, Mapping) and origin in (Mapping, dict):
        return coders.mapping_coder(_coder(arguments[0]), _coder(arguments[1]))
    make = _COLLECTIONS.get(origin)
    if make is not None:
        convert, accepted = make
        return coders.collection_coder(_coder(arguments[0]), convert, accepted, distinct=convert is frozenset)
    return _coder_of_class(origin) if isinstance(origin, type) else None


_COLLECTIONS: dict[Any, tuple[Callable[[list[Any]], Any], tuple[type, ...]]] = {
    tuple: (tuple, (tuple,)),
    list: (list, (list,)),
    Sequence: (tuple, (Sequence,)),
    Collection: (tuple, (Collection,)),
    Iterable: (tuple, (Collection,)),
    frozenset: (frozenset, (frozenset,)),
    Set: (frozenset, (Set,)),
    set: (frozenset, (Set,)),
}
"""Generic type → what a list becomes, and what values may be."""


def _coder_of_class(kind: Any) -> coders.Coder | None:
    if not isinstance(kind, type):
        return None
    if kind is bytes:
        return coders.BYTES
    if issubclass(kind, Enum):
        return coders.enum_coder(kind)
    if is_dataclass(kind):
        return coders.record_coder(
            kind, cache(lambda: _fields(kind)), frozenset(f.name for f in fields(kind) if f.kw_only)
        )
    for base in kind.__mro__:
        if base in _converted:
            wire, to_wire, from_wire = _converted[base]
            return coders.converted_coder(kind, _coder(wire), to_wire, from_wire)
    return None


def _fields(kind: Any) -> tuple[tuple[str, coders.Coder], ...]:
    """Name and coder of each parameter of a dataclass."""
    hints = typing.get_type_hints(kind)
    return tuple((f.name, _coder(hints[f.name])) for f in fields(kind) if f.init)


def _is_json(kind: Any) -> bool:
    """Whether an annotation is `JsonValue`, whose alias names itself and is resolved to some depth only."""
    arguments = typing.get_args(kind)
    lists = [a for a in arguments if typing.get_origin(a) is list]
    objects = [a for a in arguments if typing.get_origin(a) is dict]
    if not (len(lists) == len(objects) == 1) or {*arguments} - {*lists, *objects} != coders.SCALARS.keys():
        return False
    inner = (typing.get_args(lists[0])[0], typing.get_args(objects[0])[1])
    return typing.get_args(objects[0])[0] is str and all(_names_json(i) or _is_json(i) for i in inner)


def _names_json(kind: Any) -> bool:
    return kind == "JsonValue" or (isinstance(kind, ForwardRef) and kind.__forward_arg__ == "JsonValue")
