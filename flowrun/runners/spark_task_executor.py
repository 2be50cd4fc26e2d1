"""The process of a task executor that a task of Spark has started: `python -m flowrun.runners.spark_task_executor REASONS`.

It reads its orders from standard input, joins the job manager in the driver, runs subtasks until that connection is closed, and ends. If
standard input is closed, the Python worker of Spark that started it is gone: it ends at once.
"""

from __future__ import annotations

import gc
import logging
import os
import secrets
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from flowrun.core.record import record
from flowrun.core.resources import ResourceProfile
from flowrun.errors import ClusterError, FlowrunError
from flowrun.runners.job_text import compile_opening
from flowrun.runtime.cluster.fork_server import die_with_parent
from flowrun.runtime.cluster.task_manager import find_job_manager
from flowrun.runtime.cluster.worker_process import ROLE, WorkerOffer, serve_job_manager
from flowrun.runtime.process import ALLOCATIONS_BETWEEN_COLLECTIONS, tune_process
from flowrun.runtime.rpc.address import TcpAddress
from flowrun.runtime.rpc.handshake import Introduction
from flowrun.runtime.rpc.link import Credentials
from flowrun.runtime.rpc.secret import secret_of_text
from flowrun.spark.streams.hosting import MOST_REASON_BYTES, REFUSES, worker_name

if TYPE_CHECKING:
    from flowrun.runtime.rpc.tls import TlsIdentity

PATIENCE_S = 10.0
"""How long it looks for the job manager, which has been there for longer than it itself."""


@record
class Orders:
    """What a task executor is told.

    Attributes:
        host: of the job manager.
        port: of the job manager.
        secret: of this run.
        number: of this task executor, from 1.
        slots: that it offers.
        resources: that they divide.
        tls: folder of certificates, which each machine has its own in; empty: connections are not encrypted.
    """

    host: str
    port: int
    secret: str
    number: int
    slots: int
    resources: ResourceProfile = ResourceProfile()
    tls: str = ""


def encode_orders(orders: Orders) -> bytes:
    """Orders as one line.

    >>> decode_orders(encode_orders(Orders("h", 1, "s", 2, 3))) == Orders("h", 1, "s", 2, 3)
    True
    """
    return msgspec.json.encode(orders)


def decode_orders(line: bytes) -> Orders:
    """Orders from their line; raises `msgspec.ValidationError` for anything else."""
    return msgspec.json.decode(line, type=Orders)


def main(reasons: int) -> None:
    """Run a session; `reasons` is the descriptor of the pipe for what is wrong. The process ends with it."""
    parent = os.getppid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the driver answers them, and its connection ends this process
    die_with_parent(parent)
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        os._exit(0)
    threading.Thread(target=_end_with_input, name="flowrun-parent", daemon=True).start()
    gc.set_threshold(ALLOCATIONS_BETWEEN_COLLECTIONS)
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    tune_process()
    try:
        _serve(decode_orders(line))
    except FlowrunError as error:
        os.write(reasons, f"{error.message}\n{error.hint or ''}".encode()[:MOST_REASON_BYTES])
        os._exit(REFUSES)
    os._exit(0)  # subtasks may still be at work: nobody needs them


def _serve(orders: Orders) -> None:
    identity = _own_identity(Path(orders.tls)) if orders.tls else None
    credentials = Credentials(secret_of_text(orders.secret, "this run"), identity)
    manager = TcpAddress(orders.host, orders.port)
    name = worker_name(orders.number, secrets.token_hex(3))
    link, _ = find_job_manager((manager,), Introduction(ROLE, name), credentials, PATIENCE_S)
    data_address = TcpAddress(_own_host(manager), 0)
    offer = WorkerOffer(data_address, credentials, orders.slots, compile_opening, orders.resources)
    serve_job_manager(link, offer, name)


def _own_identity(folder: Path) -> TlsIdentity:
    from flowrun.runtime.rpc.tls import read_identity  # most runs do without

    try:
        return read_identity(folder)
    except ClusterError as error:
        raise ClusterError(
            f"{error.message}, on {socket.gethostname()}",
            hint="every machine with executors has certificates under the path of --tls, which their user can read",
        ) from error


def _own_host(manager: TcpAddress) -> str:
    """The address of this machine that leads to the job manager: other task executors reach it there, too. Nothing is sent."""
    try:
        found = socket.getaddrinfo(manager.host, manager.port, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, place = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(place)
            host: str = probe.getsockname()[0]
    except OSError as error:
        raise ClusterError(f"no address of this machine leads to {manager}: {error.strerror or error}") from error
    return host


def _end_with_input() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
