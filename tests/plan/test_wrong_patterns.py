"""Constant regular expressions that are none are warnings, where they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.runners.compile import compile_pipeline

SCRIPT = """CREATE TABLE t (s STRING) WITH ('connector' = 'datagen', 'number-of-rows' = '1');
CREATE TABLE o (a STRING) WITH ('connector' = 'blackhole');
INSERT INTO o
  SELECT {call} FROM t;
"""


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        (
            "REGEXP_EXTRACT(s, '(a', 1)",
            "REGEXP_EXTRACT gives NULL for every row, as in Flink: '(a' is not a regular expression: "
            "missing ), unterminated subpattern at position 0",
            "mend it; a backslash or a quote may need another one before it",
        ),
        (
            "CAST(REGEXP(s, '[') AS STRING)",
            "REGEXP gives FALSE for every row, as in Flink: '[': a class […] is not closed",
            "mend it; a backslash or a quote may need another one before it",
        ),
        (
            "REGEXP_EXTRACT(s, '(a)', 2)",
            "REGEXP_EXTRACT gives NULL for every row, as in Flink: '(a)' has no group 2",
            "its groups are 0, the whole match, to 1",
        ),
    ],
)
def test_each_is_a_warning(tmp_path: Path, call: str, message: str, hint: str) -> None:
    file = tmp_path / "p.sql"
    file.write_text(SCRIPT.format(call=call))
    [warning] = compile_pipeline(file).warnings
    assert (warning.message, warning.hint, warning.location and warning.location.line) == (message, hint, 4)


@pytest.mark.parametrize(
    "call", ["REGEXP_EXTRACT(s, '(a)', 1)", "REGEXP_EXTRACT(s, s)", "REGEXP_REPLACE(s, '(a)', '$9')"]
)
def test_nothing_is_said_of_others(tmp_path: Path, call: str) -> None:
    file = tmp_path / "p.sql"
    file.write_text(SCRIPT.format(call=call))
    assert not compile_pipeline(file).warnings
