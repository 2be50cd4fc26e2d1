"""Finds the state that a job restores from, and its pipeline, by the path that the user gives."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from flowrun.cli.console import say
from flowrun.errors import FlowrunError, PipelineError, StateError
from flowrun.runners.compile import PROGRAM_SUFFIX, CompiledPipeline, compile_file, compile_kept, compile_pipeline
from flowrun.runners.pipeline_text import check_folders, check_withheld, lies_in
from flowrun.state.checkpoints import PipelineText
from flowrun.state.storage.locate import SnapshotPath, locate
from flowrun.state.storage.names import METADATA_FILE

if TYPE_CHECKING:
    from flowrun.runners.program import CompiledProgram


def as_input_error(error: FlowrunError) -> PipelineError:
    """The error as one of the user's input (exit code 2): nothing has run or was written yet."""
    return PipelineError.of(error.message, hint=error.hint)


def absolute_location(path: str) -> str:
    """A local path made absolute, or a URI unchanged.

    >>> absolute_location("s3://bucket/state"), absolute_location("/state/../other")
    ('s3://bucket/state', '/other')
    """
    return path if "://" in path else os.path.abspath(os.path.expanduser(path))


def locate_state(path: str, job_name: str | None) -> SnapshotPath:
    """The checkpoint or savepoint at a path; if there are those of several jobs, `job_name` chooses.

    Raises:
        PipelineError: there is none, or it is damaged.
    """
    if not path:
        hint = "name a savepoint, a checkpoint or a folder of them; is a variable of your shell empty?"
        raise PipelineError.of("the path of the savepoint or checkpoint is empty", hint=hint)
    place = absolute_location(path)
    if "://" not in place and os.path.isfile(place) and os.path.basename(place) != METADATA_FILE:
        hint = f"name the folder that holds {METADATA_FILE}, or a folder of such folders"
        raise PipelineError.of(f"'{place}' is a file, not a savepoint or checkpoint", hint=hint)
    try:
        return locate(place, job_name=job_name)
    except StateError as error:
        raise as_input_error(error) from error


def kept_text(found: SnapshotPath) -> PipelineText:
    """The pipeline text that is kept in a checkpoint or savepoint.

    Raises:
        PipelineError: there is none in it.
    """
    kept = found.metadata.pipeline
    if kept is None:
        hint = f"give the pipeline's file: flowrun resume --from-savepoint {found.folder} FILE"
        raise PipelineError.of(f"{found.folder}: the job was made in Python; no text was kept", hint=hint)
    return kept


def kept_program(
    path: str, functions_from: Path | None, variables: Mapping[str, str]
) -> tuple[Path, PipelineText] | None:
    """The program whose job the state at a path is of, and what the state keeps of it; None if it is of a pipeline.

    Code is not run because state names it: the program is that file in `functions_from`, or in the working directory if it was there.

    Raises:
        PipelineError: there is no such state, the program is not there, or a value that was withheld is not among `variables`.
    """
    found = locate_state(path, None)
    kept = found.metadata.pipeline
    if kept is None or Path(kept.file_name).suffix.lower() != PROGRAM_SUFFIX:
        return None
    folder = functions_from or (Path.cwd() if Path(kept.directory) == Path.cwd() else None)
    if folder is not None and (folder / Path(kept.file_name).name).is_file():
        check_withheld(kept, variables)
        return folder / Path(kept.file_name).name, kept
    raise PipelineError.of(
        f"{found.folder}: its job is of the program '{kept.file_name}' in '{kept.directory}', which is not run because state names it",
        f"give the program: flowrun resume --from-savepoint {found.folder} {kept.file_name}",
    )


def pipeline_and_state(
    file: Path | None,
    path: str,
    variables: Mapping[str, str],
    overrides: Mapping[str, str],
    *,
    functions_from: Path | None,
    runs: bool,
    quiet: bool,
) -> tuple[CompiledPipeline | CompiledProgram, SnapshotPath]:
    """(a pipeline, the state at a path). The pipeline is that of a file, or, without a file, the one that is kept with the state.

    Without a file the working directory becomes that in which the job was started.

    Args:
        file: the pipeline's file; None: the kept text is compiled.
        path: of a checkpoint, a savepoint or a folder of them.
        variables: values of variables by name; they come before those that are kept.
        overrides: values of settings by path; they come before those that are kept.
        functions_from: the folder that a kept pipeline's Python functions are imported from. None: they are imported from the working
            directory if the pipeline `runs` and it or its project lies there, else not at all.
        runs: whether the pipeline is to run.
        quiet: whether nothing is said of the new working directory.

    Raises:
        PipelineError: the pipeline has errors, or there is no state, or it is damaged.
    """
    if file is not None:
        compiled = compile_file(file, variables, overrides)
        found = locate_state(path, compiled.job_graph.name)
        if not isinstance(compiled, CompiledPipeline):
            return compiled, found
        return in_order_of(compiled, found, file, variables, overrides), found
    found = locate_state(path, None)
    kept = kept_text(found)
    if functions_from is None and runs and lies_in(kept, Path.cwd()):
        functions_from = Path.cwd()
    folder = None if functions_from is None else functions_from.absolute()
    go_to_working_directory(kept, quiet=quiet)
    return compile_kept(kept, variables, overrides, folder), found


def in_order_of(
    compiled: CompiledPipeline,
    found: SnapshotPath,
    file: Path,
    variables: Mapping[str, str],
    overrides: Mapping[str, str],
) -> CompiledPipeline:
    """The pipeline of a file with its joins in the order that they had when the state was written, whatever sizes its tables have now."""
    kept = found.metadata.pipeline
    rows = {} if kept is None else kept.table_rows
    if rows == compiled.text.table_rows:
        return compiled
    return compile_pipeline(file, variables, overrides, rows)


def go_to_working_directory(kept: PipelineText, *, quiet: bool) -> None:
    """Make the folder in which the job was started the working directory: relative paths of connectors start there.

    Raises:
        PipelineError: a folder that the text needs is gone.
    """
    check_folders(kept)
    if kept.working_directory and Path(kept.working_directory) != Path.cwd():
        # absolute, so that nothing is imported from a folder just because the state names it
        sys.path[:] = [os.path.abspath(place) for place in sys.path]
        os.chdir(kept.working_directory)
        if not quiet:
            say(f"working directory: {kept.working_directory}, in which the job was started")
