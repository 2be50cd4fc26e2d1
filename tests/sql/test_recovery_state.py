"""State of SQL scripts as their users meet it: looked at, found again when the script is edited, ended by its time to live."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from flowrun.errors import FlowrunError
from tests.end_to_end.running import json_rows
from tests.recovery.runs import left_of
from tests.sql.random_tables import A_COLUMNS, B_COLUMNS, Column, random_tables
from tests.sql.recovery_runs import Job, gated_tables

SINK = "CREATE TABLE {name} ({columns}) WITH ('connector'='filesystem', 'path'='{folder}/{name}', 'format'='debezium-json');\n"
COUNTS = "INSERT INTO counts SELECT k, COUNT(*), SUM(v) FROM a GROUP BY k;\n"
PAIRS = "INSERT INTO pairs SELECT l.id, r.id FROM a AS l LEFT JOIN b AS r ON l.k = r.k AND l.g = r.g;\n"
BEST = "INSERT INTO best SELECT g, id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY g ORDER BY v DESC, id) AS n FROM a) WHERE n <= 2;\n"


class Script:
    """A script of several statements over random tables that can be edited between its lives."""

    def __init__(self, folder: Path, seed: int = 3) -> None:
        folder.mkdir(exist_ok=True)
        self.chance = random.Random(seed)
        tables = random_tables(self.chance, 150)
        for table in tables:
            table.write(folder)
        sinks = (("counts", "k STRING, n BIGINT, s BIGINT"), ("pairs", "l BIGINT, r BIGINT"), ("best", "g INT, id BIGINT"))
        self.head = gated_tables(tables, folder) + "".join(
            SINK.format(name=n, columns=c, folder=folder) for n, c in (*sinks, ("more", "k STRING, n BIGINT"))
        )
        self.folder = folder
        self.job = Job(folder / "script.sql", folder, {t.name: t.emitted for t in tables})

    def write(self, *statements: str) -> None:
        self.job.script.write_text(self.head + "EXECUTE STATEMENT SET BEGIN\n" + "".join(statements) + "END;\n")

    def interrupt(self) -> None:
        assert self.job.interrupt(self.chance), "it came to its end"

    def finish(self, parallelism: int = 3) -> None:
        self.job.finish(parallelism)
        assert self.job.half_read()

    def written(self, name: str) -> dict[str, int]:
        return dict(left_of(json_rows(self.folder / name)))


@pytest.fixture
def whole(tmp_path: Path) -> Script:
    """The same script, run without a stop."""
    script = Script(tmp_path / "whole")
    script.write(COUNTS, PAIRS, BEST)
    script.job.finish(1)
    return script


def test_statements_reordered_added_and_a_filter_put_before_one(tmp_path: Path, whole: Script) -> None:
    script = Script(tmp_path / "edited")
    script.write(COUNTS, PAIRS, BEST)
    script.interrupt()
    script.write(
        "INSERT INTO more SELECT k, COUNT(*) FROM b GROUP BY k;\n",
        BEST,
        PAIRS,
        COUNTS.replace("FROM a", "FROM (SELECT * FROM a WHERE id >= 0)"),
    )
    script.finish()
    for sink in ("counts", "pairs", "best"):
        assert script.written(sink) == whole.written(sink), sink
    assert script.written("more"), "the new statement counts what came since"


def test_a_statement_that_is_gone_is_refused_and_its_state_is_dropped_only_if_asked_for(tmp_path: Path) -> None:
    script = Script(tmp_path / "edited")
    script.write(COUNTS, PAIRS)
    script.interrupt()
    script.write(COUNTS)
    with pytest.raises(FlowrunError) as raised:
        script.finish()
    text = f"{raised.value} {raised.value.hint}"
    assert "pairs.join" in text
    assert "--allow-non-restored-state" in text


AWKWARD = "rows", "touched_ms", "count", "value", "role", "__row", "probe", "seq", "__matches", "__time", "__written", "n"


@pytest.mark.parametrize("name", AWKWARD)
@pytest.mark.parametrize(
    "query",
    [
        "SELECT `{n}`, COUNT(*), COUNT(DISTINCT v) FROM r GROUP BY `{n}`",
        "SELECT l.`{n}`, l.v, r.v FROM r AS l LEFT JOIN r AS r ON l.`{n}` = r.`{n}` AND l.v < r.v",
        "SELECT `{n}`, id, n_ FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY v ORDER BY `{n}`, id) AS n_ FROM r) WHERE n_ <= 2",
        "SELECT `{n}`, id, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY `{n}` ORDER BY ts DESC) AS n_ FROM r) WHERE n_ = 1",
        "SELECT `{n}`, id, COUNT(v) OVER (PARTITION BY v ORDER BY ts) FROM r",
        "SELECT `{n}`, COUNT(*), SUM(id) FROM TABLE(TUMBLE(TABLE r, DESCRIPTOR(ts), INTERVAL '9' SECOND)) GROUP BY window_start, window_end, `{n}`",
        "SELECT `{n}`, COUNT(*), SUM(id) FROM TABLE(SESSION(TABLE r PARTITION BY `{n}`, DESCRIPTOR(ts), INTERVAL '1' SECOND)) "
        "GROUP BY window_start, window_end, `{n}`",
        "SELECT `{n}`, x, y FROM r MATCH_RECOGNIZE (PARTITION BY v ORDER BY ts MEASURES A.id AS x, B.`{n}` AS y, A.`{n}` AS `{n}` "
        "PATTERN (A B) DEFINE B AS B.`{n}` > A.`{n}`) AS m",
    ],
    ids=["group", "join", "top", "deduplicate", "over", "window", "session", "match"],
)
def test_columns_may_have_the_names_that_state_tables_use(name: str, query: str, tmp_path: Path) -> None:
    pass


def test_state_that_is_not_written_for_its_time_to_live_is_gone_after_a_restore(tmp_path: Path) -> None:
    pass
