"""SQL scripts as people write them by hand: odd files, slips of the pen, and what flowrun says to them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from flowrun.errors import PipelineError
from tests.end_to_end.running import SAMPLES, run_file

ORDERS = (
    "CREATE TABLE orders (order_id BIGINT, user_id STRING, amount DECIMAL(10, 2), ts TIMESTAMP(3), "
    "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) "
    f"WITH ('connector' = 'filesystem', 'path' = '{SAMPLES}/orders/', 'format' = 'json');\n"
)


def run_script(folder: Path, text: str | bytes) -> None:
    script = folder / "script.sql"
    script.write_bytes(text if isinstance(text, bytes) else text.encode())
    run_file(script)


def said_to(folder: Path, text: str | bytes) -> str:
    with pytest.raises(PipelineError) as error:
        run_script(folder, text)
    return "\n".join(d.render() for d in error.value.diagnostics).replace(str(folder / "script.sql"), "script.sql")


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_breaks_and_byte_order_marks_do_not_matter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line_break: str, mark: str
) -> None:
    run_script(
        tmp_path, mark + "-- a comment\nSELECT 1 AS a; -- and\n/* another\n one */ SELECT\t2;".replace("\n", line_break)
    )
    assert sorted(capsys.readouterr().out.split("\n"))[1:] in (["+I[1]", "+I[2]"], ["select> +I[1]", "select_2> +I[2]"])


def test_a_file_in_another_encoding_is_said_to_be_so(tmp_path: Path) -> None:
    assert "is not UTF-8 text" in said_to(tmp_path, "SELECT 'é';".encode("latin-1"))
    assert "hint: save it as UTF-8" in said_to(tmp_path, "SELECT 1;".encode("utf-16"))


@pytest.mark.parametrize("opening", ["/* never ends", "/*+ never ends", "/*/"])
def test_a_comment_without_an_end_does_not_hide_the_rest(tmp_path: Path, opening: str) -> None:
    said = said_to(tmp_path, f"SELECT 1;\n  {opening}\nSELECT 2;")
    assert said.startswith("script.sql:2:3: error: missing closing */\n")


@pytest.mark.parametrize(
    ("text", "place", "message", "hint"),
    [
        ("SELECT * FORM orders", "1:10", "unexpected 'FORM' after the query", "did you mean FROM?"),
        ("SELECT 1 SELECT 2", "1:10", "unexpected 'SELECT' after the query", "end the statement before it with ;"),
        (
            "EXPLAIN SHOW TABLES",
            "1:9",
            "EXPLAIN is for queries and INSERT",
            "EXPLAIN SELECT … or EXPLAIN INSERT INTO …",
        ),
        (
            "EXECUTE SHOW TABLES",
            "1:9",
            "EXECUTE is for queries, INSERT and statement sets",
            "leave out EXECUTE: SHOW …",
        ),
        (
            "SELECT COUNT(DISTINCT *) FROM (VALUES (1)) AS t (a)",
            "1:8",
            "COUNT(DISTINCT *) is not possible",
            "name the columns: COUNT(DISTINCT a)",
        ),
        (
            "SELECT * FROM (VALUES (1)) AS t (a), LATERAL TABLE(f(a)) AS r (b)",
            "1:52",
            "table function 'f' does not exist",
            "windows are TUMBLE, HOP, CUMULATE and SESSION; a function of your own needs "
            "CREATE FUNCTION f AS 'module.name' LANGUAGE PYTHON before",
        ),
    ],
)
def test_slips_of_the_pen(tmp_path: Path, text: str, place: str, message: str, hint: str) -> None:
    first, *_, last = said_to(tmp_path, text).splitlines()
    assert first == f"script.sql:{place}: error: {message}"
    assert last == f"  hint: {hint}"


def test_a_generated_column_name_is_not_called_for_in_a_hint(tmp_path: Path) -> None:
    said = said_to(tmp_path, "CREATE TABLE t (a BIGINT) WITH ('connector' = 'print'); INSERT INTO t VALUES ('x');")
    assert said.endswith("hint: convert it: CAST(… AS BIGINT)")


def test_of_a_very_long_line_only_the_part_around_the_place_is_shown(tmp_path: Path) -> None:
    columns = ", ".join(f"a AS a{i}" for i in range(5000))
    first, line, caret, _ = said_to(tmp_path, f"SELECT {columns}, b FROM (VALUES (1)) AS t (a);").splitlines()
    assert "column 'b' does not exist" in first
    assert len(line) < 250
    assert line[caret.index("^")] == "b"


@pytest.mark.parametrize("function", ["LEAD(amount)", "NTILE(4)", "PERCENT_RANK()", "CUME_DIST()"])
def test_functions_that_look_ahead_need_a_table_that_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], function: str
) -> None:
    said = said_to(tmp_path, ORDERS + f"SELECT {function} OVER (PARTITION BY user_id ORDER BY ts) FROM orders;")
    assert said.startswith(
        f"script.sql:2:8: error: {function.partition('(')[0]}() OVER needs rows that have not come yet"
    )
    totals = "(SELECT user_id, SUM(amount) AS amount FROM orders GROUP BY user_id)"
    run_script(tmp_path, ORDERS + f"SELECT user_id, {function} OVER (ORDER BY amount) FROM {totals};")
    rows: Counter[str] = Counter()
    for line in capsys.readouterr().out.splitlines():
        rows[line[2:]] += 1 if line[:2] in ("+I", "+U") else -1
    assert set(rows.values()) <= {0, 1}
    assert sum(rows.values()) == 12, "one row a user"
