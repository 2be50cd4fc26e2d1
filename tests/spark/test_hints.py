"""Data that is not what its format says, read by Spark: the same hints as from a stream."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from flowrun.errors import FlowrunError
from flowrun.runners.compile import compile_pipeline
from flowrun.runners.spark import run_batch
from flowrun.spark.session import SparkOptions
from tests.connectors.formats.test_record_hints import UNREADABLE, UNSEEN

pytestmark = pytest.mark.usefixtures("spark")


def read(folder: Path, text: str, columns: str, format: str = "json", options: str = "", query: str = "*") -> None:
    """Read a file as a table, or what is in the folder `data`."""
    if text:
        (folder / "data").write_text(text)
    script = folder / "script.sql"
    script.write_text(
        f"CREATE TABLE t ({columns}) WITH ('connector'='filesystem', 'path'='{folder}/data', 'format'='{format}'{options});\n"
        f"CREATE TABLE o WITH ('connector'='blackhole') AS SELECT {query} FROM t;\n"
    )
    run_batch(compile_pipeline(script, {}, {"settings.mode": "batch"}), SparkOptions())


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "record_hints" in r.name]


@UNREADABLE
def test_a_record_that_cannot_be_read_says_what_to_set(
    text: str, columns: str, format: str, hint: str, tmp_path: Path
) -> None:
    with pytest.raises(FlowrunError) as caught:
        read(tmp_path, text, columns, format)
    assert hint in str(caught.value) + str(caught.value.hint)


@UNSEEN
def test_columns_that_no_record_has_are_warned_about(
    rows: list[object],
    columns: str,
    warning: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    read(tmp_path, "".join(json.dumps(r) + "\n" for r in rows), columns)
    (said,) = warnings(caplog)
    assert warning in said
    assert "NULL in" not in capfd.readouterr().err, "workers say nothing"


@pytest.mark.everyday
@pytest.mark.exhaustive
def test_workers_that_read_a_part_of_the_files_do_not_take_it_for_the_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    for number in range(4):  # `b` is in one of them only
        row = {"a": str(number), "b": number} if number == 2 else {"a": str(number)}
        (tmp_path / "data" / f"{number}.json").write_text(json.dumps(row) + "\n")
    read(tmp_path, "", "a BIGINT, b BIGINT, c BIGINT")  # a number as text is read by flowrun's reader
    (said,) = warnings(caplog)
    assert "'c' is NULL in all 4 records read; the first one has a" in said
    assert "NULL in" not in capfd.readouterr().err


def test_a_header_that_can_be_read_as_a_row_is_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    read(tmp_path, "id,v\na,b\n", "id STRING, v STRING", "csv")
    (said,) = warnings(caplog)
    assert "set 'csv.header' = 'true'" in said


def test_a_file_with_a_declared_header_and_what_nobody_reads_are_no_problem(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    read(tmp_path, "id,v\na,b\n", "id STRING, v STRING", "csv", ", 'csv.header'='true'")
    read(tmp_path, '{"a": 1}\n', "a INT, c INT", query="a")
    read(tmp_path, '{"a": null}\n{"a": null}\n', "a INT")
    assert warnings(caplog) == []


def test_what_is_left_out_is_left_out_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.json.gz").write_bytes(gzip.compress(b'{"a": 1}\n{"a"\n{"a": 2}\n'))
    letters = f", 'format.on-error'='dead-letter', 'format.dead-letter.path'='{tmp_path}/letters'"
    read(tmp_path, "", "a INT, c INT", options=letters)
    (said,) = warnings(caplog)
    assert "'c' is NULL in all 2 records read" in said
    lines = [line for f in (tmp_path / "letters").iterdir() for line in f.read_text().splitlines()]
    assert len(lines) == 1
