"""Protobuf: messages of types that a descriptor set or a generated module describes, in proto2 and proto3."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from flowrun.api.client_library import ClientLibrary
from flowrun.api.format import messages_chunk
from flowrun.connectors.formats.protobuf import descriptors
from flowrun.connectors.formats.protobuf.descriptors import message_class
from flowrun.connectors.formats.protobuf.protobuf_format import ProtobufDecoder, ProtobufEncoder
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, BOOLEAN, BYTES, DOUBLE, FLOAT, INT, STRING, array, map_of, row
from flowrun.errors import DataError, OptionError, SetupError

from ..formats import decoder, encoder, options_of, record_format, rows

_F = descriptor_pb2.FieldDescriptorProto
ONE, MANY = _F.LABEL_OPTIONAL, _F.LABEL_REPEATED


def order_file(syntax: str) -> Any:
    """The file `shop/order.proto`: a message with fields of every kind."""
    file = descriptor_pb2.FileDescriptorProto(name="shop/order.proto", package="shop", dependency=["shop/place.proto"])
    if syntax == "proto3":
        file.syntax = syntax
    kind = file.enum_type.add(name="Kind")
    for number, name in enumerate(("UNKNOWN", "BOOK", "TOY")):
        kind.value.add(name=name, number=number)
    order = file.message_type.add(name="Order")
    simple = [
        ("id", _F.TYPE_INT64), ("count", _F.TYPE_SINT32), ("big", _F.TYPE_FIXED64), ("price", _F.TYPE_DOUBLE),
        ("weight", _F.TYPE_FLOAT), ("paid", _F.TYPE_BOOL), ("name", _F.TYPE_STRING), ("raw", _F.TYPE_BYTES),
    ]  # fmt: skip
    for number, (name, type) in enumerate(simple, start=1):
        order.field.add(name=name, number=number, type=type, label=ONE)
    order.field.add(name="kind", number=20, type=_F.TYPE_ENUM, type_name=".shop.Kind", label=ONE)
    order.field.add(name="place", number=21, type=_F.TYPE_MESSAGE, type_name=".shop.Place", label=ONE)
    order.field.add(name="tags", number=22, type=_F.TYPE_STRING, label=MANY)
    order.field.add(name="numbers", number=23, type=_F.TYPE_INT32, label=MANY)
    order.field.add(name="places", number=24, type=_F.TYPE_MESSAGE, type_name=".shop.Place", label=MANY)
    entry = order.nested_type.add(name="PartsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_F.TYPE_STRING, label=ONE)
    entry.field.add(name="value", number=2, type=_F.TYPE_INT64, label=ONE)
    order.field.add(name="parts", number=25, type=_F.TYPE_MESSAGE, type_name=".shop.Order.PartsEntry", label=MANY)
    if syntax == "proto3":
        order.field.add(name="maybe", number=26, type=_F.TYPE_INT32, label=ONE, proto3_optional=True, oneof_index=0)
        order.oneof_decl.add(name="_maybe")
    return file


def place_file() -> Any:
    name = "google/protobuf/timestamp.proto"
    file = descriptor_pb2.FileDescriptorProto(
        name="shop/place.proto", package="shop", syntax="proto3", dependency=[name]
    )
    place = file.message_type.add(name="Place")
    place.field.add(name="city", number=1, type=_F.TYPE_STRING, label=ONE)
    place.field.add(name="since", number=2, type=_F.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=ONE)
    return file


PLACE = row(("city", STRING), ("since", row(("seconds", BIGINT), ("nanos", INT))))
SCHEMA = Schema.of(
    id=BIGINT, count=INT, big=BIGINT, price=DOUBLE, weight=FLOAT, paid=BOOLEAN, name=STRING, raw=BYTES, kind=STRING,
    place=PLACE, tags=array(STRING), numbers=array(INT), places=array(PLACE), parts=map_of(STRING, BIGINT),
)  # fmt: skip
FULL = {
    "id": -5, "count": 7, "big": 2**62, "price": 1.5, "weight": 0.25, "paid": True, "name": "ä", "raw": b"\xff",
    "kind": "TOY", "place": {"city": "Rom", "since": {"seconds": 9, "nanos": 1}}, "tags": ["a", ""], "numbers": [1, -2],
    "places": [{"city": "x", "since": None}], "parts": [("p", 3)],
}  # fmt: skip


@pytest.fixture(params=["proto3", "proto2"])
def syntax(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def described(tmp_path: Path, syntax: str) -> dict[str, str]:
    files = descriptor_pb2.FileDescriptorSet(file=[order_file(syntax), place_file()])
    path = tmp_path / "order.desc"
    path.write_bytes(files.SerializeToString())
    return {"protobuf.descriptor-file": str(path), "protobuf.message-class-name": "shop.Order"}


def batch(*values: dict[str, Any], schema: Schema = SCHEMA) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(values), schema=schema.arrow)


def their_class(syntax: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    timestamp = descriptor_pb2.FileDescriptorProto.FromString(timestamp_pb2.DESCRIPTOR.serialized_pb)
    for file in (timestamp, place_file(), order_file(syntax)):
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def test_what_is_written_is_read_by_others_and_by_us(described: dict[str, str], syntax: str) -> None:
    columns = batch(FULL, {"id": 1})
    messages = encoder("protobuf", SCHEMA, **described).encode_messages(columns)
    theirs = their_class(syntax).FromString(messages[0].as_py())
    assert (theirs.id, theirs.kind, theirs.place.since.seconds, dict(theirs.parts)) == (-5, 2, 9, {"p": 3})
    assert list(theirs.tags) == ["a", ""]
    decoded = decoder("protobuf", SCHEMA, **described).decode(messages_chunk(messages))
    assert decoded.columns.to_pylist()[0] == FULL
    absent = decoded.columns.to_pylist()[1]
    assert absent["place"] is absent["tags"] is absent["parts"] is None
    simple = [absent[n] for n in ("count", "price", "name", "kind")]
    assert simple == ([0, 0.0, "", "UNKNOWN"] if syntax == "proto3" else [None] * 4)


def test_default_values_are_read_if_asked_for(described: dict[str, str]) -> None:
    given = described | {"protobuf.read-default-values": "true"}
    (found,) = decoder("protobuf", SCHEMA, **given).decode(messages_chunk(pa.array([b""]))).columns.to_pylist()
    assert (found["count"], found["kind"], found["tags"], found["parts"]) == (0, "UNKNOWN", [], [])
    assert found["place"] == {"city": "", "since": {"seconds": 0, "nanos": 0}}


@pytest.mark.parametrize("syntax", ["proto3"], indirect=True)
def test_optional_fields_of_proto3_may_be_null(described: dict[str, str]) -> None:
    schema = Schema.of(maybe=INT)
    messages = encoder("protobuf", schema, **described).encode_messages(batch({"maybe": 0}, {}, schema=schema))
    assert messages.to_pylist() == [b"\xd0\x01\x00", b""]
    assert rows(decoder("protobuf", schema, **described).decode(messages_chunk(messages))) == [(0,), (None,)]


def test_enums_are_numbers_too_and_nulls_in_lists_have_stand_ins(described: dict[str, str]) -> None:
    schema = Schema.of(kind=INT, tags=array(STRING), numbers=array(INT), parts=map_of(STRING, BIGINT))
    given = described | {"protobuf.write-null-string-literal": "none"}
    value = {"kind": 1, "tags": [None, "a"], "numbers": [None], "parts": [("k", None)]}
    messages = encoder("protobuf", schema, **given).encode_messages(batch(value, schema=schema))
    assert rows(decoder("protobuf", schema, **given).decode(messages_chunk(messages))) == [
        (1, ["none", "a"], [0], [("k", 0)])
    ]


@pytest.mark.parametrize("syntax", ["proto3"], indirect=True)
def test_poison_messages_are_told_and_others_read(described: dict[str, str]) -> None:
    good = b"\x08\x05"
    poison = {
        b"\xff\xff\xff": "no shop.Order",
        b"\x08": "no shop.Order",
        b"\x3a\x05ab": "no shop.Order",
        b"\x3a\x01\xff": "no shop.Order",
        b"\xa0\x01\x63": "the enum has no value 99",
        b"\x19" + b"\xff" * 8: "no BIGINT",
    }
    decoded = decoder("protobuf", SCHEMA, **described).decode(messages_chunk(pa.array([good, *poison, good])))
    assert [r[0] for r in rows(decoded)] == [5, 5]
    assert decoded.records.tolist() == [0, len(poison) + 1]
    for bad, reason in zip(decoded.bad, poison.values(), strict=True):
        assert reason in bad.reason
    source = random.Random(3)
    junk = [bytes(source.randrange(256) for _ in range(source.randrange(30))) for _ in range(300)]
    decoded = decoder("protobuf", SCHEMA, **described).decode(messages_chunk(pa.array(junk)))
    decoded.columns.validate(full=True)
    assert len(decoded.bad) + len(decoded.records) == 300


SIMPLE = SCHEMA.select([n for n in SCHEMA.names if n not in ("tags", "numbers", "places", "parts")])


def random_message(made: Any, source: random.Random) -> bytes:
    """Fields in any order, some of them twice, some unknown, all as the library writes them."""
    pieces = []
    for _ in range(source.randrange(12)):
        match source.randrange(10):
            case 0:
                field = {"id": source.choice([0, -1, 2**63 - 1, -(2**63), 300])}
            case 1:
                field = {"count": source.choice([0, -1, -(2**31), 2**31 - 1])}
            case 2:
                field = {"big": source.choice([0, 2**40, 2**64 - 1])}
            case 3:
                field = {"price": source.random(), "weight": 0.5}
            case 4:
                field = {"paid": source.random() < 0.5, "raw": bytes(source.randrange(256) for _ in range(20))}
            case 5:
                field = {"name": "ä" * source.randrange(9)}
            case 6:
                field = {"kind": source.randrange(3)}
            case 7:
                field = {"place": {"city": source.choice(["", "Rom"]), "since": {"nanos": source.randrange(3)}}}
            case 8:
                field = {"tags": ["a"], "numbers": [1, 2]}
            case _:
                pieces.append(bytes.fromhex("9a06036162639806" + "96" + "01"))  # fields that nobody knows
                continue
        pieces.append(made(**field).SerializeToString())
    return b"".join(pieces)


@pytest.mark.parametrize("defaults", ["true", "false"])
def test_messages_that_are_read_in_step_are_what_the_library_reads(
    described: dict[str, str], syntax: str, defaults: str
) -> None:
    source = random.Random(11)
    made = their_class(syntax)
    whole = [random_message(made, source) for _ in range(400)]
    given = described | {"protobuf.read-default-values": defaults}
    in_step, by_library = (decoder("protobuf", SIMPLE, **given) for _ in range(2))
    assert isinstance(in_step, ProtobufDecoder)
    assert isinstance(by_library, ProtobufDecoder)
    assert in_step._in_step is not None
    by_library._in_step = None
    chunk = messages_chunk(pa.array(whole, pa.binary()))
    found, expected = in_step.decode(chunk), by_library.decode(chunk)
    found.columns.validate(full=True)
    assert found.columns.equals(expected.columns)
    assert found.records.tolist() == expected.records.tolist()
    assert found.bad == expected.bad
    assert {b.reason[:9] for b in found.bad} == {"column 'b"}  # big is too large
    broken = []
    for record in whole:
        changed = bytearray(record or b"x")
        changed[source.randrange(len(changed))] = source.randrange(256)
        broken.append(bytes(changed[: source.randrange(len(changed) + 1)]))
    chunk = messages_chunk(pa.array(broken, pa.binary()))
    found, expected = in_step.decode(chunk), by_library.decode(chunk)
    unread = {b.index for b in expected.bad} - {b.index for b in found.bad}  # damage in fields that no column reads
    assert {b.index for b in found.bad} <= {b.index for b in expected.bad}
    assert len(unread) < 20
    kept = pa.array([r not in unread for r in found.records.tolist()])
    assert found.columns.filter(kept).equals(expected.columns)


def test_messages_that_are_written_in_step_are_what_the_library_writes(described: dict[str, str], syntax: str) -> None:
    source = random.Random(5)

    def maybe(value: Any) -> Any:
        return None if source.random() < 0.3 else value

    values = [
        {
            "id": maybe(source.choice([0, -1, 2**63 - 1, -(2**63)])),
            "count": maybe(source.choice([0, -1, -(2**31), 2**31 - 1])),
            "big": maybe(source.choice([0, 2**62])),
            "price": maybe(source.choice([0.0, -0.0, 1.5])),
            "weight": maybe(0.25),
            "paid": maybe(source.random() < 0.5),
            "name": maybe("ä" * source.randrange(80)),
            "raw": maybe(b"\xff" * source.randrange(3)),
            "kind": maybe(source.choice(["UNKNOWN", "BOOK"])),
            "place": maybe({"city": maybe("Rom"), "since": maybe({"seconds": 1, "nanos": maybe(0)})}),
        }
        for _ in range(200)
    ]
    columns = batch(*values, schema=SIMPLE)
    in_step, by_library = (encoder("protobuf", SIMPLE, **described) for _ in range(2))
    assert isinstance(in_step, ProtobufEncoder)
    assert in_step._in_step is not None
    by_library.__dict__["_in_step"] = None
    assert in_step.encode_messages(columns).equals(by_library.encode_messages(columns))
    assert in_step.encode_messages(columns.slice(50, 20)).equals(in_step.encode_messages(columns).slice(50, 20))
    assert in_step.encode_messages(columns.slice(0, 0)).to_pylist() == []


@pytest.mark.parametrize(
    ("field", "kind", "value", "message"),
    [("kind", STRING, "CAR", "'CAR' is no value of the enum"), ("count", BIGINT, 2**40, "is no int32")],
)
def test_values_that_no_field_takes_name_their_row(
    described: dict[str, str], field: str, kind: Any, value: Any, message: str
) -> None:
    schema = Schema.of(**{field: kind})
    with pytest.raises(DataError, match=message) as caught:
        encoder("protobuf", schema, **described).encode_messages(batch({}, {field: value}, schema=schema))
    assert caught.value.row == 1


def test_messages_with_very_many_fields_take_no_time_without_end(described: dict[str, str]) -> None:
    record = b"\x08\x05" * 20_000
    decoded = decoder("protobuf", Schema.of(id=BIGINT), **described).decode(
        messages_chunk(pa.array([record, b"\x08\x07"]))
    )
    assert rows(decoded) == [(5,), (7,)]


@pytest.mark.parametrize("syntax", ["proto3"], indirect=True)
def test_generated_modules_are_read_and_not_run(described: dict[str, str], tmp_path: Path, syntax: str) -> None:
    (tmp_path / "shop").mkdir()
    for file in (order_file(syntax), place_file()):
        module = tmp_path / f"{file.name.removesuffix('.proto')}_pb2.py"
        text = f"raise SystemExit('it was run')\nDESCRIPTOR = _pool.Default().AddSerializedFile({file.SerializeToString()!r})\n"
        module.write_text(text)
    path = str(tmp_path / "shop" / "order_pb2.py")
    for name in ("shop.Order", "com.shop.Orders$Order", "Order"):
        assert message_class(name, path).DESCRIPTOR.full_name == "shop.Order"
    assert not any("order_pb2" in name for name in sys.modules)
    given = described | {"protobuf.descriptor-file": path}
    assert rows(decoder("protobuf", Schema.of(id=BIGINT), **given).decode(messages_chunk(pa.array([b"\x08\x05"])))) == [
        (5,)
    ]


@pytest.mark.parametrize("syntax", ["proto3"], indirect=True)
@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (Schema.of(other=INT), "'other' is no field of the message"),
        (Schema.of(id=INT), "column 'id' is INT, but the field is int64"),
        (Schema.of(name=BYTES), "column 'name' is BYTES, but the field is string"),
        (Schema.of(tags=STRING), "but the field is a repeated"),
        (Schema.of(place=STRING), r"but the field is a message shop\.Place"),
        (Schema.of(place=row(("zip", INT))), r"'place\.zip' is no field of the message"),
        (Schema.of(parts=array(STRING)), "but the field is a map"),
        (Schema.of(parts=map_of(INT, BIGINT)), "column 'parts, key' is INT, but the field is string"),
        (Schema.of(numbers=array(BOOLEAN)), "column 'numbers, element' is BOOLEAN"),
    ],
)
def test_columns_that_do_not_fit_are_told(described: dict[str, str], schema: Schema, message: str) -> None:
    for make in (decoder, encoder):
        with pytest.raises(OptionError, match=message):
            make("protobuf", schema, **described)  # type: ignore[operator]


def test_files_that_describe_nothing_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.desc").write_bytes(b"\xff\xff")
    (tmp_path / "b_pb2.py").write_text("x = 1")
    (tmp_path / "c.desc").write_bytes(descriptor_pb2.FileDescriptorSet(file=[order_file("proto3")]).SerializeToString())
    for name, message in (
        ("none.desc", "cannot be read: No such file"),
        ("a.desc", "is no file that protoc wrote"),
        ("b_pb2.py", "holds no descriptor"),
        ("c.desc", r"it needs shop/place\.proto, which it does not hold"),
    ):
        with pytest.raises(OptionError, match=message):
            message_class("shop.Order", str(tmp_path / name))
    (tmp_path / "d.desc").write_bytes(descriptor_pb2.FileDescriptorSet(file=[place_file()]).SerializeToString())
    with pytest.raises(OptionError, match=r"has no message type 'shop\.Plaze'") as caught:
        message_class("shop.Plaze", str(tmp_path / "d.desc"))
    assert "shop.Place" in str(caught.value.hint)
    with pytest.raises(OptionError, match="message-class-name' is needed"):
        record_format("protobuf").check(SCHEMA, options_of("protobuf"))


@pytest.mark.parametrize("syntax", ["proto3"], indirect=True)
def test_without_the_library_only_running_fails(described: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    missing = ClientLibrary("protobuf", ("no_such_protobuf",))
    monkeypatch.setattr(descriptors, "CLIENT", missing)
    monkeypatch.setattr("flowrun.connectors.formats.protobuf.protobuf_format.CLIENT", missing)
    monkeypatch.setitem(sys.modules, "google.protobuf.descriptor_pool", None)
    record_format("protobuf").check(SCHEMA, options_of("protobuf", **described))
    made = encoder("protobuf", SCHEMA, **described)
    with pytest.raises(SetupError, match="format 'protobuf' needs the Python package google") as caught:
        made.encode_messages(batch(FULL))
    assert caught.value.hint == "pip install 'flowrun-streaming[protobuf]'"


def test_a_value_that_no_field_takes_names_its_row(described: dict[str, str]) -> None:
    schema = Schema.of(kind=STRING)
    with pytest.raises(DataError, match=r"the row is no shop\.Order") as caught:
        encoder("protobuf", schema, **described).encode_messages(batch({"kind": "TOY"}, {"kind": "CAR"}, schema=schema))
    assert caught.value.row == 1
