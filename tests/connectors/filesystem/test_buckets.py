"""DISTRIBUTED BY: rows with equal values of the columns are in files of one bucket, whoever wrote them."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from flowrun.errors import PipelineError
from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import run_embedded
from tests.end_to_end.running import json_rows, written_files

ROWS = ", ".join(f"({i}, 'user {i % 5}', '{'odd' if i % 2 else 'even'}')" for i in range(40))


def run(folder: Path, table: str, query: str, parallelism: int = 1) -> None:
    script = folder / "s.sql"
    script.write_text(f"CREATE TABLE o (id INT, name STRING, kind STRING{table};\nINSERT INTO o {query};")
    run_embedded(compile_pipeline(script, {}, {"settings.parallelism": str(parallelism)}).job_graph)


def buckets(folder: Path) -> dict[str, set[str]]:
    """Names of users by the folder that their rows are in."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in written_files(folder):
        bucket = file.parent
        found[bucket.relative_to(folder).as_posix()] |= {str(r["name"]) for r in json_rows(bucket)}
    return dict(found)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_rows_of_one_value_are_in_one_bucket(tmp_path: Path, parallelism: int) -> None:
    options = f"WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/out', 'format' = 'json')"
    run(tmp_path, f") DISTRIBUTED BY HASH (name) INTO 3 BUCKETS {options}", f"VALUES {ROWS}", parallelism)
    found = buckets(tmp_path / "out")
    assert set(found) <= {"bucket-0", "bucket-1", "bucket-2"}
    assert len(found) > 1
    assert sorted(name for names in found.values() for name in names) == [f"user {i}" for i in range(5)]
    assert sorted(int(str(r["id"])) for r in json_rows(tmp_path / "out")) == list(range(40))


def test_buckets_are_within_partitions_and_are_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = f"WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/out', 'format' = 'json')"
    table = f") DISTRIBUTED INTO 2 BUCKETS PARTITIONED BY (kind) {options}"
    run(tmp_path, table, f"VALUES {ROWS}")
    assert {b.split("/")[0] for b in buckets(tmp_path / "out")} == {"kind=odd", "kind=even"}
    assert {b.split("/")[1] for b in buckets(tmp_path / "out")} == {"bucket-0", "bucket-1"}
    script = tmp_path / "r.sql"
    script.write_text(
        f"CREATE TABLE o (id INT, name STRING, kind STRING{table};\n"
        "SELECT kind, COUNT(*), SUM(id) FROM (SELECT DISTINCT * FROM o) GROUP BY kind;"
    )
    run_embedded(compile_pipeline(script, {}, {"settings.batch_rows": "1000"}).job_graph)
    last = {line.split("[")[1].split(",")[0]: line for line in capsys.readouterr().out.splitlines()}
    assert {k: v.split("[")[1] for k, v in last.items()} == {"odd": "odd, 20, 400]", "even": "even, 20, 380]"}


def test_a_table_of_one_row_a_key_has_a_file_a_bucket(tmp_path: Path) -> None:
    options = f"WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/out', 'format' = 'json')"
    key = ", PRIMARY KEY (name) NOT ENFORCED) DISTRIBUTED BY (name) INTO 2 BUCKETS"
    query = f"SELECT MAX(id), name, MAX(kind) FROM (VALUES {ROWS}) AS t (id, name, kind) GROUP BY name"
    run(tmp_path, f"{key} {options}", query)
    assert len(written_files(tmp_path / "out")) == 2
    assert len(json_rows(tmp_path / "out")) == 5
    with pytest.raises(PipelineError, match="keeps one row a key, so its buckets go by the key: name"):
        run(tmp_path, f"{key.replace('BY (name)', 'BY (kind)')} {options}", query)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (") DISTRIBUTED BY (id) INTO 4 BUCKETS WITH ('connector' = 'print')", "connector 'print' has no buckets"),
        (") DISTRIBUTED BY RANGE (id) WITH ('connector' = 'print')", "DISTRIBUTED BY RANGE is not supported"),
        (") DISTRIBUTED BY (ids) WITH ('connector' = 'print')", "column 'ids' in DISTRIBUTED BY does not exist"),
        (") DISTRIBUTED INTO 0 BUCKETS WITH ('connector' = 'print')", "expected a number of buckets from 1 to"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(tmp_path: Path, table: str, message: str) -> None:
    with pytest.raises(PipelineError) as caught:
        run(tmp_path, table, f"VALUES {ROWS}")
    assert message in str(caught.value)
