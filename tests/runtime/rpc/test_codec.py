"""Values survive their way to another process, and bytes that are no values are refused."""

from __future__ import annotations

import hashlib
import random
import re
import resource
import sys
import types
import typing
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, is_dataclass
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NewType

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
from messages_strategy import plain, values

from flowrun.api.source import JsonValue
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.errors import InternalError, RpcError
from flowrun.runtime import cluster_messages, messages, metric_reports, slot_messages
from flowrun.runtime.rpc.codec import decode, encode, register
from flowrun.runtime.rpc.coders import JSON_DEPTH


class Color(Enum):
    RED = "r"
    BLUE = "b"


class Level(IntEnum):
    LOW = 1


Name = NewType("Name", str)


@record
class Point:
    x: int
    y: float = 0.0


@record(kw_only=True)
class Named:
    name: str
    color: Color = Color.RED
    total: int = field(init=False, default=7)


@record
class Tree:
    value: int
    children: tuple[Tree, ...] = ()


@dataclass(frozen=True)
class Checked:
    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low is above high")


def survives(value: Any, kind: Any) -> None:
    back = decode(encode(value, kind), kind)
    assert plain(back) == plain(value)


def short(value: object) -> str:
    """The name of a case: the same in every process, without addresses of objects."""
    shown = sorted(value, key=str) if isinstance(value, frozenset) else value
    text = re.sub(r" object at 0x[0-9a-f]+", "", str(shown))
    return text if len(text) < 80 else f"{type(value).__name__} {hashlib.sha256(text.encode()).hexdigest()[:8]}"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, None),
        (True, bool),
        (2**63, int),
        (-(2**63) - 1, int),
        (1.5, float),
        (float("nan"), float),
        (float("-inf"), float),
        ("é\0", str),
        ("odd \udcff name", str),
        (b"\xff", bytes),
        (Color.BLUE, Color),
        (Level.LOW, Level),
        ((1, "a", None), tuple[int, str, int | None]),
        ((), tuple[()]),
        ((1, 2**70), tuple[int, ...]),
        ((1, 2), Sequence[int]),
        (("a",), Collection[str]),
        ([1], list[int]),
        (frozenset({"a", "b"}), frozenset[str]),
        ({1: "a", 2**65: "b"}, Mapping[int, str]),
        ({("a", 1): Point(1)}, Mapping[tuple[str, int], Point]),
        (Point(1, 2.0), Point),
        (Named(name="n", color=Color.BLUE), Named),
        (Tree(1, (Tree(2), Tree(3, (Tree(4),)))), Tree),
        (Name("n"), Name),
        (1, Annotated[int, "ms"]),
        ("on", Literal["on", "off", 3]),
        (3, Literal["on", "off", 3]),
        (b"x", str | bytes | None),
        (Color.RED, Color | str),
        ("RED", Color | str),
        (Point(1), Point | Tree | None),
        (Tree(1), Point | Tree | None),
        ((1,), tuple[int, ...] | Point | int),
        ({"\udcff": [1, {"k": None}]}, JsonValue),
        (np.arange(6).reshape(2, 3), np.ndarray),
        (np.array([True, False]), np.ndarray),
        (RecordBatch(pa.RecordBatch.from_pydict({"a": [1, 2]}), pa.array([5, 6])), RecordBatch),
    ],
    ids=short,
)
def test_values_survive(value: Any, kind: Any) -> None:
    survives(value, kind)


def test_values_that_are_nearly_of_their_type_become_it() -> None:
    assert decode(encode(np.int64(3), int), int) == 3
    assert type(decode(encode(np.float64(3), float), float)) is float
    assert decode(encode(1, float), float) == 1
    assert decode(encode(np.int32(3), float | int | None), float | int | None) == 3, "gauges give such numbers"
    assert decode(encode([1], Sequence[int]), Sequence[int]) == (1,), "sequences are tuples on the other side"
    assert decode(encode({1}, Collection[int]), Collection[int]) == (1,)
    assert decode(encode(types.MappingProxyType({"a": 1}), Mapping[str, int]), Mapping[str, int]) == {"a": 1}
    assert decode(encode({"a": (1,)}, JsonValue), JsonValue) == {"a": [1]}, "JSON has no tuples"


def test_members_of_unions_are_told_apart_whatever_their_order_in_the_annotation() -> None:
    first, second = Point | Checked, Checked | Point
    assert decode(encode(Checked(1, 2), first), second) == Checked(1, 2)


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        ("1", int, "expected int, got str"),
        (1.0, int, "expected int, got float"),
        (True, int, "expected int, got bool"),
        (1, str, "expected str, got int"),
        ("ab", Sequence[str], "expected Sequence of str, got str"),
        ((1, 2, "x"), tuple[int, ...], r"\[2\]: expected int, got str"),
        ((1,), tuple[int, int], "expected tuple of 2, got tuple"),
        (Point(1, "y"), Point, "y: expected float, got str"),  # type: ignore[arg-type]
        ((Tree(1, (Tree("z"),)),), tuple[Tree, ...], r"\[0\].children\[0\].value: expected int, got str"),  # type: ignore[arg-type]
        ({"a": 1}, Mapping[str, str], r"\[0\]: expected str, got int"),
        (Point(1), Tree, "expected Tree, got Point"),
        ("green", Literal["red"], "expected 'red', got str"),
        ({"k": {1}}, JsonValue, r"\[0\]: expected a JSON value, got set"),
        ({1: 2}, JsonValue, r"\[0\]: expected str, got int"),
        (np.array(["a"]), np.ndarray, "arrays of <U1 do not travel"),
        (1, str | None, "expected None or str, got int"),
    ],
    ids=short,
)
def test_a_value_of_another_type_is_not_sent(value: Any, kind: Any, message: str) -> None:
    with pytest.raises(RpcError, match=f"cannot be sent to another process: {message}"):
        encode(value, kind)


@pytest.mark.parametrize("kind", [object, Any, Path, type[int], typing.Callable[[], int], tuple[Path, ...]], ids=str)
def test_a_type_that_does_not_travel_is_an_error_of_flowrun(kind: Any) -> None:
    with pytest.raises(InternalError, match="do not travel between processes"):
        encode(1, kind)


def packed(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        (b"", int, "truncated"),
        (packed(1) + b"\x00", int, "trailing"),
        (b"\xdd\xff\xff\xff\xff", tuple[int, ...], "truncated"),
        (b"\xc9\x00\x00\x00\x01\x09\x00", int, "unknown extension 9"),
        (packed(1), bool, "expected bool, got int"),
        (packed(True), int, "expected int, got bool"),
        (packed("1"), int, "expected int, got str"),
        (packed("GREEN"), Color, "unknown member of Color"),
        (packed([1]), Point, "Point has 2 fields, not 1"),
        (packed([1, 2.0, 3]), Point, "Point has 2 fields, not 3"),
        (packed(["x", 2.0]), Point, "x: expected int, got str"),
        (packed({"x": 1}), Point, "expected Point, got dict"),
        (packed([2, 1]), Checked, "Checked refuses its fields: ValueError"),
        (packed([5, [1, 1.0]]), Point | Tree, "unknown tag: expected Point or Tree"),
        (packed([True, [1, 1.0]]), Point | Tree, "unknown tag"),
        (packed([0, 1]), Point | Tree, "expected Point, got int"),
        (packed(["a"]), Mapping[str, int], "a key has no value"),
        (packed(["a", 1, "a", 2]), Mapping[str, int], "a key comes twice"),
        (packed(["a", "a"]), frozenset[str], "comes twice"),
        (packed([1]), tuple[int, int], "expected 2 items, got 1"),
        (packed({1: 2}), JsonValue, "a key of a JSON object is no text"),
        (packed({0: ["a"]}), JsonValue, "a key has no value"),
        (packed({0: ["a", 1, "a", 1]}), JsonValue, "a key comes twice"),
        (packed(b"x"), JsonValue, "expected a JSON value, got bytes"),
        (b"\x81\x90\x01", JsonValue, ""),
        (b"\xa1\xff", str, ""),
        (packed(b"nothing"), pa.Schema, "Schema: no schema"),
        (packed(b"nothing"), pa.Table, "Table: no Arrow stream"),
        (packed(["<i8", [2], b"123"]), np.ndarray, "does not fit its bytes"),
        (packed(["<i8", [-1], b""]), np.ndarray, "does not fit its bytes"),
        (packed(["O", [1], b"12345678"]), np.ndarray, "unknown type"),
        (packed(["<i8,<i8", [0], b""]), np.ndarray, "unknown type"),
    ],
    ids=short,
)
def test_bytes_that_are_no_value_are_refused(data: bytes, kind: Any, message: str) -> None:
    with pytest.raises(RpcError, match=f"bytes of another process are no value of .*{message}"):
        decode(data, kind)


def test_refusals_do_not_say_what_was_in_the_bytes() -> None:
    with pytest.raises(RpcError) as caught:
        decode(packed(["hunter2", "hunter2", 0.0]), Point)
    assert "hunter2" not in str(caught.value)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_what_is_nested_too_deep_is_refused_on_both_sides() -> None:
    survives(nested(JSON_DEPTH), JsonValue)
    with pytest.raises(RpcError, match="nested deeper than 128"):
        encode(nested(JSON_DEPTH + 1), JsonValue)
    with pytest.raises(RpcError, match="nested deeper than 128"):
        decode(packed(nested(JSON_DEPTH + 1)), JsonValue)
    for kind in (JsonValue, Tree, int):
        with pytest.raises(RpcError):
            decode(b"\x91" * 1_000_000, kind)
    chain = Tree(0)
    for _ in range(5000):
        chain = Tree(0, (chain,))
    with pytest.raises(RpcError, match="nested too deep"):
        encode(chain, Tree)


def test_compressed_rows_are_refused_before_they_take_memory() -> None:
    zeros = pa.table({"a": pa.array(np.zeros(1_000_000, np.int64))})
    for codec in ("zstd", "lz4"):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, zeros.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
            writer.write_table(zeros)
        with pytest.raises(RpcError, match="compressed"):
            decode(packed(sink.getvalue().to_pybytes()), pa.Table)


def test_types_can_be_registered() -> None:
    register(Path, str, str, Path)
    assert decode(encode(Path("a/b"), type(Path())), type(Path())) == Path("a/b")


# ---- every message

MESSAGES = [
    kind
    for module in (messages, slot_messages, cluster_messages, metric_reports)
    for kind in vars(module).values()
    if isinstance(kind, type) and is_dataclass(kind) and kind.__module__ == module.__name__
]
ARGUMENTS = {
    f"{protocol.__name__}.{method}.{name}": kind
    for protocol in (
        messages.JobMasterGateway,
        messages.TaskExecutorGateway,
        slot_messages.SlotProvider,
        cluster_messages.ResourceManagerGateway,
        cluster_messages.JobObserverGateway,
        cluster_messages.WorkerGateway,
    )
    for method, function in vars(protocol).items()
    if isinstance(function, types.FunctionType) and not method.startswith("_")
    for name, kind in typing.get_type_hints(function).items()
    if name not in ("return", "requester")
}


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda k: k.__name__)
@given(data=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_message_survives(kind: Any, data: st.DataObject) -> None:
    survives(data.draw(values(kind)), kind)


@pytest.mark.parametrize("name", ARGUMENTS)
@given(data=st.data())
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_argument_of_a_gateway_survives(name: str, data: st.DataObject) -> None:
    survives(data.draw(values(ARGUMENTS[name])), ARGUMENTS[name])


def test_there_are_messages() -> None:
    assert len(MESSAGES) > 15
    assert len(ARGUMENTS) > 15


# ---- hostile bytes


@given(st.binary(max_size=200), st.sampled_from([*MESSAGES, int, JsonValue, RecordBatch]))
@settings(max_examples=300, deadline=None)
def test_random_bytes_never_do_more_than_raise(data: bytes, kind: Any) -> None:
    with suppress(RpcError):
        decode(data, kind)


@pytest.mark.parametrize(
    "kind", [messages.TaskDeployment, messages.CheckpointAcknowledgement, messages.TaskUpdate, RecordBatch]
)
def test_mutated_messages_never_do_more_than_raise(kind: Any) -> None:
    good = [encode(v, kind) for v in examples_of(kind)]
    source = random.Random(7)
    survived = 0
    for _ in range(400):
        data = bytearray(source.choice(good))
        for _ in range(source.randint(1, 4)):
            position = source.randrange(len(data))
            match source.randrange(4):
                case 0:
                    data[position] = source.randrange(256)
                case 1:
                    del data[position : position + source.randint(1, 8)]
                case 2:
                    data[position:position] = source.randbytes(4)
                case _:
                    data[position] ^= 1 << source.randrange(8)
            data = data or bytearray(b"\x00")
        with suppress(RpcError):
            decode(bytes(data), kind)
            survived += 1
    assert survived < 400
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert used < 2_000_000, "kilobytes"


def examples_of(kind: Any) -> list[Any]:
    """Some random values of a type, the same ones in every run."""
    found: list[Any] = []

    @given(values(kind))
    @settings(max_examples=30, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    def collect(value: Any) -> None:
        found.append(value)

    collect()
    return found
