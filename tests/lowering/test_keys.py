"""What cannot be a key is an error of the text, with its place, before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.errors import PipelineError
from flowrun.runners.compile import compile_pipeline

TABLES = "CREATE TABLE t (id INT, m MAP<STRING, INT>) WITH ('connector' = 'datagen');\n"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT m, COUNT(*) AS n FROM t\nGROUP BY m",
        "SELECT DISTINCT m FROM t",
        "SELECT COUNT(DISTINCT m) FROM t",
        "SELECT m FROM t UNION SELECT m FROM t",
        "SELECT id, COUNT(*) OVER (PARTITION BY m) AS c FROM t",
        "SELECT * FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY m ORDER BY id) AS n FROM t) WHERE n = 1",
    ],
)
def test_a_map_as_a_key_is_refused_where_it_is_asked_for(tmp_path: Path, query: str) -> None:
    file = tmp_path / "maps.sql"
    file.write_text(f"{TABLES}{query};\n")
    with pytest.raises(PipelineError) as caught:
        compile_pipeline(file)
    (problem,) = caught.value.diagnostics
    assert problem.message == "column 'm' of type MAP<STRING, INT> cannot be a key or DISTINCT"
    assert problem.location is not None
    assert problem.location.line >= 2, "it is the query's"
