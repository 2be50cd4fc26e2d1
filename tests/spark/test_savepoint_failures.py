"""A savepoint that Spark computes while executors die and tasks fail: what it holds is as right as if nothing had happened."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flowrun.runners.compile import CompiledPipeline, compile_pipeline
from flowrun.runners.embedded import JobStateOptions, run_embedded
from tests.spark.test_ended_runs import FUNCTIONS, LONGEST_S, QUICK
from tests.spark.test_savepoint import DATA, MIDDLE, PROCESS, changes
from tests.sql.test_cases import folded

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

DISTURBED = (
    FUNCTIONS
    + """
from tests.spark.hosted_functions import Buckets

class Disturbed(Buckets):
    def process_element(self, row, context):
        folder = os.path.dirname(__file__)
        if os.path.exists(folder + "/disturb"):
            if first(folder + "/raised"):
                raise OSError("the network is gone for a moment")
            if first(folder + "/killed"):
                os.kill(parent(parent(os.getpid())), signal.SIGKILL)  # the executor
                time.sleep(600)
        super().process_element(row, context)
"""
)
COLUMNS = ["k", "until", "n"]


def test_state_is_right_after_a_failed_task_and_a_lost_executor(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(PROCESS.replace("tests.spark.hosted_functions:Buckets", "functions:Disturbed"))
    (tmp_path / "functions.py").write_text(DISTURBED)

    def pipeline(parallelism: int, out: str) -> CompiledPipeline:
        variables = {"DATA": str(DATA), "OUT": str(tmp_path / out)}
        return compile_pipeline(path, variables, {"settings.parallelism": str(parallelism)})

    run_embedded(pipeline(1, "whole").job_graph)
    (tmp_path / "disturb").touch()
    command = [
        *(sys.executable, "-m", "flowrun", "backfill", str(path), "--to", MIDDLE.isoformat(), "--quiet"),
        *("--savepoint", str(tmp_path / "savepoints"), "--var", f"DATA={DATA}", "--var", f"OUT={tmp_path / 'out'}"),
        *("--spark-master", "local-cluster[2,1,512]", "--conf", "spark.executor.memory=512m", *QUICK),
    ]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=LONGEST_S
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "raised").exists()
    assert (tmp_path / "killed").exists()
    (tmp_path / "disturb").unlink()
    (savepoint,) = (tmp_path / "savepoints").iterdir()
    run_embedded(
        pipeline(3, "out").job_graph, state=JobStateOptions(str(tmp_path / "state"), restore_from=str(savepoint))
    )
    for name in ("counts", "great"):
        assert changes(tmp_path / "out" / name, COLUMNS) == folded(tmp_path / "whole" / name, COLUMNS)
