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


def followed(tmp_path: Path, text: str) -> None:
    """Follow a page of this text."""
    page = tmp_path / "page.md"
    page.write_text(text.replace("~~~", "```"), encoding="utf-8")
    follow(page, tmp_path, {"COLOUR": "green"})


def test_blocks_go_on_where_those_before_have_stopped(tmp_path: Path) -> None:
    followed(
        tmp_path,
        '~~~json title="in/a.json"\n{}\n~~~\n~~~sh\ncd in\nexport SEEN="$COLOUR"\nsleep 60 &\n~~~\n'
        "~~~sh\npwd; echo $SEEN; cat a.json\n~~~\n~~~text\n/home/you/in\ngreen\n{}\n~~~\n",
    )


def test_a_reader_waits_and_interrupts(tmp_path: Path) -> None:
    followed(
        tmp_path,
        "~~~sh\n(sleep 0.2; touch there) &\n~~~\n<!-- wait until: test -e there -->\n~~~sh\necho found\n~~~\n~~~text\nfound\n~~~\n"
        "<!-- Ctrl-C after: begun -->\n~~~sh\nbash -c 'echo begun; exec sleep 60'; echo never\n~~~\n~~~text\nbegun\n~~~\n",
    )


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ("~~~sh\necho 2\n~~~\n~~~text\n1\n~~~\n", r"-1\n\+2"),
        ("~~~sh\necho 1\n~~~\n", r"\+1"),
        ("~~~sh\ntrue\n~~~\n~~~text\n1\n~~~\n", "-1"),
        ("~~~sh\nfalse; true\n~~~\n", "line 1: exit code 1"),
        ("<!-- exit code: 3 -->\n~~~sh\nexit 4\n~~~\n", "line 2: exit code 4"),
    ],
)
def test_what_differs_is_an_error(tmp_path: Path, block: str, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        followed(tmp_path, block)
