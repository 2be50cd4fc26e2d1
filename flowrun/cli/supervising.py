"""Runs the versions of a pipeline on this machine, one after the other, each in a process of its own.

A job that was stopped so that another version takes its place leaves its process to this: a new interpreter for each version, as modules of
functions may have changed, while the process that the user, a service manager or a container knows stays, with its terminal and signals. It
outlives versions that hang or crash, and goes back to the old one then.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import msgspec

from flowrun.cli.arguments import StopOptions, ViewOptions
from flowrun.cli.console import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, say
from flowrun.cli.logs import LogOptions
from flowrun.core.record import record
from flowrun.runners.registry import JobRegistry, process_start
from flowrun.runners.versions.history import VersionHistory
from flowrun.runners.versions.records import Phase, Upgrade, first_line
from flowrun.runners.versions.trial import begin_going_back, end_going_back
from flowrun.state.storage.state_path import resolve
from flowrun.state.storage.stop_note import read_stop_note

if TYPE_CHECKING:
    from flowrun.rest.doors import DoorOptions

NEW, OLD = "new", "old"
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@record
class ViewTexts:
    """`ViewOptions` as texts and numbers; `rest`: address, file of the token, folder of certificates, token."""

    quiet: bool
    log_level: str
    log_format: str
    log_file: str | None
    live: bool | None
    report: str | None
    rest: tuple[str, str | None, str | None, str] | None
    stop_savepoint: str | None
    stop_within_ms: int | None


def texts_of(view: ViewOptions) -> ViewTexts:
    """What is shown, for the process of a version."""

    def absolute(path: Path | None) -> str | None:
        return None if path is None else str(path.absolute())

    door = view.rest
    rest = None if door is None else (str(door.address), absolute(door.token_file), absolute(door.tls), door.token)
    return ViewTexts(
        view.quiet,
        view.log.level,
        view.log.form,
        absolute(view.log.file),
        view.live,
        absolute(view.report),
        rest,
        view.stop.savepoint,
        view.stop.within_ms,
    )


def _door_options(address: str, token_file: str | None, tls: str | None, token: str) -> DoorOptions:
    from flowrun.rest.doors import DoorOptions
    from flowrun.runtime.rpc.address import parse_address

    return DoorOptions(
        parse_address(address),
        None if token_file is None else Path(token_file),
        None if tls is None else Path(tls),
        token,
    )


@record
class VersionProcess:
    """What the process of a version gets from the one that starts it, through a pipe: nobody else reads it.

    Attributes:
        parent: its process id.
        secrets: values of variables that are not kept.
        workers: see `JobRun`.
        view: what is shown.
    """

    parent: int
    secrets: Mapping[str, str]
    workers: int | None
    view: ViewTexts

    def view_options(self) -> ViewOptions:
        """What is shown."""
        given = self.view
        return ViewOptions(
            given.quiet,
            LogOptions(given.log_level, given.log_format, None if given.log_file is None else Path(given.log_file)),
            given.live,
            None if given.report is None else Path(given.report),
            None if given.rest is None else _door_options(*given.rest),
            StopOptions(given.stop_savepoint, given.stop_within_ms),
        )


def supervise_after(
    savepoint: str, view: ViewOptions, workers: int | None, secrets: Mapping[str, str] | None
) -> int | None:
    """Run the version that takes the place of a job of this process, which was stopped with a savepoint; gives the exit code.

    None: it was stopped for nobody, or for somebody who starts the next version elsewhere.

    Args:
        savepoint: with which it was stopped.
        view: what is shown.
        workers: as the job was given.
        secrets: values of its variables that are not kept; None: its workers are not those of this machine.
    """
    history = VersionHistory(resolve(savepoint.partition("/_versions/")[0]))
    upgrade = history.upgrade()
    if upgrade is None or upgrade.phase is not Phase.STOPPING or upgrade.cluster or upgrade.upgrade_id not in savepoint:
        return None
    if secrets is None:
        hint = f"start the new version by hand: flowrun jobmanager FILE --from-savepoint {savepoint}"
        history.write_upgrade(replace(upgrade, phase=Phase.ABORTED, reason="its job manager serves one run", hint=hint))
        return None
    return Supervisor(history, view, workers, {upgrade.old: secrets}).run()


class Supervisor:
    """Starts the versions that an upgrade is about, and those of the upgrades that follow.

    Args:
        history: of the pipeline.
        view: what is shown of each.
        workers: see `JobRun`.
        secrets: number of a version → its values that are not kept.
    """

    def __init__(
        self,
        history: VersionHistory,
        view: ViewOptions,
        workers: int | None,
        secrets: dict[int, Mapping[str, str]],
    ) -> None:
        self._history = history
        self._view = view
        self._workers = workers
        self._secrets = secrets
        self._child: subprocess.Popen[bytes] | None = None
        self._signalled = False

    def run(self) -> int:
        """Run versions until one ends for good; gives its exit code."""
        code = EXIT_OK
        with self._forwarding():
            while True:
                upgrade = self._history.upgrade()
                following = None if upgrade is None else self._next(upgrade, code)
                if following is None:
                    return code
                code = following
                if self._signalled:
                    self._say_how_to_go_on()
                    return code

    def _next(self, upgrade: Upgrade, code: int) -> int | None:
        """Go one step; gives the exit code so far, or None: there is nothing to do."""
        if upgrade.phase is Phase.STOPPING:
            savepoint = ended_with(self._history, upgrade)
            if savepoint is None:
                return None
            self._secrets[upgrade.new] = taken_over(upgrade)
            begin_trial(self._history, upgrade, savepoint)
            return code
        if upgrade.phase is Phase.TRIAL:
            self._say(f"version {upgrade.old} has stopped; version {upgrade.new} is on trial")
            code = self._run_child(NEW, upgrade.new)
            present = self._history.upgrade()
            if present is not None and present.phase is Phase.TRIAL and not self._signalled:
                begin_going_back(self._history, upgrade, _how_it_ended(code))
                return code
            return EXIT_INTERRUPTED if self._is_left_by_user(code) else code
        if upgrade.phase is Phase.GOING_BACK:
            say(f"version {upgrade.new} is not healthy: {first_line(upgrade.reason)}")
            self._say(f"going back to version {upgrade.old}")
            code = self._run_child(OLD, upgrade.old)
            if not self._signalled:
                end_going_back(self._history, upgrade, _how_it_ended(code))
            return code
        return None

    def _is_left_by_user(self, code: int) -> bool:
        """Whether somebody has cancelled a version on trial: then nothing follows by itself."""
        present = self._history.upgrade()
        is_open = present is not None and present.phase is Phase.GOING_BACK
        self._signalled = self._signalled or (is_open and code == EXIT_INTERRUPTED)
        return self._signalled

    def _run_child(self, role: str, number: int) -> int:
        given = VersionProcess(os.getpid(), dict(self._secrets.get(number, {})), self._workers, texts_of(self._view))
        mine, its = os.pipe()
        command = [sys.executable, "-m", "flowrun", "run-version", self._history.job_folder.uri, role, str(mine)]
        # A group of its own: signals of the terminal come once, from here.
        with subprocess.Popen(command, pass_fds=(mine,), process_group=0) as child:
            self._child = child
            os.close(mine)
            with os.fdopen(its, "wb") as stream:
                stream.write(msgspec.json.encode(given))
            code = child.wait()
        self._child = None
        return code if code >= 0 else 128 - code

    @contextmanager
    def _forwarding(self) -> Iterator[None]:
        """A context in which signals go to the version that runs."""
        before = {number: signal.signal(number, self._forward) for number in _FORWARDED}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _forward(self, number: int, _: FrameType | None) -> None:
        self._signalled = True
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(number)

    def _say_how_to_go_on(self) -> None:
        present = self._history.upgrade()
        if present is not None and present.phase.is_open:
            say(f"version {present.new} was not accepted; go on with:\n  flowrun apply FILE --continue")

    def _say(self, text: str) -> None:
        if not self._view.quiet:
            say(text)


def ended_with(history: VersionHistory, upgrade: Upgrade) -> str | None:
    """The savepoint with which the old version of an upgrade has ended; None: it has not, or in another way."""
    note = read_stop_note(history.job_folder)
    return note.savepoint if note is not None and upgrade.upgrade_id in note.savepoint else None


def begin_trial(history: VersionHistory, upgrade: Upgrade, savepoint: str) -> Upgrade:
    """Note that the old version has ended, and that this process starts the new one; gives the upgrade as it is then.

    Args:
        history: of the pipeline.
        upgrade: as it is noted.
        savepoint: with which the old version ended, and at which the new one begins; empty: there is none.

    Raises:
        StateError: it cannot be noted.
    """
    if savepoint:
        history.note_origin(upgrade.new, savepoint)
    return history.write_upgrade(replace(upgrade, phase=Phase.TRIAL, savepoint=savepoint, process=own_process()))


def own_process() -> str:
    """What tells this process from all others of this machine."""
    return f"{os.getpid()} {process_start(os.getpid()) or ''}"


def is_alive(process: str) -> bool:
    """Whether a process of this machine lives, as `own_process` names it."""
    pid, _, start = process.partition(" ")
    return bool(pid) and bool(start) and process_start(int(pid)) == start


def hand_over(upgrade_id: str, secrets: Mapping[str, str]) -> None:
    """Leave the values that are not kept for the process that starts the new version. Raises ClusterError: it cannot be."""
    if secrets:
        JobRegistry().leave(upgrade_id, json.dumps(dict(secrets)).encode())


def taken_over(upgrade: Upgrade) -> Mapping[str, str]:
    """What `hand_over` has left."""
    found = JobRegistry().take(upgrade.upgrade_id)
    secrets: dict[str, str] = {} if found is None else json.loads(found)
    return secrets


def _how_it_ended(code: int) -> str:
    if code > 128 and code != EXIT_INTERRUPTED:
        return f"its process was ended by signal {code - 128}"
    return f"its process ended with code {code}" if code != EXIT_FAILED else "its process failed"
