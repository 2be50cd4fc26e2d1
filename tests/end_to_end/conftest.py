"""The command line, called in this process."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from flowrun.cli.main import main


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def own_registry(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Jobs of tests, and of processes that they start, are registered apart from the user's."""
    folder = tmp_path_factory.mktemp("registry") / "run"
    monkeypatch.setenv("FLOWRUN_RUNTIME_DIR", str(folder))
    return folder


@pytest.fixture
def flowrun(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Calls `flowrun ARGUMENTS…` and gives its exit code and output."""

    def call(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["flowrun", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        return Outcome(int(end.value.code or 0), captured.out, captured.err)

    return call


@pytest.fixture(autouse=True)
def no_thread_is_left_behind() -> Iterator[None]:
    """Every job joins all of its threads, however it ends."""
    before = set(threading.enumerate())
    yield
    others = [t for t in threading.enumerate() if t not in before]
    for thread in others:
        thread.join(10)  # the terminal library ends its own without waiting for it
    left = [t.name for t in others if t.is_alive()]
    assert not left, f"threads still run: {left}"
