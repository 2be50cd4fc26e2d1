"""CSV: quoting, framing over any block border, and values against Python's own reader."""

import csv
import io
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.api.format import Framer, lines_chunk
from flowrun.connectors.formats.csv_options import csv_settings
from flowrun.connectors.formats.framing import MAX_QUOTED_RECORD_BYTES, LineFramer, QuotedFramer
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, DOUBLE, STRING, array, decimal, row
from flowrun.errors import DataError, OptionError
from tests.examples import examples

from .formats import decoder, encoder, options_of, record_format, rows

FIELD = st.text(st.sampled_from('ab,";\n\r #é'), max_size=5)
TABLE = Schema.of(a=STRING, b=STRING, c=STRING)


def records_of(framer: Framer, data: bytes, block: int) -> list[bytes]:
    """The records of `data`, read in blocks as a file would be."""
    records: list[bytes] = []
    carry, position = b"", 0
    while True:
        more = data[position : position + block]
        position += len(more)
        carry += more
        chunk, consumed = framer.frame(carry, not more)
        records += [chunk.record(i) for i in range(len(chunk))]
        carry = carry[consumed:]
        if not more:
            return records


def parse(text: str, schema: Schema = TABLE, **options: Any) -> tuple[list[tuple[Any, ...]], list[tuple[int, str]]]:
    framer = record_format("csv").create_framer(options_of("csv", **options))
    chunk, _ = framer.frame(text.encode(), True)
    decoded = decoder("csv", schema, **options).decode(chunk)
    return rows(decoded), [(b.index, b.reason) for b in decoded.bad]


@examples(80)
@given(st.lists(st.tuples(FIELD, FIELD, FIELD), max_size=12), st.integers(1, 40), st.sampled_from(["\n", "\r\n"]))
def test_quoted_records_against_pythons_reader_over_any_block_border(
    written: list[tuple[str, ...]], block: int, end: str
) -> None:
    out = io.StringIO()
    csv.writer(out, lineterminator=end, quoting=csv.QUOTE_ALL).writerows(written)
    framer = record_format("csv").create_framer(options_of("csv"))
    records = records_of(framer, out.getvalue().encode(), block)
    assert len(records) == len(written)
    assert rows(decoder("csv", TABLE).decode(lines_chunk(records))) == written
    if records:
        chunk, consumed = framer.frame(out.getvalue().encode(), True)
        assert consumed == len(out.getvalue().encode())
        assert rows(decoder("csv", TABLE).decode(chunk)) == written


@examples(60)
@given(
    st.lists(st.tuples(FIELD, st.none() | FIELD, FIELD), min_size=1, max_size=12),
    st.sampled_from([",", ";", "|", "\t"]),
)
def test_encoded_rows_read_back_equal(written: list[tuple[str | None, ...]], delimiter: str) -> None:
    options = {"csv__field_delimiter": delimiter, "csv__null_literal": "NULL"}
    batch = pa.RecordBatch.from_pylist([dict(zip("abc", w, strict=True)) for w in written], schema=TABLE.arrow)
    text = bytes(encoder("csv", TABLE, **options).encode(batch)).decode()
    assert parse(text, **options)[0] == written


def test_nulls_within_lists_and_rows_read_back_equal() -> None:
    schema = Schema.of(texts=array(STRING), numbers=array(BIGINT), r=row(("x", BIGINT), ("y", STRING)))
    written = [(["a", None, ""], [1, None], {"x": None, "y": None}), (["b", None], None, {"x": 1, "y": ""})]
    options = {"csv__null_literal": "NULL"}
    batch = pa.RecordBatch.from_pylist([dict(zip(schema.names, w, strict=True)) for w in written], schema=schema.arrow)
    text = bytes(encoder("csv", schema, **options).encode(batch)).decode()
    assert text == "a;NULL;,1;NULL,NULL;NULL\nb;NULL,NULL,1;\n"
    assert parse(text, schema, **options)[0] == written


def test_values() -> None:
    schema = Schema.of(i=BIGINT, s=STRING, d=decimal(6, 2), f=DOUBLE)
    assert parse('1,x,1.005,1e3\n"2","a,""b""",,\n\n,,,\n', schema)[0] == [
        (1, "x", Decimal("1.01"), 1000.0),
        (2, 'a,"b"', None, None),
        (None, "", None, None),
    ]


def test_a_quote_inside_an_unquoted_field_is_itself() -> None:
    assert parse('5" disk,x,y\na,"b\nc",d\n6" disk,x,y\n')[0] == [
        ('5" disk', "x", "y"),
        ("a", "b\nc", "d"),
        ('6" disk', "x", "y"),
    ]


def test_without_quotes_every_character_is_itself() -> None:
    assert parse('"a,b,c"\n', csv__disable_quote_character="true")[0] == [('"a', "b", 'c"')]


def test_escapes_comments_and_null_literals() -> None:
    text = "#a,b,c\nx\\,y,n/a,\\\\\n"
    options = {"csv__escape_character": "\\", "csv__allow_comments": "true", "csv__null_literal": "n/a"}
    assert parse(text, **options)[0] == [("x,y", None, "\\")]


def test_arrays_and_rows() -> None:
    schema = Schema.of(a=array(BIGINT), r=row(("x", STRING), ("y", BIGINT)))
    assert parse("1;2;,x;5\n,\n7,y;\n", schema)[0] == [
        ([1, 2, None], {"x": "x", "y": 5}),
        (None, None),
        ([7], {"x": "y", "y": None}),
    ]
    good, bad = parse("1;z,x;5\n1,x\n", schema)
    assert good == []
    assert bad == [
        (0, "column 'a': element 'z' is no BIGINT"),
        (1, "column 'r': 'x' has 1 fields, not the 2 of ROW<x STRING, y BIGINT>"),
    ]
    batch = pa.RecordBatch.from_pylist([{"a": [1, None], "r": {"x": "k", "y": None}}, {}], schema=schema.arrow)
    assert bytes(encoder("csv", schema).encode(batch)) == b"1;,k;\n,\n"
    assert bytes(encoder("csv", schema).encode(batch.slice(1))) == b",\n"


def test_many_rows_with_a_few_broken_ones() -> None:
    lines = [f"{i},x,y" for i in range(3000)]
    lines[100], lines[2000], lines[2500] = "1,2", "1,2,3,4", "a,\xff,b"
    good, bad = parse("\n".join(lines))
    assert len(good) == 2998
    assert [i for i, _ in bad] == [100, 2000]


def test_a_quote_that_is_never_closed_spoils_one_line_only() -> None:
    text = 'a,b,c\n1,"2,3\n' + "x,y,z\n" * 10
    good, bad = parse(text)
    assert len(good) == 11
    assert bad == [(1, "a quote is opened but not closed, or text follows it")]
    framer = QuotedFramer(b",", b'"', None)
    data = b'a,"b\n' + b"x" * 100 + b"\n"
    assert framer.frame(data, False)[1] == 0  # the rest may still close it
    chunk, _ = framer.frame(b'a,"b\n' + b"x" * (MAX_QUOTED_RECORD_BYTES + 10) + b"\n", False)
    assert chunk.record(0) == b'a,"b'


def test_without_multi_line_each_line_is_a_record() -> None:
    good, bad = parse('a,"b\nc",d,e\nx,y,z\n', csv__multi_line="false")
    assert good == [('c"', "d", "e"), ("x", "y", "z")]
    assert bad == [(0, "a quote is opened but not closed, or text follows it")]


@examples(60)
@given(st.text(st.sampled_from("ab\r\n"), max_size=30), st.integers(1, 10))
def test_lines_over_any_block_border(text: str, block: int) -> None:
    wanted = [part.removesuffix("\r") for part in text.split("\n")]
    assert (
        records_of(LineFramer(), text.encode(), block) == [w.encode() for w in wanted if w]
        or "\r" in text.rsplit("\n", 1)[-1]
    )


def test_headers() -> None:
    named = decoder("csv", Schema.of(b=BIGINT, missing=STRING), csv__header="true")
    assert named.has_header
    named.read_header(b' a,"b"')
    assert rows(named.decode(lines_chunk([b"x,1", b"y,"]))) == [(1, None), (None, None)]
    with pytest.raises(DataError, match="the header line names column 'b' twice"):
        named.read_header(b"a,b, b")
    named.read_header(b",b,a,a,")  # names that the table does not declare
    assert rows(named.decode(lines_chunk([b"0,1,2,3,4", b"x,,y,z,"]))) == [(1, None), (None, None)]
    assert rows(named.decode(lines_chunk([b"0,1,2,3", b'x,5,"y,z",,']))) == [(5, None)]
    assert encoder("csv", Schema.of(a=BIGINT, **{"b,c": STRING}), csv__header="true").header() == b'a,"b,c"\n'
    assert encoder("csv", TABLE).header() == b""


def test_characters_are_checked() -> None:
    for bad in ("ab", "é", "\\n"):
        with pytest.raises(OptionError, match="must be one ASCII character"):
            csv_settings(options_of("csv", csv__field_delimiter=bad))
    with pytest.raises(OptionError, match="are both"):
        csv_settings(options_of("csv", csv__field_delimiter='"'))
    assert csv_settings(options_of("csv", csv__field_delimiter="\\u0001")).delimiter == "\x01"


def test_what_needs_quotes_cannot_be_written_without_them() -> None:
    plain = encoder("csv", TABLE, csv__disable_quote_character="true")
    with pytest.raises(DataError, match="cannot be written without quotes") as caught:
        plain.encode(pa.RecordBatch.from_pylist([{}, {"a": "x,y"}], schema=TABLE.arrow))
    assert caught.value.row == 1
