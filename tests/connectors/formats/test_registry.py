"""The registry of formats."""

import pickle

import pytest

from flowrun.api.format import RecordFormat
from flowrun.connectors.formats.registry import (
    BUILT_IN,
    FILE_FORMATS,
    RECORD_FORMATS,
    file_format_named,
    format_named,
    format_names,
    format_options,
    line_format_named,
    prefixed_options,
    record_format_named,
)
from flowrun.connectors.registry import connector_named
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING, array, map_of
from flowrun.errors import OptionError
from flowrun.plan.tables import check_format

from .formats import decoder, options_of, record_format, rows


def test_unknown_formats_list_near_matches() -> None:
    with pytest.raises(OptionError, match="there is no format 'jsno'") as caught:
        format_named("jsno")
    assert "json" in str(caught.value)


def test_each_format_has_options_and_pickles() -> None:
    assert format_names() == tuple(sorted(BUILT_IN))
    for name in format_names():
        found = format_named(name)
        assert found.name == name
        assert pickle.loads(pickle.dumps(found)) == found
        assert all(o.name.startswith(f"{name}.") and o.doc for o in prefixed_options(name))
        assert format_options(name).options == found.options


def test_whole_files_are_no_messages() -> None:
    assert record_format_named("json", "connector 'kafka'").name == "json"
    with pytest.raises(OptionError, match="connector 'kafka' carries single records"):
        record_format_named("parquet", "connector 'kafka'")


def test_the_lists_say_which_formats_files_and_messages_can_have() -> None:
    for name in BUILT_IN:
        found = format_named(name)
        is_record = isinstance(found, RecordFormat)
        assert is_record == (name in RECORD_FORMATS)
        in_files = not is_record or found.create_framer is not None or found.container is not None
        assert in_files == (name in FILE_FORMATS)
        if in_files:
            assert file_format_named(name).options == found.options
        else:
            with pytest.raises(OptionError, match="cannot be told apart in a file; they are for message queues"):
                file_format_named(name)
            with pytest.raises(OptionError, match="socket: records of format"):
                line_format_named(name, "socket")


@pytest.mark.parametrize(
    ("connector", "name", "message"),
    [
        ("filesystem", "avro-confluent", "may hold any byte and cannot be told apart in a file or by a delimiter"),
        ("socket", "avro", "may hold any byte"),
        ("socket", "parquet", "which is one of whole files"),
        ("socket", "debezium-json", "connector 'socket' cannot use format 'debezium-json'"),
        ("redis", "debezium-avro-confluent", "whose records are changes of rows"),
    ],
)
def test_formats_that_a_connector_cannot_use_are_told_with_those_that_it_can(
    connector: str, name: str, message: str
) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        check_format(connector_named(connector), name)
    assert "json" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("name", "schema", "line"),
    [
        (
            "json",
            Schema.of(i=BIGINT, s=STRING, t=array(STRING)),
            b'{"i":1,"s":"some longer text","t":["a long element"]}',
        ),
        ("json", Schema.of(m=map_of(STRING, STRING)), b'{"m":{"key":"value"}}'),
        ("csv", Schema.of(i=BIGINT, s=STRING), b"1,some longer text"),
        ("raw", Schema.of(s=STRING), b"some longer text"),
    ],
)
def test_rows_do_not_refer_to_the_bytes_that_they_came_from(name: str, schema: Schema, line: bytes) -> None:
    buffer = bytearray(b"\n".join([line] * 100))
    chunk, _ = record_format(name).create_framer(options_of(name)).frame(memoryview(buffer), True)
    decoded = decoder(name, schema).decode(chunk)
    before = rows(decoded)
    buffer[:] = b"#" * len(buffer)
    assert rows(decoded) == before
    assert len(before) == 100
