"""Streams in the executors of a standalone Spark: a master and a worker, which outlive the command."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pyspark.find_spark_home import _find_spark_home

from flowrun.spark.java import find_java
from tests.cluster.clusters import free_port
from tests.cluster.worker_jobs import CHECKPOINTS, check_counts, kill, write_pipeline
from tests.end_to_end.processes import newest, started, wait_for
from tests.spark.streams.executors import STARTS_WITHIN_S, all_end, descendants

pytestmark = pytest.mark.soak

ROWS = 1_000_000
OF_MASTER, OF_WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
SMALL = ("--conf", "spark.executor.memory=512m", "--conf", "spark.executor.cores=1", "--conf", "spark.cores.max=2")
ON_THIS_MACHINE = ("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1")


@contextmanager
def daemon(folder: Path, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A process of Spark, from the `pyspark` package."""
    process = subprocess.Popen(
        [str(Path(_find_spark_home()) / "bin" / "spark-class"), *map(str, arguments)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True, cwd=folder,
        env={**os.environ, "JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONSAFEPATH": "1"},
    )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A worker with two cores, and the URL of its master."""
    folder, port = tmp_path_factory.mktemp("standalone"), free_port()
    here = ("--host", "127.0.0.1", "--webui-port", 0)
    url = f"spark://127.0.0.1:{port}"
    with daemon(folder, OF_MASTER, *here, "--port", port) as master:

        def answers() -> bool:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return True
            return False

        wait_for(answers, master, STARTS_WITHIN_S)
        sizes = ("--cores", 2, "--memory", "2g", "--work-dir", folder / "work")
        with daemon(folder, OF_WORKER, *here, *sizes, url) as process:
            yield process, url


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_executor_is_replaced_and_all_end_with_the_command(
    tmp_path: Path,
    worker: tuple[subprocess.Popen[str], str],
    number: signal.Signals,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spark, url = worker
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    file = write_pipeline(tmp_path, CHECKPOINTS % "false", rows=ROWS)
    where = ("--on", "spark", "--spark-master", url, *SMALL, *ON_THIS_MACHINE)
    with started("run", file, *where, "--no-live", cwd=tmp_path) as run:
        wait_for(lambda: newest(tmp_path) > 2, run, STARTS_WITHIN_S)
        executors = [p for p in descendants(spark.pid) if "CoarseGrainedExecutorBackend" in p.command]
        assert len(executors) == 2
        known = newest(tmp_path)
        everything = descendants(spark.pid)
        kill(executors[0].pid)
        wait_for(lambda: newest(tmp_path) > known + 2 and len(task_executors(spark)) == 2, run, 120)
        everything += descendants(spark.pid)
        run.send_signal(number)
        _, said = run.communicate(timeout=60)
        assert all_end(everything)
        assert spark.poll() is None
    at_once = ("--set", "sources.rows.rows-per-second=10000000")
    if number is signal.SIGTERM:
        assert run.returncode == 130, said
        with started("resume", file, "--from-savepoint", "state", "--workers", 0, *at_once, cwd=tmp_path) as again:
            _, said = again.communicate(timeout=240)
        assert again.returncode == 0, said
        check_counts(tmp_path, ROWS)


def task_executors(worker: subprocess.Popen[str]) -> list[int]:
    return [p.pid for p in descendants(worker.pid) if "flowrun.runners.spark_task_executor" in p.command]
