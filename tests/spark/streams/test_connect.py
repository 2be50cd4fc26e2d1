"""Streams in the executors of a Spark Connect server, which outlives the command."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.find_spark_home import _find_spark_home

from flowrun.spark.java import find_java
from flowrun.spark.java_launcher import throwaway_spark_home
from tests.cluster.clusters import free_port
from tests.cluster.worker_jobs import CHECKPOINTS, check_counts, kill, write_pipeline
from tests.end_to_end.processes import newest, started, wait_for
from tests.spark.streams.executors import STARTS_WITHIN_S, SystemProcess, all_end, descendants
from tests.spark.streams.many_runs import LOCAL_CLUSTER

pytest.importorskip("grpc", reason="needs the extra `connect`")
pytest.importorskip("grpc_status", reason="needs the extra `connect`")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A Connect server with two executors, and its URL."""
    folder = tmp_path_factory.mktemp("connect")
    home, port = throwaway_spark_home(Path(_find_spark_home()), folder), free_port()
    own = "spark.driver.host", "spark.driver.bindAddress", "spark.connect.grpc.binding.address"
    settings = [f"{name}=127.0.0.1" for name in own]
    settings += [f"spark.connect.grpc.binding.port={port}", "spark.ui.enabled=false"]
    process = subprocess.Popen(
        [
            str(home / "bin" / "spark-submit"), "--master", LOCAL_CLUSTER,
            "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
            *(part for setting in settings for part in ("--conf", setting)), "spark-internal",
        ],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True, cwd=folder,
        env={**os.environ, "SPARK_HOME": str(home), "JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1",
             "PYSPARK_PYTHON": sys.executable, "SPARK_WORKER_DIR": str(folder / "work"), "PYTHONSAFEPATH": "1"},
    )  # fmt: skip
    try:

        def answers() -> bool:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return True
            return False

        wait_for(answers, process, STARTS_WITHIN_S)
        yield process, f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.communicate()


def task_executors(server: subprocess.Popen[str]) -> list[SystemProcess]:
    return [p for p in descendants(server.pid) if "flowrun.runners.spark_task_executor" in p.command]


def test_a_killed_worker_is_replaced(tmp_path: Path, server: tuple[subprocess.Popen[str], str]) -> None:
    spark, url = server
    file = write_pipeline(tmp_path, CHECKPOINTS % "false", rows=200_000)
    with started("run", file, "--on", "spark", "--spark-remote", url, "--no-live", cwd=tmp_path) as run:
        wait_for(lambda: newest(tmp_path) > 1, run, STARTS_WITHIN_S)
        everything = task_executors(spark)
        kill(everything[0].parent)
        _, said = run.communicate(timeout=STARTS_WITHIN_S)
        assert run.returncode == 0, said
        assert "restarts: 1" in said
        assert all_end([*everything, *task_executors(spark)])
    check_counts(tmp_path, 200_000)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_end_of_the_command_is_the_end_of_its_task_executors(
    tmp_path: Path, server: tuple[subprocess.Popen[str], str], number: signal.Signals
) -> None:
    spark, url = server
    file = write_pipeline(tmp_path, CHECKPOINTS % "false", rows=10_000_000)
    with started("run", file, "--on", "spark", "--spark-remote", url, "--no-live", cwd=tmp_path) as run:
        wait_for(lambda: newest(tmp_path) > 1, run, STARTS_WITHIN_S)
        everything = task_executors(spark)
        assert len(everything) == 2
        kill(run.pid, number)
        run.communicate(timeout=60)
        assert all_end(everything)
        assert spark.poll() is None
