"""The way from a pipeline file to a plan, whatever language the file is in."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import Diagnostic, PipelineError
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.project_file import ENVIRONMENT, PROJECT_FILE, project_file
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.text_files import read_text
from flowrun.operators.function_scope import FunctionScopes, functions_beside
from flowrun.plan.nodes import Plan
from flowrun.state.checkpoints import ProjectText

if TYPE_CHECKING:
    from flowrun.frontend.shared_parts import SharedParts
    from flowrun.frontend.sql.script.known_catalogs import KnownCatalogs

YAML_SUFFIXES = (".yaml", ".yml")
SQL_SUFFIXES = (".sql",)


@record
class LoadedPipeline:
    """A pipeline without errors: its plan (not yet optimised) and the warnings found on the way.

    `outputs` are the answers of a script's DESCRIBE, SHOW and EXPLAIN statements; a plan without sinks has nothing to run.
    """

    plan: Plan
    diagnostics: tuple[Diagnostic, ...] = ()
    outputs: tuple[str, ...] = ()
    catalog_tables: Mapping[str, str] = field(default_factory=dict)
    """What catalogs said of the tables that a script names: statements that declare them, by full name."""
    tables: Mapping[str, Schema] = field(default_factory=dict)
    """The tables and views that a script declares, with their columns."""
    project: ProjectText | None = None
    """What its project added to it; None: it is in none."""


def load_pipeline(
    path: Path | str,
    variables: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> LoadedPipeline:
    """The plan of a pipeline file.

    Args:
        path: a `.sql`, `.yaml` or `.yml` file.
        variables: values for `${NAME}` in the file; they win over the environment.
        overrides: values that replace those in the file, by path, e.g. `{"settings.parallelism": "4"}`.
        environment: environment variables; None: those of this process.

    Raises:
        PipelineError: the file cannot be read or has errors; carries all of them, and the warnings.
    """
    path = Path(path)
    source = SourceText(str(path), read_text(path))
    diagnostics = Diagnostics(source)
    if path.suffix.lower() not in (*YAML_SUFFIXES, *SQL_SUFFIXES):
        diagnostics.error(
            f"'{path.name}' is no pipeline",
            None,
            hint="a pipeline is a .sql, .yaml or .yml file; programs (.py) are run, explained and validated",
        )
        diagnostics.raise_if_errors()
    if path.name == PROJECT_FILE:
        raise PipelineError.of(
            f"'{path}' is the document of a project, and no pipeline",
            "name one of its pipelines; flowrun validate, test, lint and graph without a file are about all of them",
        )
    return load_text(
        source, path.parent, variables or {}, overrides or {}, environment, diagnostics, project=project_of(path)
    )


def project_of(path: Path) -> ProjectText | None:
    """What the project of a pipeline's file adds to it; None: it is in none. The file need not be there.

    Raises:
        PipelineError: the project has errors.
    """
    if project_file(path.parent) is None:
        return None
    from flowrun.frontend.project.files import project_text  # few pipelines are in a project

    return project_text(path)


def load_text(
    source: SourceText,
    folder: Path,
    variables: Mapping[str, str],
    overrides: Mapping[str, str],
    environment: Mapping[str, str] | None = None,
    diagnostics: Diagnostics | None = None,
    functions: FunctionScopes | None = None,
    catalog_tables: Mapping[str, str] | None = None,
    project: ProjectText | None = None,
) -> LoadedPipeline:
    """The plan of a text, SQL if the name of its file says so; secret files are looked up from `folder`.

    `functions` says where Python functions come from; None: from modules in `folder` and in that of the project, and from packages of its
    settings. `catalog_tables` is what catalogs said when the text was loaded first (`LoadedPipeline.catalog_tables`); None: they are
    asked. `project` is what its project adds; `overrides` may name the environment (`flowrun.frontend.project_file.ENVIRONMENT`).

    Raises as `load_pipeline`.
    """
    diagnostics = diagnostics or Diagnostics(source)
    own = {path: value for path, value in overrides.items() if path != ENVIRONMENT}
    shared = parts_of_project(project, overrides.get(ENVIRONMENT), folder, diagnostics)
    if functions is None:
        functions = functions_beside(folder, *(() if project is None else (Path(project.directory),)))
    with bounded_nesting(source.file):
        if Path(source.file).suffix.lower() in SQL_SUFFIXES:
            loaded = _load_script(
                source, folder, variables, own, environment, diagnostics, functions, catalog_tables, shared
            )
        else:
            loaded = _load_yaml(source, folder, variables, own, environment, diagnostics, functions, shared)
    return loaded if project is None else replace(loaded, project=project)


def script_catalogs(
    source: SourceText,
    folder: Path,
    variables: Mapping[str, str],
    overrides: Mapping[str, str],
    project: ProjectText | None = None,
) -> KnownCatalogs:
    """The catalogs that a script, or what its project puts before it, makes known. Nothing is asked. Arguments as of `load_text`.

    Raises:
        PipelineError: the project has errors, or there is no such environment.
    """
    from flowrun.frontend.sql.script.known_catalogs import catalogs_of  # only who writes scripts needs it

    shared = parts_of_project(project, overrides.get(ENVIRONMENT), folder, Diagnostics(source))
    with bounded_nesting(source.file):
        return catalogs_of(source, variables=variables, environment=os.environ, folder=folder, shared=shared)


def parts_of_project(
    project: ProjectText | None, environment: str | None, folder: Path, diagnostics: Diagnostics
) -> SharedParts | None:
    """What a project gives to a pipeline in an environment.

    Raises:
        PipelineError: the project has errors, or there is no such environment.
    """
    if project is None:
        if environment is not None:
            raise PipelineError.of(
                f"--env {environment}: there is no {PROJECT_FILE} in '{folder}' or above it",
                "environments are declared in the file of a project; see docs/projects.md",
            )
        return None
    from flowrun.frontend.project.reading import shared_parts  # few pipelines are in a project

    shared = shared_parts(project, environment)
    for text in (shared.source, *shared.scripts):
        diagnostics.add_source(text)
    return shared


@contextmanager
def bounded_nesting(file: str) -> Iterator[None]:
    """What is done inside goes down into the pipeline step by step; one that is deeper than Python's stack is the user's to change.

    Raises:
        PipelineError: it is that deep.
    """
    try:
        yield
    except RecursionError:
        hint = "write an intermediate result to a table and read it from there, or nest expressions less"
        raise PipelineError.of(f"{file}: the pipeline is nested too deeply", hint=hint) from None


def _load_yaml(
    source: SourceText,
    folder: Path,
    variables: Mapping[str, str],
    overrides: Mapping[str, str],
    environment: Mapping[str, str] | None,
    diagnostics: Diagnostics,
    functions: FunctionScopes,
    shared: SharedParts | None,
) -> LoadedPipeline:
    from flowrun.frontend.yaml.pipeline import read_pipeline

    plan = read_pipeline(
        source,
        variables=variables,
        overrides=[f"{key}={value}" for key, value in overrides.items()],
        environment=os.environ if environment is None else environment,
        folder=folder,
        diagnostics=diagnostics,
        functions=functions,
        shared=shared,
    )
    if plan is None:
        raise PipelineError(diagnostics.found)
    return LoadedPipeline(plan, diagnostics.found)


def _load_script(
    source: SourceText,
    folder: Path,
    variables: Mapping[str, str],
    overrides: Mapping[str, str],
    environment: Mapping[str, str] | None,
    diagnostics: Diagnostics,
    functions: FunctionScopes,
    catalog_tables: Mapping[str, str] | None,
    shared: SharedParts | None,
) -> LoadedPipeline:
    from flowrun.frontend.sql.script.script import read_script

    read = read_script(
        source,
        variables=variables,
        overrides=overrides,
        environment=os.environ if environment is None else environment,
        folder=folder,
        diagnostics=diagnostics,
        functions=functions,
        kept_tables=catalog_tables,
        shared=shared,
    )
    if read is None:
        raise PipelineError(diagnostics.found)
    return LoadedPipeline(read.plan, diagnostics.found, read.outputs, read.found, read.tables)
