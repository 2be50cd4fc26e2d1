"""TO_CHANGELOG and FROM_CHANGELOG in scripts: what comes out change by change, and what is said to those who write them wrongly."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.errors import JobFailedError, UnsupportedPlanError
from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import run_embedded
from tests.frontend.sql.queries.binding import problems

CHANGES = """
CREATE VIEW cdc AS SELECT * FROM (VALUES
  (1, 'INSERT', 'Alice'), (2, 'INSERT', 'Bob'), (1, 'UPDATE_BEFORE', 'Alice'), (1, 'UPDATE_AFTER', 'Alice2'), (2, 'DELETE', 'Bob')
) AS t (id, op, name);
"""


def printed(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, parallelism: int = 1, batch_rows: int = 1000
) -> list[str]:
    """What the SELECT of a script prints, without the numbers of subtasks."""
    script = folder / "s.sql"
    script.write_text(text)
    settings = {"settings.parallelism": str(parallelism), "settings.batch_rows": str(batch_rows)}
    run_embedded(compile_pipeline(script, {}, settings).job_graph)
    return [line.rpartition("> ")[2] for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("batch_rows", [2, 1000])
def test_rows_become_the_changes_that_they_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], batch_rows: int
) -> None:
    said = printed(tmp_path, capsys, CHANGES + "SELECT * FROM FROM_CHANGELOG(TABLE cdc);", 1, batch_rows)
    assert said == ["+I[1, Alice]", "+I[2, Bob]", "-U[1, Alice]", "+U[1, Alice2]", "-D[2, Bob]"]


def test_halves_of_an_update_that_come_apart_are_a_delete_and_an_insert(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = printed(tmp_path, capsys, CHANGES + "SELECT * FROM FROM_CHANGELOG(TABLE cdc);", 1, 1)
    assert said == ["+I[1, Alice]", "+I[2, Bob]", "-D[1, Alice]", "+I[1, Alice2]", "-D[2, Bob]"]


@pytest.mark.parametrize("batch_rows", [1, 7, 1000])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_upserts_by_a_key_become_whole_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], parallelism: int, batch_rows: int
) -> None:
    rows = [
        (1, "c", "Alice"),
        (2, "c", "Bob"),
        (1, "u", "Alice2"),
        (1, "u", "Alice2"),
        (3, "d", "nobody"),
        (2, "d", ""),
        (2, "u", "Bob2"),
    ]
    (tmp_path / "upserts.csv").write_text("".join(f"{i},{op},{name}\n" for i, op, name in rows))
    text = f"""
    CREATE TABLE upserts (id INT, op STRING, name STRING)
      WITH ('connector'='filesystem', 'path'='{tmp_path}/upserts.csv', 'format'='csv');
    SELECT name, id FROM FROM_CHANGELOG(input => TABLE upserts PARTITION BY id,
      op_mapping => MAP['c', 'INSERT', 'u', 'UPDATE_AFTER', 'd', 'DELETE']);
    """
    said = printed(tmp_path, capsys, text, parallelism, batch_rows)
    assert [line for line in said if line.endswith("1]")] == ["+I[Alice, 1]", "-U[Alice, 1]", "+U[Alice2, 1]"]
    assert [line for line in said if line.endswith("2]")] == ["+I[Bob, 2]", "-D[Bob, 2]", "+I[Bob2, 2]"]
    assert len(said) == 6


@pytest.mark.parametrize("parallelism", [1, 2])
def test_changes_become_rows_with_the_key_in_front(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], parallelism: int
) -> None:
    text = CHANGES + (
        "CREATE VIEW people AS SELECT name, id FROM FROM_CHANGELOG(TABLE cdc);"
        "SELECT * FROM TO_CHANGELOG(input => TABLE people PARTITION BY id, op => DESCRIPTOR(what), "
        "op_mapping => MAP['INSERT, UPDATE_AFTER', 'put', 'DELETE', 'gone']);"
    )
    said = printed(tmp_path, capsys, text, parallelism)
    first = [line for line in said if line.startswith("+I[1")]
    second = [line for line in said if line.startswith("+I[2")]
    assert first == ["+I[1, put, Alice]", "+I[1, put, Alice2]"]
    assert second == ["+I[2, put, Bob]", "+I[2, gone, Bob]"]
    assert len(said) == 4


def test_an_unknown_operation_fails_the_job_and_names_the_row(tmp_path: Path) -> None:
    script = tmp_path / "s.sql"
    script.write_text(CHANGES + "SELECT * FROM FROM_CHANGELOG(TABLE cdc, op_mapping => MAP['INSERT', 'INSERT']);")
    with pytest.raises(
        JobFailedError, match=r"\{id: 1, .* is 'UPDATE_BEFORE', which op_mapping does not know"
    ) as failure:
        run_embedded(compile_pipeline(script, {}, {}).job_graph)
    assert "error_handling => 'SKIP'" in str(failure.value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("FROM_CHANGELOG(TABLE sales)", "the table has no column 'op'"),
        ("FROM_CHANGELOG(TABLE sales, DESCRIPTOR(id))", "must be a character string, 'id' is BIGINT"),
        ("FROM_CHANGELOG(TABLE sales, DESCRIPTOR(shop), MAP['a', 'INSRT'])", "'INSRT' in op_mapping is no change"),
        (
            "FROM_CHANGELOG(TABLE sales, DESCRIPTOR(shop), MAP['u', 'UPDATE_AFTER'])",
            "needs PARTITION BY: such rows are upserts",
        ),
        (
            "FROM_CHANGELOG(TABLE sales, DESCRIPTOR(shop), MAP['u', 'UPDATE_BEFORE'])",
            "has UPDATE_BEFORE but no UPDATE_AFTER",
        ),
        ("FROM_CHANGELOG(TABLE sales, DESCRIPTOR(shop), MAP[shop, 'INSERT'])", "must be a MAP of constant texts"),
        ("FROM_CHANGELOG(TABLE sales, DESCRIPTOR(shop), error_handling => 'LOG')", "is 'FAIL' or 'SKIP'"),
        ("TO_CHANGELOG(TABLE sales, op => DESCRIPTOR(shop))", "has a column 'shop' already"),
        ("TO_CHANGELOG(TABLE sales, op_mapping => MAP['INSERT', 'a', 'INSERT', 'b'])", "names 'INSERT' twice"),
        ("TO_CHANGELOG(TABLE sales, mapping => MAP['INSERT', 'a'])", "has no parameter 'mapping'"),
        ("TO_CHANGELOG(DESCRIPTOR(op))", "input of TO_CHANGELOG must be a table"),
        ("TO_CHANGELOG()", "TO_CHANGELOG needs input"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(call: str, message: str) -> None:
    assert message in problems(f"SELECT * FROM {call}")


def test_a_batch_has_no_changes_to_show(tmp_path: Path) -> None:
    from flowrun.spark.native.changelogs import translate_to_changelog
    from flowrun.spark.translated import Inputs

    script = tmp_path / "s.sql"
    script.write_text(CHANGES + "SELECT * FROM TO_CHANGELOG((SELECT name, COUNT(*) AS n FROM cdc GROUP BY name));")
    (sink,) = compile_pipeline(script, {}, {}).plan.sinks
    node = sink.input
    while type(node).__name__ != "ToChangelog":
        (node,) = node.inputs
    with pytest.raises(UnsupportedPlanError, match="a batch knows only what they come to"):
        translate_to_changelog(node, Inputs(node, {}), None)  # type: ignore[arg-type]
