"""Finds files of tests, reads and binds their tests, and keeps pipelines that several tests share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flowrun.core.record import record
from flowrun.errors import Diagnostic, FlowrunError, PipelineError
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.pipeline_tests.document import PipelineTest, PipelineTestFile, read_tests
from flowrun.frontend.project_file import ENVIRONMENT
from flowrun.frontend.source_text import SourceText
from flowrun.runners.pipeline_tests.binding import BoundTest, bind
from flowrun.runners.pipeline_tests.replacements import Replacements
from flowrun.runners.pipeline_tests.subject import Subject


@record(eq=False)
class LoadedFile:
    """A file of tests that can run.

    Attributes:
        file: as it is written.
        tests: bound, in order.
    """

    file: PipelineTestFile
    tests: tuple[BoundTest, ...]


def load_file(path: Path, environment: str | None = None) -> LoadedFile:
    """The tests of a file, bound to their pipelines.

    Args:
        path: of the file.
        environment: of the project that the pipelines are in; None: its default one.

    Raises:
        PipelineError: something in the file, or in a pipeline, is wrong; carries all problems.
    """
    file = read_tests(path)
    diagnostics = Diagnostics(file.source)
    problems: list[Diagnostic] = []
    subjects = _Subjects(file, environment)
    bound = []
    for test in file.tests:
        try:
            subject = subjects.of(test)
        except PipelineError as error:
            placed = [d if d.location is not None else _at_pipeline(d.message, d.hint, file) for d in error.diagnostics]
            problems += [d for d in placed if d not in problems]
            continue
        except FlowrunError as error:
            made = _at_pipeline(error.message, error.hint, file)
            problems += [made] if made not in problems else []
            continue
        tied = bind(test, subject, diagnostics)
        if tied is not None:
            bound.append(tied)
    problems += diagnostics.found
    if problems:
        raise PipelineError(problems)
    return LoadedFile(file, tuple(bound))


class _Subjects:
    """The pipelines of a file: tests with the same surroundings share one."""

    def __init__(self, file: PipelineTestFile, environment: str | None) -> None:
        self._file = file
        self._chosen = {} if environment is None else {ENVIRONMENT: environment}
        self._known: dict[object, Subject] = {}

    def of(self, test: PipelineTest) -> Subject:
        file, around = self._file, test.surroundings
        key = (
            tuple(sorted(around.variables.items())),
            tuple(sorted(around.overrides.items())),
            tuple(sorted((name, id(rows)) for name, rows in around.lookups.items())),
            tuple(sorted(around.functions.items())),
            tuple(sorted((name, id(rows)) for name, rows in around.calls.items())),
        )
        if key not in self._known:
            if not file.pipeline.exists():
                raise _no_pipeline(file.source, file)
            replacements = Replacements(
                file.source,
                test.location,
                around.lookups,
                around.functions,
                around.calls,
                str(file.folder.resolve()),
            )
            self._known[key] = Subject(
                file.pipeline, around.variables, {**around.overrides, **self._chosen}, replacements
            )
        return self._known[key]


def _at_pipeline(message: str, hint: str | None, file: PipelineTestFile) -> Diagnostic:
    """A problem of a pipeline that has no place in it: where the pipeline is named."""
    at = file.pipeline_location
    return Diagnostic(message, at, file.source.line(at.line), hint)


def _no_pipeline(source: SourceText, file: PipelineTestFile) -> PipelineError:
    at = file.pipeline_location
    message = f"there is no pipeline '{file.pipeline}'"
    return PipelineError([Diagnostic(message, at, source.line(at.line), "the path is relative to the file of tests")])


def load_files(paths: Sequence[Path], environment: str | None = None) -> list[LoadedFile]:
    """Several files; `environment` as of `load_file`.

    Raises:
        PipelineError: something in one of them is wrong; carries all problems of all.
    """
    loaded: list[LoadedFile] = []
    problems: list[Diagnostic] = []
    for path in paths:
        try:
            loaded.append(load_file(path, environment))
        except PipelineError as error:
            problems += error.diagnostics
    if problems:
        raise PipelineError(problems)
    return loaded
