"""What a notebook shows of a cell that is wrong: the line of the cell and one message, and nothing from inside flowrun."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("IPython")
from IPython.core.interactiveshell import InteractiveShell


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InteractiveShell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    made = InteractiveShell(colors="nocolor")
    made.history_manager.end_session()
    return made


SETUP = """
import flowrun
orders = {"id": [1, 2], "name": ["a", "b"]}

@flowrun.udf(result="BIGINT")
def broken(id: int) -> int:
    raise ValueError("seven")
"""


@pytest.mark.parametrize(
    ("cell", "line", "said"),
    [
        ('flowrun.sql("SELEC 1")', 1, "PipelineError: "),
        ('x = 1\nflowrun.sql("SELECT nme FROM orders", orders=orders)', 2, "did you mean 'name'?"),
        ('flowrun.sql("SELECT * FROM order_items", orders=orders)', 1, "order_items"),
        ('flowrun.sql("SELECT id FROM orders", orders=7)', 1, "PipelineError: "),
        ('flowrun.sql("SELECT CAST(name AS INT) FROM orders", orders=orders)', 1, "cannot cast 'a' to INT"),
        ('flowrun.pipeline("none.yaml")', 1, "none.yaml"),
        ('flowrun.table(orders, time="at")', 1, "PipelineError: "),
        ('flowrun.sql("SELECT 1", within="soon")', 1, "'soon' is no duration"),
    ],
)
def test_a_broken_cell_is_one_message(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], cell: str, line: int, said: str
) -> None:
    assert shell.run_cell(SETUP).success
    capsys.readouterr()
    result = shell.run_cell(cell)
    shown = "".join(capsys.readouterr())
    assert not result.success
    assert said in shown
    assert f"line {line}:  {cell.splitlines()[line - 1]}" in shown
    assert "Traceback" not in shown
    assert "flowrun/" not in shown
    assert len(shown.splitlines()) < 12, shown


def test_what_is_wrong_with_flowrun_itself_is_shown_whole(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.run_cell("from flowrun.errors import InternalError\nraise InternalError('report me')")
    assert "Traceback" in "".join(capsys.readouterr())
