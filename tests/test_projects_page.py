"""docs/projects.md: its files make a project, and its commands print what the page shows, in the order of the page."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from flowrun.cli.main import cli
from flowrun.errors import PipelineError

PAGE = (Path(__file__).parent.parent / "docs" / "projects.md").read_text(encoding="utf-8")
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"(?:#|--) ([\w./]+)\n")
_SECONDS = re.compile(r"\d+\.\d s$", re.MULTILINE)


def printed(command: str) -> str:
    """What a command prints, as on a terminal: messages before the output."""
    result = CliRunner().invoke(cli, shlex.split(command)[1:])
    if isinstance(result.exception, PipelineError):
        return "\n".join(d.render() for d in result.exception.diagnostics) + "\n"
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.stderr + result.stdout


def test_the_page_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands = 0
    for _, text in BLOCKS:
        file = _FILE.match(text)
        if file is not None:
            (tmp_path / file[1]).parent.mkdir(exist_ok=True)
            (tmp_path / file[1]).write_text(text, encoding="utf-8")
        elif text.startswith("$ "):
            command, _, expected = text[2:].partition("\n")
            assert _SECONDS.sub("0.0 s", printed(command)) == _SECONDS.sub("0.0 s", expected), command
            commands += 1
    assert commands == 6
