"""What docs/tutorials say is what happens: each page is followed, block by block, as it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers.postgres import PostgresDatabase
from tests.tutorials import agrees, blocks_of, follow

TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"
PAGES = sorted(page.stem for page in TUTORIALS.glob("*.md") if page.stem != "index")
DATABASE_TO_LAKE = "cdc-to-lake"


@pytest.mark.exhaustive  # each command is a process
@pytest.mark.parametrize("page", [page for page in PAGES if page != DATABASE_TO_LAKE])
def test_page(page: str, tmp_path: Path) -> None:
    follow(TUTORIALS / f"{page}.md", tmp_path, {})


@pytest.mark.exhaustive
def test_from_a_database_to_a_lake(postgres: PostgresDatabase, tmp_path: Path) -> None:
    variables = {
        "PGHOST": postgres.host,
        "PGPORT": str(postgres.port),
        "PGUSER": postgres.user,
        "PGPASSWORD": postgres.password,
        "PGDATABASE": postgres.name,
    }
    follow(TUTORIALS / f"{DATABASE_TO_LAKE}.md", tmp_path, variables)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_followed(page: str) -> None:
    blocks = blocks_of((TUTORIALS / f"{page}.md").read_text(encoding="utf-8"))
    commands = [block for block in blocks if block.language == "sh" and "not run" not in block.said]
    assert len(commands) > 2
    assert [
        b.line
        for b, before in zip(blocks[1:], blocks, strict=False)
        if b.language == "text" and before.language != "sh"
    ] == []


def test_what_was_printed_is_compared_line_by_line() -> None:
    assert agrees("b\na\n", "a\nb\n", in_any_order=True)
    assert not agrees("b\na\n", "a\nb\n")
    assert not agrees("1 row\n", "2 rows\n")
    assert agrees("read … rows in 3.5 s\n", "read 12 rows in 700 ms\n")


def test_a_block_that_nobody_runs_is_an_error() -> None:
    with pytest.raises(AssertionError, match="line 3: a block that is no command"):
        blocks_of("text\n\n```sql\nSELECT 1\n```\n")
