"""Any records of any schema are read as they are without the compiled reader."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.api.format import lines_chunk, messages_chunk
from flowrun.connectors.formats.json_compiled import READ, compiled_reader
from flowrun.core.schema import Schema
from flowrun.core.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TINYINT,
    DataType,
    TypeRoot,
    array,
    decimal,
    row,
    time,
    timestamp,
    timestamp_ltz,
)

from .compiled_json import built, same
from .test_odd_json import ODD_VALUES

TYPICAL: dict[DataType, list[str]] = {
    BIGINT: ["5", "-12345678901", "9223372036854775807"],
    INT: ["7", "2147483647"],
    SMALLINT: ["3"],
    TINYINT: ["-128", "127"],
    STRING: ['"x"', '"é\\n"', '""', f'"{"w" * 40}"'],
    DOUBLE: ["1.5", "-0.25e3", "0.1234567890123456", "3"],
    FLOAT: ["1.1", "16777217", "3.3e5"],
    BOOLEAN: ["true", "false"],
    DATE: ['"2024-02-29"'],
    BYTES: ['"aGk="'],
    time(3): ['"10:11:12.5"', '"23:59:59"'],
    timestamp(0): ['"2024-02-29 10:11:12"', '"2024-02-29T10:11:12Z"'],
    timestamp(3): ['"1969-12-31 23:59:59.123"', '"2024-01-01 00:00:00.1234567"'],
    timestamp(9): ['"2024-01-01 00:00:00.1234567"', '"1677-01-01 00:00:00"'],
    timestamp_ltz(3): ['"2024-02-29 10:11:12Z"', '"2024-02-29T10:11:12+01:00"'],
    decimal(10, 2): ["1.25", "3", '"7.5"', "0.125"],
    decimal(38, 20): ["1.25", "-0.5", "123456789012345678"],
}
OTHERS = ["1", '"z"', "null", '[1,{"a":2}]', '{"a":{"b":[]}}', "1e999"]
BLANKS = ["", "", "", " ", "  ", "\t", "\r"]
DAMAGE = b'{}[]",:\\ 0e.-\x80\xc3u1\x00'


@pytest.fixture(scope="module", autouse=True)
def _built() -> Iterator[None]:
    yield from built()


def any_type(dice: random.Random, depth: int = 0) -> DataType:
    choice = dice.random() if depth < 3 else 1
    if choice < 0.2:
        return row(*((n, any_type(dice, depth + 1)) for n in dice.sample("abcdxyz", dice.randint(1, 4))))
    return array(any_type(dice, depth + 1)) if choice < 0.35 else dice.choice(list(TYPICAL))


def any_value(dice: random.Random, kind: DataType) -> str:
    if dice.random() < 0.1:
        return "null"
    if kind.root is TypeRoot.ROW:
        return any_object(dice, zip(kind.names, kind.children, strict=True))
    if kind.root is TypeRoot.ARRAY:
        return f"[{','.join(any_value(dice, kind.children[0]) for _ in range(dice.randint(0, 3)))}]"
    return dice.choice(TYPICAL[kind])


def any_object(dice: random.Random, fields: Iterable[tuple[str, DataType]]) -> str:
    """An object with most of the fields; sometimes out of order, with others, with one twice, or with an odd value."""
    items = [(n, any_value(dice, kind)) for n, kind in fields if dice.random() < 0.85]
    if dice.random() < 0.2:
        items.append((dice.choice("pqabx"), dice.choice(OTHERS)))
    if dice.random() < 0.3:
        dice.shuffle(items)
    if items and dice.random() < 0.06:
        items[-1] = items[-1][0], dice.choice(ODD_VALUES)
    if items and dice.random() < 0.03:
        items.append(dice.choice(items))
    return "{" + ",".join(_member(dice, name, value) for name, value in items) + "}"


def _member(dice: random.Random, name: str, value: str) -> str:
    before, between, behind, after = dice.choices(BLANKS, k=4)
    return f'{before}"{name}"{between}:{behind}{value}{after}'


def any_line(dice: random.Random, schema: Schema) -> bytes:
    line = bytearray(any_object(dice, [(f.name, f.type) for f in schema]).replace("\n", " ").encode())
    if dice.random() < 0.05:
        line[dice.randrange(len(line))] = dice.choice(DAMAGE)
    return bytes(line)


def any_records(dice: random.Random) -> tuple[Schema, list[bytes]]:
    schema = Schema.of(**{n: any_type(dice) for n in dice.sample("abcdef", dice.randint(1, 4))})
    return schema, [any_line(dice, schema) for _ in range(dice.randint(1, 30))]


def check(seed: int) -> int:
    """Compare the records of a seed; how many of them the compiled reader reads."""
    dice = random.Random(seed)
    schema, lines = any_records(dice)
    chunk = lines_chunk(lines) if dice.random() < 0.5 else messages_chunk(pa.array(lines, pa.binary()))
    same(chunk, schema, **dice.choice([{}, {}, {"ignore_parse_errors": True}, {"fail_on_missing_field": True}]))
    reader = compiled_reader(schema)
    assert reader is not None
    found = [reader.read(chunk.slice(i, i + 1)) for i in range(len(chunk))] if not _parsed(schema) else []
    return sum(one is not None and one[1][0] == READ for one in found)


def _parsed(schema: Schema) -> bool:
    """Whether a column is text first, which a kernel then parses."""
    text = repr(schema.types)
    return "BINARY" in text or "'TIME'" in text


def test_records_of_a_hundred_schemas() -> None:
    assert sum(map(check, range(100))) > 200


@pytest.mark.soak
@given(st.integers(100, 1 << 40))
def test_records_of_any_schema(seed: int) -> None:
    check(seed)
