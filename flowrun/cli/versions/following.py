"""Follows an upgrade on this machine until it is decided, and takes over if the process that has it in hand is gone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

from flowrun.cli.arguments import ViewOptions
from flowrun.cli.console import EXIT_FAILED, EXIT_OK, say
from flowrun.cli.supervising import Supervisor, ended_with, hand_over, is_alive, own_process
from flowrun.cli.views.checkpoint_text import resume_command
from flowrun.core.clock import Clock
from flowrun.errors import StateError
from flowrun.runners.places_of_functions import functions_folder
from flowrun.runners.versions.history import VersionHistory
from flowrun.runners.versions.records import Phase, Upgrade, first_line
from flowrun.runners.versions.trial import begin_going_back

_LOOK_MS = 200


def follow(history: VersionHistory, clock: Clock) -> Upgrade | None:
    """Wait until an upgrade is decided; gives it, or None: the process that had it in hand is gone.

    Raises:
        StateError: the record of it cannot be read.
    """
    pause, shown = threading.Condition(), None
    while True:
        present = history.upgrade()
        if present is None:
            raise StateError(f"the record of the upgrade is gone from '{history.job_folder}'")
        if present.phase is not shown:
            shown = present.phase
            _say_phase(present)
        if not present.phase.is_open:
            return present
        if not is_alive(present.process):
            again = history.upgrade()
            if again == present:
                return None
            continue
        with pause:
            clock.wait(pause, _LOOK_MS)


def _say_phase(upgrade: Upgrade) -> None:
    match upgrade.phase:
        case Phase.TRIAL:
            say(f"version {upgrade.old} has stopped with savepoint {upgrade.savepoint}")
            say(f"version {upgrade.new} is on trial")
        case Phase.GOING_BACK:
            say(
                f"version {upgrade.new} is not healthy: {first_line(upgrade.reason)}; going back to version {upgrade.old}"
            )
        case _:
            return


def report(upgrade: Upgrade) -> int:
    """Say what an upgrade came to; gives the exit code."""
    old, new = upgrade.old, upgrade.new
    match upgrade.phase:
        case Phase.ACCEPTED:
            say(f"version {new} is healthy and goes on")
            return EXIT_OK
        case Phase.WENT_BACK:
            error = StateError(
                f"version {new} was not healthy: {upgrade.reason}",
                hint=f"version {old} goes on from the savepoint as if nothing had been; what version {new} did was never committed",
            )
        case Phase.SUPERSEDED:
            error = StateError(f"the upgrade to version {new} is over: {upgrade.reason}")
        case _:
            error = StateError(f"the upgrade to version {new} failed: {upgrade.reason}", hint=upgrade.hint)
    raise error


def take_over(
    history: VersionHistory,
    secrets: Mapping[str, str],
    view: ViewOptions,
    release: Callable[[], None] = lambda: None,
) -> int:
    """Bring an upgrade that nobody has in hand to its end in this process, which then runs the job; gives its exit code.

    Args:
        history: of the pipeline.
        secrets: values of variables that are not kept, of either version.
        view: what is shown.
        release: gives up the lock of the upgrade: whoever looks finds this process by the record from then on.
    """
    upgrade = history.upgrade()
    if upgrade is None:
        return EXIT_FAILED
    say(f"the process that ran '{history.job_folder.name}' is gone: this one goes on")
    if upgrade.phase is Phase.STOPPING and ended_with(history, upgrade) is None:
        upgrade = history.write_upgrade(
            replace(upgrade, phase=Phase.TRIAL, reason=None)
        )  # which has not begun, and is gone back from
        upgrade = begin_going_back(history, upgrade, "the version before was lost before it had stopped")
    elif upgrade.phase is Phase.TRIAL:
        upgrade = begin_going_back(history, upgrade, "its process was lost")
    elif upgrade.phase is Phase.FAILED:
        upgrade = replace(upgrade, phase=Phase.GOING_BACK, hint=None)
    elif upgrade.phase is Phase.STOPPING:
        hand_over(upgrade.upgrade_id, secrets)
    if not upgrade.phase.is_open:  # it was decided just before the process was lost
        raise StateError(
            f"the upgrade to version {upgrade.new} is over ({upgrade.phase.value}), and then its process was lost",
            hint=f"go on from its last checkpoint: {_resume_command(history, upgrade)}",
        )
    history.write_upgrade(replace(upgrade, process=own_process()))
    release()
    return Supervisor(history, view, None, {upgrade.old: secrets, upgrade.new: secrets}).run()


def _resume_command(history: VersionHistory, upgrade: Upgrade) -> str:
    """The command that goes on with the version that ran after an upgrade that is over."""
    text = history.version(upgrade.new if upgrade.phase is Phase.ACCEPTED else upgrade.old).text
    return resume_command(history.job_folder.uri, text.withheld, functions_folder(text))
