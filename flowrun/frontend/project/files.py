"""Finds the project of a pipeline, and the files that a project names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from flowrun.core.record import record
from flowrun.errors import Diagnostic, PipelineError
from flowrun.frontend.project.reading import read_document
from flowrun.frontend.project_file import PROJECT_FILE, project_file
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.text_files import read_text
from flowrun.frontend.trees.nodes import YamlScalar
from flowrun.frontend.trees.spec import Section
from flowrun.state.checkpoints import ProjectText

PIPELINES = ("pipelines/**/*.yaml", "pipelines/**/*.yml", "pipelines/**/*.sql")
"""Where pipelines are if the project does not say it."""
_TESTS = (".test.yaml", ".test.yml")
_SUFFIXES = (".yaml", ".yml", ".sql", ".py")
_SQL = ".sql"
_PATTERN = re.compile(r"[*?\[]")


@record(eq=False)
class Project:
    """A project as it lies in its folder.

    Attributes:
        file: `flowrun.yaml`, as the user would write its path.
        source: its text.
        document: checked.
    """

    file: Path
    source: SourceText
    document: Section

    @property
    def folder(self) -> Path:
        """In which the file is."""
        return self.file.parent

    def pipelines(self) -> tuple[Path, ...]:
        """The files of the pipelines, in the order of their paths; programs in Python are among them if the project names them.

        Raises:
            PipelineError: a pattern names no file, or one that is no pipeline; or there is none at all.
        """
        given = self.document.scalars("pipelines")
        tables = {path.resolve() for path in self.tables()}
        if given:
            found = self._named(given, "pipelines")
        else:
            found = [p for pattern in PIPELINES for p in _matches(self.folder, pattern)]
        problems = []
        kept: dict[Path, None] = {}
        for path in found:
            if path.name.endswith(_TESTS) or path.resolve() in tables or path.name == PROJECT_FILE:
                continue
            if path.suffix.lower() not in _SUFFIXES:
                problems.append(
                    self._problem(f"'{path}' is no pipeline in YAML or SQL, and no program", self._naming(given, path))
                )
            kept[path] = None
        if problems:
            raise PipelineError(problems)
        if not kept:
            at = given[0] if given else None
            raise PipelineError([self._problem(f"the project {self.file} has no pipelines", at, _NO_PIPELINES)])
        return tuple(sorted(kept))

    def tables(self) -> tuple[Path, ...]:
        """The SQL files that declare tables for all scripts, in the order in which they are named.

        Raises:
            PipelineError: a pattern names no file, or one that is no SQL.
        """
        given = self.document.scalars("tables")
        found = self._named(given, "tables")
        wrong = [p for p in found if p.suffix.lower() != _SQL]
        if wrong:
            hint = "tables: names SQL files; sources of pipelines in YAML are under sources:"
            raise PipelineError([self._problem(f"'{p}' is no SQL file", self._naming(given, p), hint) for p in wrong])
        return tuple(dict.fromkeys(found))

    def text(self, *, scripts: bool) -> ProjectText:
        """What the project adds to a pipeline; `scripts`: with the files that declare tables.

        Raises:
            PipelineError: one of these cannot be read.
        """
        named = {str(path): read_text(path) for path in self.tables()} if scripts else {}
        return ProjectText(str(self.file), self.source.text, str(self.folder.absolute()), named)

    def _named(self, given: Iterable[YamlScalar], key: str) -> list[Path]:
        """Files that patterns name, in order.

        Raises:
            PipelineError: a pattern is no path below the folder, or names no file.
        """
        found: list[Path] = []
        problems = []
        for scalar in given:
            if os.path.isabs(scalar.text) or ".." in Path(scalar.text).parts:
                hint = "paths are relative to flowrun.yaml, without '..'"
                problems.append(self._problem(f"'{scalar.text}' leads out of the project", scalar, hint))
                continue
            matches = list(_matches(self.folder, scalar.text))
            if not matches:
                what = "no file is called" if not _PATTERN.search(scalar.text) else "no file matches"
                problems.append(self._problem(f"{key}: {what} '{scalar.text}'", scalar, f"looked in {self.folder}"))
            found += matches
        if problems:
            raise PipelineError(problems)
        return found

    def _naming(self, given: Iterable[YamlScalar], path: Path) -> YamlScalar | None:
        """The pattern that names a file."""
        return next((s for s in given if path in _matches(self.folder, s.text)), None)

    def _problem(self, message: str, at: YamlScalar | None, hint: str | None = None) -> Diagnostic:
        place = self.document.location if at is None else at.location
        return Diagnostic(message, place, self.source.line(place.line), hint)


_NO_PIPELINES = "name their files: pipelines: [orders.yaml, reports/*.sql]"


def _matches(folder: Path, pattern: str) -> Iterator[Path]:
    for path in sorted(folder.glob(pattern)):
        below = path.relative_to(folder).parts
        if path.is_file() and not any(part.startswith(".") for part in below):
            yield path


def project_around(folder: Path) -> Project | None:
    """The project that a folder is in: of the nearest `flowrun.yaml` in it or above it; None: there is none.

    Raises:
        PipelineError: it cannot be read, has errors, or is another user's, who would decide what pipelines here read and run.
    """
    file = project_file(folder)
    if file is None:
        return None
    _check_owner(file, folder)
    return read_project(file)


def _check_owner(file: Path, folder: Path) -> None:
    owner = file.stat().st_uid
    if owner not in (0, os.geteuid(), (folder if folder.exists() else file.parent).stat().st_uid):
        raise PipelineError.of(
            f"{file} belongs to another user (uid {owner}) than you and the pipelines below it: it could name any code to be run",
            "move your pipelines elsewhere, or make the file your own",
        )


def read_project(file: Path) -> Project:
    """The project of a `flowrun.yaml`.

    Raises:
        PipelineError: it cannot be read or has errors.
    """
    source = SourceText(str(file), read_text(file))
    return Project(file, source, read_document(source))


def project_text(pipeline: Path) -> ProjectText | None:
    """What the project of a pipeline's file adds to it; None: it is in none.

    Raises:
        PipelineError: the project has errors.
    """
    project = project_around(pipeline.parent)
    return None if project is None else project.text(scripts=pipeline.suffix.lower() == _SQL)
