"""Finds the history of a pipeline by what the user calls it: a running job, its file, or its name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flowrun.cli.running_jobs import JobControlClient, named, running_jobs
from flowrun.core.record import record
from flowrun.errors import ClusterError, PipelineError
from flowrun.runners.versions.history import VersionHistory
from flowrun.runners.versions.records import PipelineVersion
from flowrun.runtime.jobmaster.job_state import DEFAULT_STATE_DIRECTORY
from flowrun.state.storage.names import job_slug
from flowrun.state.storage.state_path import resolve

if TYPE_CHECKING:
    from flowrun.cli.cluster_arguments import ClusterOptions
    from flowrun.graph.job_graph import JobGraph

STATE_OPTION = click.option(
    "--state", metavar="DIR", help="The folder of checkpoints of a job that does not run; by default .flowrun/state."
)
_SUFFIXES = (".sql", ".yaml", ".yml")


@record
class Naming:
    """How the user says what is meant.

    Attributes:
        variables: values for texts that are compiled.
        overrides: of settings of such texts.
        cluster: that jobs are looked for on; None: this machine.
        state: the folder of checkpoints of jobs that do not run; None: the default.
    """

    variables: Mapping[str, str]
    overrides: Mapping[str, str]
    cluster: ClusterOptions | None = None
    state: str | None = None


@record(eq=False)
class NamedVersion:
    """A version that the user has named.

    Attributes:
        title: it is called by.
        version: what is known of it; its number is 0 if it is a file.
        job_graph: of it; a text: why it cannot be told.
        is_file_name: whether its pipeline is called as its file is.
    """

    title: str
    version: PipelineVersion
    job_graph: JobGraph | str
    is_file_name: bool = False


def history_named(name: str, naming: Naming) -> VersionHistory:
    """The history of a running job, of the pipeline in a file, or of the job of a name that does not run.

    Raises:
        PipelineError: there is none.
        ClusterError: the cluster cannot be reached.
    """
    directory = naming.state
    if _is_file(name):
        from flowrun.runners.compile import compile_pipeline

        graph = compile_pipeline(Path(name), naming.variables, naming.overrides).job_graph
        settings = graph.settings.checkpoint
        name, directory = graph.name, directory or (None if settings is None else settings.directory)
    history = _history_of_running(name, naming) if naming.state is None else None
    if history is None:
        history = VersionHistory(resolve(directory or DEFAULT_STATE_DIRECTORY) / job_slug(name))
    if not history.numbers():
        raise PipelineError.of(
            f"no versions of '{name}' are kept in '{history.job_folder}'",
            "name a running job, a pipeline's file, or with --state the folder of checkpoints; a version is kept once it has completed "
            "a checkpoint",
        )
    return history


def version_named(text: str, naming: Naming) -> NamedVersion:
    """The version that a text names: a file, `JOB@N`, or a job, of which it is the last one that ran.

    Raises:
        PipelineError: there is none, or the file has errors.
    """
    if _is_file(text):
        return _of_file(Path(text), naming)
    name, at, number = text.rpartition("@")
    if not at:
        name, number = text, ""
    elif not number.isascii() or not number.isdecimal():
        raise PipelineError.of(f"'{text}' names no version", "write JOB@N, such as orders@3, or a file (.sql, .yaml)")
    history = history_named(name, naming)
    found = history.version(int(number)) if number else history.latest()
    if found is None:
        raise PipelineError.of(f"no version of '{name}' has run for good", "flowrun history lists versions")
    return NamedVersion(f"{name}@{found.number}", found, _graph_of(found, naming))


def _is_file(text: str) -> bool:
    return text.lower().endswith(_SUFFIXES)


def _of_file(file: Path, naming: Naming) -> NamedVersion:
    from flowrun.connectors.filesystem.table_path import allowing_missing
    from flowrun.runners.compile import compile_pipeline
    from flowrun.runners.versions.making import modules_in_cache, version_of

    with allowing_missing():
        compiled = compile_pipeline(file, naming.variables, naming.overrides)
    version = version_of(compiled, 0, files=modules_in_cache(compiled, None))
    return NamedVersion(str(file), version, compiled.job_graph, compiled.job_graph.name == file.stem)


def _graph_of(version: PipelineVersion, naming: Naming) -> JobGraph | str:
    from flowrun.connectors.filesystem.table_path import allowing_missing
    from flowrun.errors import FlowrunError
    from flowrun.runners.compile import compile_kept
    from flowrun.runners.versions.making import modules_of_version
    from flowrun.runtime.cluster.job_files import users_cache

    try:
        files = modules_of_version(version)
        modules = Path(users_cache().lay_out(files.files, files.read_file))
        with allowing_missing():
            return compile_kept(version.text, naming.variables, naming.overrides, modules).job_graph
    except FlowrunError as error:
        return error.message


def _history_of_running(name: str, naming: Naming) -> VersionHistory | None:
    with running_jobs(naming.cluster) as jobs:
        found = named(name, jobs.entries)
        if len(found) != 1:
            return None
        try:
            return history_of_client(jobs.client(found[0]))
        except ClusterError:  # it has just ended
            return None


def history_of_client(client: JobControlClient) -> VersionHistory | None:
    """The versions of a job, in the folder that it names; None: it names none. Raises ClusterError: it does not answer."""
    folder = client.describe().get("folder")
    return None if folder is None else VersionHistory(resolve(str(folder)))
