"""Runs many streams on one Spark, one after the other: `python -m tests.spark.streams.many_runs MASTER < runs.json > ends.json`.

`runs.json` is a list of commands, `run` or `resume` with its arguments; `ends.json` a list of [exit code, what was said].
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.spark.session_fixture import QUICK_JAVA

ROOT = Path(__file__).parents[3]
LOCAL_CLUSTER = "local-cluster[2,1,1024]"
LONGEST_S = 900
PATIENCE = "10m"
"""Spark takes long to start tasks on a machine that has much else to do."""


def run_all(runs: Sequence[Sequence[object]], master: str = LOCAL_CLUSTER) -> None:
    """Run commands on Spark, `run` or `resume` with arguments, from the root of the repository; each must reach its end."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.streams.many_runs", master],
        input=json.dumps([[str(argument) for argument in run] for run in runs]),
        capture_output=True, text=True, timeout=LONGEST_S, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    for run, (code, said) in zip(runs, json.loads(done.stdout), strict=True):
        assert code == 0, f"{run}: {said}"


def _main(master: str) -> None:
    from click.testing import CliRunner

    from flowrun.cli.console import report_failure
    from flowrun.cli.main import cli
    from flowrun.spark.session import SparkOptions, open_session

    session = open_session(SparkOptions(master, conf=QUICK_JAVA))
    ends = []
    for run in json.load(sys.stdin):
        result = CliRunner().invoke(cli, [*run, "--on", "spark", "--patience", PATIENCE, "--no-live"])
        code, said = result.exit_code, result.output
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            code, said = report_failure(result.exception, show_traceback=True), repr(result.exception)
        ends.append((code, said))
    session.stop()
    json.dump(ends, sys.stdout)


if __name__ == "__main__":
    _main(sys.argv[1])
