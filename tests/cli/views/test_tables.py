"""Tables on terminals: words stay whole, whatever room there is."""

from __future__ import annotations

import click
import pytest

from flowrun.cli.views.tables import show_table

HEADINGS = ("NUMBER", "KIND", "TAKEN", "BARRIERS", "STATE", "FOLDER")
ROWS = [
    ["7", "checkpoint", "2024-03-01 10:00:00Z", "aligned", "complete, resumed from", "chk-7"],
    ["12", "savepoint", "2024-03-01 11:00:00Z", "aligned, drained", "complete", "savepoint-orders-per-minute-12"],
]


@pytest.mark.parametrize("width", [200, 100, 80, 60])
def test_words_are_not_broken(width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    show_table(HEADINGS, ROWS, ("NUMBER",), indent=2)
    said = click.unstyle(capsys.readouterr().out)
    assert max(map(len, said.splitlines())) <= width
    words = said.split()
    for cell in (*HEADINGS, *(cell for row in ROWS for cell in row)):
        assert all(word in words for word in cell.split()), f"{cell} in\n{said}"
