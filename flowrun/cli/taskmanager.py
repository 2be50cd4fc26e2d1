"""`flowrun taskmanager`: offer slots of this machine to a job manager."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from flowrun.cli.cluster_arguments import SECRET_FILE, TLS, AddressType, cluster_credentials
from flowrun.cli.logs import LogOptions, log_options, start_log
from flowrun.errors import ClusterError

if TYPE_CHECKING:
    from flowrun.runtime.rpc.address import Address

_ANY_HOST = ("", "0.0.0.0", "::")


@click.command()
@click.option(
    "--jobmanager",
    "job_managers",
    type=AddressType(),
    required=True,
    multiple=True,
    metavar="HOST:PORT",
    help="To join; given several times, the one that leads.",
)
@click.option("--slots", type=click.IntRange(1), help="How many are offered; by default one a processor core.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Of this machine, at which other task managers reach it; they exchange rows there.",
)
@SECRET_FILE
@TLS
@click.option(
    "--compression",
    type=click.Choice(("none", "lz4")),
    default="none",
    show_default=True,
    help="Of rows that this process sends to others: lz4 halves the bytes for more processor time, for slow networks.",
)
@click.option(
    "--patience",
    metavar="DURATION",
    default="5m",
    show_default=True,
    help="How long a job manager is looked for, at the beginning and after each job.",
)
@log_options("info")
def taskmanager(
    job_managers: tuple[Address, ...],
    slots: int | None,
    host: str,
    secret_file: Path,
    tls: Path | None,
    compression: str,
    patience: str,
    log: LogOptions,
) -> None:
    """Join a job manager, run subtasks of its pipeline, and look for the next one when it is gone.

    If it is that of a cluster, its jobs share the slots, each of which is a process of its own.

    The pipeline's Python functions run here: whoever knows the secret can have it run code.
    """
    from flowrun.core.cores import usable_cores
    from flowrun.core.units import parse_duration_ms
    from flowrun.runners.job_text import compile_opening
    from flowrun.runners.session.warm_up import warm_up
    from flowrun.runtime.cluster.job_files import users_cache
    from flowrun.runtime.cluster.task_manager import TaskManagerOptions, run_task_manager
    from flowrun.runtime.cluster.worker_process import WorkerOffer
    from flowrun.runtime.process import tune_process
    from flowrun.runtime.rpc.address import TcpAddress, listen

    if host in _ANY_HOST:
        raise click.BadParameter(f"'{host}' is every address; name one that others reach", param_hint="--host")
    try:
        listen(TcpAddress(host, 0))[0].close()
    except ClusterError as error:
        raise click.BadParameter(
            f"{error.message}; name an address of this machine that others reach", param_hint="--host"
        ) from None
    try:
        patience_s = parse_duration_ms(patience) / 1000
    except ValueError as error:
        raise click.BadParameter(f"'{patience}' is no duration: {error}", param_hint="--patience") from None
    start_log(log)
    tune_process()
    warm_up()
    credentials = cluster_credentials(secret_file, tls)
    offer = WorkerOffer(
        TcpAddress(host, 0), credentials, slots or usable_cores(), compile_opening, lz4=compression == "lz4"
    )
    try:
        run_task_manager(TaskManagerOptions(job_managers, offer, patience_s))
    finally:
        users_cache().sweep()
