"""Runs a session cluster in this process until a signal ends it."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from types import FrameType

from flowrun.cli.cluster_arguments import cluster_credentials, host_and_port, proofs_as_arguments
from flowrun.cli.console import EXIT_FAILED, EXIT_OK, say
from flowrun.core.record import record
from flowrun.errors import ClusterError
from flowrun.runners.session.session_cluster import SessionCluster
from flowrun.runtime.rpc.address import Address

_LOOK_S = 0.5


@record
class SessionOptions:
    """What a session cluster is told.

    Attributes:
        listen: where clients and task managers come.
        secret_file: of the cluster; it is made if it is not there.
        tls: folder of certificates; None: connections are not encrypted.
        quiet: whether nothing is said of how to use it.
    """

    listen: Address
    secret_file: Path
    tls: Path | None
    quiet: bool


def run_session(options: SessionOptions) -> int:
    """Run a cluster until SIGINT, SIGTERM or SIGHUP; gives the exit code.

    Raises:
        ClusterError: the address or the secret cannot be used, or the cluster can start no process any more.
    """
    credentials = cluster_credentials(options.secret_file, options.tls, create=True)
    asked = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        asked.set()

    with SessionCluster(options.listen, credentials) as cluster:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, end)
        if not options.quiet:
            _say_how_to_use(cluster.address, proofs_as_arguments(options.secret_file, options.tls))
        while not asked.wait(_LOOK_S):
            if cluster.wait(0):
                raise ClusterError("the process that starts jobs was ended from outside: the cluster ends, too")
        running = [job for job in cluster.dispatcher.list_jobs() if job.pid]
        if running:
            say("ended with the cluster; their last checkpoints stay: " + ", ".join(f"'{j.name}'" for j in running))
    return EXIT_FAILED if running else EXIT_OK


def _say_how_to_use(address: Address, proofs: str) -> None:
    place = host_and_port(address)
    say(f"task managers join with:\n  flowrun taskmanager --jobmanager {place}{proofs}")
    say(f"jobs are run with:\n  flowrun run FILE --cluster {place}{proofs}")
