"""Tests in several processes: the same results in the same order as in one, and clear words where a process ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flowrun.errors import FlowrunError
from flowrun.runners.pipeline_tests import side_by_side
from flowrun.runners.pipeline_tests.binding import BoundTest
from flowrun.runners.pipeline_tests.check import Result, check
from flowrun.runners.pipeline_tests.files import load_files
from flowrun.runners.pipeline_tests.report import render_failure
from flowrun.runners.pipeline_tests.side_by_side import check_all, check_side_by_side

PIPELINE = """
sources:
  numbers: {connector: filesystem, path: in/, format: json, schema: {n: BIGINT}}
steps:
  twice: {from: numbers, select: [n * 2 AS n]}
sinks:
  out: {from: twice, connector: blackhole}
"""
EXPECTED = (2, 4, 7, 8, 10)
"""Of the third test something else."""


@pytest.fixture
def tests(tmp_path: Path) -> list[BoundTest]:
    (tmp_path / "p.yaml").write_text(PIPELINE)
    stories = [
        f"- {{name: t{i}, given: {{numbers: [{{n: {i}}}]}}, expect: {{out: [{{n: {n}}}]}}}}"
        for i, n in enumerate(EXPECTED, 1)
    ]
    (tmp_path / "p.test.yaml").write_text("pipeline: p.yaml\ntests:\n" + "\n".join(stories) + "\n")
    (loaded,) = load_files([tmp_path / "p.test.yaml"])
    return list(loaded.tests)


def told(result: Result) -> tuple[str, tuple[str, ...], list[str]]:
    return result.bound.test.name, result.variants, [render_failure(result, f) for f in result.failures]


def test_processes_tell_what_one_would(tests: list[BoundTest]) -> None:
    found = [told(r) for r in check_side_by_side(tests, 2)]
    assert found == [told(check(test)) for test in tests]
    assert [bool(failures) for _, _, failures in found] == [False, False, True, False, False]


def test_a_process_that_ends_is_said_with_its_test(tests: list[BoundTest], monkeypatch: pytest.MonkeyPatch) -> None:
    here = os.getpid()

    def fatal(test: BoundTest) -> Result:
        if test.test.name == "t4" and os.getpid() != here:
            os._exit(7)
        return check(test)

    monkeypatch.setattr(side_by_side, "check", fatal)
    results = check_side_by_side(tests, 2)
    assert [next(results).bound.test.name for _ in range(3)] == ["t1", "t2", "t3"]
    with pytest.raises(FlowrunError, match="the process that ran the test 't4' has ended") as raised:
        next(results)
    assert "-k 't4'" in str(raised.value)


def test_an_error_of_one_test_is_raised_here(tests: list[BoundTest], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(test: BoundTest) -> Result:
        raise ValueError(f"no {test.test.name}")

    monkeypatch.setattr(side_by_side, "check", broken)
    with pytest.raises(FlowrunError, match="the test 't1' could not be run: ValueError: no t1"):
        list(check_side_by_side(tests, 2))


def test_who_stops_listening_ends_the_processes(tests: list[BoundTest], monkeypatch: pytest.MonkeyPatch) -> None:
    started, fork = [], os.fork

    def noted() -> int:
        started.append(fork())
        return started[-1]

    monkeypatch.setattr(os, "fork", noted)
    results = check_side_by_side(tests, 2)
    next(results)
    results.close()
    assert len(started) == 2
    for pid in started:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_functions_of_users_are_called_in_this_process(tests: list[BoundTest], monkeypatch: pytest.MonkeyPatch) -> None:
    here: list[int] = []

    def noted(test: BoundTest, spark: None = None) -> Result:
        here.append(os.getpid())
        return check(test, spark)

    monkeypatch.setattr(side_by_side, "check", noted)
    monkeypatch.setattr(side_by_side, "WORTH_A_PROCESS", 1)
    monkeypatch.setattr(side_by_side, "has_imported", lambda: True)
    assert len(list(check_all(tests))) == len(tests)
    assert here == [os.getpid()] * len(tests)
