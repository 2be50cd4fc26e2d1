"""Texts about a job's checkpoints and restarts, and the command that resumes it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from flowrun.cli.views.figures import duration_text
from flowrun.core.units import size_text
from flowrun.runtime.checkpoint.events import CheckpointsStatus


def recovery_text(checkpoints: CheckpointsStatus | None, restarts: int, last_failure: str | None = None) -> str:
    """Checkpoints and restarts in a few words, with the cause of the last restart; empty if there is nothing to say.

    >>> recovery_text(CheckpointsStatus(failed=1, last_failure="the disk is full"), 2)
    'checkpoints: 0, 1 failed (the disk is full); restarts: 2'
    """
    parts = [] if checkpoints is None else [_checkpoints(checkpoints)]
    if restarts:
        parts.append(f"restarts: {restarts}" + (f", last because {last_failure}" if last_failure else ""))
    return "; ".join(parts)


def _checkpoints(status: CheckpointsStatus) -> str:
    text = f"checkpoints: {status.completed}"
    if (last := status.last) is not None:
        text += f" (last {duration_text(last.duration_ms)}, {size_text(last.state_bytes)})"
    if status.in_progress:
        text += f", {status.in_progress} under way"
    if status.failed:
        text += f", {status.failed} failed" + (f" ({status.last_failure})" if status.last_failure else "")
    return text


def resume_command(path: str, withheld: Iterable[str] = (), functions_from: str | None = None, place: str = "") -> str:
    """The command that resumes a job from a checkpoint or savepoint.

    Args:
        path: the folder of the checkpoint or savepoint.
        withheld: names of variables that must be given again, because their values are not kept.
        functions_from: the folder of the pipeline's Python functions; None: it need not be named.
        place: the options that name where the job runs, if not in processes of its command.

    >>> resume_command("/data/my state/chk-7")
    "flowrun resume --from-savepoint '/data/my state/chk-7'"
    >>> resume_command("/data/chk-7", place="--on spark")
    'flowrun resume --from-savepoint /data/chk-7 --on spark'
    >>> resume_command("/data/chk-7", ["password"])
    'flowrun resume --from-savepoint /data/chk-7 --secret-var password=…'
    """
    again = "".join(f" --secret-var {name}=…" for name in withheld)
    functions = "" if functions_from is None else f" --functions-from {shlex.quote(functions_from)}"
    return f"flowrun resume --from-savepoint {shlex.quote(path)}{functions}{again}{' ' if place else ''}{place}"
