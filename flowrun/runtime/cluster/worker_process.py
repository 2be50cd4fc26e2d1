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
from flowrun.core.record import record
from flowrun.core.resources import ResourceProfile
from flowrun.graph.job_graph import JobGraph
from flowrun.runtime.cluster.task_executor import TaskExecutor
from flowrun.runtime.cluster_messages import (
    RESOURCE_MANAGER,
    TASK_EXECUTOR,
    ResourceManagerGateway,
    WorkerGateway,
    WorkerRegistration,
)
from flowrun.runtime.network.buffer_pool import DEFAULT_TOTAL_SLOTS, GlobalBufferPool
from flowrun.runtime.network.remote.data_server import DataServer
from flowrun.runtime.rpc.address import UnixAddress
from flowrun.runtime.rpc.connection import RpcConnection
from flowrun.runtime.rpc.handshake import Introduction, Purpose
from flowrun.runtime.rpc.heartbeats import Heartbeats
from flowrun.runtime.rpc.link import Credentials, open_link
from flowrun.runtime.timers import TimerThread
from flowrun.runtime.watchdog.job_board import JobBoard

SWITCH_INTERVAL_S = 0.0005
"""How long a thread may keep the interpreter lock while others wait: with 5 ms, Python's default, rows for other processes
wait that long behind every subtask that computes."""


@record(eq=False)
class WorkerPlan:
    """What a forked worker inherits.

    Attributes:
        job_graph: that it runs subtasks of.
        slots: that it offers.
        resources: that they divide.
        folder: of the sockets of all processes of this run; only this user can enter it.
        manager: where the job manager listens.
        credentials: of this run.
        board: where subtasks note what they are doing.
    """

    job_graph: JobGraph
    slots: int
    resources: ResourceProfile
    folder: Path
    manager: UnixAddress
    credentials: Credentials
    board: JobBoard | None


def run_worker(plan: WorkerPlan, name: str) -> None:
    """Serve the job manager until the connection to it is closed.

    Raises:
        ClusterError: it does not answer.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    pa.set_cpu_count(1)  # subtasks are the parallelism, as in the embedded runner
    _print_whole_lines()
    own = Introduction("taskmanager", name)
    clock = ForwardClock(SystemClock())
    timers = TimerThread(clock)
    data = DataServer(UnixAddress(str(plan.folder / name)), own, plan.credentials, timers)
    connection = RpcConnection(open_link(plan.manager, own, Purpose.CONTROL, plan.credentials))
    executor = TaskExecutor(
        name,
        connection,
        lambda _: plan.job_graph,
        data,
        GlobalBufferPool(DEFAULT_TOTAL_SLOTS),
        timers,
        clock,
        plan.board,
    )
    connection.serve(TASK_EXECUTOR, WorkerGateway, executor)
    gone = threading.Event()
    connection.on_close(lambda _: gone.set())
    heartbeats = Heartbeats(connection, timers, clock)
    connection.start()
    heartbeats.start()
    connection.gateway(ResourceManagerGateway, RESOURCE_MANAGER).register_worker(
        WorkerRegistration(name, os.getpid(), socket.gethostname(), str(data.address), plan.slots, plan.resources)
    )
    gone.wait()
    os._exit(0)  # subtasks may still be at work: nobody needs them


def _print_whole_lines() -> None:
    """Have what functions print leave line by line.

    All processes of a run share its standard output. A block of some kilobytes would be cut in the middle of a line, beside a block of
    another process, and the last one would be lost, as this process may be killed.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
