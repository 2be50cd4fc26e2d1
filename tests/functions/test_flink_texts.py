"""Texts as numbers, dates and times: what Flink 2.3 itself answered, for columns and for constants."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flowrun.core.clock import ManualClock
from flowrun.core.schema import Schema
from flowrun.core.types import STRING
from flowrun.frontend.sql.expressions.from_text import bind_expression
from flowrun.functions.times.current_time import use_clock
from flowrun.plan.compiler import compile_value

SCHEMA = Schema.from_pairs([("t", STRING)])
ANSWERS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("flink_texts.json").read_text())
"""A call of the text `t` each, and Flink's answers, as text, by the text that `t` was. Flink was asked in November 2026."""
THEN = ManualClock(1_795_800_000_000)
"""Years of two digits are those of a hundred years that depend on the clock."""


def answers(call: str, texts: list[str]) -> list[str | None]:
    batch = pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], schema=SCHEMA.arrow)
    found: list[str | None] = compile_value(bind_expression(f"CAST({call} AS STRING)", SCHEMA))(batch).to_pylist()
    return found


@pytest.mark.parametrize("asked", ANSWERS, ids=[a["call"] for a in ANSWERS])
def test_a_column_of_texts_is_read_as_flink_reads_it(asked: dict[str, Any]) -> None:
    expected: dict[str, str | None] = asked["answers"]
    with use_clock(THEN):
        assert dict(zip(expected, answers(asked["call"], list(expected)), strict=True)) == expected


@pytest.mark.parametrize("asked", ANSWERS, ids=[a["call"] for a in ANSWERS])
def test_a_column_of_texts_that_are_alike_is_read_the_same(asked: dict[str, Any]) -> None:
    """Such columns are read at once, all texts together."""
    some = {text: answer for text, answer in asked["answers"].items() if answer is not None}
    with use_clock(THEN):
        for text, answer in list(some.items())[:8]:
            assert answers(asked["call"], [text] * 3) == [answer] * 3, text


@pytest.mark.parametrize("asked", ANSWERS, ids=[a["call"] for a in ANSWERS])
def test_constants_are_read_as_columns_are(asked: dict[str, Any]) -> None:
    with use_clock(THEN):
        for text, answer in list(asked["answers"].items())[:3]:
            literal = "'" + text.replace("'", "''") + "'"
            call = asked["call"].replace("(t", f"({literal}", 1)
            assert answers(call, ["x"]) == [answer], text
