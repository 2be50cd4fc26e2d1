"""The compiled reader of JSON: what it reads is what the parsers behind it would have read, and it leaves to them what is odd."""

from __future__ import annotations

import json
import math
import os
import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flowrun.api.format import RecordChunk, lines_chunk, messages_chunk
from flowrun.connectors.formats import json_compiled
from flowrun.connectors.formats.json_compiled import (
    BLANK,
    IN_DOUBT,
    READ,
    CompiledReader,
    NotCompiledError,
    compiled_reader,
    library,
)
from flowrun.connectors.formats.json_decoder import JsonDecoder
from flowrun.connectors.formats.native.build import NotBuiltError, build, compiler
from flowrun.core.schema import Schema
from flowrun.core.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TINYINT,
    DataType,
    array,
    decimal,
    map_of,
    row,
    timestamp,
    timestamp_ltz,
)
from tests.servers.needed import give_up

from .compiled_json import built, same
from .test_odd_json import FIELDS, LINES, ODD_LINES, ODD_VALUES, SCHEMA, line

NESTED = Schema.of(
    id=BIGINT,
    tags=array(STRING),
    lines=array(row(("sku", STRING), ("n", INT), ("seen", array(timestamp(6))), ("prices", array(decimal(8, 3))))),
    deep=row(("a", row(("b", row(("c", array(array(DOUBLE))))))), ("ok", BOOLEAN)),
)
NESTED_LINES = [
    b'{"id": 1, "tags": ["a", null, "\\u00e9\\n"], "lines":'
    b' [{"sku": "s", "n": 2, "seen": ["2024-03-01 10:00:00.000001"], "prices": [1.25]}]}',
    b'{"tags": [], "deep": {"a": {"b": {"c": [[1, 2.5], [], null, [null]]}}, "ok": true}, "id": null}',
    b'{"lines": [null, {}, {"prices": [], "sku": "\xc3\xa9", "other": [{"x": [1]}]}], "deep": null}',
    b'{"deep": {"a": null}, "lines": []}',
    b"{}",
]


@pytest.fixture(scope="module", autouse=True)
def _built() -> Iterator[None]:
    yield from built()


def reader(schema: Schema, *, all_fields: bool = False) -> CompiledReader:
    found = compiled_reader(schema, all_fields=all_fields)
    assert found is not None
    return found


def statuses(lines: list[bytes], schema: Schema, *, all_fields: bool = False) -> list[int]:
    found = reader(schema, all_fields=all_fields).read(lines_chunk(lines))
    assert found is not None
    found[0].validate(full=True)
    return list(map(int, found[1]))


def column(kind: DataType, values: list[str]) -> tuple[pa.Array, list[int]]:
    """The values of one column, and for each text whether it was read."""
    found = reader(Schema.of(v=kind)).read(lines_chunk([f'{{"v": {v}}}'.encode() for v in values]))
    assert found is not None
    return found[0].column(0), found[1].tolist()


def test_it_reads_what_is_plainly_right() -> None:
    assert statuses(LINES, SCHEMA) == [READ] * len(LINES)
    assert statuses(NESTED_LINES, NESTED) == [READ] * len(NESTED_LINES)
    same(lines_chunk(NESTED_LINES * 300), NESTED)
    found = reader(NESTED).read(lines_chunk(NESTED_LINES))
    assert found is not None
    assert found[0].to_pylist()[1]["deep"] == {"a": {"b": {"c": [[1.0, 2.5], [], None, [None]]}}, "ok": True}


def test_records_in_doubt_leave_nothing_behind() -> None:
    """Each slot is written anew: texts, lists and NULLs of a record that was given up are gone."""
    broken = [text[:cut] for text in NESTED_LINES[:4] for cut in range(1, len(text))]
    dice = random.Random(5)
    mixed = [one for text in NESTED_LINES * 20 for one in (*dice.sample(broken, 3), text)]
    found = reader(NESTED).read(lines_chunk(mixed))
    alone = reader(NESTED).read(lines_chunk(NESTED_LINES * 20))
    assert found is not None
    assert alone is not None
    assert found[0].to_pylist() == alone[0].to_pylist()
    assert found[1].tolist() == [IN_DOUBT, IN_DOUBT, IN_DOUBT, READ] * (len(mixed) // 4)


def test_blank_records_messages_and_absent_fields() -> None:
    assert statuses([b"", b" \t", b"{}", b" {} ", b"{} {}", b"null"], Schema.of(a=BIGINT)) == [
        *(BLANK, BLANK, READ, READ, IN_DOUBT, IN_DOUBT)
    ]
    assert statuses([b"{}", b'{"a": null}', b'{"b": 1}'], Schema.of(a=BIGINT), all_fields=True) == [
        *(IN_DOUBT, READ, IN_DOUBT)
    ]
    messages = messages_chunk(pa.array([*LINES, b"", b'{"id":\n5}', b'{"user": "\n"}', b"}", b"{", *LINES]))
    same(messages, SCHEMA)
    same(messages, SCHEMA, fail_on_missing_field=True)
    same(messages, Schema.of())


def test_a_reader_of_no_columns_counts_records() -> None:
    decoded = JsonDecoder(Schema.of()).decode(lines_chunk([*LINES, b"{", *LINES]))
    assert decoded.columns.num_rows == 2 * len(LINES)
    assert [b.index for b in decoded.bad] == [len(LINES)]


def test_names_and_types_that_it_has_no_form_for() -> None:
    assert compiled_reader(Schema.of(**{'a"b': BIGINT})) is None
    assert compiled_reader(Schema.of(a=array(map_of(STRING, BIGINT)))) is None
    same(lines_chunk([b'{"a"b": 1}', b'{"a\\"b": 2}', b'{"a": {"x": 1}}']), Schema.of(**{'a"b': BIGINT}))
    names = {f"{'n' * (i % 7)}{i}": BIGINT for i in range(200)} | {"": BIGINT, "é": BIGINT}
    texts = [json.dumps({n: i for i, n in enumerate(dict.fromkeys(order))}, ensure_ascii=False).encode()
             for order in (list(names), list(names)[::-1], ["x", *list(names)[::3], "y"])]  # fmt: skip
    assert statuses(texts, Schema.of(**names)) == [READ] * 3
    same(lines_chunk(texts), Schema.of(**names))


FIELD_NAMES = st.sampled_from([*FIELDS, "absent", "extra"])
VALUES = st.one_of(
    st.sampled_from([v for v in ODD_VALUES if "\n" not in v]),
    st.integers(-(1 << 70), 1 << 70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.text().map(json.dumps),
    st.text(st.characters(min_codepoint=32, exclude_characters='"\\')).map('"{}"'.format),
    st.datetimes().map('"{}"'.format),
    st.dates().map('"{}"'.format),
    st.decimals(allow_nan=False, allow_infinity=False, places=2).map(str),
)


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """A record with a few odd fields, some of which have a byte changed, added or left out."""
    fields = draw(st.dictionaries(FIELD_NAMES, VALUES, max_size=3))
    text = line(draw(st.integers(0, 50)), **{n: v for n, v in fields.items() if v}).replace(b"\n", b" ")
    if fields.get("extra"):
        text = text[:-1] + f', "absent" : {fields["extra"]} }}'.encode(errors="replace").replace(b"\n", b" ")
    if draw(st.integers(0, 3)) == 0:
        place = draw(st.integers(0, len(text) - 1))
        byte = bytes([draw(st.integers(0, 255))]).replace(b"\n", b"")
        text = text[:place] + byte + text[place + draw(st.integers(0, 1)) :]
    return text


@pytest.mark.exhaustive
@given(
    st.lists(records(), max_size=6),
    st.sampled_from([{}, {"ignore_parse_errors": True}, {"fail_on_missing_field": True}]),
)
@example([b'{"id": 1}{"id": 2}', b'{"id": 1, "id": 2}'], {})
def test_any_record_is_the_same_without_it(lines: list[bytes], options: dict[str, bool]) -> None:
    same(lines_chunk(lines), SCHEMA, **options)
    same(messages_chunk(pa.array(lines, pa.binary())), SCHEMA, **options)


@pytest.mark.parametrize("field", FIELDS)
def test_odd_values_are_the_same_without_it(field: str) -> None:
    odd = [line(7, **{field: value}) for value in ODD_VALUES if "\n" not in value]
    same(lines_chunk([*LINES, *odd]), SCHEMA)


def test_odd_records_are_the_same_without_it() -> None:
    lines = [text.encode() for text in ODD_LINES]
    same(lines_chunk([*NESTED_LINES, *lines]), SCHEMA)
    same(lines_chunk([*LINES, *lines, *NESTED_LINES]), NESTED)


def test_doubles_are_rounded_as_the_nearest() -> None:
    dice = random.Random(1)
    numbers = [struct.unpack("<d", dice.randbytes(8))[0] for _ in range(3000)]
    texts = [repr(n) for n in numbers if math.isfinite(n)]
    texts += [f"{dice.randint(0, 10**17)}e{dice.randint(-30, 30)}" for _ in range(3000)]
    texts += [
        "-0",
        "-0.0",
        "0e5",
        "9007199254740993",
        "9007199254740992e22",
        "1.7976931348623157e308",
        "5e-324",
        "0.1",
        "100.000",
    ]
    values, read = column(DOUBLE, texts)
    assert read == [READ] * len(texts)
    assert [struct.pack("<d", v) for v in values.to_pylist()] == [struct.pack("<d", float(t)) for t in texts]
    assert set(
        column(
            DOUBLE, ["1e400", "-1e309", "1e-400", "1e999999999", "0." + "1" * 50, "0x1", "1.", ".5", "01", '"1"', "NaN"]
        )[1]
    ) == {IN_DOUBT}


def test_floats_are_rounded_once() -> None:
    dice = random.Random(2)
    texts = [str(np.frombuffer(dice.randbytes(4), np.float32)[0]) for _ in range(2000)]
    texts = [t for t in texts if t[-1].isdigit()] + [
        "16777217",
        "16777217.0000001",
        "1.00000017881393432617187499",
        "0.1",
        "33e9",
        "-0",
    ]
    values, read = column(FLOAT, texts)
    assert read == [READ] * len(texts)
    assert values.equals(pc.cast(pa.array(texts), pa.float32()))


@pytest.mark.parametrize(("kind", "bits"), [(TINYINT, 8), (SMALLINT, 16), (INT, 32), (BIGINT, 64)], ids=str)
def test_integers_end_where_their_type_ends(kind: DataType, bits: int) -> None:
    most = (1 << (bits - 1)) - 1
    values, read = column(
        kind,
        [str(most), str(-most - 1), "-0", "0", str(most + 1), str(-most - 2), "1.0", "1e2", "00", "-", '"1"', "true"],
    )
    assert values.to_pylist() == [most, -most - 1, 0, 0]
    assert read == [READ] * 4 + [IN_DOUBT] * 8
    assert column(kind, ["18446744073709551617", "99999999999999999999", "-9223372036854775809"])[1] == [IN_DOUBT] * 3


@pytest.mark.parametrize(
    "kind", [timestamp(0), timestamp(3), timestamp_ltz(3), timestamp(6), timestamp(9), timestamp(2)], ids=str
)
def test_moments_are_those_of_arrow(kind: DataType) -> None:
    dice = random.Random(3)
    years = (1700, 2200) if kind.arrow.unit == "ns" else (1, 9999)
    texts = []
    for _ in range(2000):
        year, month, day = dice.randint(*years), dice.randint(1, 12), dice.randint(1, 31)
        digits = dice.randint(0, kind.precision or 0)
        fraction = "." + "".join(dice.choices("0123456789", k=digits)) if digits else ""
        clock = f"{dice.randint(0, 23):02}:{dice.randint(0, 59):02}:{dice.randint(0, 59):02}"
        texts.append(f"{year:04}-{month:02}-{day:02}{dice.choice(' T')}{clock}{fraction}{dice.choice(('', 'Z'))}")
    values, read = column(kind, [f'"{t}"' for t in texts])
    good = [t for t, status in zip(texts, read, strict=True) if status == READ]
    assert len(good) > 1900
    assert values.equals(
        pc.cast(pc.cast(pa.array([t.removesuffix("Z") for t in good]), pa.timestamp(kind.arrow.unit)), kind.arrow)
    )
    for text, status in zip(texts, read, strict=True):
        if status == IN_DOUBT:  # no day of the calendar
            with pytest.raises(pa.ArrowInvalid):
                pc.cast(pa.array([text.removesuffix("Z")]), pa.timestamp(kind.arrow.unit))
    odd = [
        "2024-03-01",
        "2024-03-01 24:00:00",
        "2024-03-01 10:00:60",
        "2024-3-01 10:00:00",
        "0000-01-01 00:00:00",
        "2024-03-01 10:00:00.",
    ]
    odd += [
        "2024-03-01 10:00:00.1234567890",
        "2024-03-01 10:00:00+00:00",
        " 2024-03-01 10:00:00",
        "2023-02-29 10:00:00",
        "1900-02-29 10:00:00",
    ]
    assert column(kind, [f'"{t}"' for t in odd])[1] == [IN_DOUBT] * len(odd)


def test_dates_are_those_of_arrow() -> None:
    days = pa.array(range(-719162, 2932896, 97), pa.int32()).cast(pa.date32())
    values, read = column(DATE, [f'"{t}"' for t in pc.cast(days, pa.string()).to_pylist()])
    assert set(read) == {READ}
    assert values.equals(days)
    assert (
        column(DATE, ['"2023-02-29"', '"2024-00-01"', '"2024-01-00"', '"0000-01-01"', '"2024-01-01 "', "5"])[1]
        == [IN_DOUBT] * 6
    )


def test_decimals_that_fit_as_they_are() -> None:
    values, read = column(decimal(10, 2), ["1.25", '"-1.5"', "7", "-0.00", "99999999.99", "0.01", "null"])
    assert values.to_pylist() == [*map(Decimal, ("1.25", "-1.50", "7", "0", "99999999.99", "0.01")), None]
    assert set(read) == {READ}
    assert (
        column(decimal(10, 2), ["100000000", "0.005", "1e2", '"01"', '"+1"', '" 1"', '"1', "true"])[1] == [IN_DOUBT] * 8
    )
    assert column(decimal(38, 30), ["0", "1", "0.5"])[0].to_pylist() == [Decimal(0)]
    assert column(decimal(38, 2), ["9999999999999999.99", "99999999999999999.99"])[1] == [READ, IN_DOUBT]


def test_texts_of_any_length_with_escapes_and_other_letters() -> None:
    dice = random.Random(4)
    letters = [
        "a",
        "é",
        "€",
        "😀",
        "\\n",
        "\\\\",
        '\\"',
        "\\/",
        "\\u00e9",
        "\\ud83d\\ude00",
        "\\u0041",
        "\x7f",
        " ",
        "{",
        "]",
    ]
    texts = ["".join(dice.choices(letters, k=n % 70)) for n in range(1000)] + ["x" * 100_000, ""]
    values, read = column(STRING, [f'"{t}"' for t in texts])
    assert set(read) == {READ}
    assert values.to_pylist() == [json.loads(f'"{t}"') for t in texts]
    assert (
        column(
            STRING,
            ['"\\ud83d"', '"\\ude00\\ud83d"', '"\\ud83dx"', '"\\u12g4"', '"\\x"', '"\t"', '"\x00"', '"', '"\\', "5"],
        )[1]
        == [IN_DOUBT] * 10
    )


def test_records_of_many_megabytes_go_to_the_other_parsers() -> None:
    small, large = (b'{"a": "' + b"x" * ((16 << 20) - spared) + b'"}' for spared in (9, 8))
    assert statuses([small, large], Schema.of(a=STRING)) == [READ, IN_DOUBT]
    decoded = JsonDecoder(Schema.of(a=STRING)).decode(lines_chunk([small, large]))
    assert pc.binary_length(decoded.columns.column(0)).to_pylist() == [len(small) - 9, len(large) - 9]


def test_bytes_that_are_no_utf8_are_in_doubt() -> None:
    codes = [
        b"\x80",
        b"\xc0\x80",
        b"\xc3",
        b"\xe0\x9f\xbf",
        b"\xed\xa0\x80",
        b"\xf0\x8f\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\xf5\x80\x80\x80",
    ]
    for code in (*codes, b"\xe2\x82", b"\xff", b"\xc3\\u00a9"):
        for text in (
            b'{"a": "%s"}',
            b'{"other": "%s"}',
            b'{"%s": 1}',
            b'{"a": "' + b"y" * 40 + b'%s"}',
            b'{"other": [{"%s": 1}]}',
        ):
            assert statuses([text % code, text % b"\xf4\x8f\xbf\xbf"], Schema.of(a=STRING)) == [IN_DOUBT, READ]


def test_chunks_of_mostly_odd_records_go_to_the_other_parsers_at_once() -> None:
    decoder = JsonDecoder(Schema.of(id=BIGINT))
    read: list[int] = []
    inner = decoder._compiled
    assert inner is not None

    class Counted:
        def read(self, chunk: RecordChunk) -> object:
            read.append(len(chunk))
            assert inner is not None
            return inner.read(chunk)

    decoder._compiled = Counted()  # type: ignore[assignment]
    for _ in range(40):
        assert decoder.decode(lines_chunk([b'{"id": "5"}'] * 10)).columns.column(0).to_pylist() == [5] * 10
    assert 3 < len(read) < 8


def test_a_library_that_is_missing_or_another(tmp_path: Path) -> None:
    with pytest.raises(NotCompiledError, match="no C compiler when flowrun was installed"):
        library(tmp_path / "missing.so")
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(NotCompiledError, match="cannot be loaded"):
        library(tmp_path / "text.so")
    source = tmp_path / "old.c"
    source.write_text("int flowrun_json_sources(void) { return 0; }")
    subprocess.run([*compiler(), "-shared", "-fPIC", "-o", tmp_path / "old.so", source], check=True)
    with pytest.raises(NotCompiledError, match="another version"):
        library(tmp_path / "old.so")


def test_without_a_compiler_it_is_said_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -m64")
    with pytest.raises(NotBuiltError, match=r"there is no C compiler \(no-such-compiler\)"):
        build(tmp_path / "x.so")
    monkeypatch.setenv("CC", "false")
    with pytest.raises(NotBuiltError, match=r"the C compiler \(false\) failed: exit code 1"):
        build(tmp_path / "x.so")
    assert not list(tmp_path.iterdir())


@pytest.mark.exhaustive
def test_it_stays_within_its_memory(tmp_path: Path) -> None:
    """Broken records at the end of their buffer, under AddressSanitizer and UBSan."""
    runtime = subprocess.run(
        [*compiler(), "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not Path(runtime).exists():
        give_up("the compiler has no sanitizers")
    path = tmp_path / "checked.so"
    build(path, flags=("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"))
    code = (
        "from tests.connectors.formats.test_compiled_json import feed_broken_records as f; import sys; f(sys.argv[1])"
    )
    environment = os.environ | {"LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], check=False, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert int(done.stdout) > 400


def feed_broken_records(path: str) -> None:
    """Read damaged records with the library at `path`, each from a buffer that ends with it; print how many were read."""
    loaded = library(Path(path))
    json_compiled.library = lambda: loaded  # type: ignore[assignment]
    dice = random.Random(6)
    read = 0
    plain = Schema.of(**{f.name: f.type for f in SCHEMA if f.name not in ("hour", "raw")})  # kernels parse these
    for schema, lines in ((plain, LINES), (NESTED, NESTED_LINES)):
        inner = reader(schema)
        for _ in range(500):
            texts = []
            for text in dice.choices(lines, k=3):
                damaged = bytearray(text)
                for _ in range(dice.randint(0, 2)):
                    damaged[dice.randrange(len(damaged))] = dice.choice(b'{}[]",:\\ 0e.-\x80\xc3u1')
                texts.append(bytes(damaged[: dice.randint(1, len(damaged))] if dice.random() < 0.3 else damaged))
            found = inner.read(exact_chunk(texts))
            assert found is not None
            read += found[0].num_rows
    sys.stdout.write(str(read))


def exact_chunk(texts: list[bytes]) -> RecordChunk:
    """Records in memory of the C library's own that ends with the last of them, so that a sanitizer sees a byte too many."""
    import ctypes

    joined = b"".join(texts)
    allocate = ctypes.CDLL(None).malloc
    allocate.restype, allocate.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    address = allocate(len(joined))
    ctypes.memmove(address, joined, len(joined))
    stops = np.cumsum([len(t) for t in texts])
    return RecordChunk(pa.foreign_buffer(address, len(joined)), stops - [len(t) for t in texts], stops, False)
