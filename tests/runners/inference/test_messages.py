"""Messages by their bytes: the format of their values, and what their keys are."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import pytest

from flowrun.connectors.formats.avro.schema_registry import SchemaRegistry
from flowrun.errors import PipelineError
from flowrun.runners.inference.message_keys import ReadKeys, read_keys
from flowrun.runners.inference.message_values import ReadValues, format_of, read_values


def no_registry(*_: object) -> NoReturn:
    raise PipelineError.of("there is no registry")


def read(*values: bytes | None, form: str | None = None) -> ReadValues:
    return read_values(values, form, no_registry, "topic 't'")


def keys(keys: list[bytes | None], values: list[dict[str, Any] | None]) -> ReadKeys | None:
    return read_keys(keys, values, no_registry)


CREATED = b'{"before": null, "after": {"id": 1}, "op": "c"}'


@pytest.mark.parametrize(
    ("values", "form"),
    [
        ([b'{"a": 1}'], "json"),
        ([b'{"a": 1}'] * 9 + [b"oops"], "json"),
        ([b'{"op": "c"}'], "json"),
        ([CREATED], "debezium-json"),
        ([b'{"schema": {}, "payload": ' + CREATED + b"}"], "debezium-json"),
        ([b"1,a", b"2,b"], "csv"),
        ([b'1;"a;b"', b"2;c"], "csv"),
        ([b"1|2"], "csv"),
        ([b"hello", b"to, you"], "raw"),
        ([b"[1, 2]", b"[]"], "raw"),
        ([b"\x00\x00\x00\x00\x07\x02"], "avro-confluent"),
        ([b"\x0a\x05\xff"], None),
    ],
)
def test_formats(values: list[bytes], form: str | None) -> None:
    assert format_of(values) == form


def test_broken_messages_are_counted() -> None:
    found = read(*[b'{"a": 1}'] * 9, b"oops", None)
    assert (found.unread, found.why_unread) == (1, "it is no JSON object")
    assert found.rows[8:] == ({"a": 1}, None, None)


def test_events_are_the_rows_that_they_tell_of() -> None:
    update = {"before": None, "after": {"id": 1, "n": 2}, "op": "u"}
    delete = {"before": {"id": 1, "n": 2}, "after": None, "op": "d"}
    whole = read(CREATED, json.dumps({**update, "before": {"id": 1}}).encode(), json.dumps(delete).encode(), None)
    assert whole.rows == ({"id": 1}, {"id": 1, "n": 2}, {"id": 1, "n": 2}, None)
    assert (whole.options, whole.needs_key) == ({}, False)
    partial = read(CREATED, json.dumps(update).encode())
    assert (partial.options, partial.needs_key) == ({"changelog-mode": "upsert"}, True)
    wrapped = read(b'{"schema": {}, "payload": ' + CREATED + b"}")
    assert (wrapped.options, wrapped.rows) == ({"schema-include": "true"}, ({"id": 1},))


def test_fields_of_csv_have_types() -> None:
    found = read(b'1;"a;b";true', b"2;;false")
    assert found.options == {"field-delimiter": ";"}
    assert found.rows == ({"f1": 1, "f2": "a;b", "f3": True}, {"f1": 2, "f2": None, "f3": False})


def test_a_given_format_counts() -> None:
    assert read(b'{"a": 1}', form="raw").rows == ({"message": '{"a": 1}'},)
    assert read(b"\xff\x00", form="raw").rows == ({"message": b"\xff\x00"},)


@pytest.mark.parametrize(
    ("values", "form", "said"),
    [
        ([b"\x0a\x05\xff"], None, "bytes of a format that is not known: one begins with 0a 05 ff"),
        ([b"x"], "json", "no message of topic 't' that was looked at is a row of format 'json': it is no JSON object"),
        ([b"x"], "protobuf", "messages of format 'protobuf' do not tell their columns"),
        ([None, None], None, "the messages of topic 't' that were looked at have no values"),
        ([b"\x00\x00\x00\x00\x07\x02"], None, "there is no registry"),
    ],
)
def test_what_cannot_be_read(values: list[bytes | None], form: str | None, said: str) -> None:
    with pytest.raises(PipelineError) as raised:
        read(*values, form=form)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("given", "values", "form", "columns"),
    [
        ([b"u1", b"u2"], [{"n": 1, "user": "u1"}, {"n": 1, "user": "u2"}], "raw", ("user",)),
        ([b"7", b"8"], [{"id": 7}, {"id": 8}], "csv", ("id",)),
        ([b"7", None], [{"id": 7}, None], None, ()),
        ([b'{"id": 1}'], [{"id": 1, "x": 2}], "json", ("id",)),
        ([b'{"schema": {}, "payload": {"id": 1}}'], [{"id": 1, "x": 2}], "", ("id",)),
        ([b'{"schema": {}, "payload": {"id": 3}}'], [{"id": 1, "x": 2}], None, ()),
        ([b"7"], [None], "raw", ("message_key",)),
    ],
)
def test_keys_that_values_have(
    given: list[bytes | None], values: list[dict[str, Any] | None], form: str | None, columns: tuple[str, ...]
) -> None:
    found = keys(given, values)
    assert (found.form if found else None, found.columns if found else ()) == (form, columns)


def test_keys_of_their_own_are_columns() -> None:
    text = keys([b"u1", b"u2"], [{"message_key": 5}, {"message_key": 6}])
    assert text is not None
    assert (text.columns, text.rows) == (("key_message_key",), ({"key_message_key": "u1"}, {"key_message_key": "u2"}))
    assert text.options["value.fields-include"] == "EXCEPT_KEY"
    binary = keys([bytes(8)], [{"n": 1}])
    assert binary is not None
    assert binary.rows == ({"message_key": bytes(8)},)
    same_name = keys([b'{"id": 7}'], [{"id": 8}])
    assert same_name is not None
    assert (same_name.prefix, same_name.columns, same_name.rows) == ("key_", ("key_id",), ({"key_id": 7},))


def test_avro_by_the_schemas_of_the_registry() -> None:
    schemas = {
        1: '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}, {"name": "old", "type": "string"}]}',
        2: '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}, {"name": "at", "type": '
        '["null", {"type": "long", "logicalType": "timestamp-millis"}]}]}',
    }
    registry = KnownSchemas(schemas)
    first, second = b"\0\0\0\0\1" + b"\x0a" + b"\x02x", b"\0\0\0\0\2" + b"\x0c" + b"\x00"
    found = read_values([first, second, first + b"!"], None, lambda _: registry, "topic 't'")
    assert (found.form, str(found.schema)) == ("avro-confluent", "id BIGINT, at TIMESTAMP_LTZ(3), old STRING")
    assert found.rows == ({"id": 5, "at": None, "old": "x"}, {"id": 6, "at": None, "old": None}, None)
    assert "bytes are left behind the row" in str(found.why_unread)


class KnownSchemas(SchemaRegistry):
    """A registry that is not asked over a network."""

    def __init__(self, schemas: dict[int, str]) -> None:
        from flowrun.connectors.formats.avro.schema import parse_schema

        self._known = {number: parse_schema(text) for number, text in schemas.items()}

    def schema(self, number: int) -> Any:
        return self._known[number]
