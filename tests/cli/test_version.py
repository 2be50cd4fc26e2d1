"""`flowrun --version`: the version, and which reader of JSON comes first."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from flowrun import __version__
from flowrun.cli.main import cli
from flowrun.connectors.formats import json_compiled
from flowrun.connectors.formats.json_compiled import NotCompiledError


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_it_says_that_the_compiled_reader_is_missing_and_what_to_do(flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise NotCompiledError("was not built: there was no C compiler when flowrun was installed")

    monkeypatch.setattr(json_compiled, "library", missing)
    shown = CliRunner().invoke(cli, [flag])
    assert shown.exit_code == 0
    first, second = shown.output.splitlines()
    assert first == f"flowrun, version {__version__}"
    assert second.startswith(
        "reader of JSON: pyarrow's; the compiled one, five times as fast, was not built: there was no"
    )
    assert second.endswith("install gcc or clang, then flowrun again")


def test_it_says_that_the_compiled_reader_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_compiled, "library", object)
    assert CliRunner().invoke(cli, ["--version"]).output.endswith("\nreader of JSON: compiled\n")
