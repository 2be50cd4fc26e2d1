"""Accumulators of users' aggregates as JSON text, and back: reading one makes values, and never runs code.

Numbers, texts, booleans, None, lists and dictionaries with texts as keys stand for themselves. Everything else is an object whose
member `!` says what it is: `{"!": "decimal", "value": "1.50"}`. Dataclasses and `NamedTuple`s are stored by their name and fields, and
found again among those of the aggregate's own module; neither `__init__` nor `__post_init__` is called. A field that the stored text does
not have gets its default. Around accumulators of another version than the first stands `{"!": "version", "version": 2, "value": …}`.
"""

from __future__ import annotations

import base64
import dataclasses
import math
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import ModuleType
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import orjson
import pyarrow as pa

from flowrun.api.accumulators import defaults_of

TAG = "!"
"""The member that says what an object stands for."""

_RECORD = "dataclass"
_VERSION = "version"
_BEFORE_VERSION = b'{"!":"version","version":'
_PICKLED = b"\x80"
_LONG = 1 << 63
_NUMBERS_OF_NUMPY = "biufcmM"
_FACTORIES: dict[str, Callable[[], Any]] = {k.__name__: k for k in (int, float, str, list, dict, set, bool, bytes)}
_SETS: dict[str, type] = {"set": set, "frozenset": frozenset}
_DICTIONARIES: dict[str, type] = {"dict": dict, "OrderedDict": OrderedDict, "Counter": Counter}
_ISO: dict[str, Any] = {"datetime": datetime, "date": date, "time": time}


class AccumulatorError(ValueError):
    """A value cannot be stored, or stored text is none that this module wrote."""


class AccumulatorCodec:
    """Writes and reads the accumulators of one aggregate.

    Args:
        module: where the aggregate's class is defined; its dataclasses may be parts of accumulators. None: there are none.
        version: of the accumulators that are written.
    """

    def __init__(self, module: ModuleType | None = None, version: int = 1) -> None:
        self._module = module
        self._version = version
        self._known: dict[str, type] | None = None
        self._plain = False

    def encode(self, value: Any) -> bytes:
        """The JSON text of an accumulator.

        Raises:
            AccumulatorError: it holds something that is no plain value; names its type.

        >>> AccumulatorCodec().encode({"sum": Decimal("1.50"), "rows": 2})
        b'{"sum":{"!":"decimal","value":"1.50"},"rows":2}'
        """
        try:
            document = self._document(value)
            if self._version != 1:
                document = {TAG: _VERSION, "version": self._version, "value": document}
            return orjson.dumps(document)
        except RecursionError:
            raise AccumulatorError("it is nested too deep, or contains itself") from None
        except TypeError as error:  # texts with halves of surrogate pairs
            raise AccumulatorError(str(error)) from error

    def decode(self, text: bytes) -> Any:
        """The accumulator of a text that `encode` gave.

        Raises:
            AccumulatorError: the text is another.

        >>> AccumulatorCodec().decode(b'{"sum":{"!":"decimal","value":"1.50"},"rows":2}')
        {'sum': Decimal('1.50'), 'rows': 2}
        """
        if text[:1] == _PICKLED:
            raise AccumulatorError(
                "it was pickled, as flowrun did before; what is pickled is not read, since it may run code"
            )
        return self._read(text)[1]

    def decode_earlier(self, text: bytes) -> tuple[int, Any]:
        """(version, accumulator) of a text that an earlier version of the aggregate wrote: records are dicts of their fields.

        Raises:
            AccumulatorError: the text is another.

        >>> AccumulatorCodec(version=2).decode_earlier(b'{"!":"dataclass","class":"Total","fields":{"sum":1.5}}')
        (1, {'sum': 1.5})
        """
        self._plain = True
        try:
            return self._read(text)
        finally:
            self._plain = False

    def version_of(self, text: bytes) -> int:
        """The version of the aggregate that wrote a text; 1 if it does not say.

        Raises:
            AccumulatorError: it says so in another way.

        >>> AccumulatorCodec().version_of(AccumulatorCodec(version=3).encode([1]))
        3
        """
        if not text.startswith(_BEFORE_VERSION):
            return 1
        try:
            return int(text[len(_BEFORE_VERSION) :].partition(b",")[0])
        except ValueError as error:
            raise AccumulatorError(f"it is damaged: {error}") from error

    def _read(self, text: bytes) -> tuple[int, Any]:
        try:
            document = orjson.loads(text)
            if isinstance(document, dict) and document.get(TAG) == _VERSION:
                return int(document["version"]), self._value(document["value"])
            return 1, self._value(document)
        except AccumulatorError:
            raise
        except Exception as error:
            raise AccumulatorError(f"it is damaged: {type(error).__name__}: {error}") from error

    # ---- writing

    def _document(self, value: Any) -> Any:
        kind = type(value)
        if value is None or kind is bool or kind is str:
            return value
        if kind is int:
            return value if -_LONG <= value < _LONG else {TAG: "int", "value": str(value)}
        if kind is float:
            return value if math.isfinite(value) else {TAG: "float", "value": repr(value)}
        if kind is list:
            return [self._document(v) for v in value]
        if kind is dict and TAG not in value and all(type(k) is str for k in value):
            return {k: self._document(v) for k, v in value.items()}
        return self._tagged(value, kind)

    def _tagged(self, value: Any, kind: type) -> dict[str, Any]:
        if kind is tuple or kind in _SETS.values():
            return {TAG: kind.__name__, "values": [self._document(v) for v in value]}
        if kind in _DICTIONARIES.values():
            return {TAG: kind.__name__, "items": self._items(value)}
        if kind is defaultdict:
            return {TAG: "defaultdict", "factory": _factory_name(value.default_factory), "items": self._items(value)}
        if kind is deque:
            return {TAG: "deque", "length": value.maxlen, "values": [self._document(v) for v in value]}
        if kind is bytes or kind is bytearray:
            return {TAG: kind.__name__, "value": base64.b64encode(value).decode()}
        if kind is Decimal or kind is UUID or kind is complex:
            return {TAG: kind.__name__.lower(), "value": str(value)}
        if kind in _ISO.values():
            return _time_document(value, kind)
        if kind is timedelta:
            return {TAG: "timedelta", "value": [value.days, value.seconds, value.microseconds]}
        if isinstance(value, np.generic | np.ndarray):
            return _numpy_document(value)
        if isinstance(value, pa.Scalar | pa.Array):
            return _arrow_document(value)
        return self._record_document(value, kind)

    def _items(self, value: Mapping[Any, Any]) -> list[list[Any]]:
        return [[self._document(k), self._document(v)] for k, v in value.items()]

    def _record_document(self, value: Any, kind: type) -> dict[str, Any]:
        fields = _fields(kind)
        if fields is None:
            raise AccumulatorError(f"a value of type {kind.__module__}.{kind.__qualname__} cannot be stored")
        if self._records().get(kind.__qualname__) is not kind:
            what = "dataclass" if dataclasses.is_dataclass(kind) else "NamedTuple"
            raise AccumulatorError(
                f"the {what} {kind.__qualname__} is not found at the top of the aggregate's module, but in {kind.__module__}"
            )
        parts = {name: self._document(getattr(value, name)) for name in fields}
        return {TAG: _RECORD, "class": kind.__qualname__, "fields": parts}

    def _records(self) -> dict[str, type]:
        """The dataclasses and `NamedTuple`s that the module defines, by name."""
        if self._known is None:
            found = {} if self._module is None else vars(self._module)
            own = None if self._module is None else self._module.__name__
            kinds = {n: v for n, v in found.items() if isinstance(v, type) and _fields(v) is not None}
            self._known = {n: v for n, v in kinds.items() if v.__module__ == own}
        return self._known

    # ---- reading

    def _value(self, document: Any) -> Any:
        if isinstance(document, list):
            return [self._value(d) for d in document]
        if not isinstance(document, dict):
            return document
        if TAG not in document:
            return {k: self._value(d) for k, d in document.items()}
        return self._untagged(document[TAG], document)

    def _untagged(self, tag: str, document: dict[str, Any]) -> Any:
        if tag in _SCALARS:
            return _SCALARS[tag](document["value"])
        if tag in _ISO:
            return _time(_ISO[tag], document)
        if tag == "tuple":
            return tuple(map(self._value, document["values"]))
        if tag in _SETS:
            return _SETS[tag](map(self._value, document["values"]))
        if tag in _DICTIONARIES:
            return _DICTIONARIES[tag](self._pairs(document))
        if tag == "defaultdict":
            factory = document["factory"]
            return defaultdict(None if factory is None else _FACTORIES[factory], self._pairs(document))
        if tag == "deque":
            return deque(map(self._value, document["values"]), document["length"])
        if tag == "numpy":
            return _numpy(document)
        if tag == "arrow":
            return _arrow(document)
        if tag == _RECORD:
            return self._record(document)
        raise AccumulatorError(f"it holds '{tag}', which this flowrun does not know")

    def _pairs(self, document: dict[str, Any]) -> dict[Any, Any]:
        return {self._value(k): self._value(v) for k, v in document["items"]}

    def _record(self, document: dict[str, Any]) -> Any:
        name, parts = document["class"], document["fields"]
        if self._plain:
            return {field: self._value(part) for field, part in parts.items()}
        kind = self._records().get(name)
        if kind is None:
            raise AccumulatorError(
                f"it holds a dataclass {name}, which the aggregate's module does not define any more"
            )
        fields = _fields(kind) or ()
        missing = [f for f in fields if f not in parts]
        defaults = defaults_of(kind) if missing else {}
        if not set(parts) <= set(fields) or any(f not in defaults for f in missing):
            raise AccumulatorError(f"the fields of {name} were {', '.join(parts)}, and are {', '.join(sorted(fields))}")
        values = {f: self._value(parts[f]) if f in parts else defaults[f]() for f in fields}
        if issubclass(kind, tuple):
            return tuple.__new__(kind, values.values())
        made: Any = object.__new__(kind)
        for field, value in values.items():
            object.__setattr__(made, field, value)
        return made


def _fields(kind: type) -> tuple[str, ...] | None:
    """The fields of a dataclass or `NamedTuple`, in order; None: it is neither."""
    if dataclasses.is_dataclass(kind):
        return tuple(f.name for f in dataclasses.fields(kind))
    if issubclass(kind, tuple) and isinstance(found := getattr(kind, "_fields", None), tuple):
        return found
    return None


def _factory_name(factory: Any) -> str | None:
    if factory is None:
        return None
    name = getattr(factory, "__name__", "")
    if _FACTORIES.get(name) is not factory:
        raise AccumulatorError(f"the factory of a defaultdict can be {', '.join(_FACTORIES)}, not {factory!r}")
    return str(name)


def _time_document(value: Any, kind: type) -> dict[str, Any]:
    zone = getattr(value, "tzinfo", None)
    document = {TAG: kind.__name__, "value": value.isoformat()}
    if isinstance(zone, ZoneInfo) and zone.key:
        document["zone"] = zone.key
    if getattr(value, "fold", 0):
        document["fold"] = value.fold
    return document


def _time(kind: Any, document: dict[str, Any]) -> Any:
    found = kind.fromisoformat(document["value"])
    if "zone" in document:
        found = found.replace(tzinfo=ZoneInfo(document["zone"]))
    return found.replace(fold=document["fold"]) if "fold" in document else found


def _numpy_document(value: Any) -> dict[str, Any]:
    if value.dtype.kind not in _NUMBERS_OF_NUMPY:
        raise AccumulatorError(f"NumPy values of type {value.dtype} cannot be stored")
    shape = None if isinstance(value, np.generic) else list(value.shape)
    return {TAG: "numpy", "type": value.dtype.str, "shape": shape, "value": base64.b64encode(value.tobytes()).decode()}


def _numpy(document: dict[str, Any]) -> Any:
    kind = np.dtype(str(document["type"]))
    if kind.kind not in _NUMBERS_OF_NUMPY:
        raise AccumulatorError(f"it holds NumPy values of type {kind}")
    values = np.frombuffer(base64.b64decode(document["value"]), kind)
    return values[0] if document["shape"] is None else values.reshape(document["shape"]).copy()


def _arrow_document(value: pa.Scalar | pa.Array) -> dict[str, Any]:
    array = pa.array([value.as_py()], value.type) if isinstance(value, pa.Scalar) else value
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([array], names=["value"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    content = base64.b64encode(sink.getvalue().to_pybytes()).decode()
    return {TAG: "arrow", "scalar": isinstance(value, pa.Scalar), "value": content}


def _arrow(document: dict[str, Any]) -> Any:
    values = pa.ipc.open_stream(base64.b64decode(document["value"])).read_next_batch().column(0)
    return values[0] if document["scalar"] else values


_SCALARS: dict[str, Callable[[Any], Any]] = {
    "int": int,
    "float": float,
    "bytes": base64.b64decode,
    "bytearray": lambda text: bytearray(base64.b64decode(text)),
    "decimal": Decimal,
    "uuid": UUID,
    "complex": complex,
    "timedelta": lambda parts: timedelta(*parts),
}
