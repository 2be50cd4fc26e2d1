"""`flowrun dev`: rows and tests again whenever something changes, whatever breaks meanwhile."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flowrun.cli.dev import _counts, named_tests
from tests.end_to_end.conftest import Command

PIPELINE = """\
name: orders
sources:
  orders: {connector: filesystem, path: orders.json, format: json, schema: {id: BIGINT, amount: DOUBLE}}
steps:
  priced: {from: orders, map: {function: "prices:double", schema: {id: BIGINT, amount: DOUBLE}}}
sinks:
  out: {from: priced, connector: filesystem, path: out, format: json}
"""
FUNCTION = """\
import pyarrow as pa
import pyarrow.compute as pc


def double(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.set_column(1, "amount", pc.multiply(rows.column("amount"), 2.0))
"""
TEST = """\
pipeline: orders.yaml
tests:
  - name: prices are doubled
    steps:
      - orders: [{id: 1, amount: 3}]
    expect:
      out: [{id: 1, amount: 6}]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("orders.json").write_text('{"id": 1, "amount": 1.5}\n{"id": 2, "amount": 2.5}\n')
    Path("orders.yaml").write_text(PIPELINE)
    Path("prices.py").write_text(FUNCTION)
    Path("orders.test.yaml").write_text(TEST)
    return tmp_path


def test_tests_are_those_that_name_the_pipeline(folder: Path) -> None:
    for name in ("tests", "old", ".venv"):
        Path(name).mkdir()
    Path("old/orders.yaml").write_text(PIPELINE)
    Path("tests/more.test.yaml").write_text("pipeline: ../orders.yaml  # this one\ntests: []\n")
    Path("tests/other.test.yaml").write_text("pipeline: ../my_orders.yaml\ntests: []\n")
    Path("tests/quoted.test.yml").write_text("{'pipeline': \"../orders.yaml\", tests: [")
    Path("tests/old.test.yaml").write_text("pipeline: ../old/orders.yaml\ntests: []\n")
    Path(".venv/theirs.test.yaml").write_text("pipeline: ../orders.yaml\ntests: []\n")
    assert named_tests(Path("orders.yaml")) == [
        Path("orders.test.yaml"),
        Path("tests/more.test.yaml"),
        Path("tests/quoted.test.yml"),
    ]
    assert named_tests(Path("old/orders.yaml")) == [Path("tests/old.test.yaml")]


def test_names_with_spaces_and_tests_elsewhere_in_the_project(folder: Path) -> None:
    Path("my pipelines/daily").mkdir(parents=True)
    Path("all tests").mkdir()
    Path("my pipelines/daily/new orders.yaml").write_text(PIPELINE)
    Path("all tests/new.test.yaml").write_text("pipeline: ../my pipelines/daily/new orders.yaml\ntests: []\n")
    assert named_tests(Path("my pipelines/daily/new orders.yaml")) == []
    Path("flowrun.yaml").write_text("pipelines: 'my pipelines/**/*.yaml'\n")
    assert named_tests(Path("my pipelines/daily/new orders.yaml")) == [Path("all tests/new.test.yaml")]


def test_rows_of_tests_in_files_of_their_own_count(folder: Path) -> None:
    Path("out").mkdir()
    Path("orders.test.yaml").write_text(TEST.replace("[{id: 1, amount: 3}]", "{file: rows/given.csv}"))
    counted = ["orders.yaml", "prices.py", "rows/given.csv", ".git/orders.yaml", "out/part-0.json", "orders.json"]
    assert [name for name in counted if _counts(folder, folder / name)] == [
        "orders.yaml",
        "prices.py",
        "rows/given.csv",
    ]


@pytest.mark.exhaustive
def test_folders_are_watched_though_they_vanish_and_come_back(folder: Path) -> None:
    Path("flows").mkdir()
    Path("tests").mkdir()
    for name in ("orders.yaml", "prices.py", "orders.json"):
        Path(name).rename(f"flows/{name}")
    Path("orders.test.yaml").rename("tests/orders.test.yaml")
    test = TEST.replace("orders.yaml", "../flows/orders.yaml")
    Path("tests/orders.test.yaml").write_text(test)
    Path("flows/orders.yaml").write_text(PIPELINE.replace("path: orders.json", "path: flows/orders.json"))
    session = Session(file="flows/orders.yaml")
    try:
        assert "1 test passed" in session.until("waiting for changes")
        Path("tests/orders.test.yaml").write_text(test.replace("amount: 6", "amount: 7"))
        changed = session.until("waiting for changes")
        assert "changed: tests/orders.test.yaml" in changed
        assert "1 failed" in changed
        Path("flows").rename("elsewhere")
        assert "there is no file 'flows/orders.yaml'" in session.until("waiting for changes")
        shutil.copytree("elsewhere", "flows")
        assert "1 failed" in session.until("waiting for changes")
        Path("flows/prices.py").write_text("x = (")
        assert "changed: flows/prices.py" in session.until("waiting for changes")
    finally:
        session.kill()


def test_a_file_that_is_not_there(flowrun: Command) -> None:
    done = flowrun("dev", "none.yaml")
    assert (done.code, done.err) == (2, "error: there is no file 'none.yaml'\n")


class Session:
    """`flowrun dev` in a process; what it shows is read up to what is waited for."""

    def __init__(self, *words: str, file: str = "orders.yaml") -> None:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "flowrun", "dev", file, *words],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, start_new_session=True,
        )  # fmt: skip
        self._seen = ""

    def until(self, text: str) -> str:
        assert self.process.stdout is not None
        deadline = time.monotonic() + 60
        while text not in self._seen:
            assert time.monotonic() < deadline, self._seen
            if select.select([self.process.stdout], [], [], 1)[0]:
                self._seen += os.read(self.process.stdout.fileno(), 65_536).decode()
        before, _, self._seen = self._seen.partition(text)
        return before

    def kill(self) -> None:
        assert self.process.stdout is not None
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


@pytest.mark.exhaustive
def test_rounds(folder: Path) -> None:
    session = Session()
    try:
        first = session.until("waiting for changes")
        assert "3.0" in first
        assert "1 test passed" in first
        Path("prices.py").write_text(FUNCTION.replace("2.0", "10.0"))
        second = session.until("waiting for changes")
        assert "changed: prices.py" in second
        assert "out: 2 rows came, 2 went" in second
        assert "- 1, 3.0" in second
        assert "+ 1, 15.0" in second
        assert "1 test failed" in second or "prices are doubled" in second
        Path("orders.yaml").write_text(PIPELINE.replace("from: priced", "from: priced1"))
        third = session.until("waiting for changes")
        assert "priced1" in third
        Path("orders.yaml").write_text("{")
        session.until("waiting for changes")
        Path("prices.py").write_text("import nothing_there\n")
        session.until("waiting for changes")
        Path("orders.yaml").write_text(PIPELINE)
        Path("prices.py").write_text(FUNCTION)
        while "1 test passed" not in session.until("waiting for changes"):
            pass
        os.killpg(session.process.pid, signal.SIGINT)
        assert session.process.wait(30) in (0, 130)
        assert not Path("out").exists()
    finally:
        session.kill()


@pytest.mark.exhaustive
def test_one_round_tells_by_its_exit_code(folder: Path) -> None:
    def once() -> int:
        words = [sys.executable, "-m", "flowrun", "dev", "orders.yaml", "--once"]
        return subprocess.run(words, check=False, capture_output=True).returncode

    assert once() == 0
    Path("orders.test.yaml").write_text(TEST.replace("amount: 6", "amount: 7"))
    assert once() == 1
    Path("orders.yaml").write_text("{")
    assert once() == 2


@pytest.mark.exhaustive
def test_what_is_wrong_with_a_pipeline_is_shown_once(folder: Path) -> None:
    def shown() -> tuple[int, str]:
        words = [sys.executable, "-m", "flowrun", "dev", "orders.yaml", "--once"]
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        return done.returncode, done.stderr

    Path("orders.yaml").write_text(PIPELINE.replace("from: priced", "from: priced1"))
    code, errors = shown()
    assert code == 2
    assert errors.count("error:") == 1, errors
    assert "there is no source or step 'priced1'" in errors
    assert "the tests have not run" in errors
    Path("orders.test.yaml").write_text(TEST.replace("steps:", "stepz:"))
    code, errors = shown()
    assert code == 2
    assert errors.count("priced1'") == 1, errors
    assert "no key 'stepz'" in errors
    Path("orders.yaml").write_text(PIPELINE.replace("orders.json, format: json,", "orders.json, format: jzon,"))
    Path("orders.test.yaml").write_text(TEST)
    code, errors = shown()
    assert errors.count("error:") == 1, errors
