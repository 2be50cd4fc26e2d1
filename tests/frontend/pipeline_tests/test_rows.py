"""Rows as tests write them: a value that its column cannot hold is an error, never a value that was cut to fit."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from flowrun.core import types
from flowrun.core.schema import Schema
from flowrun.core.types import DataType
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.pipeline_tests.rows import WrittenRows, read_rows, to_batch
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.trees.nodes import YamlMapping
from flowrun.frontend.trees.reader import read_yaml


def read(text: str, folder: Path = Path()) -> tuple[WrittenRows | None, Diagnostics]:
    """The rows under the key `rows`, and what is wrong with them."""
    source = SourceText("p.test.yaml", text)
    diagnostics = Diagnostics(source)
    tree = read_yaml(source, diagnostics)
    assert isinstance(tree, YamlMapping)
    rows = tree.get("rows")
    assert rows is not None
    return read_rows(rows, folder, diagnostics), diagnostics


def column(value: str, type: DataType) -> tuple[pa.Array | None, str]:
    """A column of one value, written as YAML, and what is wrong with it."""
    rows, diagnostics = read(f"rows: [{{x: {value}}}]")
    assert rows is not None
    batch = to_batch(rows, Schema.from_pairs([("x", type)]), "sink 's'", diagnostics)
    said = "\n".join(d.render() for d in diagnostics.found)
    return None if batch is None else batch.columns.column(0), said


@pytest.mark.parametrize(
    ("value", "type", "said"),
    [
        ("1.5", types.BIGINT, "column 'x' of sink 's' is BIGINT: '1.5' has a fraction"),
        ("3.9999999", types.INT, "has a fraction"),
        ("33.504", types.decimal(10, 2), "is DECIMAL(10, 2): '33.504' has more digits behind the point than 2"),
        ("abcd", types.varchar(3), "'abcd' is longer than 3"),
        ("2024-01-01T00:00:00.1239", types.timestamp(3), "has 4 digits of fractions of a second"),
        ("2024-01-01T00:00:00.25Z", types.timestamp_ltz(0), "has 2 digits of fractions of a second"),
        ("2024-01-01T10:00:00", types.DATE, "has a time of day"),
        ("[1, 2.5]", types.array(types.INT), "'2.5' has a fraction"),
        ("{a: 2.5}", types.row(("a", types.INT)), "'2.5' has a fraction"),
    ],
)
def test_a_value_is_not_cut_to_fit(value: str, type: DataType, said: str) -> None:
    made, told = column(value, type)
    assert made is None
    assert said in told
    assert "hint: write the value as the column holds it" in told


@pytest.mark.parametrize(
    ("value", "type"),
    [
        ("1", types.BIGINT),
        ("1.0", types.BIGINT),
        ("-7", types.TINYINT),
        ("33.500", types.decimal(10, 2)),
        ("5", types.decimal(10, 2)),
        ("abc", types.varchar(3)),
        ("ab", types.char(3)),
        ("9999-12-31T23:59:59.999", types.timestamp(3)),
        ("2024-01-01 00:00:00.120000", types.timestamp(3)),
        ("2024-01-01", types.timestamp(3)),
        ("2024-01-01T10:00:00.5Z", types.timestamp_ltz(3)),
        ("2024-01-01T00:00:00.000", types.DATE),
        ("2024-01-01", types.DATE),
        ("10:00:00", types.time(0)),
        ("0.1", types.FLOAT),
        ("null", types.INT),
        ("{a: 1}", types.row(("a", types.INT), ("b", types.STRING))),
    ],
)
def test_what_a_column_holds_is_taken(value: str, type: DataType) -> None:
    made, told = column(value, type)
    assert made is not None, told
    assert not told


def test_values_in_quotes_may_go_over_several_lines() -> None:
    rows, diagnostics = read('rows: |\n  a, b\n  1, "x\n  y"\n\n  2,\n')
    assert not diagnostics.found
    assert rows is not None
    assert [{n: c.value for n, c in row.cells.items()} for row in rows.rows] == [
        {"a": "1", "b": "x\ny"},
        {"a": "2", "b": None},
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('rows: "a, b, a\\n1, 2, 3"', "the first line names column 'a' twice"),
        ('rows: "a, b\\n1"', "row 1 has 1 values, but the first line names 2 columns"),
    ],
)
def test_what_is_wrong_with_comma_separated_values(text: str, said: str) -> None:
    rows, diagnostics = read(text)
    assert rows is None
    assert [d.message for d in diagnostics.found] == [said]


def test_lines_of_json_may_hold_other_line_breaks(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text('{"a": "one\u2028two"}\r\n{"a": "three"}\n', encoding="utf-8")
    rows, diagnostics = read("rows: {file: rows.json}", tmp_path)
    assert not diagnostics.found
    assert rows is not None
    assert [row.cells["a"].value for row in rows.rows] == ["one\u2028two", "three"]
