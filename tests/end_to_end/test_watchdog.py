"""A process whose operators hang is ended, and says which operator it was."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

FUNCTIONS = """
import re, time
from collections.abc import Callable, Iterator
from pathlib import Path

def holding(rows):  # the interpreter's lock, for some minutes
    Path("here").touch()
    re.match(r"^(a+)+$", "a" * 30 + "!")
    return rows

def holding_later(rows):
    Path("here").touch()
    time.sleep(0.7)
    return holding(rows)

def sleeping(rows):
    Path("here").touch()
    time.sleep(3600)
    return rows

def failing(rows):
    while not Path("here").exists():
        time.sleep(0.01)
    raise ValueError("of its own")
"""
SOURCE = "{connector: datagen, rows-per-second: 1000, schema: {id: BIGINT}, fields: {id: {kind: sequence}}}"
PIPELINE = """
name: hang
settings: {cancellation_timeout: TIMEOUT}
sources: {a: SOURCE, b: SOURCE}
steps:
  first: {from: a, map: {function: "functions:FUNCTION", schema: {id: BIGINT}}}
  second: {from: b, map: {function: "functions:OTHER", schema: {id: BIGINT}}}
  third: {from: b, filter: id >= 0}
sinks:
  one: {from: first, connector: blackhole}
  two: {from: OUT, connector: blackhole}
"""


def start(folder: Path, function: str, *, timeout: str = "20s", other: str | None = None) -> subprocess.Popen[str]:
    text = PIPELINE.replace("SOURCE", SOURCE).replace("TIMEOUT", timeout).replace("FUNCTION", function)
    text = text.replace("OTHER", other or "failing").replace("OUT", "third" if other is None else "second")
    (folder / "functions.py").write_text(FUNCTIONS)
    (folder / "hang.yaml").write_text(text)
    process = subprocess.Popen(
        [sys.executable, "-m", "flowrun", "run", "hang.yaml"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    wait_until((folder / "here").exists)
    time.sleep(0.5)  # the call that holds the interpreter comes right after
    return process


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def end(process: subprocess.Popen[str]) -> tuple[int, str, float]:
    began = time.monotonic()
    try:
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, errors, time.monotonic() - began


@pytest.mark.exhaustive
def test_a_second_signal_ends_a_process_whose_interpreter_is_held(tmp_path: Path) -> None:
    process = start(tmp_path, "holding")
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    seen = ""
    while "does not answer" not in seen:
        seen += process.stderr.readline()
    assert (
        "flowrun does not answer: operator 'first' of subtask Source: a -> first -> Sink: one (1/1) hung; press Ctrl-C again"
        in seen
    )
    process.send_signal(signal.SIGINT)
    code, errors, _ = end(process)
    assert code == -signal.SIGKILL
    assert re.search(
        r"did not answer a second signal \(Ctrl-C\) for \d+ s; operator 'first' of subtask Source: a", errors
    ), errors
    assert "hint: no checkpoints were taken" in errors


@pytest.mark.exhaustive
def test_sigterm_ends_it_after_the_time_out(tmp_path: Path) -> None:
    process = start(tmp_path, "holding", timeout="1s")
    process.send_signal(signal.SIGTERM)
    code, errors, _ = end(process)
    assert code == -signal.SIGKILL
    assert re.search(r"did not answer SIGTERM for \d+ s; operator 'first' of subtask", errors), errors


def test_sigterm_ends_one_with_an_operator_that_does_not_return(tmp_path: Path) -> None:
    process = start(tmp_path, "sleeping", timeout="1s")
    process.send_signal(signal.SIGTERM)
    code, errors, _ = end(process)
    assert code == -signal.SIGKILL
    assert "a subtask has not returned from one call since SIGTERM" in errors
    assert "operator 'first' of subtask" in errors


@pytest.mark.exhaustive
def test_the_job_itself_names_who_did_not_end_after_the_second_signal(tmp_path: Path) -> None:
    process = start(tmp_path, "sleeping", timeout="1s")
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    code, errors, seconds = end(process)
    assert code == 1, errors
    assert "Source: a -> first -> Sink: one (1/1) is in operator 'first', at functions.py" in errors
    assert seconds < 5


@pytest.mark.exhaustive
def test_a_failed_job_does_not_wait_for_one_that_holds_the_interpreter_after_it_was_cancelled(tmp_path: Path) -> None:
    process = start(tmp_path, "holding_later", timeout="1s", other="failing")
    code, errors, _ = end(process)
    assert code == -signal.SIGKILL
    assert re.search(r"did not end within \d+ s after it was cancelled; operator 'first' of subtask", errors), errors


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_that_ends_by_itself_is_left_alone(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "fine.yaml").write_text(f"sources: {{a: {SOURCE}}}\nsinks: {{o: {{from: a, connector: print}}}}\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "flowrun", "run", "fine.yaml"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(number)
    code, errors, _ = end(process)
    assert code == 130, errors
    assert "SIGKILL" not in errors


GREEDY = """
name: greedy
settings: {checkpoint: {interval: 1s, dir: state}, memory_watch: WATCH}
sources: {a: SOURCE}
steps:
  keep: {from: a, map: {function: "functions:keeping", schema: {id: BIGINT}}}
sinks: {out: {from: keep, connector: blackhole}}
"""
KEEPING = """
import time
kept = []

def keeping(rows):
    kept.append(b"x" * BYTES)
    time.sleep(0.01)
    return rows
"""


@pytest.fixture
def limited_group(tmp_path: Path) -> Iterator[Path]:
    """The `tasks` file of a control group that leaves its processes 400 MiB."""
    group = Path("/sys/fs/cgroup/memory") / f"flowrun-{os.getpid()}-{tmp_path.name}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group (version 1) can be made here: {error}")
    try:
        (group / "memory.limit_in_bytes").write_text(str(400 << 20))
        yield group / "tasks"
    finally:
        wait_until(lambda: not (group / "tasks").read_text())  # the watchdog ends soon after its job
        group.rmdir()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("size", "code", "said"),
    [
        (400_000, 1, r"memory is running out: .* of 419\.4 MB \(the control group's limit\) are left"),
        (
            4_000_000,
            -signal.SIGKILL,
            r"the system ended the process because memory ran out \(the control group's limit: 400 MiB\)",
        ),
    ],
)
def test_a_process_that_needs_more_memory_than_there_is_says_so(
    tmp_path: Path, limited_group: Path, size: int, code: int, said: str
) -> None:
    (tmp_path / "greedy.yaml").write_text(
        GREEDY.replace("SOURCE", SOURCE).replace("WATCH", "true" if code == 1 else "false")
    )
    (tmp_path / "functions.py").write_text(KEEPING.replace("BYTES", str(size)))
    process = subprocess.Popen(
        ["/bin/sh", "-c", f'echo $$ > "{limited_group}"; exec "$0" -m flowrun run greedy.yaml', sys.executable],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    returned, errors, _ = end(process)
    assert returned == code, errors
    assert re.search(said, errors), errors
