"""A task manager that is told to end, at whatever moment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, signal, sys
from flowrun.runtime.cluster import task_manager
from flowrun.runtime.cluster.task_manager import TaskManagerOptions, run_task_manager

os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGTERM))
task_manager._session = lambda *_: signal.pause()
try:
    run_task_manager(TaskManagerOptions((), None, 1.0))
except KeyboardInterrupt:
    sys.exit(7)
"""


def test_a_signal_while_it_forks_is_not_lost() -> None:
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 7, done.stderr
