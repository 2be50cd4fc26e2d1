"""A task manager: joins the cluster of a job manager, on this machine or another, and offers its slots.

    flowrun taskmanager ──forks──▶ session: connects, serves, ends with the connection
                        ──forks──▶ session …

Each session is a process of its own, so nothing of one job manager's job is left for the next: no imported function, no working
directory, no thread that hangs. A session that dies is replaced as well. It runs subtasks itself only if it has one slot; else it has a
worker process for every slot, and where a dispatcher listens, for every slot that is given to a job (`task_manager_workers`).
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from types import FrameType
from typing import NoReturn

from flowrun.core.record import record
from flowrun.errors import ClusterError, RefusedError
from flowrun.runtime.cluster.fork_server import check_no_threads, die_with_parent, end_process
from flowrun.runtime.cluster.session_messages import DISPATCHER_ROLE
from flowrun.runtime.cluster.task_manager_workers import of_job_manager, serve_dispatcher, serve_with_processes
from flowrun.runtime.cluster.worker_process import ROLE, WorkerOffer, serve_job_manager
from flowrun.runtime.network.host_folder import HostFolder, clear_owned, new_host_folder, remove_owned
from flowrun.runtime.rpc.address import Address
from flowrun.runtime.rpc.handshake import Introduction, Purpose
from flowrun.runtime.rpc.link import Credentials, Link, open_link

FIRST_RETRY_S = 0.1
LONGEST_RETRY_S = 3.0
_GAVE_UP = 3
"""Exit code of a session that found no job manager; why is in a pipe to its parent."""
_MOST_REASON_BYTES = 4096
"""Which a pipe takes at once."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AFTER_A_DEATH_S = 1.0
"""Before a session takes the place of one that failed, so that one that cannot begin does not keep a core busy."""

_log = logging.getLogger(__name__)


@record(eq=False)
class TaskManagerOptions:
    """What a task manager is told.

    Attributes:
        job_managers: where job managers listen, of which one leads: the others do not listen.
        offer: what each session brings.
        patience_s: for how long a session looks for the job manager.
    """

    job_managers: tuple[Address, ...]
    offer: WorkerOffer
    patience_s: float


def run_task_manager(options: TaskManagerOptions) -> None:
    """Run sessions one after the other until a signal ends this process. To be called before the process starts a thread.

    What a session has spilled is there for the next one, unless the job manager was gone.

    Raises:
        ClusterError: no job manager was found in time, or it refuses this process.
    """
    check_no_threads()
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    folder = new_host_folder()
    try:
        _run_sessions(options, folder)
    finally:
        remove_owned(folder.path)


def _run_sessions(options: TaskManagerOptions, folder: HostFolder) -> NoReturn:
    while True:
        code = _run_session(options, folder)
        if code == 0:
            clear_owned(folder.path)
        else:
            how = f"ended with exit code {code}" if code > 0 else f"was killed by signal {-code}"
            _log.warning("the process that ran subtasks %s: another takes its place", how)
            time.sleep(_AFTER_A_DEATH_S)


def _run_session(options: TaskManagerOptions, folder: HostFolder) -> int:
    """Run a session to its end in a process of its own; gives its exit code, or minus the signal that ended it.

    Raises:
        ClusterError: it gave up.
    """
    read_end, write_end = os.pipe()
    parent = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # what is raised in hooks of `fork` is lost
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        end_process(lambda: _session(options, folder, parent, write_end))
    os.close(write_end)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if code == _GAVE_UP:
            message, _, hint = os.read(read_end, _MOST_REASON_BYTES).decode(errors="replace").partition("\n")
            raise ClusterError(message, hint=hint or None)
    except KeyboardInterrupt:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    finally:
        os.close(read_end)
    return code


def find_job_manager(
    addresses: Sequence[Address], own: Introduction, credentials: Credentials, patience_s: float
) -> tuple[Link, Address]:
    """(a control connection to the job manager or dispatcher at one of these, where it listens).

    Blocks; tries all again with growing pauses while nobody answers.

    Raises:
        ClusterError: nobody did within `patience_s`.
        RefusedError: who answers will never work with this process.
    """
    until = time.monotonic() + patience_s
    pause = FIRST_RETRY_S
    while True:
        reasons: list[ClusterError] = []
        for address in addresses:
            try:
                return open_link(address, own, Purpose.CONTROL, credentials), address
            except RefusedError:
                raise
            except ClusterError as error:
                reasons.append(error)
        left = until - time.monotonic()
        reason = "; ".join(error.message for error in reasons)
        if left <= 0:
            raise ClusterError(f"no job manager was found within {patience_s:g} s: {reason}", hint=reasons[-1].hint)
        _log.info("%s: trying again", reason)
        time.sleep(min(pause, left))
        pause = min(2 * pause, LONGEST_RETRY_S)


def _session(options: TaskManagerOptions, folder: HostFolder, parent: int, reasons: int) -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # the parent answers them, and ends this process
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    die_with_parent(parent)
    name = f"{socket.gethostname()[:40]}-{secrets.token_hex(3)}"
    offer = replace(options.offer, host_folder=folder)
    try:
        link, address = find_job_manager(
            options.job_managers, Introduction(ROLE, name), offer.credentials, options.patience_s
        )
        if link.peer.role == DISPATCHER_ROLE:
            reason = serve_dispatcher(link, address, offer, name)
        elif offer.slots > 1:
            reason = serve_with_processes(link, address, offer, name)
        else:
            reason = serve_job_manager(link, of_job_manager(offer, str(address)), name)
    except ClusterError as error:
        os.write(reasons, f"{error.message}\n{error.hint or ''}".encode()[:_MOST_REASON_BYTES])
        os._exit(_GAVE_UP)
    _log.info("the job manager is gone (%s)", reason)
    os._exit(0)  # subtasks may still be at work: nobody needs them


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
