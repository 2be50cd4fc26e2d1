"""`flowrun apply --shadow`: compares the new version with the one that runs over the same rows, and shows what differs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from flowrun.cli.console import say
from flowrun.cli.running_jobs import JobControlClient, wait_for_answer
from flowrun.cli.views.tables import show_table
from flowrun.core.clock import SystemClock
from flowrun.core.units import format_duration
from flowrun.errors import PipelineError, StateError
from flowrun.runners.compile import CompiledPipeline, compile_kept
from flowrun.runners.job_modules import modules_of_job
from flowrun.runners.versions.history import VersionHistory
from flowrun.runners.versions.making import modules_of_version
from flowrun.runners.versions.records import PipelineVersion
from flowrun.runners.versions.shadow import ShadowResult, check_can_be_shadowed, shadow
from flowrun.state.storage.state_path import resolve

_SAMPLE = 5
_HEADINGS = ("SINK", "OLD", "NEW", "ONLY OLD", "ONLY NEW", "")


def compare_in_shadow(
    client: JobControlClient,
    history: VersionHistory,
    old: PipelineVersion,
    new: CompiledPipeline,
    variables: Mapping[str, str],
    record_ms: int,
    functions_from: Path | None,
) -> bool:
    """Run both versions over rows that come now, into files, and show how they differ; gives whether all sinks got the same.

    The running job takes a savepoint, which is deleted afterwards, and goes on. `functions_from` is the folder that the new
    version's modules were imported from; None: that of its text.

    Raises:
        PipelineError: the versions cannot be compared so.
        StateError: the job could not take a savepoint.
        JobFailedError: a version failed.
    """
    modules = modules_of_version(old)
    if modules.files != modules_of_job(new.text, functions_from).files:
        raise PipelineError.of(
            "--shadow runs both versions in one process, which cannot have two versions of the modules of their functions",
            "leave --shadow out",
        )
    withheld = {k: v for k, v in variables.items() if k in old.text.withheld}
    before = compile_kept(old.text, withheld, None, functions_from or Path(new.text.directory))
    check_can_be_shadowed(before, new)
    clock = SystemClock()
    order = client.place("savepoint", f"{history.savepoints}/shadow")
    doing = f"taking a savepoint of '{client.entry.name}'"
    savepoint = str(wait_for_answer(client, order, clock, doing=doing, timeout_ms=None)["path"])
    try:
        say(f"recording what comes for {format_duration(record_ms)}, and running both versions over it")
        result = shadow(before, new, savepoint, record_ms=record_ms, sample=_SAMPLE, clock=clock)
    finally:
        try:
            resolve(savepoint).remove_folder()
        except StateError as error:
            say(f"warning: {error.message}")
    _show(result)
    return result.equal


def _show(result: ShadowResult) -> None:
    recorded = ", ".join(f"{rows} of {name}" for name, rows in result.rows.items())
    say(f"rows recorded: {recorded}")
    if not any(result.rows.values()):
        say("warning: no row came in that time: only what was in the state was compared")
    rows = [
        (
            s.name,
            str(s.stream_rows),
            str(s.spark_rows),
            str(s.only_stream),
            str(s.only_spark),
            "equal" if s.equal else "DIFFERENT",
        )
        for s in result.sinks
    ]
    rows += [(name, "", "", "", "", "not in the new version as it was") for name in result.only_old]
    rows += [
        (name, "", "", "", "", "only in the new version") for name in result.only_new if name not in result.only_old
    ]
    show_table(_HEADINGS, rows, _HEADINGS[1:5])
    for sink in result.sinks:
        if sink.sample:
            click.echo(f"\n{sink.name}: rows that differ")
            shown = [
                ("old" if is_old else "new", *("NULL" if v is None else v for v in row)) for is_old, row in sink.sample
            ]
            show_table(("ONLY", *sink.columns), shown)
