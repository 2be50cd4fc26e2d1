"""Scripts with an Iceberg catalog in a folder, from the command line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg")

from tests.cli.test_sql_scripts import flowrun
from tests.end_to_end.processes import started

pytestmark = pytest.mark.exhaustive
PAGE = Path(__file__).parents[3] / "docs" / "catalogs.md"


def in_processes(*arguments: str) -> None:
    """Runs a command that forks workers, which a process with threads of other tests cannot do."""
    with started(*arguments, cwd=Path.cwd()) as process:
        _, told = process.communicate(timeout=120)
        assert process.returncode == 0, told


def test_the_example_of_the_page_runs_twice_and_its_table_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    [example] = [e for e in re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL) if "'iceberg'" in e]
    Path("s.sql").write_text(example)
    assert flowrun("validate", "s.sql").exit_code == 0
    assert not Path("catalog.db").exists()
    in_processes("run", "s.sql", "-p", "2", "--workers", "2")
    again = flowrun("run", "s.sql", "-p", "1")
    assert again.exit_code == 0, again.output
    catalog = example.split(";")[0] + ";"
    ask = "USE CATALOG lake; SHOW DATABASES; SHOW TABLES; DESCRIBE ledger; SELECT COUNT(*) AS n FROM ledger;"
    Path("t.sql").write_text(catalog + ask)
    shown = flowrun("run", "t.sql")
    assert shown.exit_code == 0, shown.output
    assert "|     ledger |" in shown.output
    assert "| account | STRING | TRUE |" in shown.output
    assert "[2000]" in shown.output
    Path("u.sql").write_text(f"{catalog} INSERT INTO lake.bank.ledger SELECT * FROM lake.bank.ledger;")
    in_processes("run", "u.sql", "-p", "2", "--workers", "2")
    assert "[4000]" in flowrun("run", "t.sql").output
    Path("t.sql").write_text(catalog + "SELECT * FROM lake.bank.ledgr")
    missing = flowrun("run", "t.sql")
    assert missing.exit_code == 2
