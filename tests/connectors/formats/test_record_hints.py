"""Data that is not what its format says: the error or warning names what to set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flowrun.errors import FlowrunError
from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import run_embedded


def read(folder: Path, text: str, columns: str, format: str = "json") -> None:
    """Read a file as a table."""
    (folder / "data").write_text(text)
    script = folder / "script.sql"
    script.write_text(
        f"CREATE TABLE t ({columns}) WITH ('connector'='filesystem', 'path'='{folder}/data', 'format'='{format}');\n"
        "CREATE TABLE o WITH ('connector'='blackhole') AS SELECT * FROM t;\n"
    )
    run_embedded(compile_pipeline(script, {}, {}).job_graph)


UNREADABLE = pytest.mark.parametrize(
    ("text", "columns", "format", "hint"),
    [
        ('[{"id": 1}, {"id": 2}]\n', "id BIGINT", "json", "the file is one JSON array: write one object a line"),
        ('[\n{"id": 1}\n]\n', "id BIGINT", "json", "the file is one JSON array: write one object a line"),
        ("id,v\n1,2\n", "id BIGINT, v INT", "csv", "set 'csv.header' = 'true'"),
        ('{"at": 1700000000000}\n', "at TIMESTAMP(3)", "json", "milliseconds since 1970: declare at as BIGINT"),
        ('{"at": 1700000000}\n', "at TIMESTAMP(3)", "json", "ts AS TO_TIMESTAMP_LTZ(at, 0)"),
        ('{"id": "x"}\n', "id BIGINT", "json", "'format.on-error') to skip or dead-letter"),
    ],
)
UNSEEN = pytest.mark.parametrize(
    ("rows", "columns", "warning"),
    [
        (
            [{"B": 1}, {"B": 2}],
            "b INT",
            "'b' is NULL in all 2 records read; names are case-sensitive: did you mean 'B'?",
        ),
        ([{"a": 1, "b": None}, {"a": 2}], "a INT, c INT", "'c' is NULL in all 2 records read; the first one has a, b"),
        ([{"before": None, "after": {"a": 1}, "op": "c"}], "a INT", "set the format to debezium-json"),
        ([{"data": [{"a": 1}], "type": "INSERT", "database": "d"}], "a INT", "set the format to canal-json"),
        ([{"data": {"a": 1}, "type": "insert", "database": "d", "xid": 7}], "a INT", "set the format to maxwell-json"),
        ([{"after": {"a": 1}, "op_type": "I", "table": "t"}], "a INT", "set the format to ogg-json"),
        ([{"schema": {}, "payload": {}}], "a INT", "debezium-json.schema-include to true"),
    ],
)


@UNREADABLE
def test_a_record_that_cannot_be_read_says_what_to_set(
    text: str, columns: str, format: str, hint: str, tmp_path: Path
) -> None:
    with pytest.raises(FlowrunError) as caught:
        read(tmp_path, text, columns, format)
    assert hint in str(caught.value) + str(caught.value.hint)


@UNSEEN
def test_columns_that_no_record_has_are_warned_about(
    rows: list[object], columns: str, warning: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    read(tmp_path, "".join(json.dumps(r) + "\n" for r in rows), columns)
    (record,) = [r for r in caplog.records if "record_hints" in r.name]
    assert warning in record.getMessage()


def test_a_header_that_can_be_read_as_a_row_is_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    read(tmp_path, "id,v\na,b\n", "id STRING, v STRING", "csv")
    (record,) = [r for r in caplog.records if "record_hints" in r.name]
    assert "set 'csv.header' = 'true'" in record.getMessage()


def test_a_record_of_several_lines_is_no_header(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    read(tmp_path, '"a\rb",v\n', "id STRING, v STRING", "csv")
    assert not [r for r in caplog.records if "record_hints" in r.name]


def test_a_column_that_is_there_and_null_is_no_problem(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    read(tmp_path, '{"a": null}\n{"a": null}\n', "a INT")
    assert not [r for r in caplog.records if "record_hints" in r.name]
