"""What is printed about failures."""

from __future__ import annotations

import pytest

from flowrun.cli.console import EXIT_FAILED, report_failure
from flowrun.errors import DataError, JobFailedError


def test_a_failure_whose_cause_is_its_own_cause_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    cause = DataError("a row without columns")
    cause.__cause__ = cause
    failure = JobFailedError("it failed")
    failure.__cause__ = cause
    assert report_failure(failure, show_traceback=False) == EXIT_FAILED
    assert "it failed" in capsys.readouterr().err
