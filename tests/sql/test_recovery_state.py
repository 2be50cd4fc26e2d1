"""State of SQL scripts as their users meet it: looked at, found again when the script is edited, ended by its time to live."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from flowrun.api.operator import DescribesState
from flowrun.core.clock import SystemClock
from flowrun.errors import FlowrunError
from flowrun.runners.compile import compile_pipeline
from tests.end_to_end.running import bag, json_rows
from tests.recovery.runs import left_of
from tests.sql.random_tables import Row, random_tables
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
        sinks = (
            ("counts", "k STRING, n BIGINT, s BIGINT"),
            ("pairs", "l BIGINT, r BIGINT"),
            ("best", "g INT, id BIGINT"),
        )
        self.head = gated_tables(tables, folder) + "".join(
            SINK.format(name=n, columns=c, folder=folder) for n, c in (*sinks, ("more", "k STRING, n BIGINT"))
        )
        self.folder = folder
        self.lines = {t.name: t.lines for t in tables}
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


AWKWARD = (
    "rows",
    "touched_ms",
    "count",
    "value",
    "role",
    "__row",
    "__role",
    "__matches",
    "__time",
    "__written",
    "__sent",
    "slice_end",
)
QUERIES = (
    "SELECT `{n}`, COUNT(*), COUNT(DISTINCT v) FROM r GROUP BY `{n}`",
    "SELECT l.`{n}`, l.v, r.v FROM r AS l LEFT JOIN r AS r ON l.v = r.v AND l.`{n}` < r.`{n}`",
    "SELECT l.`{n}`, l.v, r.v FROM r AS l JOIN r AS r ON l.v = r.v "
    "AND l.ts BETWEEN r.ts AND r.ts + INTERVAL '1' SECOND AND l.`{n}` < r.`{n}`",
    "SELECT `{n}`, id, n_ FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY v ORDER BY `{n}`, id) AS n_ FROM r) WHERE n_ <= 2",
    "SELECT `{n}`, id, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY v ORDER BY ts DESC) AS n_ FROM r) WHERE n_ = 1",
    "SELECT `{n}`, id, COUNT(v) OVER (PARTITION BY v ORDER BY ts) FROM r",
    "SELECT `{n}`, COUNT(*), SUM(id) FROM TABLE(TUMBLE(TABLE r, DESCRIPTOR(ts), INTERVAL '9' SECOND)) "
    "GROUP BY window_start, window_end, `{n}`",
    "SELECT `{n}`, COUNT(*), SUM(id) FROM TABLE(SESSION(TABLE r PARTITION BY `{n}`, DESCRIPTOR(ts), INTERVAL '1' SECOND)) "
    "GROUP BY window_start, window_end, `{n}`",
    "SELECT v, x, y FROM r MATCH_RECOGNIZE (PARTITION BY v ORDER BY ts MEASURES A.id AS x, B.`{n}` AS y "
    "PATTERN (A B) DEFINE B AS B.`{n}` > A.`{n}`) AS m",
    "SELECT `{n}`, id, v FROM r ORDER BY ts",
    "SELECT `{n}`, id, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, v ORDER BY `{n}`) AS n_ "
    "FROM TABLE(TUMBLE(TABLE r, DESCRIPTOR(ts), INTERVAL '9' SECOND))) WHERE n_ <= 2",
)


@pytest.mark.parametrize("name", AWKWARD)
def test_columns_may_have_the_names_that_state_tables_use(name: str, tmp_path: Path) -> None:
    text = Script(tmp_path).head + f"CREATE VIEW r AS SELECT id, v, id AS `{name}`, ts FROM a;\n"
    for number, query in enumerate(QUERIES):
        text += SINK.format(name=f"s{number}", columns="x BIGINT, y BIGINT, z BIGINT", folder=tmp_path)
        text += f"INSERT INTO s{number} {query.format(n=name)};\n"
    script = tmp_path / "script.sql"
    script.write_text(text)
    tables = 0
    for vertex in compile_pipeline(script).job_graph.vertices:
        for operator in vertex.operators:
            if isinstance(operator.factory, DescribesState):
                for table, schema in operator.factory.state_schemas().items():
                    assert len(set(schema.names)) == len(schema.names), f"{operator.name}, {table}: {schema.names}"
                    tables += 1
    assert tables >= len(QUERIES)


def test_rows_with_such_names_survive(tmp_path: Path, whole: Script) -> None:
    script = Script(tmp_path / "awkward")
    renamed = "CREATE VIEW awkward AS SELECT id, g AS `__row`, v AS `__written`, k AS `__deleted` FROM a;\n"
    script.head += renamed
    best = BEST.replace("FROM a)", "FROM awkward)").replace("SELECT g,", "SELECT `__row`,")
    script.write(best.replace("BY g", "BY `__row`").replace("BY v", "BY `__written`"))
    script.interrupt()
    script.finish()
    assert script.written("best") == {row.replace('"g"', '"g"'): n for row, n in whole.written("best").items()}


class _TwoHoursLater(SystemClock):
    def now_ms(self) -> int:
        return super().now_ms() + 2 * 3_600_000


@pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
def test_state_that_was_not_written_for_its_time_to_live_is_gone_after_a_restore(tmp_path: Path, later: bool) -> None:
    script = Script(tmp_path)
    script.head = "SET 'table.exec.state.ttl' = '1 h';\n" + script.head
    script.write(COUNTS, PAIRS.replace("LEFT JOIN", "JOIN"), BEST)
    script.interrupt()
    script.job.clock = _TwoHoursLater() if later else None
    script.finish()

    a, b = ([json.loads(line) for line in script.lines[name]] for name in "ab")
    at, bt = (len(rows) - script.job.read[-1][name] for name, rows in (("a", a), ("b", b)))
    parts = [(a[:at], b[:bt]), (a[at:], b[bt:])] if later else [(a, b)]
    counts, pairs, best = list[Row](), list[Row](), list[Row]()
    for rows, others in parts:
        for k in {r["k"] for r in rows}:
            values = [r["v"] for r in rows if r["k"] == k]
            known = [v for v in values if v is not None]
            counts.append({"k": k, "n": len(values), "s": sum(known) if known else None})
        pairs += [
            {"l": r["id"], "r": o["id"]}
            for r in rows
            for o in others
            if None not in (r["k"], r["g"]) and (r["k"], r["g"]) == (o["k"], o["g"])
        ]
        for g in {r["g"] for r in rows}:
            ordered = sorted((r["v"] is None, -(r["v"] or 0), r["id"]) for r in rows if r["g"] == g)
            best += [{"g": g, "id": number} for _, _, number in ordered[:2]]
    assert script.written("counts") == bag(counts)
    assert script.written("pairs") == bag(pairs)
    assert script.written("best") == bag(best)
