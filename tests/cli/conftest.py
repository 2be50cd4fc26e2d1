"""The command line, called in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Command, flowrun, no_thread_is_left_behind, own_registry

__all__ = ["flowrun", "no_thread_is_left_behind", "own_registry"]


@dataclass
class Told:
    """What a command has printed, wherever, and its exit code."""

    code: int
    output: str


Tell = Callable[..., Told]


@pytest.fixture
def tell(flowrun: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tell:
    """Runs a file of tests about a pipeline, in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(tests: str, pipeline: str, name: str = "p.sql", *options: str) -> Told:
        (tmp_path / name).write_text(pipeline)
        (tmp_path / "p.test.yaml").write_text(tests)
        outcome = flowrun("test", "p.test.yaml", *options)
        return Told(outcome.code, outcome.out + outcome.err)

    return run
