"""Carries out `flowrun apply`: finds the job, shows what would change, and brings the upgrade to its end."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flowrun.cli.arguments import ViewOptions
from flowrun.cli.cluster_arguments import ClusterOptions
from flowrun.cli.console import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_OK, say, show_diagnostics
from flowrun.cli.logs import LogOptions
from flowrun.cli.plan import colored
from flowrun.cli.restoring import go_to_working_directory
from flowrun.cli.running_jobs import (
    JobControlClient,
    RunningJobs,
    choose,
    named,
    newest_ended,
    running_jobs,
    wait_for_answer,
)
from flowrun.cli.supervising import ended_with, hand_over, is_alive
from flowrun.cli.versions.difference_text import difference_lines
from flowrun.cli.versions.finding import history_of_client
from flowrun.cli.versions.following import follow, report, take_over
from flowrun.cli.versions.under_way import forget_upgrade, note_upgrade, upgrade_under_way
from flowrun.core.clock import SystemClock
from flowrun.core.record import record
from flowrun.core.units import format_duration
from flowrun.errors import ClusterError, PipelineError, StateError
from flowrun.masking import learn_secret
from flowrun.runners.compile import PROGRAM_SUFFIX, CompiledPipeline, compile_kept, compile_pipeline
from flowrun.runners.pipeline_text import check_withheld, withheld_values
from flowrun.runners.registry import JobEntry
from flowrun.runners.versions.history import VersionHistory
from flowrun.runners.versions.making import modules_of_version
from flowrun.runners.versions.planning import UpgradePlan, newest_state, plan_upgrade, running_version
from flowrun.runners.versions.records import HealthRules, Outcome, Phase, PipelineVersion, Upgrade
from flowrun.runners.versions.savepoints import forget_savepoints
from flowrun.runtime.cluster.job_files import users_cache
from flowrun.runtime.lifecycle import JobState
from flowrun.state.storage.names import job_slug
from flowrun.state.storage.state_path import StatePath, resolve

if TYPE_CHECKING:
    from flowrun.runners.control import Json

_OBSERVE_MS = 1_000
"""For how long the old version is looked at, to know whether it reads rows and moves its watermark."""
_PATIENCE_MS = 120_000
"""How long a job that is being stopped is waited for when an upgrade goes on that was interrupted."""
_LOOK_MS = 200
_VIEW = ViewOptions(quiet=False, log=LogOptions(), live=None, report=None)


@record
class UpgradeRequest:
    """What the user asks for.

    Attributes:
        file: of the new version; None: `number` is one of the history.
        number: see `file`.
        variables: values by name.
        overrides: values of settings by path.
        to: the running job; None: that of the pipeline's name.
        cluster: that it runs on; None: this machine.
        within_ms: see `HealthRules`.
        steady_ms: see `HealthRules`.
        allow_non_restored: whether state of operators that the new version no longer has is dropped.
        keep_savepoints: of how many upgrades the savepoints are kept.
        shadow_ms: for how long rows are recorded, over which both versions are compared first; None: they are not.
    """

    file: Path | None
    number: int | None
    variables: Mapping[str, str]
    overrides: Mapping[str, str]
    to: str | None
    cluster: ClusterOptions | None
    within_ms: int
    steady_ms: int
    allow_non_restored: bool
    keep_savepoints: int
    shadow_ms: int | None = None


def upgrade(request: UpgradeRequest, stack: ExitStack, *, dry_run: bool, ask: Callable[[], None] | None) -> int:
    """Put a new version in the place of the one that runs; gives the exit code.

    Args:
        request: what is asked for.
        stack: of what is held until the command ends.
        dry_run: show what would change, and change nothing.
        ask: asks the user whether to go on; None: nobody is asked.

    Raises:
        PipelineError: the new version has errors, or cannot take the place of the one that runs.
        StateError: the old version could not be stopped, or the new one was not accepted.
        ClusterError: the job cannot be reached.
    """
    clock = SystemClock()
    name = request.to or _name_of(request)
    jobs = stack.enter_context(running_jobs(request.cluster))
    try:
        entry = choose(name, jobs)
        client = jobs.client(entry)
        history = _history_of(client)
    except (PipelineError, ClusterError):
        _check_is_free(_history_of_stopped(request, name, jobs))  # between two versions no job runs
        raise
    lock = history.lock(clock)
    stack.callback(lock.release)
    _check_is_free(history)
    state = newest_state(history.job_folder, entry.name, clock)
    old = running_version(history, state, clock.now_ms())
    compiled, modules = _compile(request, history, old)
    plan = plan_upgrade(history, compiled, old, state, clock.now_ms(), modules)
    _show(plan, compiled, request)
    if plan.comparison.problems_unless(request.allow_non_restored):
        return EXIT_BAD_INPUT
    if plan.is_empty:
        say("nothing differs in meaning: the job goes on as it is")
        return EXIT_OK
    is_equal = request.shadow_ms is None or _compare_in_shadow(request, client, history, plan, compiled, modules)
    if dry_run or (ask is None and not is_equal):
        return EXIT_OK if is_equal else EXIT_FAILED
    if ask is not None:
        ask()
    modules_of_version(old)  # going back would need them
    secrets = withheld_values(compiled.text, request.variables, request.overrides)
    if request.cluster is not None:
        check_withheld(old.text, request.variables)
    else:
        note_upgrade(entry.job_id, entry.name, history)
    begun = _begin(request, history, client, plan)
    if request.cluster is None:
        hand_over(begun.upgrade_id, secrets)
    _stop_old(history, begun, client, clock)
    return _finish(request, history, secrets, lock.release)


def continue_upgrade(request: UpgradeRequest, stack: ExitStack) -> int:
    """Finish, or undo, an upgrade that was interrupted; gives the exit code. Raises as `upgrade`."""
    clock = SystemClock()
    jobs = stack.enter_context(running_jobs(request.cluster))
    name = request.to or _name_of(request)
    running = named(name, jobs.entries)
    history = _history_of(jobs.client(running[0])) if running else _history_of_stopped(request, name, jobs)
    lock = history.lock(clock)
    stack.callback(lock.release)
    found = history.upgrade()
    if found is None or not (found.phase.is_open or (found.phase is Phase.FAILED and not running)):
        what = "" if found is None else f": the last one is over ({found.phase.value})"
        where = "" if running else f" in '{history.job_folder}'"
        hint = "flowrun history lists versions"
        if request.file is None and not running:
            hint = (
                f"'{name}' does not run: name its FILE, which says where its state is; flowrun history lists versions"
            )
        raise PipelineError.of(f"there is no apply of '{name}' to go on with{where}{what}", hint)
    names = {n for number in (found.old, found.new) for n in history.version(number).text.withheld}
    secrets = {n: v for n, v in request.variables.items() if n in names}
    for value in secrets.values():
        learn_secret(value)
    if found.phase is Phase.FAILED and request.cluster is None:
        return take_over(history, secrets, _VIEW, lock.release)
    if found.phase is Phase.STOPPING and running and running[0].job_id == found.job_id:
        if request.cluster is None:
            hand_over(found.upgrade_id, secrets)
        _stop_again(history, found, jobs.client(running[0]), clock)
    return _finish(request, history, secrets, lock.release)


# ---- what is to be done


def _name_of(request: UpgradeRequest) -> str:
    if request.file is None:
        raise PipelineError.of("the job is not named", "name it with --to")
    return _compile_file(request, request.file).job_graph.name


def _compile_file(request: UpgradeRequest, file: Path, rows: Mapping[str, int] | None = None) -> CompiledPipeline:
    if file.suffix.lower() == PROGRAM_SUFFIX:
        raise PipelineError.of(
            f"'{file}' is a program: only pipelines (.yaml, .sql) are applied",
            "stop its job with a savepoint, and go on from that: flowrun stop, flowrun resume",
        )
    compiled = compile_pipeline(file, request.variables, request.overrides, rows)
    if not compiled.runs:
        raise PipelineError.of(f"'{file}' has no sink: there is nothing to run", None)
    return compiled


def _compile(
    request: UpgradeRequest, history: VersionHistory, old: PipelineVersion
) -> tuple[CompiledPipeline, Path | None]:
    """The new version, in the folder in which the job was started, with its joins in the order of those that run.

    With it comes the folder of its modules; None: they are beside its file.
    """
    file = None if request.file is None else _seen_from(old.text.working_directory, request.file)
    go_to_working_directory(old.text, quiet=False)
    if file is not None:
        return _compile_file(request, file, old.text.table_rows or None), None
    assert request.number is not None
    version = history.version(request.number)
    files = modules_of_version(version)
    modules = Path(users_cache().lay_out(files.files, files.read_file))
    return compile_kept(version.text, request.variables, request.overrides, modules), modules


def _seen_from(folder: str, file: Path) -> Path:
    """A file that the user has named, for a process that goes to a folder."""
    return file if not folder or Path(folder) == Path.cwd() else Path(os.path.abspath(file))


def _history_of(client: JobControlClient) -> VersionHistory:
    described = client.describe()
    folder = described.get("folder")
    if described.get("takes_versions") is False:
        raise PipelineError.of(
            f"'{client.entry.name}' is run by a job manager or a Spark of its own, or by a program: no other version can take its place",
            "stop it with a savepoint, and start the new version from that: flowrun stop --savepoint, then as it was started, with "
            "--from-savepoint",
        )
    if folder is None:
        raise PipelineError.of(
            f"'{client.entry.name}' takes no checkpoints: nothing is kept of it that a new version could go on from",
            "stop it with a savepoint, and resume from that with a pipeline that has settings.checkpoint",
        )
    return VersionHistory(resolve(str(folder)))


def _history_of_stopped(request: UpgradeRequest, name: str, jobs: RunningJobs) -> VersionHistory:
    """The versions of a job that does not run, or not at the moment. Raises StateError: they cannot be read."""
    if request.cluster is None:
        found = upgrade_under_way(name)
        if found is not None:
            return found
    elif (entry := newest_ended(name, jobs)) is not None:
        kept = history_of_client(jobs.client(entry))
        if kept is not None:
            return kept
    return VersionHistory(_folder_of(request, name))


def _folder_of(request: UpgradeRequest, name: str) -> StatePath:
    """The folder of a job that does not run."""
    from flowrun.runtime.jobmaster.job_state import DEFAULT_STATE_DIRECTORY, state_directory

    of_file = None if request.file is None else state_directory(_compile_file(request, request.file).job_graph)
    return resolve(of_file or DEFAULT_STATE_DIRECTORY) / job_slug(name)


def _check_is_free(history: VersionHistory) -> None:
    """Pass if no upgrade is open. Raises StateError: one is."""
    present = history.upgrade()
    if present is not None and present.phase.is_open:
        raise StateError(
            f"an apply of version {present.new} is under way, or was interrupted: {present.phase.value}",
            hint="wait until it is done, or finish or undo it: flowrun apply FILE --continue",
        )


def _show(plan: UpgradePlan, compiled: CompiledPipeline, request: UpgradeRequest) -> None:
    show_diagnostics(compiled.warnings)
    if plan.differences is None:
        say("what changes in meaning is not known: the plan of the version that runs was not kept")
    else:
        for line in difference_lines(plan.differences):
            click.echo(line)
    if plan.is_empty:
        return
    click.echo("state:")
    for line in plan.comparison.lines(request.allow_non_restored):
        click.echo(f"  {colored(line)}")
    for sink in plan.not_exact:
        say(f"warning: {sink}: rows that a version which is not healthy wrote there stay, or come again")


# ---- how it is done


def _compare_in_shadow(
    request: UpgradeRequest,
    client: JobControlClient,
    history: VersionHistory,
    plan: UpgradePlan,
    compiled: CompiledPipeline,
    modules: Path | None,
) -> bool:
    from flowrun.cli.versions.shadowing import compare_in_shadow

    assert request.shadow_ms is not None
    return compare_in_shadow(client, history, plan.old, compiled, request.variables, request.shadow_ms, modules)


def _begin(request: UpgradeRequest, history: VersionHistory, client: JobControlClient, plan: UpgradePlan) -> Upgrade:
    """Note the upgrade, before anything happens."""
    clock = SystemClock()
    reads, moves = _observe(client)
    process = "" if request.cluster is not None else _process_of(client.entry, history)
    old = plan.old if plan.old.number else history.add(plan.old)
    new = history.add(plan.new)
    rules = HealthRules(request.within_ms, request.steady_ms, reads, moves)
    return history.write_upgrade(
        Upgrade(
            uuid.uuid4().hex[:12],
            Phase.STOPPING,
            old.number,
            new.number,
            client.entry.job_id,
            clock.now_ms(),
            rules,
            request.allow_non_restored,
            "" if request.cluster is None else request.cluster.as_arguments(),
            process=process,
        )
    )


def _observe(client: JobControlClient) -> tuple[bool, bool]:
    """Whether a job reads rows now, and moves its watermark."""
    before = client.describe()
    pause = threading.Condition()
    with pause:
        SystemClock().wait(pause, _OBSERVE_MS)
    after = client.describe()
    return _grows(before, after, "rows_read"), _grows(before, after, "watermark")


def _grows(before: Mapping[str, Json], after: Mapping[str, Json], key: str) -> bool:
    one, two = before.get(key), after.get(key)
    return isinstance(one, int | float) and isinstance(two, int | float) and two > one


def _process_of(entry: Any, history: VersionHistory) -> str:
    """The process that starts the next version: that of the job, or the one which has started it for an upgrade before."""
    last = history.upgrade()
    if last is not None and last.phase in (Phase.ACCEPTED, Phase.WENT_BACK) and is_alive(last.process):
        return last.process
    assert isinstance(entry, JobEntry)
    return f"{entry.pid} {entry.process_start}"


def _stop_old(history: VersionHistory, begun: Upgrade, client: JobControlClient, clock: SystemClock) -> None:
    """Stop the old version with a savepoint, unless it ends by itself.

    Raises:
        StateError: it could not be stopped, and goes on.
    """
    name = client.entry.name
    try:
        order = client.place("stop", f"{history.savepoints}/{begun.upgrade_id}")
        wait_for_answer(client, order, clock, doing=f"stopping '{name}' with a savepoint", timeout_ms=None)
    except StateError as error:
        history.note_outcome(begun.new, Outcome.REJECTED, "the version before could not be stopped")
        history.write_upgrade(replace(begun, phase=Phase.ABORTED, reason=error.message, hint=error.hint))
        raise StateError(
            f"version {begun.old} could not be stopped, and goes on: {error.message}", hint=error.hint
        ) from error
    except ClusterError as error:
        say(f"'{name}' has ended: {error.message}")  # with the savepoint, or without: the folder of its state tells


def _stop_again(history: VersionHistory, begun: Upgrade, client: JobControlClient, clock: SystemClock) -> None:
    """Stop the old version of an upgrade that was interrupted just then, unless it is being stopped already. Raises as `_stop_old`."""
    try:
        client.place("stop", f"{history.savepoints}/{begun.upgrade_id}")
    except (StateError, ClusterError):
        say(f"'{client.entry.name}' is being stopped already")
    pause, until_ms = threading.Condition(), clock.monotonic_ns() / 1e6 + _PATIENCE_MS
    while ended_with(history, begun) is None or _is_there(client):
        if clock.monotonic_ns() / 1e6 > until_ms:
            raise StateError(
                f"'{client.entry.name}' has not stopped within {format_duration(_PATIENCE_MS)}",
                hint="see flowrun jobs; then go on with: flowrun apply FILE --continue",
            )
        if not _is_there(client):
            return
        with pause:
            clock.wait(pause, _LOOK_MS)


def _is_there(client: JobControlClient) -> bool:
    """Whether a job can still be asked, and runs."""
    try:
        return not JobState(str(client.describe()["state"])).is_terminal
    except ClusterError:
        return False


def _finish(
    request: UpgradeRequest,
    history: VersionHistory,
    secrets: Mapping[str, str],
    release: Callable[[], None],
) -> int:
    if request.cluster is not None:
        from flowrun.cli.versions.on_cluster import finish_on_cluster

        decided = finish_on_cluster(request.cluster, history, {**request.variables, **secrets})
    else:
        followed = follow(history, SystemClock())
        if followed is None:
            return take_over(history, {**request.variables, **secrets}, _VIEW, release)
        decided = followed
        forget_upgrade(decided.job_id)
    if decided.phase in (Phase.ACCEPTED, Phase.WENT_BACK):
        _forget_savepoints(history, request.keep_savepoints)
    return report(decided)


def _forget_savepoints(history: VersionHistory, keep: int) -> None:
    try:
        forget_savepoints(history, keep)
    except StateError as error:  # what matters is done, and the next upgrade tries again
        say(f"warning: old savepoints of upgrades stay: {error.message}")
