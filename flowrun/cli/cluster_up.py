"""`flowrun cluster up`: a whole session cluster on this machine, for trying it and for one machine."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from flowrun.cli.arguments import STOP_SAVEPOINT, DurationType, StopOptions
from flowrun.cli.cluster_arguments import (
    HANG_TIMEOUT,
    SECRET_FILE,
    STATE,
    TLS,
    cluster_credentials,
    listen_option,
)
from flowrun.cli.logs import LogOptions, log_options, start_log
from flowrun.cli.rest_arguments import door_options, rest_address_option
from flowrun.core.record import record

if TYPE_CHECKING:
    from flowrun.runtime.cluster.task_manager import TaskManagerOptions
    from flowrun.runtime.rpc.address import Address
    from flowrun.runtime.rpc.link import Credentials

_PATIENCE_S = 60.0
_AFTER_AN_END_S = 1.0
"""Before a task manager takes the place of one that ended."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.group()
def cluster() -> None:
    """Run a cluster on this machine."""


@cluster.command()
@click.option("--task-managers", type=click.IntRange(1, 256), default=1, show_default=True, help="How many there are.")
@click.option("--slots", type=click.IntRange(1), help="Of each task manager; by default one a processor core.")
@listen_option("Where jobs are submitted, and other task managers may join.")
@SECRET_FILE
@TLS
@STATE
@HANG_TIMEOUT
@rest_address_option
@STOP_SAVEPOINT
@click.option(
    "--stop-within",
    type=DurationType(),
    metavar="DURATION",
    default="60s",
    show_default=True,
    help="How long jobs have for their last checkpoints or savepoints at the end.",
)
@log_options()
@click.option("-q", "--quiet", is_flag=True, help="Only errors.")
@click.pass_context
def up(
    ctx: click.Context,
    task_managers: int,
    slots: int | None,
    listen: Address,
    secret_file: Path,
    tls: Path | None,
    state: str | None,
    hang_timeout_ms: int,
    rest_address: Address | None,
    token_file: Path | None,
    stop_savepoint: str | None,
    stop_within: int,
    quiet: bool,
    log: LogOptions,
) -> None:
    """Start a job manager and task managers, and keep them until Ctrl-C, which stops each job with a last checkpoint.

    A second Ctrl-C ends them at once; the checkpoints before stay. Jobs are run with `flowrun run FILE --cluster HOST:PORT`. Each slot that
    a job is given is a process of its own.
    """
    from flowrun.cli.session import SessionOptions, run_session
    from flowrun.core.cores import usable_cores
    from flowrun.runners.session.warm_up import warm_up
    from flowrun.runtime.process import tune_process
    from flowrun.runtime.rpc.address import TcpAddress

    if isinstance(listen, TcpAddress) and listen.port == 0:
        raise click.BadParameter("name a port: task managers are told it before it is chosen", param_hint="--listen")
    door, stop = door_options(rest_address, token_file), StopOptions(stop_savepoint, stop_within)
    start_log(log)
    tune_process()
    credentials = cluster_credentials(secret_file, tls, create=True)
    warm_up()
    gc.freeze()
    session = SessionOptions(listen, secret_file, tls, state, hang_timeout_ms, quiet, door, stop)
    members = [_Member(lambda: run_session(session))]
    offered = slots or usable_cores()
    members += [_Member(lambda: _run_task_manager(listen, credentials, offered)) for _ in range(task_managers)]
    ctx.exit(_supervise(members))


@record(eq=False, frozen=False)
class _Member:
    """A process of the cluster: what it does, giving an exit code, and its number while it runs."""

    work: Callable[[], int]
    pid: int = 0

    def start(self) -> None:
        from flowrun.runtime.cluster.fork_server import die_with_parent, end_process

        parent = os.getpid()
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # until the child has handlers of its own
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)  # Ctrl-C is for the parent, as the job manager stops its jobs before task managers end
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            die_with_parent(parent)
            end_process(lambda: sys.exit(_reported(self.work)))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        self.pid = pid


def _supervise(members: list[_Member]) -> int:
    """Run the processes until a signal comes or the job manager ends; gives its exit code. A task manager that ends is replaced."""
    job_manager = members[0]
    is_ending = False

    def end(_number: int, _frame: FrameType | None) -> None:
        nonlocal is_ending
        is_ending = True
        if job_manager.pid:
            _tell(job_manager.pid, signal.SIGTERM)

    for number in _SIGNALS:
        signal.signal(number, end)
    for member in members:
        member.start()
    by_pid = {member.pid: member for member in members}
    code = 0
    while job_manager.pid in by_pid:
        pid, status = os.wait()
        member = by_pid.pop(pid)
        if member is job_manager:
            code = os.waitstatus_to_exitcode(status)
        elif not is_ending:
            time.sleep(_AFTER_AN_END_S)
            member.start()
            by_pid[member.pid] = member
    for member in by_pid.values():
        _tell(member.pid, signal.SIGTERM)
    for member in by_pid.values():
        with suppress(ChildProcessError):
            os.waitpid(member.pid, 0)
    return code if code >= 0 else 1


def _run_task_manager(job_manager: Address, credentials: Credentials, slots: int) -> int:
    from flowrun.runtime.cluster.task_manager import run_task_manager

    run_task_manager(_options(job_manager, credentials, slots))
    return 0


def _options(job_manager: Address, credentials: Credentials, slots: int) -> TaskManagerOptions:
    from flowrun.runners.job_text import compile_opening
    from flowrun.runtime.cluster.task_manager import TaskManagerOptions
    from flowrun.runtime.cluster.worker_process import WorkerOffer
    from flowrun.runtime.rpc.address import TcpAddress

    host = job_manager.host if isinstance(job_manager, TcpAddress) else "127.0.0.1"
    offer = WorkerOffer(TcpAddress(host, 0), credentials, slots, compile_opening)
    return TaskManagerOptions((job_manager,), offer, _PATIENCE_S)


def _reported(work: Callable[[], int]) -> int:
    """Do the work of a process; an error is said here, and becomes the exit code."""
    from flowrun.cli.console import report_failure

    try:
        return work()
    except KeyboardInterrupt:
        return 0
    except Exception as error:
        return report_failure(error, show_traceback="--traceback" in sys.argv)


def _tell(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
