"""The Spark runner of pipelines without end: the job manager in this process, task executors in Spark's executors."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from flowrun.core.record import record
from flowrun.errors import ClusterError
from flowrun.graph.job_graph import JobGraph
from flowrun.runners.job_text import SentJob
from flowrun.runners.spark_task_executor import Orders, encode_orders
from flowrun.runners.workers import share_slots, total_slots
from flowrun.runtime.cluster.local_workers import WorkerNumbers
from flowrun.runtime.cluster.worker_cluster import WorkerCluster
from flowrun.runtime.rpc.address import TcpAddress
from flowrun.runtime.rpc.link import Credentials
from flowrun.runtime.rpc.secret import secret_of_text, text_of_new_secret
from flowrun.spark.interruption import run_apart
from flowrun.spark.masters import is_local
from flowrun.spark.session import SparkOptions, spark_session
from flowrun.spark.streams.capacity import Setting, task_capacity
from flowrun.spark.streams.spark_workers import SparkHosting, SparkWorkers, is_in_this_process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOPBACK = "127.0.0.1"
_CONNECT_PORT = 15002
_IDLE_TIMEOUT = "spark.sql.execution.pyspark.udf.idleTimeoutSeconds"
"""Spark may be told to kill Python workers that take and give no rows for so long; those that host task executors never do."""
_MODULE = "flowrun.runners.spark_task_executor"


@record
class StreamOptions:
    """Where a stream runs on Spark.

    Attributes:
        spark: where and how Spark runs.
        task_executors: how many of them; None: one a slot, as far as Spark says that it has cores.
        listen: where task executors reach this process; None: this machine's loopback for a local master, else the driver's host.
        patience_s: how long all of them may take to come.
        tls: folder of certificates, under the same path on all machines; None: connections are not encrypted.
    """

    spark: SparkOptions
    task_executors: int | None = None
    listen: TcpAddress | None = None
    patience_s: float = 120.0
    tls: Path | None = None


@record
class Coming:
    """Task executors that are waited for.

    Attributes:
        numbers: how many, and what each offers.
        there: how many are there.
        waited_s: since the first look.
    """

    numbers: WorkerNumbers
    there: int
    waited_s: float


@contextmanager
def cluster_on_spark(
    job_graph: JobGraph, sent: SentJob, options: StreamOptions, listener: Callable[[Coming], None] = lambda _: None
) -> Iterator[WorkerCluster]:
    """A context with task executors in Spark's executors; at its end they are gone, and Spark is, if it was started for them.

    Args:
        job_graph: of the job.
        sent: the job as it travels: each task executor compiles it.
        options: where it runs.
        listener: is told about twice a second of task executors that are waited for.

    Raises:
        OptionError: the options contradict each other.
        SetupError: Spark cannot be started or reached, or cannot start task executors.
        ClusterError: task executors did not come in time, or certificates cannot be used.
    """
    of_spark, secret = ExitStack(), text_of_new_secret()
    credentials = _credentials(secret, options.tls)
    try:
        session = run_apart(lambda: of_spark.enter_context(spark_session(options.spark, job_graph.name)))
        workers = run_apart(lambda: _workers(session, job_graph, options, secret, credentials, listener))
        try:
            cluster = WorkerCluster(workers, sent.text, sent.files)
        except BaseException:
            run_apart(workers.close)
            raise
        with cluster:
            yield cluster
    finally:
        run_apart(of_spark.close)


def _credentials(secret: str, tls: Path | None) -> Credentials:
    identity = None
    if tls is not None:
        from flowrun.runtime.rpc.tls import read_identity  # most runs do without

        identity = read_identity(tls)
    return Credentials(secret_of_text(secret, "this run"), identity)


def _workers(
    session: SparkSession,
    job_graph: JobGraph,
    options: StreamOptions,
    secret: str,
    credentials: Credentials,
    listener: Callable[[Coming], None],
) -> SparkWorkers:
    session.conf.set(_IDLE_TIMEOUT, "0")
    setting = _settings(session)
    listen, host = _place(setting, options)
    capacity = task_capacity(setting)
    numbers = task_executors(job_graph, options.task_executors, capacity)
    most = capacity if options.task_executors is None else None
    tls = "" if options.tls is None else str(options.tls)
    began = time.monotonic()

    def orders(number: int, manager: TcpAddress) -> bytes:
        told = Orders(manager.host, manager.port, secret, number, numbers.slots, numbers.resources, tls)
        return encode_orders(told)

    def waiting(there: int) -> None:
        listener(Coming(numbers, there, time.monotonic() - began))

    hosting = SparkHosting(_MODULE, orders, listen, host, options.patience_s, most, waiting)
    return SparkWorkers(session, numbers, hosting, credentials)


def task_executors(job_graph: JobGraph, asked: int | None, capacity: int | None) -> WorkerNumbers:
    """How many task executors a job gets, and what each offers.

    Args:
        job_graph: the job.
        asked: how many the user wants; None: as many as it has slots, each of which then has a process of its own.
        capacity: how many tasks Spark runs at a time; None: unknown.
    """
    if asked is None:
        needed = total_slots(job_graph)
        asked = needed if capacity is None else min(needed, capacity)
    return share_slots(job_graph, asked)


def _settings(session: SparkSession) -> Setting:
    """Reads settings of a session, its Spark's among them."""
    known: Mapping[str, str] = dict(session.sparkContext.getConf().getAll()) if is_in_this_process(session) else {}

    def setting(name: str) -> str | None:
        value = known.get(name)
        return value if value is not None else session.conf.get(name, None)

    return setting


def _place(setting: Setting, options: StreamOptions) -> tuple[TcpAddress, str]:
    """(where this process listens, the host by which executors reach it)."""
    listen, remote = options.listen, options.spark.remote or (options.spark.conf or {}).get("spark.remote")
    if listen is not None:
        return listen, listen.host
    if remote is not None:
        host = _host_towards(remote)
        return TcpAddress(host, 0), host
    if is_local(setting("spark.master") or ""):
        return TcpAddress(_LOOPBACK, 0), _LOOPBACK
    host = setting("spark.driver.host") or _LOOPBACK
    return TcpAddress(setting("spark.driver.bindAddress") or host, 0), host


def _host_towards(remote: str) -> str:
    """The address of this machine from which it reaches a Connect server; the server's executors are taken to reach it there."""
    server = urlsplit(remote.split(";", 1)[0])
    try:
        found = socket.getaddrinfo(server.hostname, server.port or _CONNECT_PORT, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, place = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(place)  # nothing is sent
            host: str = probe.getsockname()[0]
    except OSError as error:
        raise ClusterError(
            f"no address of this machine leads to {remote}: {error}", hint="name one that executors reach with --listen"
        ) from error
    return host
