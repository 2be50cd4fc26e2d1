"""`python -m tests.cluster.struck PHASE SIGNAL N ARGUMENT…`: `flowrun`, of whose processes the first that comes to a phase for the N-th
time sends itself a signal, once a run. Nothing in flowrun knows of it: the calls that make up the phases are wrapped here, before
workers are forked.

`$STRUCK` is the file that is written then: the number of the process. SIGSTOP stops it for as long as the test likes; heartbeats that
do not come are noticed sooner than usual.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from flowrun.cli.main import main
from flowrun.connectors.filesystem.output_files import OutputFolder
from flowrun.runtime.cluster.task_executor import _JobMasterOfSubtasks
from flowrun.runtime.jobmaster.recovery import Recovery
from flowrun.runtime.local_cluster import LocalTaskExecutor
from flowrun.runtime.rpc.heartbeats import Heartbeats
from flowrun.runtime.task.chain import OperatorChain
from flowrun.runtime.task.checkpoints import TaskCheckpoints
from flowrun.runtime.task.stream_task import StreamTask
from flowrun.state.storage.folder import JobFolder
from flowrun.state.storage.writer import KeyedWriter

INTERVAL_MS, TIMEOUT_MS = 200, 3_000
Phases = dict[str, tuple[type, str, bool]]
WORKER: Phases = {
    "deployment": (LocalTaskExecutor, "deploy", False),
    "restoring": (OperatorChain, "initialize_state", False),
    "rows": (OperatorChain, "process_batch", False),
    "overtaken barrier": (TaskCheckpoints, "record", False),
    "between flush and capture": (OperatorChain, "snapshot_state", False),
    "upload": (KeyedWriter, "write", True),
    "before acknowledge": (_JobMasterOfSubtasks, "acknowledge_checkpoint", False),
    "after acknowledge": (_JobMasterOfSubtasks, "acknowledge_checkpoint", True),
    "between pre-commit and commit": (StreamTask, "complete_checkpoint", False),
    "after commit": (OperatorChain, "notify_checkpoint", True),
    "end of input": (OperatorChain, "finish", False),
}
MANAGER: Phases = {
    "before completion": (JobFolder, "finish", False),
    "between completion and commit": (JobFolder, "finish", True),
    "during commit": (OutputFolder, "_rename", True),
    "going back": (Recovery, "go_back", False),
}


class _Strike:
    """Sends the signal to this process at the N-th call, unless another process was struck before."""

    def __init__(self, number: signal.Signals, count: int, marker: Path) -> None:
        self._number = number
        self._left = count
        self._marker = marker
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left:
                return
            try:
                written = os.open(self._marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            except FileExistsError:
                return
            os.write(written, str(os.getpid()).encode())
            os.close(written)
            os.kill(os.getpid(), self._number)


def wrap(phase: str, number: signal.Signals, count: int, marker: Path, *, own: bool = False) -> None:
    """Have a process of the phase's role struck: the one that calls this, or those that it forks; with `own` this one in any case."""
    owner, name, after = {**WORKER, **MANAGER}[phase]
    original, strike, here = getattr(owner, name), _Strike(number, count, marker), os.getpid()

    def wrapped(*arguments: Any, **named: Any) -> Any:
        struck = own or (os.getpid() == here) == (phase in MANAGER)
        if struck and not after:
            strike()
        result = original(*arguments, **named)
        if struck and after:
            strike()
        return result

    setattr(owner, name, wrapped)


if __name__ == "__main__":
    wrap(sys.argv[1], signal.Signals[sys.argv[2]], int(sys.argv[3]), Path(os.environ["STRUCK"]))
    Heartbeats.__init__.__kwdefaults__ = {"interval_ms": INTERVAL_MS, "timeout_ms": TIMEOUT_MS}  # type: ignore[attr-defined]
    sys.argv = ["flowrun", *sys.argv[4:]]
    main()
