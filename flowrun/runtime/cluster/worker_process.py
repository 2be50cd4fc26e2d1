"""What a worker process does from its first to its last moment."""

from __future__ import annotations

import io
import os
import socket
import sys
import threading
from pathlib import Path

import pyarrow as pa

from flowrun.core.clock import ForwardClock, SystemClock
from flowrun.core.cores import stay_on_one_core
from flowrun.core.log_context import log_as_worker
from flowrun.core.recent_logs import RECENT_LOGS
from flowrun.core.record import record
from flowrun.core.resources import ResourceProfile
from flowrun.runtime.cluster.task_executor import JobGraphs, TaskExecutor
from flowrun.runtime.cluster_messages import (
    RESOURCE_MANAGER,
    TASK_EXECUTOR,
    ResourceManagerGateway,
    WorkerGateway,
    WorkerRegistration,
)
from flowrun.runtime.network.buffer_pool import DEFAULT_TOTAL_SLOTS, GlobalBufferPool
from flowrun.runtime.network.host_folder import HostFolder
from flowrun.runtime.network.remote.data_server import DataServer
from flowrun.runtime.rpc.address import Address, UnixAddress
from flowrun.runtime.rpc.connection import RpcConnection
from flowrun.runtime.rpc.handshake import Introduction, Purpose
from flowrun.runtime.rpc.heartbeats import Heartbeats
from flowrun.runtime.rpc.link import Credentials, Link, open_link
from flowrun.runtime.timers import TimerThread
from flowrun.runtime.watchdog.job_board import JobBoard

ROLE = "taskmanager"
"""As which a worker introduces itself."""
SWITCH_INTERVAL_S = 0.0005
"""How long a thread may keep the interpreter lock while others wait: with 5 ms, Python's default, rows for other processes
wait that long behind every subtask that computes."""


@record(eq=False)
class WorkerPlan:
    """What a forked worker inherits.

    Attributes:
        graphs: gives the job graphs that it runs subtasks of.
        slots: that it offers.
        resources: that they divide.
        folder: of the sockets of all processes of this run; only this user can enter it.
        manager: where the job manager listens.
        credentials: of this run.
        board: where subtasks note what they are doing.
        host_folder: of the command: what is spilled there can be read when the worker is gone.
    """

    graphs: JobGraphs
    slots: int
    resources: ResourceProfile
    folder: Path
    manager: UnixAddress
    credentials: Credentials
    board: JobBoard | None
    host_folder: HostFolder


@record(eq=False)
class WorkerOffer:
    """What a worker brings to a job manager.

    Attributes:
        data_address: where it listens for those who read what is written in it.
        credentials: of the cluster.
        slots: how many it has.
        graphs: gives it the job graphs of jobs.
        resources: what the slots divide among them.
        board: where subtasks note what they are doing; None if no watchdog reads that.
        lz4: compress the rows that others read.
        host_folder: of who outlives the worker: what is spilled there can be read when that is gone; None: it is lost with it.
    """

    data_address: Address
    credentials: Credentials
    slots: int
    graphs: JobGraphs
    resources: ResourceProfile = ResourceProfile()
    board: JobBoard | None = None
    lz4: bool = False
    host_folder: HostFolder | None = None


def run_worker(plan: WorkerPlan, name: str) -> None:
    """Serve the job manager of the command that this worker was forked from, until the connection to it is closed.

    Raises:
        ClusterError: it does not answer.
    """
    data_address = UnixAddress(str(plan.folder / name))
    offer = WorkerOffer(
        data_address,
        plan.credentials,
        plan.slots,
        plan.graphs,
        plan.resources,
        plan.board,
        host_folder=plan.host_folder,
    )
    own, roles = Introduction(ROLE, name), frozenset({"jobmanager"})
    serve_job_manager(open_link(plan.manager, own, Purpose.CONTROL, plan.credentials, roles=roles), offer, name)
    os._exit(0)  # subtasks may still be at work: nobody needs them


def serve_job_manager(link: Link, offer: WorkerOffer, name: str) -> str:
    """Offer slots, and run subtasks in them until the connection is closed; gives the reason why. The process may do nothing afterwards.

    Args:
        link: to the job manager.
        offer: what this process brings.
        name: of this worker, unique in the cluster.

    Raises:
        ClusterError: the address of the data server is taken.
    """
    log_as_worker(name)
    RECENT_LOGS.begin_anew()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    pa.set_cpu_count(1)  # subtasks are the parallelism, as in the embedded runner
    _print_whole_lines()
    clock = ForwardClock(SystemClock())
    timers = TimerThread(clock)
    own, folder = Introduction(ROLE, name), offer.host_folder
    data = DataServer(offer.data_address, own, offer.credentials, timers, lz4=offer.lz4, host_folder=folder)
    connection = RpcConnection(link)
    executor = TaskExecutor(
        name,
        connection,
        offer.graphs,
        data,
        GlobalBufferPool(DEFAULT_TOTAL_SLOTS),
        timers,
        clock,
        offer.board,
        settle=stay_on_one_core,
    )
    connection.serve(TASK_EXECUTOR, WorkerGateway, executor)
    reasons: list[str] = []
    gone = threading.Event()

    def hear(reason: str) -> None:
        reasons.append(reason)
        gone.set()

    connection.on_close(hear)
    heartbeats = Heartbeats(connection, timers, clock)
    connection.start()
    heartbeats.start()
    host, address, kept = socket.gethostname(), str(data.address), "" if folder is None else folder.id
    connection.gateway(ResourceManagerGateway, RESOURCE_MANAGER).register_worker(
        WorkerRegistration(name, os.getpid(), host, address, offer.slots, offer.resources, kept)
    )
    gone.wait()
    return reasons[0]


def _print_whole_lines() -> None:
    """Have what functions print leave line by line.

    All processes of a run share its standard output. A block of some kilobytes would be cut in the middle of a line, beside a block of
    another process, and the last one would be lost, as this process may be killed.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
