"""The pipelines that a command is about: those of a project, of a folder, or single files; and all of them compiled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from flowrun.api.connector import TablePlace
from flowrun.connectors.filesystem.table_path import TablePath, allowing_missing, file_place
from flowrun.core.record import record
from flowrun.errors import Diagnostic, FlowrunError, PipelineError, Severity
from flowrun.frontend.pipeline_tests.finding import is_test_file
from flowrun.frontend.project.files import Project, project_around, read_project
from flowrun.frontend.project_file import PROJECT_FILE
from flowrun.frontend.references import unused_variable
from flowrun.frontend.text_files import with_source_line
from flowrun.operators.function_loading import modules_of_its_own
from flowrun.plan.guarantees import SinkGuarantee
from flowrun.runners.compile import PROGRAM_SUFFIX, CompiledPipeline, compile_file
from flowrun.runners.projects.graph import (
    PipelineNode,
    ProjectGraph,
    graph_problems,
    meets,
    pipeline_node,
    program_node,
)

if TYPE_CHECKING:
    from flowrun.runners.program import CompiledProgram

_SUFFIXES = (".yaml", ".yml", ".sql")


@record(eq=False)
class Members:
    """Pipelines that belong together.

    Attributes:
        files: theirs.
        project: of which they are all; None: they are single files, or those of a folder that is no project's.
    """

    files: tuple[Path, ...]
    project: Project | None = None


@record(eq=False)
class Member:
    """A pipeline, as far as it could be compiled.

    Attributes:
        file: of it.
        compiled: None: it has errors.
        problems: errors, or the warnings of one that has none.
        guarantees: what holds for each sink after a failure.
        missing: paths that it reads and that are not there.
    """

    file: Path
    compiled: CompiledPipeline | CompiledProgram | None
    problems: tuple[Diagnostic, ...]
    guarantees: tuple[SinkGuarantee, ...] = ()
    missing: tuple[TablePath, ...] = ()


def members_of(paths: Sequence[Path]) -> Members:
    """The pipelines that paths name: files, projects, or folders of pipelines; without a path those of the project around here.

    Raises:
        PipelineError: a path is not there, a folder has no pipelines, no project is around, or a project has errors.
    """
    if not paths:
        project = project_around(Path())
        if project is None:
            raise PipelineError.of(
                f"there is no {PROJECT_FILE} in '{Path.cwd()}' or above it",
                f"name a pipeline or a folder, or make a {PROJECT_FILE}; docs/projects.md shows one",
            )
        return Members(project.pipelines(), project)
    found = [_members_at(path) for path in paths]
    if len(found) == 1:
        return found[0]
    return Members(tuple(dict.fromkeys(file for members in found for file in members.files)))


def _members_at(path: Path) -> Members:
    if path.name == PROJECT_FILE and path.is_file():
        project = read_project(path)
        return Members(project.pipelines(), project)
    if not path.is_dir():
        return Members((path,))
    if (path / PROJECT_FILE).is_file():
        return _members_at(path / PROJECT_FILE)
    around = project_around(path)
    if around is None:
        files = tuple(pipeline_files(path))
    else:
        files = tuple(f for f in around.pipelines() if f.absolute().is_relative_to(path.absolute()))
    if not files:
        where = "" if around is None else f" that belong to the project {around.file}"
        raise PipelineError.of(f"there are no pipelines in '{path}'{where}", "they are files .yaml, .yml or .sql")
    return Members(files)


def pipeline_files(folder: Path) -> Iterator[Path]:
    """The pipelines of a folder and of those in it: files .yaml, .yml and .sql, but for tests and what is hidden. Of a project its own.

    Raises:
        PipelineError: the folder's project has errors.
    """
    if (folder / PROJECT_FILE).is_file():
        yield from read_project(folder / PROJECT_FILE).pipelines()
        return
    for path in sorted(folder.rglob("*")):
        is_hidden = any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
        if path.suffix.lower() in _SUFFIXES and path.is_file() and not is_hidden and not is_test_file(path):
            yield path


def compile_members(
    files: Sequence[Path], variables: Mapping[str, str], overrides: Mapping[str, str], *, missing_files: bool = False
) -> tuple[Member, ...]:
    """Each pipeline compiled, whatever is wrong with the others.

    Args:
        files: of the pipelines.
        variables: of the command line.
        overrides: of the command line.
        missing_files: files that pipelines read need not be there, as others may write them first.
    """
    return tuple(_compiled(file, variables, overrides, missing_files=missing_files) for file in files)


def is_program_file(file: Path) -> bool:
    """Whether a file is a program in Python."""
    return file.suffix.lower() == PROGRAM_SUFFIX


def _compiled(file: Path, variables: Mapping[str, str], overrides: Mapping[str, str], *, missing_files: bool) -> Member:
    try:
        with (
            allowing_missing() if missing_files else nullcontext(()) as missing,
            modules_of_its_own(file.parent) if is_program_file(file) else nullcontext(),
        ):
            compiled = compile_file(file, variables, overrides)
            guarantees = compiled.guarantees
    except PipelineError as error:
        problems = error.diagnostics
        if is_program_file(file):
            problems = _hinting_at_modules(file, problems)
        return Member(file, None, tuple(of_file(file, problem) for problem in problems))
    except FlowrunError as error:
        return Member(file, None, (Diagnostic(f"{file}: {error.message}", hint=error.hint),))
    return Member(file, compiled, compiled.warnings, guarantees, tuple(dict.fromkeys(missing)))


def _hinting_at_modules(file: Path, problems: tuple[Diagnostic, ...]) -> tuple[Diagnostic, ...]:
    """The problems of a program. One without a job may be a module of functions, which a pattern of the project took for a program."""
    from flowrun.runners.program import no_job  # pipelines do not need the DataStream API

    if problems != no_job(file).diagnostics:
        return problems
    hint = f"end it with env.execute(); if it is a module of functions, name the programs one by one in 'pipelines' of {PROJECT_FILE}"
    return tuple(replace(problem, hint=hint) for problem in problems)


def of_file(file: Path, problem: Diagnostic) -> Diagnostic:
    """The problem; one without a place names its file."""
    if problem.location is not None or str(file) in problem.message:
        return problem
    return replace(problem, message=f"{file}: {problem.message}")


def errors_of(members: Sequence[Member]) -> list[Diagnostic]:
    """What is wrong with those that cannot run; what is wrong with their project once."""
    return list(dict.fromkeys(p for m in members for p in m.problems if p.severity is Severity.ERROR))


def without_needless_warnings(members: Sequence[Member], variables: Mapping[str, str]) -> tuple[Member, ...]:
    """The pipelines without the warning that one does not use a variable of the command line, if another does."""
    needless = {name for name in variables if not all(any(_says_unused(p, name) for p in m.problems) for m in members)}
    return tuple(
        replace(
            m,
            problems=tuple(
                of_file(m.file, p) for p in m.problems if not any(_says_unused(p, name) for name in needless)
            ),
        )
        for m in members
    )


def _says_unused(problem: Diagnostic, variable: str) -> bool:
    return problem.message.startswith(unused_variable(variable))


def with_missing_files(members: Sequence[Member]) -> tuple[Member, ...]:
    """The pipelines with a warning for each path that is not there and that none of them writes."""
    written = [use.place for p in graph_of(members).pipelines for use in p.writes if use.place is not None]
    return tuple(
        replace(m, problems=(*m.problems, *(of_file(m.file, p) for p in _missing(m, written)))) for m in members
    )


def _missing(member: Member, written: Sequence[TablePlace]) -> Iterator[Diagnostic]:
    for path in member.missing:
        if not any(meets(file_place(path.text), place) for place in written):
            yield Diagnostic(
                f"there is no file at '{path.text}', and no other pipeline here writes it", severity=Severity.WARNING
            )


def graph_of(members: Sequence[Member]) -> ProjectGraph:
    """The pipelines and programs that have no errors, with their tables."""
    return ProjectGraph(tuple(_node(m.file, m.compiled) for m in members if m.compiled is not None and _runs(m)))


def _runs(member: Member) -> bool:
    """Whether there is anything to run: a script may only describe tables."""
    return not isinstance(member.compiled, CompiledPipeline) or member.compiled.runs


def _node(file: Path, compiled: CompiledPipeline | CompiledProgram) -> PipelineNode:
    if isinstance(compiled, CompiledPipeline):
        return pipeline_node(file, compiled.plan)
    return program_node(file, compiled.name, compiled.reads, compiled.writes)


def problems_together(members: Sequence[Member]) -> list[Diagnostic]:
    """What is wrong with pipelines that each are right: see `graph_problems`."""
    return [with_source_line(problem) for problem in graph_problems(graph_of(members))]
