"""`flowrun why FILE`: a pipeline that does not run, by its last checkpoint and its text; and `--row`, the way of one row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flowrun.cli.console import say
from flowrun.cli.restoring import as_input_error, in_order_of, locate_state
from flowrun.cli.views.findings import safe, show
from flowrun.core.clock import SystemClock
from flowrun.errors import PipelineError, StateError
from flowrun.masking import masked_json
from flowrun.runners.compile import CompiledPipeline, compile_file
from flowrun.runners.why.checkpoint_findings import checkpoint_findings
from flowrun.runners.why.finding import SEVERITIES, duration_text, time_text
from flowrun.runners.why.isolated import check_fits
from flowrun.runners.why.row_story import Story, parse_row, row_source, tell_row
from flowrun.runners.why.text_findings import declared_columns, streaming_job_graph, text_findings
from flowrun.runners.why.unfinished_upgrade import unfinished_upgrade
from flowrun.runtime.jobmaster.job_state import state_directory
from flowrun.state.storage.locate import SnapshotPath, newest_checkpoint
from flowrun.state.storage.names import job_slug
from flowrun.state.storage.state_path import resolve

if TYPE_CHECKING:
    from flowrun.graph.job_graph import JobGraph
    from flowrun.runners.program import CompiledProgram

_MARKS = {"passes": "·", "ends": "x", "waits": "~", "arrives": "*"}


def why_checkpoint(
    file: Path, variables: Mapping[str, str], overrides: Mapping[str, str], state: str | None, *, as_json: bool
) -> None:
    """Print findings about a pipeline that does not run.

    Raises:
        PipelineError: the pipeline has errors, or the state does not fit it.
        StateError: the state cannot be read.
    """
    compiled = compile_file(file, variables, overrides)
    name, clock = compiled.job_graph.name, SystemClock()
    snapshot = _snapshot(compiled, state)
    found = [
        *unfinished_upgrade(resolve(state_directory(compiled.job_graph)) / job_slug(name)),
        *text_findings(compiled),
    ]
    if snapshot is None:
        about = "it does not run, and there is no checkpoint of it: only its text can be looked at"
    else:
        compiled, job_graph = _fitting(compiled, snapshot, file, variables, overrides)
        found += checkpoint_findings(snapshot, job_graph, clock)
        taken = snapshot.metadata.triggered_ms
        about = (
            f"it does not run; {snapshot.metadata.kind.value} {snapshot.metadata.checkpoint_id} is of {time_text(taken)} UTC,"
            f" {duration_text(max(clock.now_ms() - taken, 0))} ago"
        )
    if not found:
        about += (
            "; nothing is wrong that can be seen there"
            if snapshot is not None
            else ", which has nothing that blocks rows"
        )
    found.sort(key=lambda f: SEVERITIES.index(f.severity))
    show(f"pipeline '{name}'", about, [f.to_json() for f in found], as_json=as_json)


def why_row(
    file: Path,
    variables: Mapping[str, str],
    overrides: Mapping[str, str],
    row: str,
    source: str | None,
    state: str | None,
    *,
    as_json: bool,
) -> None:
    """Print where one row of a source ends.

    Raises:
        PipelineError: the pipeline has errors, the row is none of a source of it, or the state does not fit.
        StateError: the state cannot be read, or the row takes too long.
    """
    given = parse_row(row)
    compiled = compile_file(file, variables, overrides)
    snapshot = _snapshot(compiled, state)
    if snapshot is not None and (
        snapshot.metadata.drained or any(o.finished for o in snapshot.metadata.operators.values())
    ):
        say("the last checkpoint is of the job's end: the row goes through without state")
        snapshot = None
    job_graph = streaming_job_graph(compiled)
    if snapshot is not None:
        try:
            compiled, job_graph = _fitting(compiled, snapshot, file, variables, overrides)
        except PipelineError:
            if state is not None:
                raise
            say("the last checkpoint does not fit the pipeline as it is now: the row goes through without state")
            snapshot = None
    origin, read = row_source(job_graph, given, source, declared_columns(compiled))
    story = tell_row(job_graph, read, origin, snapshot, SystemClock())
    if as_json:
        click.echo(json.dumps(masked_json(_story_json(story)), indent=2, ensure_ascii=False, default=str))
        return
    _show_story(story)


def _story_json(story: Story) -> dict[str, object]:
    return {**asdict(story), "end": story.end}


def _show_story(story: Story) -> None:
    time = "" if story.event_time is None else f", event time {time_text(story.event_time)}"
    values = ", ".join(f"{name} = {value}" for name, value in story.row.items() if value is not None)
    click.echo(safe(f"a row of source '{story.source}' ({values}){time}"))
    for step in story.steps:
        place = f"  ({step.place})" if step.place else ""
        click.echo(f"  {_MARKS[step.verdict]} {safe(step.text)}{click.style(safe(place), dim=True)}")
    click.echo(click.style(safe(f"So: {story.end}"), bold=True))
    for unknown in story.unknown:
        click.echo(safe(f"note: {unknown}"))


def _snapshot(compiled: CompiledPipeline | CompiledProgram, state: str | None) -> SnapshotPath | None:
    """The state at a path, else the newest checkpoint of the job; None: there is none."""
    name = compiled.job_graph.name
    if state is not None:
        return locate_state(state, name)
    try:
        return newest_checkpoint(state_directory(compiled.job_graph), name)
    except StateError as error:
        raise as_input_error(error) from error


def _fitting(
    compiled: CompiledPipeline | CompiledProgram,
    snapshot: SnapshotPath,
    file: Path,
    variables: Mapping[str, str],
    overrides: Mapping[str, str],
) -> tuple[CompiledPipeline | CompiledProgram, JobGraph]:
    """The pipeline with its joins in the order of the state, and its job graph with the state's key groups.

    Raises:
        PipelineError: the state does not fit.
    """
    if isinstance(compiled, CompiledPipeline):
        compiled = in_order_of(compiled, snapshot, file, variables, overrides)
    try:
        return compiled, check_fits(streaming_job_graph(compiled), snapshot)
    except StateError as error:
        raise as_input_error(error) from error
