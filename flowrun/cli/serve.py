"""`flowrun serve DIR`: all pipelines of a folder on a cluster of this machine, with one page and one REST API."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from flowrun.cli.arguments import (
    DurationType,
    StopOptions,
    ViewOptions,
    all_overrides,
    compile_options,
    parse_assignments,
)
from flowrun.cli.cluster_arguments import SECRET_FILE, TLS, ClusterOptions, listen_option
from flowrun.cli.logs import LogOptions, log_options, start_log
from flowrun.cli.rest_arguments import door_options, rest_address_option

if TYPE_CHECKING:
    from flowrun.cli.served_pipelines import ServedPipelines
    from flowrun.rest.doors import DoorOptions
    from flowrun.runners.session.client import ClusterClient
    from flowrun.runtime.rpc.address import Address

_LOOK_S = 0.5
_PATIENCE_S = 60.0
_SPARE_SLOTS = 16
"""For jobs that are submitted later, over those that the folder needs; a slot that no job has costs nothing."""
_CLUSTER = """
import sys
from flowrun.cli.main import main
from flowrun.runtime.cluster.fork_server import die_with_parent
die_with_parent(int(sys.argv.pop(1)))
main()
"""
"""`flowrun` as a process that ends with its parent."""


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False))
@compile_options
@click.option(
    "--slots", type=click.IntRange(1), help="How many subtasks may run; by default more than the folder needs."
)
@listen_option("Where the cluster listens: for --cluster of other commands.")
@SECRET_FILE
@TLS
@rest_address_option
@click.option(
    "--stop-within",
    "stop_within_ms",
    type=DurationType(),
    metavar="DURATION",
    default="60s",
    show_default=True,
    help="How long jobs have for their last checkpoints at the end.",
)
@log_options()
@click.option("-q", "--quiet", is_flag=True, help="Only problems.")
@click.pass_context
def serve(
    ctx: click.Context,
    folder: Path,
    variables: tuple[str, ...],
    overrides: tuple[str, ...],
    parallelism: int | None,
    slots: int | None,
    listen: Address,
    secret_file: Path,
    tls: Path | None,
    rest_address: Address | None,
    token_file: Path | None,
    stop_within_ms: int,
    quiet: bool,
    log: LogOptions,
) -> None:
    """Run all pipelines of a folder in one place, until Ctrl-C.

    Each goes on from its newest checkpoint, or begins. They are jobs of a cluster of this machine with one page and one REST API. Ctrl-C
    and SIGTERM stop each with a last checkpoint, from which the next `flowrun serve` goes on. If one of the files is wrong, none runs.
    """
    from flowrun.cli.console import EXIT_FAILED, EXIT_OK
    from flowrun.cli.served_pipelines import compile_served

    start_log(log)
    _check_free(listen)
    door = door_options(rest_address, token_file)
    values, given = all_overrides(overrides, parallelism), parse_assignments(variables, "--var")
    served = compile_served(folder, given, values, ViewOptions(quiet, log, live=False, report=None))
    cluster = ClusterOptions((listen,), secret_file, tls)
    with _cluster_process(cluster, slots or served.slots + _SPARE_SLOTS, door) as process:
        is_well = _keep(served, cluster, process, stop_within_ms)
    ctx.exit(EXIT_OK if is_well else EXIT_FAILED)


def _check_free(listen: Address) -> None:
    """Pass if nobody listens at an address: the pipelines would become jobs of a cluster that runs there already.

    Raises:
        ClusterError: somebody does.
        click.BadParameter: it is no certain address.
    """
    import socket

    from flowrun.cli.cluster_arguments import host_and_port
    from flowrun.errors import ClusterError
    from flowrun.runtime.rpc.address import TcpAddress

    try:
        if isinstance(listen, TcpAddress):
            if listen.port == 0:
                raise click.BadParameter("name a port: other commands reach the jobs there", param_hint="--listen")
            socket.create_connection((listen.host, listen.port), timeout=1).close()
        else:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(listen.path)
    except OSError:
        return
    raise ClusterError(
        f"somebody listens at {host_and_port(listen)} already", hint="choose another place with --listen"
    )


def _keep(
    served: ServedPipelines, cluster: ClusterOptions, process: subprocess.Popen[bytes], stop_within_ms: int
) -> bool:
    """Run pipelines on a cluster until a signal comes; gives whether none failed and all were stopped."""
    from flowrun.cli.console import say
    from flowrun.cli.ending_jobs import EndWatch, stop_jobs

    quiet = served.view.quiet
    asked = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        asked.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    with _connected(cluster, process) as client:
        try:
            served.submit(client)
            if not quiet:
                _say_where(client, cluster)
            watch = EndWatch(client, quiet=quiet)
            while not asked.wait(_LOOK_S):
                _check_runs(process)
                watch.look()
        finally:
            options = StopOptions(within_ms=stop_within_ms)
            left = stop_jobs(client, options, quiet=quiet) if process.poll() is None else ()
        watch.look()
    if left:
        names = ", ".join(f"'{job.name}'" for job in left)
        say(f"did not stop in time, so they go on from their last checkpoints: {names}")
    return not left and not watch.has_failures


@contextmanager
def _cluster_process(
    cluster: ClusterOptions, slots: int, door: DoorOptions | None
) -> Iterator[subprocess.Popen[bytes]]:
    """A context with a cluster on this machine, which ends with it."""
    from flowrun.cli.cluster_arguments import host_and_port, proofs_as_words

    command = [sys.executable, "-c", _CLUSTER, str(os.getpid()), "cluster", "up", "--quiet", "--slots", str(slots)]
    command += [
        "--listen",
        host_and_port(cluster.addresses[0]),
        *proofs_as_words(cluster.secret_file, cluster.tls),
    ]
    command += ["--stop-within", "0s"]  # this process has stopped the jobs then
    if door is not None:
        command += ["--rest", host_and_port(door.address)]
        command += [] if door.token_file is None else ["--token-file", str(door.token_file)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        process_group=0,  # Ctrl-C is for this process, which stops the jobs first
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _connected(cluster: ClusterOptions, process: subprocess.Popen[bytes]) -> ClusterClient:
    """A client of a cluster that is just being started.

    Raises:
        ClusterError: it has ended, or does not answer.
    """
    from flowrun.errors import ClusterError

    until = time.monotonic() + _PATIENCE_S
    while True:
        _check_runs(process)
        try:
            return cluster.client()
        except ClusterError:
            if time.monotonic() > until:
                raise
        time.sleep(0.1)


def _check_runs(process: subprocess.Popen[bytes]) -> None:
    from flowrun.errors import ClusterError

    if process.poll() is not None:
        raise ClusterError(
            f"the cluster has ended (exit code {process.returncode})",
            hint="its error stands above; jobs go on from their last checkpoints with the next `flowrun serve`",
        )


def _say_where(client: ClusterClient, cluster: ClusterOptions) -> None:
    from flowrun.cli.console import say

    place = client.rest_place()
    if place is not None:
        token = "" if place.token is None else f"#token={place.token}"
        say(f"the page: {place.url}{token}")
    say(f"other commands reach the jobs with:\n  {cluster.as_arguments()}")
