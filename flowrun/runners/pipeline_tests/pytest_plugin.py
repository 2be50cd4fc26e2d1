"""Collects tests of pipelines, files `NAME.test.yaml`, into pytest; flowrun installs it as a plug-in.

It imports nothing of flowrun's before there is such a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from flowrun.runners.pipeline_tests.binding import BoundTest
    from flowrun.runners.pipeline_tests.check import Result

_SUFFIXES = (".test.yaml", ".test.yml")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A file of tests as a collector; None: it is another file."""
    if not file_path.name.endswith(_SUFFIXES):
        return None
    collected: pytest.Collector = _File.from_parent(parent, path=file_path)
    return collected


class _File(pytest.File):
    """A file of tests; what is wrong with it is an error of its collection."""

    def collect(self) -> Iterator[pytest.Item]:
        from flowrun.errors import PipelineError
        from flowrun.runners.pipeline_tests.files import load_file

        try:
            loaded = load_file(_shown(self.path))
        except PipelineError as error:
            raise self.CollectError("\n".join(d.render() for d in error.diagnostics)) from None
        for bound in loaded.tests:
            yield _Item.from_parent(self, name=bound.test.name, bound=bound)


class _Item(pytest.Item):
    """One test, in all of its ways."""

    def __init__(self, *, bound: BoundTest, **of_pytest: object) -> None:
        super().__init__(**of_pytest)  # type: ignore[arg-type]  # pytest's own constructor checks them
        self._bound = bound

    def runtest(self) -> None:
        from flowrun.runners.pipeline_tests.check import check

        result = check(self._bound)
        if not result.passed:
            raise _NotAsExpectedError(result)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        """What `flowrun test` prints."""
        error = excinfo.value
        if not isinstance(error, _NotAsExpectedError):
            return str(super().repr_failure(excinfo))
        from flowrun.runners.pipeline_tests.report import render_failure

        return "\n\n".join(render_failure(error.result, failure) for failure in error.result.failures)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """File, line and name."""
        return self.path, self._bound.test.location.line - 1, self.name


class _NotAsExpectedError(Exception):
    def __init__(self, result: Result) -> None:
        super().__init__("; ".join(failure.message for failure in result.failures))
        self.result = result


def _shown(path: Path) -> Path:
    """The path as users see it: from the working directory on, if it is below."""
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path
