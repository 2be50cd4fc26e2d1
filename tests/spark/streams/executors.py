"""A command whose task executors are in Spark's executors, and the processes that belong to it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flowrun.core.record import record
from tests.cluster.worker_jobs import is_alive
from tests.end_to_end.processes import started, wait_for
from tests.spark.session_fixture import QUICK_JAVA, conf_options
from tests.spark.streams.many_runs import LOCAL_CLUSTER

Process = subprocess.Popen[str]

STARTS_WITHIN_S = 240
QUICK = conf_options(QUICK_JAVA)
IMPATIENT = (
    *("--conf", "spark.sql.execution.pyspark.udf.idleTimeoutSeconds=2"),
    *("--conf", "spark.sql.execution.pyspark.udf.killOnIdleTimeout=true"),
)
"""A Spark that kills Python workers that give no rows for a while."""


@record
class SystemProcess:
    """A process as `ps` shows it."""

    pid: int
    parent: int
    command: str


@contextmanager
def on_spark(*arguments: object, cwd: Path, master: str = LOCAL_CLUSTER, command: str = "run") -> Iterator[Process]:
    """A `flowrun run` or `resume` whose task executors are in Spark's executors; killed at the end if it still lives."""
    with started(
        command, *arguments, "--on", "spark", "--spark-master", master, "--no-live", *QUICK, *IMPATIENT, cwd=cwd
    ) as run:
        yield run


def descendants(pid: int) -> list[SystemProcess]:
    """All processes that a process has started, and that these have started."""
    listed = subprocess.run(["ps", "-ww", "-eo", "pid=,ppid=,stat=,args="], capture_output=True, text=True, check=True)
    lines = [re.split(r"\s+", line.strip(), maxsplit=3) for line in listed.stdout.splitlines()]
    there = [SystemProcess(int(own), int(parent), args) for own, parent, stat, args in lines if stat[0] != "Z"]
    found: list[SystemProcess] = []
    wanted = {pid}
    while new := [p for p in there if p.parent in wanted and p not in found]:
        found += new
        wanted = {p.pid for p in new}
    return found


def task_executors(run: Process, number: int = 2) -> list[SystemProcess]:
    """The processes of task executors, once there are so many."""
    found: list[SystemProcess] = []

    def are_there() -> bool:
        found[:] = [p for p in descendants(run.pid) if "flowrun.runners.spark_task_executor" in p.command]
        return len(found) == number

    wait_for(are_there, run, STARTS_WITHIN_S)
    return found


def victim(run: Process, what: str) -> int:
    """A process of the first task executor: itself, the `Python worker` that started it, or the `executor` that both belong to."""
    parents = {p.pid: p.parent for p in descendants(run.pid)}
    own = task_executors(run)[0].pid
    return {
        "task executor": own,
        "Python worker": parents[own],
        "executor": parents[parents[parents[own]]],  # over the daemon that forks Python workers
    }[what]


def all_end(processes: list[SystemProcess], within_s: float = 30) -> bool:
    """Whether none of these processes lives, in time."""
    import time

    deadline = time.monotonic() + within_s
    while any(is_alive(p.pid) for p in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
