"""INSERT OVERWRITE: a table holds the rows of the last run, as a stream and with Python and files alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.errors import PipelineError
from tests.end_to_end.running import json_rows, run_file


def run(folder: Path, statement: str, more: str = "", **settings: object) -> list[object]:
    """Run a statement over the table `o`; what the table holds then."""
    script = folder / "s.sql"
    options = f"'connector' = 'filesystem', 'path' = '{folder}/out', 'format' = 'json'"
    script.write_text(f"CREATE TABLE o (a INT, b INT) {more} WITH ({options}); {statement};")
    run_file(script, **settings)
    return sorted(row["a"] for row in json_rows(folder / "out"))  # type: ignore[type-var]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_table_holds_what_the_last_run_wrote(tmp_path: Path, parallelism: int) -> None:
    assert run(tmp_path, "INSERT INTO o VALUES (1, 0), (2, 0)", parallelism=parallelism) == [1, 2]
    assert run(tmp_path, "INSERT OVERWRITE o VALUES (3, 0)", parallelism=parallelism) == [3]
    again = "INSERT OVERWRITE o (a) SELECT x FROM (VALUES (4), (5)) AS v (x)"
    assert run(tmp_path, again, "DISTRIBUTED BY (a) INTO 2 BUCKETS", parallelism=parallelism) == [4, 5]


def test_a_partitioned_table_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="partitions without new rows would have to stay"):
        run(tmp_path, "INSERT OVERWRITE o VALUES (1, 2)", "PARTITIONED BY (b)")
