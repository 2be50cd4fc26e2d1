"""docs/connectors/writing.md: its package is found, keeps the contracts by its own test, and is used by a pipeline."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.end_to_end.running import ROOT

pytestmark = pytest.mark.exhaustive

TEXT = (ROOT / "docs" / "connectors" / "writing.md").read_text(encoding="utf-8")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder of packages with that of the page in it, as an installer leaves it."""
    for name, code in re.findall(r"<!-- file: (\S+) -->\n```python\n(.*?)```", TEXT, re.DOTALL):
        with (tmp_path / name).open("a", encoding="utf-8") as file:
            file.write(code + "\n\n")
    (points,) = re.findall(r'entry-points\."(flowrun\.connectors)"\]\n(ledger) = "(.*)"\n', TEXT)
    group, name, target = points
    info = tmp_path / "flowrun_ledger-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: flowrun-ledger\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {target}\n")
    return tmp_path


def run(package: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=package, env={"PYTHONPATH": f"{package}:{ROOT}", "PATH": ""}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_connector_keeps_its_promises(package: Path) -> None:
    run(package, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-c", "/dev/null", "test_ledger.py")


def test_pipelines_find_it(package: Path) -> None:
    with sqlite3.connect(package / "shop.db") as connection:
        connection.execute("CREATE TABLE orders (id BIGINT, name TEXT)")
        connection.execute("CREATE TABLE copied (id BIGINT, name TEXT)")
        connection.executemany("INSERT INTO orders VALUES (?, ?)", [(i, f"order {i}") for i in range(500)])
    (package / "copy.sql").write_text(
        textwrap.dedent(
            """
            SET 'execution.checkpointing.interval' = '1 s';
            CREATE TABLE orders (id BIGINT, name STRING) WITH ('connector' = 'ledger', 'path' = 'shop.db', 'table' = 'orders');
            CREATE TABLE copied (id BIGINT, name STRING) WITH ('connector' = 'ledger', 'path' = 'shop.db', 'table' = 'copied');
            INSERT INTO copied SELECT * FROM orders WHERE id < 400;
            """
        )
    )
    assert "sink 'copied': exactly once" in run(package, "-m", "flowrun", "validate", "copy.sql")
    run(package, "-m", "flowrun", "run", "copy.sql", "--quiet", "--parallelism", "2")
    with sqlite3.connect(package / "shop.db") as connection:
        assert sorted(connection.execute("SELECT id FROM copied").fetchall()) == [(i,) for i in range(400)]
