"""The way from a pipeline file to a plan, whatever language the file is in."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path

from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import Diagnostic, PipelineError
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.source_text import SourceText
from flowrun.operators.function_scope import FunctionScopes, functions_beside
from flowrun.plan.nodes import Plan

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
    source = SourceText(str(path), _read(path))
    diagnostics = Diagnostics(source)
    if path.suffix.lower() not in (*YAML_SUFFIXES, *SQL_SUFFIXES):
        diagnostics.error(
            f"'{path.name}' is no pipeline",
            None,
            hint="a pipeline is a .sql, .yaml or .yml file; programs (.py) are run, explained and validated",
        )
        diagnostics.raise_if_errors()
    return load_text(source, path.parent, variables or {}, overrides or {}, environment, diagnostics)


def load_text(
    source: SourceText,
    folder: Path,
    variables: Mapping[str, str],
    overrides: Mapping[str, str],
    environment: Mapping[str, str] | None = None,
    diagnostics: Diagnostics | None = None,
    functions: FunctionScopes | None = None,
    catalog_tables: Mapping[str, str] | None = None,
) -> LoadedPipeline:
    """The plan of a text, SQL if the name of its file says so; secret files are looked up from `folder`.

    `functions` says where Python functions come from; None: from modules in `folder`, and from packages of its settings.
    `catalog_tables` is what catalogs said when the text was loaded first (`LoadedPipeline.catalog_tables`); None: they are asked.

    Raises as `load_pipeline`.
    """
    diagnostics = diagnostics or Diagnostics(source)
    functions = functions or functions_beside(folder)
    with bounded_nesting(source.file):
        if Path(source.file).suffix.lower() in SQL_SUFFIXES:
            return _load_script(
                source, folder, variables, overrides, environment, diagnostics, functions, catalog_tables
            )
        return _load_yaml(source, folder, variables, overrides, environment, diagnostics, functions)


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
    )
    if read is None:
        raise PipelineError(diagnostics.found)
    return LoadedPipeline(read.plan, diagnostics.found, read.outputs, read.found, read.tables)


def _read(path: Path) -> str:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise PipelineError.of(f"there is no file '{path}'", _similar_files(path)) from None
    except OSError as error:
        raise PipelineError.of(f"cannot read '{path}': {error.strerror}", None) from error
    try:
        return data.decode("utf-8").removeprefix("\ufeff")  # some editors mark UTF-8 files so
    except UnicodeDecodeError as error:
        raise PipelineError.of(
            f"'{path}' is not UTF-8 text: byte {error.start} is 0x{data[error.start]:02x}", "save it as UTF-8"
        ) from None


def _similar_files(path: Path) -> str | None:
    from flowrun.errors import near_matches

    folder = path.parent
    names = [f.name for f in folder.iterdir() if f.is_file()] if folder.is_dir() else []
    close = near_matches(path.name, names)
    return "did you mean " + " or ".join(f"'{folder / c}'" for c in close) + "?" if close else None
