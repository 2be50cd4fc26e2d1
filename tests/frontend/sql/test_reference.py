"""The reference page of SQL scripts is made from what reads them."""

from __future__ import annotations

from flowrun.frontend.sql.reference import STATEMENTS, reference_markdown
from flowrun.frontend.sql.script.settings import KEYS
from flowrun.frontend.sql.script.statement_parser import STATEMENT_WORDS


def test_every_statement_is_on_the_page() -> None:
    syntax = " ".join(text for text, _ in STATEMENTS)
    assert [word for word in STATEMENT_WORDS if word not in syntax] == []


def test_every_key_of_set_is_on_the_page() -> None:
    page = reference_markdown()
    assert [key for key in KEYS if f"| `{key}` |" not in page] == []


def test_rows_have_as_many_cells_as_their_table_has_columns() -> None:
    columns = 0
    for line in reference_markdown().splitlines():
        cells = line.replace(r"\|", "").count("|")
        columns = cells if not columns or not cells else columns
        assert cells == columns, line
