"""`flowrun run-version`: the process of one version of a pipeline, which `supervising` starts."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import ExitStack
from pathlib import Path

import click
import msgspec

from flowrun.cli.console import EXIT_FAILED, EXIT_INTERRUPTED
from flowrun.cli.supervising import NEW, OLD, VersionProcess
from flowrun.errors import FlowrunError, StateError
from flowrun.masking import learn_secret
from flowrun.runners.rescaling import RescalableJob
from flowrun.runners.versions.history import VersionHistory
from flowrun.runners.versions.making import modules_of_version
from flowrun.runners.versions.records import Phase, Upgrade
from flowrun.runners.versions.trial import GoingBack, Trial, begin_going_back, end_going_back
from flowrun.runtime.jobmaster.commit_hold import CommitHold
from flowrun.state.storage.state_path import resolve

_PARENT_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


@click.command(hidden=True)
@click.argument("folder")
@click.argument("role", type=click.Choice([NEW, OLD]))
@click.argument("given", type=int)
@click.pass_context
def run_version(ctx: click.Context, folder: str, role: str, given: int) -> None:
    """Run the new or the old version of an upgrade. Started by flowrun itself; GIVEN is a descriptor."""
    with os.fdopen(given, "rb") as stream:
        process = msgspec.json.decode(stream.read(), type=VersionProcess)
    for secret in process.secrets.values():
        learn_secret(secret)
    # On trial at once: a last checkpoint would count, while whoever finds the parent gone goes back.
    _on_death_of_parent(signal.SIGKILL if role == NEW else signal.SIGTERM)
    if os.getppid() != process.parent:
        raise StateError("the process that has started this one is gone")
    history = VersionHistory(resolve(folder))
    upgrade = history.upgrade()
    wanted = Phase.TRIAL if role == NEW else Phase.GOING_BACK
    if upgrade is None or upgrade.phase is not wanted:
        raise StateError(f"'{folder}' has no upgrade whose {role} version is to be started")
    part = _Part(history, upgrade, role)
    try:
        ctx.exit(part.code(_run(ctx, process, part)))
    except FlowrunError as error:
        part.failed(error)
        raise
    finally:
        part.end()


def _run(ctx: click.Context, process: VersionProcess, part: _Part) -> int:
    from flowrun.cli.job import JobRun, prepare, run_job
    from flowrun.cli.restoring import go_to_working_directory, locate_state
    from flowrun.core.clock import SystemClock
    from flowrun.runners.compile import compile_kept
    from flowrun.runners.recompiling import recompiling
    from flowrun.runtime.cluster.job_files import users_cache
    from flowrun.state.storage.leases import holding_leases

    view, upgrade = process.view_options(), part.upgrade
    prepare(view)
    version = part.history.version(upgrade.new if part.is_new else upgrade.old)
    files = modules_of_version(version)
    modules = Path(users_cache().lay_out(files.files, files.read_file))
    go_to_working_directory(version.text, quiet=True)
    compiled = compile_kept(version.text, process.secrets, None, modules)
    leases = ctx.with_resource(ExitStack())
    leases.enter_context(holding_leases())
    restored = locate_state(upgrade.savepoint or part.history.job_folder.uri, compiled.job_graph.name)
    variables = {**version.text.variables, **process.secrets}
    run = JobRun(
        compiled,
        view,
        restored,
        allow_non_restored=upgrade.allow_non_restored and part.is_new,
        workers=process.workers,
        release=leases.close,
        recompiling=recompiling(compiled, variables, version.text.overrides, modules),
        part=part,
    )
    if part.is_new:
        part.begin_trial(Trial(part.history, upgrade, run.source_ids, SystemClock()))
    return run_job(run, show_traceback=ctx.obj["traceback"]).code


class _Part:
    """See `PartOfUpgrade`: the version of this process."""

    def __init__(self, history: VersionHistory, upgrade: Upgrade, role: str) -> None:
        self.history = history
        self.upgrade = upgrade
        self.is_new = role == NEW
        self._trial: Trial | None = None
        self._going_back = None if self.is_new else GoingBack(history, upgrade)
        self._failure: str | None = None
        self._is_accepted = False

    @property
    def hold(self) -> CommitHold | None:
        """What holds back the commits of the new version."""
        return self._trial

    @property
    def forget_later(self) -> bool:
        """Checkpoints of a version that was gone back from do not count."""
        return self.upgrade.savepoint is not None

    def begin_trial(self, trial: Trial) -> None:
        """Judge the job from now on."""
        self._trial = trial

    def look(self, job: RescalableJob) -> None:
        """Judge the new version, or note that the old one runs."""
        if self._trial is not None and not self._is_accepted:
            self._trial.look(job)
            if self._trial.is_accepted:
                self._is_accepted = True
                _on_death_of_parent(signal.SIGTERM)
        if self._going_back is not None:
            self._going_back.look(job)

    def failed(self, error: FlowrunError) -> None:
        """The version failed, or could not be started."""
        self._failure = error.message

    def code(self, code: int) -> int:
        """The exit code of the process."""
        is_rejected = self._trial is not None and self._trial.rejected is not None
        return EXIT_FAILED if is_rejected and code == EXIT_INTERRUPTED else code

    def end(self) -> None:
        """The process ends: note what that means for the upgrade, if the version has not come so far that it means nothing."""
        reason = self._failure or "it ended"
        if self._trial is not None:
            self._trial.end(reason)
        elif self.is_new:
            begin_going_back(self.history, self.upgrade, reason)
        elif self._failure is not None:
            end_going_back(self.history, self.upgrade, reason)


def _on_death_of_parent(number: signal.Signals) -> None:
    """Have this process get a signal when the one that has started it is gone: no job runs on without its supervisor. On Linux."""
    library = ctypes.CDLL(None, use_errno=True)
    if hasattr(library, "prctl"):
        library.prctl(_PARENT_DEATH_SIGNAL, int(number), 0, 0, 0)
