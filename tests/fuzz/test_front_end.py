"""No text makes the front end fail with anything but a diagnostic: texts that once did, and damaged ones (many more in the soak run)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from flowrun.errors import ExpressionError, FlowrunError, PipelineError
from flowrun.frontend.pipeline import load_text
from flowrun.frontend.source_text import SourceText
from tests.fuzz import corpus, targets
from tests.fuzz.queries import compile_query

_DEEP = 3_000


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SELECT k FROM a WHERE k = 1 AND BETWEEN 1 AND 2", "expected an expression, got 'BETWEEN'"),
        ("SELECT k FROM a WHERE LIKE 'x'", "expected an expression, got 'LIKE'"),
        ("ELSE", "the query cannot begin with 'ELSE'"),
        ("SELECT {a: 1}", "expected an expression, got '{'"),
        ("SELECT n[] FROM a", "expected an expression, got ']'"),
        ("SELECT INTERVAL '1' DAY (", "expected a number of digits, got the end"),
        ("SELECT .29.022024", "'0.29.022024' is no number"),
        (f"SELECT {'9' * 5000}", "has 5000 digits, at most 38 are possible"),
        ("SELECT `$BUCKET`(k, v) FROM a", "function '$BUCKET' does not exist"),
        ("SELECT k FILTER (WHERE f) FROM a", "FILTER"),
        ("SELECT k OVER (ORDER BY ts) FROM a", "OVER"),
        ("SELECT k[1] OVER (ORDER BY ts) FROM a", "OVER"),
        (f"SELECT CAST(NULL AS {'ARRAY<' * 400}INT{'>' * 400})", "a type has at most 60 levels"),
        (f"SELECT CAST(NULL AS INT{' ARRAY' * 400})", "a type has at most 60 levels"),
        ("SELECT INTERVAL '9223372036854775807' SECOND", "is longer than intervals can be"),
        ("SELECT INTERVAL '-178956971' YEAR", "is longer than intervals can be"),
        ("SELECT ORDER(k, 'x') WITHIN GROUP (ORDER BY ts) FROM a", "ORDER"),
        ("SELECT LISTAGG(GROUP (ORDER BY id)) FROM a", "function 'GROUP' does not exist"),
        ("SELECT (TABLE (FROM TABLE TUMBLE(GROUP window_time", "expected )"),
        (f"SELECT {'(' * _DEEP}1{')' * _DEEP}", "nested too deeply"),
        (f"SELECT * FROM {'(SELECT * FROM ' * _DEEP}a{')' * _DEEP}", "nested too deeply"),
    ],
)
def test_a_wrong_query_is_told_what_is_wrong(text: str, told: str) -> None:
    with pytest.raises(FlowrunError) as caught:
        compile_query(text)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT TIMESTAMP '9999-12-31 23:59:59' + INTERVAL '1' DAY",  # Python's datetime ends there, Flink's times do not
        f"SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS rn FROM a) WHERE rn = {'9' * 38}",
        "SELECT * FROM a LEFT JOIN b ON a.k = b.k WHERE EXISTS (SELECT b.s WHERE b.s IS NULL)",
    ],
)
def test_a_right_query_is_planned(text: str) -> None:
    compile_query(text)


def test_a_watermark_that_is_no_expression_is_told_so() -> None:
    targets.script("CREATE TABLE t (ts TIMESTAMP(3), WATERMARK FOR ts AS ELSE 1) WITH ('connector' = 'datagen')")


def test_a_count_window_is_no_longer_than_numbers_are() -> None:
    steps = "w: {from: s, key_by: a, window: {type: count, size: 9223372036854775808}, aggregate: [COUNT(*) AS n]}"
    source = "s: {connector: datagen, schema: {a: INT}}"
    text = f"sources: {{{source}}}\nsteps: {{{steps}}}\nsinks: {{o: {{from: w, connector: print}}}}"
    with pytest.raises(PipelineError, match="'size' must fit 64 bits"):
        load_text(SourceText("p.yaml", text), Path(), {}, {}, {})


def test_a_duration_beyond_all_time_is_told_so() -> None:
    text = corpus.few("pipeline")[0]
    targets.pipeline(f"{text}\nsettings: {{buffer_timeout: {'9' * 400}d}}")


def test_nesting_without_end_is_told_so() -> None:
    targets.pipeline("steps: " + "[" * _DEEP + "]" * _DEEP)


@pytest.mark.parametrize(
    ("name", "count"),
    [("script", 20), ("query", 60), ("batch", 60), ("pipeline", 30), ("expression", 300), ("type", 300)],
)
def test_damaged_texts_get_diagnostics(name: str, count: int) -> None:
    try_damaged(name, corpus.few(name), random.Random(f"slice of {name}"), count)


@pytest.mark.soak
@pytest.mark.parametrize("name", targets.TEXT_TARGETS)
def test_many_damaged_texts_get_diagnostics(name: str) -> None:
    """More than a million in all."""
    _, seeds = targets.TEXT_TARGETS[name]
    count = {"script": 50_000, "query": 250_000, "batch": 100_000, "spark": 5_000, "pipeline": 50_000}.get(
        name, 325_000
    )
    try_damaged(name, seeds(), random.Random(), count)


def try_damaged(name: str, seeds: Sequence[str], chance: random.Random, count: int) -> None:
    """Hand damaged texts to a target."""
    target, _ = targets.TEXT_TARGETS[name]
    mutator = targets.mutator(name, seeds)
    for _ in range(count):
        text = mutator.fresh(chance)
        try:
            target(text)
        except Exception as error:
            raise AssertionError(f"this {name} is answered with {type(error).__name__}:\n{text}") from error


def test_an_expression_error_keeps_its_place() -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_query("SELECT k FROM a WHERE k = 1 AND BETWEEN 1 AND 2")
    assert caught.value.offset == len("SELECT k FROM a WHERE k = 1 AND ")
