"""A job manager that goes on with its job by itself: from the newest checkpoint, and once the job manager that leads is gone."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flowrun.cli.console import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, say
from flowrun.cli.restoring import absolute_location, as_input_error, in_order_of, locate_state
from flowrun.core.clock import SystemClock
from flowrun.core.record import record
from flowrun.errors import PipelineError, StateError
from flowrun.runners.compile import CompiledPipeline, compile_file
from flowrun.runners.workers import check_runs_elsewhere
from flowrun.runtime.jobmaster.job_state import state_directory
from flowrun.runtime.watchdog.leader_watch import watched_leader
from flowrun.state.storage.leases import holding_leases

if TYPE_CHECKING:
    from flowrun.cli.job import Ending
    from flowrun.graph.job_graph import JobGraph
    from flowrun.runners.program import CompiledProgram
    from flowrun.state.storage.leadership import Leadership
    from flowrun.state.storage.locate import SnapshotPath

_LOOK_EVERY_MS = 200
_LONG_SILENCE_MS = 120_000


def newest_of(job_graph: JobGraph) -> SnapshotPath | None:
    """The newest checkpoint of a job, or the savepoint with which it was stopped since; None: it has none yet.

    Raises:
        PipelineError: the job takes no checkpoints, or its newest one cannot be read.
    """
    from flowrun.state.storage.locate import newest_checkpoint
    from flowrun.state.storage.names import job_slug
    from flowrun.state.storage.other_checkpoints import complete_numbers
    from flowrun.state.storage.state_path import resolve
    from flowrun.state.storage.stop_note import read_stop_note

    directory = _directory(job_graph)
    folder = resolve(directory) / job_slug(job_graph.name)
    try:
        stopped = read_stop_note(folder)
        if stopped is not None and stopped.checkpoint_id > max(complete_numbers(folder), default=0):
            return locate_state(stopped.savepoint, job_graph.name)
        return newest_checkpoint(directory, job_graph.name)
    except StateError as error:
        raise as_input_error(error) from error


def candidate(ctx: click.Context, job_graph: JobGraph) -> Leadership:
    """This process as one that may lead a job, until the end of the command.

    Raises:
        PipelineError: the job takes no checkpoints, or there are no locks where they are.
    """
    from flowrun.state.storage.leadership import Leadership
    from flowrun.state.storage.names import job_slug
    from flowrun.state.storage.state_path import resolve

    try:
        lead = Leadership(resolve(_directory(job_graph)) / job_slug(job_graph.name))
    except StateError as error:
        raise as_input_error(error) from error
    ctx.with_resource(closing(lead))
    return lead


def wait_for_lead(lead: Leadership, *, quiet: bool, hang_timeout_ms: int) -> int | None:
    """Wait until this process leads; gives an exit code instead if the job has come to its end under another one."""
    clock, pause = SystemClock(), threading.Condition()
    told, watch = False, LeaderSilence(lead, hang_timeout_ms)
    while not lead.try_lead():
        if not told and not quiet and (other := lead.leader()) is not None:
            say(f"standing by: process {other.pid} on {other.host} leads")
            told = True
        watch.look()
        with pause:
            clock.wait(pause, _LOOK_EVERY_MS)
    before = lead.leader()
    if told and before is not None and before.ended is not None:
        if not quiet:
            say(f"the job has ended ({before.ended}): there is nothing to take over")
        return EXIT_FAILED if before.ended == "failed" else EXIT_OK
    if told and before is not None and not quiet:
        say(f"process {before.pid} on {before.host} is gone: this one leads now")
    lead.begin()
    return None


class LeaderSilence:
    """Says it when the process that leads does not give a sign of life any more, although it has not ended.

    Args:
        lead: of this process, which stands by.
        hang_timeout_ms: how long a leader may hang before it should have been killed on its own machine; 0: nobody does that.
    """

    def __init__(self, lead: Leadership, hang_timeout_ms: int) -> None:
        from flowrun.state.storage.leadership import Silence

        self._lead = lead
        self._silence = Silence((2 * hang_timeout_ms or _LONG_SILENCE_MS) / 1000, time.monotonic())

    def look(self) -> None:
        """To be called now and then. Raises StateError: the file of the lead cannot be read."""
        silent_s = self._silence.look(self._lead.last_beat_ns(), time.monotonic())
        if silent_s is None:
            return
        leader = self._lead.leader()
        who = "another process" if leader is None else f"process {leader.pid} on {leader.host}"
        remedy = "end it there" if leader is None else f"end it there (kill -9 {leader.pid})"
        say(
            f"{who} leads, but has given no sign of life for {silent_s:.0f} s. If it hangs, {remedy}, and this one leads"
        )


def note_ending(lead: Leadership, ending: Ending) -> None:
    """Tell those who stand by whether there is anything left to do: after SIGTERM there is, and if the job could not even begin."""
    if ending.signal == signal.SIGTERM:
        return
    ended = {EXIT_OK: "finished", EXIT_FAILED: "failed", EXIT_INTERRUPTED: "stopped"}.get(ending.code)
    if ended is not None:
        lead.end(ended)


@record(eq=False)
class Beginning:
    """From where a job manager begins.

    Attributes:
        compiled: its job, with joins in the order that they had when the state was written.
        restored: the state; None: there is none.
        lead: of this process; None: it does not compete for it.
        release: gives up what keeps the state from being deleted.
    """

    compiled: CompiledPipeline | CompiledProgram
    restored: SnapshotPath | None
    lead: Leadership | None
    release: Callable[[], None]


@record
class Recovering:
    """What a job manager was told about its state.

    Attributes:
        from_savepoint: begin there.
        recover: go on from the newest checkpoint.
        standby: do so once no other one leads.
        hang_timeout_ms: how long the one that leads may hang; 0: for ever.
    """

    from_savepoint: str | None
    recover: bool
    standby: bool
    hang_timeout_ms: int

    def __post_init__(self) -> None:
        """Raise UsageError if they contradict each other."""
        if self.from_savepoint is not None and (self.recover or self.standby):
            raise click.UsageError("--recover and --standby choose the checkpoint: leave --from-savepoint out")

    def begin(
        self,
        ctx: click.Context,
        file: Path,
        variables: Mapping[str, str],
        overrides: Mapping[str, str],
        *,
        quiet: bool,
    ) -> Beginning:
        """Compile a file, wait until this process leads if it is to, and find the state; ends the command if there is nothing to do.

        Raises:
            PipelineError: the file has errors, or there is no such state, or it is damaged.
        """
        compiled = compile_file(file, variables, overrides)
        if compiled.is_batch:
            raise click.UsageError("a pipeline in batch mode runs on Spark: flowrun run --mode batch")
        check_runs_elsewhere(compiled.job_graph)
        lead = candidate(ctx, compiled.job_graph) if self.standby else None
        if lead is not None:
            code = wait_for_lead(lead, quiet=quiet, hang_timeout_ms=self.hang_timeout_ms)
            if code is not None:
                ctx.exit(code)
            who = f"the job manager of '{compiled.job_graph.name}'"
            ctx.with_resource(watched_leader(self.hang_timeout_ms, who, lambda: None, lead.beat))
        leases = ctx.with_resource(ExitStack())
        leases.enter_context(holding_leases())
        restored = newest_of(compiled.job_graph) if self.recover or self.standby else None
        if self.from_savepoint is not None:
            restored = locate_state(self.from_savepoint, compiled.job_graph.name)
        if restored is not None and isinstance(compiled, CompiledPipeline):
            compiled = in_order_of(compiled, restored, file, variables, overrides)
        return Beginning(compiled, restored, lead, leases.close)


def _directory(job_graph: JobGraph) -> str:
    if job_graph.settings.checkpoint is None:
        raise PipelineError.of(
            "--recover, --standby and --reactive need checkpoints: the pipeline takes none",
            "add settings.checkpoint.interval, or leave the option out",
        )
    return absolute_location(state_directory(job_graph))


def check_takes_checkpoints(job_graph: JobGraph) -> None:
    """Pass if a job takes checkpoints. Raises PipelineError."""
    _directory(job_graph)
