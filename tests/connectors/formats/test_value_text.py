"""Values as text: kernels write what Python writes value by value."""

from __future__ import annotations

import base64
import csv
import io
import json
import random

import pyarrow as pa
import pytest

from flowrun.connectors.formats.json_encoder import escaped
from flowrun.connectors.formats.value_text import value_text
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, BYTES, DOUBLE, STRING, timestamp

from .formats import encoder


def values(dice: random.Random, count: int) -> list[bytes | None]:
    return [None if dice.random() < 0.2 else dice.randbytes(dice.randint(0, 7)) for _ in range(count)]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 200])
def test_bytes_are_written_in_base64(count: int) -> None:
    given = values(random.Random(count), count + 4)
    text = value_text(pa.array(given, pa.binary()).slice(2, count), BYTES)
    text.validate(full=True)
    assert text.to_pylist() == [None if v is None else base64.b64encode(v).decode() for v in given[2 : 2 + count]]


def test_empty_and_missing_bytes_are_written() -> None:
    for given in ([], [None], [b""], [b"", None, b""], [None, b"a"]):
        wanted = [None if v is None else base64.b64encode(v).decode() for v in given]
        assert value_text(pa.array(given, pa.binary()), BYTES).to_pylist() == wanted


@pytest.mark.parametrize("letters", ['a"', "a\\", "\x00\x1f", "a\b\t\n\f\r/", 'a"\\\n\t\x01\x1f\x7fé😀'], ids=ascii)
def test_texts_are_escaped_as_json_has_it(letters: str) -> None:
    dice = random.Random(1)
    given = [None if dice.random() < 0.2 else "".join(dice.choices(letters, k=dice.randint(0, 5))) for _ in range(300)]
    found = escaped(pa.array(given, pa.string()).slice(2, 290)).to_pylist()
    assert found == [None if v is None else json.dumps(v, ensure_ascii=False)[1:-1] for v in given[2:292]]


@pytest.mark.parametrize("delimiter", [",", "-", ".", ":", "1", "e", "\t"])
@pytest.mark.parametrize("escape", [None, "\\"])
def test_fields_with_special_characters_are_quoted(delimiter: str, escape: str | None) -> None:
    schema = Schema.of(i=BIGINT, f=DOUBLE, t=timestamp(3), s=STRING)
    rows = [
        (1, 0.5, 1, 'a"b'),
        (-10, -1e20, 1_700_000_000_000, f"x{delimiter}y"),
        (7, 2.0, 2, "line\nend"),
        (8, 1.5, 3, "è\\"),
        (2, 4.0, 5, ""),
    ]
    columns = [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), schema.arrow, strict=True)]
    options = {"csv__field_delimiter": delimiter} | ({} if escape is None else {"csv__escape_character": escape})
    batch = pa.RecordBatch.from_arrays(columns, schema=schema.arrow)
    written = bytes(encoder("csv", schema, **options).encode(batch)).decode()
    read = list(csv.reader(io.StringIO(written), delimiter=delimiter, escapechar=escape))
    assert [(int(r[0]), float(r[1]), r[3]) for r in read] == [(i, f, s) for i, f, _, s in rows]
    assert [len(r) for r in read] == [4] * len(rows)
