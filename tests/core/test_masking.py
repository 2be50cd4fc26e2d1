"""Exceptions that leave a Python program's run: no text that a traceback shows holds a secret."""

from __future__ import annotations

import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from flowrun.errors import JobFailedError
from flowrun.masking import MaskedError, forget_secrets, learn_secret, mask_exception

SECRET = "hunter2"


@pytest.fixture(autouse=True)
def secrets() -> Iterator[None]:
    learn_secret(SECRET)
    yield
    forget_secrets()


class Fixed(Exception):
    """An exception that makes its text itself."""

    def __str__(self) -> str:
        return f"cannot log in with {SECRET}"


class Held(Exception):
    def __init__(self, password: str) -> None:
        super().__init__()
        self.password = password

    def __str__(self) -> str:
        return f"wrong: {self.password}"


def undecodable() -> Exception:
    return UnicodeDecodeError("utf-8", SECRET.encode(), 0, 1, f"no {SECRET}")


@pytest.mark.parametrize(
    "make",
    [
        lambda: ValueError(f"wrong password {SECRET}"),
        lambda: KeyError(SECRET),
        lambda: FileNotFoundError(2, "no such file", f"/keys/{SECRET}"),
        lambda: OSError(f"cannot reach {SECRET}"),
        lambda: pa.ArrowInvalid(f"bad uri {SECRET}"),
        lambda: subprocess.CalledProcessError(1, ["login", SECRET]),
        lambda: ExceptionGroup("several", [ValueError(SECRET), KeyError(SECRET)]),
        undecodable,
        Fixed,
        lambda: Held(SECRET),
    ],
)
@pytest.mark.parametrize("link", ["cause", "context", "deeper"])
def test_no_text_of_a_traceback_holds_a_secret(make: Callable[[], Exception], link: str) -> None:
    with pytest.raises(JobFailedError) as caught:
        _fail(make(), link)
    caught.value.add_note(f"after {SECRET}")
    mask_exception(caught.value)
    shown = "".join(traceback.format_exception(caught.value))
    assert SECRET not in shown
    assert "JobFailedError" in shown
    assert "in _fail" in shown, "places stay"


def _fail(error: Exception, link: str) -> None:
    error.add_note(f"tried {SECRET}")
    try:
        try:
            raise error
        except Exception as first:
            if link == "deeper":
                raise RuntimeError("between") from first
            raise
    except Exception as origin:
        if link == "context":
            raise JobFailedError("the source failed")  # noqa: B904
        raise JobFailedError("the source failed") from origin


def test_an_exception_whose_text_cannot_be_changed_gives_way() -> None:
    with pytest.raises(JobFailedError) as caught:
        _fail(Fixed(), "cause")
    mask_exception(caught.value)
    assert isinstance(caught.value.__cause__, MaskedError)
    assert str(caught.value.__cause__) == "Fixed: cannot log in with ***"


def test_causes_keep_their_kind_where_they_can() -> None:
    with pytest.raises(JobFailedError) as caught:
        _fail(FileNotFoundError(2, "no such file", f"/keys/{SECRET}"), "cause")
    mask_exception(caught.value)
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    assert caught.value.__cause__.filename == "/keys/***"


def test_without_secrets_nothing_is_touched() -> None:
    forget_secrets()
    error = Fixed()
    with pytest.raises(JobFailedError) as caught:
        _fail(error, "cause")
    mask_exception(caught.value)
    assert caught.value.__cause__ is error


PROGRAM = """
from pathlib import Path

from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import run_embedded

run_embedded(compile_pipeline(Path("p.yaml")).job_graph)
"""


def test_a_program_that_fails_shows_no_secret(tmp_path: Path) -> None:
    (tmp_path / "connecting.py").write_text(
        "import os\n\ndef connect(row):\n    raise ValueError('cannot connect with ' + os.environ['PASSWORD'])\n"
    )
    (tmp_path / "p.yaml").write_text(
        "name: p\nsources:\n  s: {connector: datagen, number-of-rows: 3, schema: {x: INT}}\n"
        "steps:\n  m: {from: s, map: {function: 'connecting:connect'}}\n"
        'sinks:\n  out: {from: m, connector: print, print-identifier: "${secret:env:PASSWORD}"}\n'
    )
    (tmp_path / "program.py").write_text(PROGRAM)
    ran = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
        env={"PASSWORD": "hunter2000", "PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert ran.returncode == 1
    assert "cannot connect with ***" in ran.stderr, ran.stderr
    assert "hunter2000" not in ran.stderr
