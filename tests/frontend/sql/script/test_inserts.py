"""INSERT INTO: which query columns go where, how they are converted, and what does not fit."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from flowrun.errors import PipelineError
from flowrun.plan.nodes import walk_plan
from flowrun.runners.compile import compile_pipeline
from tests.frontend.sql.script.scripts import GENERATED, lines, plan_of, problems

SOURCE = f"CREATE TABLE s (i INT, b BIGINT, t STRING, d DECIMAL(10, 2), ts TIMESTAMP(3)) {GENERATED};\n"
SINK = "CREATE TABLE o (a BIGINT, n STRING NOT NULL, c AS a + 1, at TIMESTAMP_LTZ(3)) WITH ('connector' = 'print');\n"


def written(statement: str) -> list[str]:
    plan = plan_of(SOURCE + SINK + statement)
    node = plan.sinks[0].input
    assert plan.sinks[0].schema.names == ("a", "n", "at")
    return [str(p) for p in getattr(node, "projections", ())]


def test_columns_go_by_position_and_convert_as_flink_does() -> None:
    assert written("INSERT INTO o SELECT i, t, ts FROM s") == ["CAST(i AS BIGINT)", "t", "CAST(ts AS TIMESTAMP_LTZ(3))"]


def test_listed_columns() -> None:
    assert written("INSERT INTO o (n, a) SELECT t, b FROM s") == ["b", "t", "NULL"]


def test_null_fits_any_column() -> None:
    assert written("INSERT INTO o SELECT NULL, t, NULL FROM s") == ["NULL", "t", "NULL"]


def test_rows_of_values() -> None:
    plan = plan_of(SINK + "INSERT INTO o (a, n) VALUES (1, 'x'), (2, 'yy')")
    assert plan.sinks[0].schema.names == ("a", "n", "at")


def test_static_partitions() -> None:
    options = "WITH ('connector' = 'filesystem', 'path' = 'o', 'format' = 'json')"
    table = f"CREATE TABLE p (a INT, day DATE, k STRING) PARTITIONED BY (day, k) {options};\n"
    plan = plan_of(SOURCE + table + "INSERT INTO p PARTITION (day = DATE '2024-03-01') SELECT i, t FROM s")
    assert [str(p) for p in getattr(plan.sinks[0].input, "projections", ())] == ["i", "DATE '2024-03-01'", "t"]
    shown = problems(SOURCE + table + "INSERT INTO p PARTITION (dy = 'x', k = 5) SELECT i FROM s")
    assert "'dy' is no partition column of 'p'" in shown
    assert "expected STRING, this is INT" in shown


@pytest.mark.parametrize(
    ("statement", "message", "hint"),
    [
        ("INSERT INTO o SELECT t, t, ts FROM s", "column 1 of the query, 't', is STRING, but 'a' of 'o' is BIGINT", "CAST(t AS BIGINT)"),
        ("INSERT INTO o SELECT b, t FROM s", "'o' takes 3 columns, the query gives 2", "INSERT INTO o (a, n)"),
        ("INSERT INTO o (a) SELECT b FROM s", "column 'n' is NOT NULL and gets no value", "add it"),
        ("INSERT INTO o (a, n, c) SELECT b, t, b FROM s", "column 'c' is computed, it cannot be written", ""),
        ("INSERT INTO o (a, n, m) SELECT b, t, b FROM s", "column 'm' does not exist in 'o'", "known"),
        ("INSERT INTO o (a, n, a) SELECT b, t, b FROM s", "column 'a' gets two values", ""),
        ("INSERT INTO o SELECT b, t, ts FROM s ON CONFLICT DO NOTHING", "ON CONFLICT needs a PRIMARY KEY, which 'o' does not", "declare"),
        ("INSERT INTO o SELECT b, t, ts FROM s ON CONFLICT DO ERROR", "ON CONFLICT needs a PRIMARY KEY, which 'o' does not", "declare"),
        ("INSERT INTO o SELECT b, t, ts FROM s ON CONFLICT DO UPDATE", "expected ERROR, NOTHING or DEDUPLICATE, got 'UPDATE'", ""),
        ("INSERT OVERWRITE o SELECT b, t, ts FROM s", "INSERT OVERWRITE: connector 'print' of 'o' cannot replace rows", "INSERT INTO adds"),
        ("INSERT INTO v SELECT 1", "'v' is a view, which cannot be written", "a table"),
        ("INSERT INTO s SELECT * FROM s", "connector 'datagen' is no sink", "source"),
    ],
)  # fmt: skip
def test_what_does_not_fit(statement: str, message: str, hint: str) -> None:
    shown = problems(SOURCE + SINK + "CREATE VIEW v AS SELECT i FROM s;\n" + statement)
    assert message in shown
    assert hint in shown


@pytest.mark.parametrize(
    ("query", "marked"),
    [
        ("SELECT b AS a, b + 1 AS n, ts FROM s", "b + 1"),
        ("SELECT * FROM (SELECT b, b AS n, ts FROM s)", "*"),
        ("SELECT n, q.* FROM (SELECT b AS n, ts FROM s) AS q", "q.*"),
        ("VALUES (1, 2, NULL)", "2"),
        ("WITH q AS (SELECT * FROM s) SELECT b, i, ts FROM q ORDER BY ts", "i"),
        ("SELECT b, b, ts FROM s UNION ALL SELECT b, b, ts FROM s", "SELECT b, b, ts FROM s UNION ALL SELECT b, b, ts FROM s"),
    ],
)  # fmt: skip
def test_the_expression_that_does_not_fit_is_marked(query: str, marked: str) -> None:
    sink = "CREATE TABLE p (a BIGINT, n BOOLEAN, at TIMESTAMP(3)) WITH ('connector' = 'print');\n"
    shown = problems(f"{SOURCE}{sink}INSERT INTO p (a, n, at)\n{query}")
    line, caret = next((a, b) for a, b in pairwise(shown.splitlines()) if "^" in b)
    assert line[caret.index("^") : caret.rindex("^") + 1] == marked


def test_all_columns_that_do_not_fit_are_reported() -> None:
    found = lines(SOURCE + SINK + "INSERT INTO o SELECT t, t, t FROM s")
    assert ["column 1" in found[0], "column 3" in found[1]] == [True, True]


def test_a_table_that_cannot_be_written_does_not_hide_wrong_columns() -> None:
    shown = problems(SOURCE + "CREATE TABLE p (a BIGINT) WITH ('connector' = 'prnt');\nINSERT INTO p SELECT t FROM s")
    assert "there is no connector 'prnt'" in shown
    assert "column 1 of the query" in shown


KEYED = "CREATE TABLE p (a BIGINT, n STRING, PRIMARY KEY (a) NOT ENFORCED) WITH ('connector' = 'print');\n"
ENDLESS = "CREATE TABLE e (i INT, t STRING, ts TIMESTAMP(3){more}) WITH ('connector' = 'datagen');\n"
WATERMARK = ", WATERMARK FOR ts AS ts - INTERVAL '1' SECOND"


def kinds(folder: Path, text: str) -> set[str]:
    """The kinds of nodes of the optimised plan."""
    script = folder / "s.sql"
    script.write_text(text)
    return {type(node).__name__ for node in walk_plan(compile_pipeline(script, {}, {}).optimised)}


@pytest.mark.parametrize(
    ("query", "resolved"),
    [
        ("SELECT i, t FROM s ON CONFLICT DO ERROR", "ResolveConflicts"),
        ("SELECT COUNT(*), t FROM s GROUP BY t ON CONFLICT DO ERROR", "ResolveConflicts"),
        ("SELECT COUNT(*), t FROM s GROUP BY t ON CONFLICT DO NOTHING", "ResolveConflicts"),
        ("SELECT b, MAX(t) FROM s GROUP BY b ON CONFLICT DO ERROR", None),
        ("SELECT b, MAX(t) FROM s GROUP BY b ON CONFLICT DO NOTHING", None),
        ("SELECT i, t FROM s ON CONFLICT DO NOTHING", "GroupAggregate"),
        ("SELECT COUNT(*), t FROM s GROUP BY t ON CONFLICT DO DEDUPLICATE", "GroupAggregate"),
        ("SELECT i, t FROM k ON CONFLICT DO ERROR", "ResolveConflicts"),
    ],
)
def test_conflicts_are_resolved_by_what_keeps_least(query: str, resolved: str | None, tmp_path: Path) -> None:
    declared = f"CREATE TABLE k (i INT, t STRING, PRIMARY KEY (i) NOT ENFORCED) {GENERATED};\n"  # which nobody enforces
    found = kinds(tmp_path, SOURCE + declared + KEYED + "INSERT INTO p " + query)
    assert ("ResolveConflicts" in found) == (resolved == "ResolveConflicts")
    assert resolved is None or resolved in found


@pytest.mark.parametrize(
    ("query", "action"),
    [("SELECT i, t FROM e", "ERROR"), ("SELECT COUNT(*), t FROM e GROUP BY t", "NOTHING"),
     ("SELECT s.i, e.t FROM s JOIN e ON s.i = e.i", "ERROR")],
)  # fmt: skip
def test_rows_of_a_source_without_watermark_and_end_are_never_compared(query: str, action: str, tmp_path: Path) -> None:
    text = f"{SOURCE}{KEYED}{{source}}INSERT INTO p {query} ON CONFLICT DO {action}"
    with pytest.raises(PipelineError) as failure:
        kinds(tmp_path, text.format(source=ENDLESS.format(more="")))
    (problem,) = failure.value.diagnostics
    assert (
        f"ON CONFLICT DO {action} of 'p' compares rows when the watermark advances, but source 'e'" in problem.message
    )
    assert "has neither a watermark nor an end" in problem.message
    assert "declare WATERMARK FOR … on 'e'" in (problem.hint or "")
    assert problem.location is not None
    assert problem.location.line == 4
    assert "ResolveConflicts" in kinds(tmp_path, text.format(source=ENDLESS.format(more=WATERMARK)))


def test_the_first_of_rows_that_only_come_needs_no_watermark(tmp_path: Path) -> None:
    text = KEYED + ENDLESS.format(more="") + "INSERT INTO p SELECT i, t FROM e ON CONFLICT DO NOTHING"
    assert "ResolveConflicts" not in kinds(tmp_path, text)
