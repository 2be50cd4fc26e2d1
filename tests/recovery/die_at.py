"""`python -m tests.recovery.die_at PHASE N ARGUMENT…`: `flowrun` in a process that kills itself at the N-th time it comes to a phase
of a checkpoint. Nothing in flowrun knows of it: the calls that make up the phases are wrapped here."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from flowrun.cli.main import main
from flowrun.connectors.filesystem.output_files import OutputFolder
from flowrun.connectors.lake.committer import LakeCommitter
from flowrun.connectors.lake.storage import TableStorage
from flowrun.runtime.jobmaster.job_master import JobMaster
from flowrun.runtime.task.chain import OperatorChain
from flowrun.state.storage.folder import JobFolder
from flowrun.state.storage.inventory import Inventory
from flowrun.state.storage.writer import KeyedWriter

PHASES: dict[str, tuple[type, str, bool]] = {
    "before the synchronous part": (OperatorChain, "prepare_snapshot", False),
    "between flush and capture": (OperatorChain, "snapshot_state", False),
    "after the synchronous part": (OperatorChain, "snapshot_state", True),
    "during upload": (KeyedWriter, "write", True),
    "before acknowledge": (JobMaster, "acknowledge_checkpoint", False),
    "after acknowledge": (JobMaster, "acknowledge_checkpoint", True),
    "before completion": (JobFolder, "finish", False),
    "between completion and sink commit": (JobFolder, "finish", True),
    "during commit": (OutputFolder, "_rename", True),
    "during clean-up": (Inventory, "forget", True),
}

LAKE_PHASES: dict[str, tuple[type, str, bool]] = {
    "between completion and sink commit": (JobFolder, "finish", True),
    "before the table is opened for a commit": (LakeCommitter, "commit", False),
    "before the commit of the table": (LakeCommitter, "_commit", False),
    "between the commit of the table and its record": (LakeCommitter, "_commit", True),
    "while files of changes are removed": (TableStorage, "discard", True),
}
"""Those of a job that writes lake tables."""


class Countdown:
    """Dies at the N-th call; thread-safe."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def wrap(phase: str, act: Callable[[], None]) -> None:
    """Have `act` called whenever the process comes to a phase."""
    owner, name, after = {**LAKE_PHASES, **PHASES}[phase]
    original = getattr(owner, name)

    def wrapped(*arguments: Any, **named: Any) -> Any:
        if not after:
            act()
        result = original(*arguments, **named)
        if after:
            act()
        return result

    setattr(owner, name, wrapped)


if __name__ == "__main__":
    wrap(sys.argv[1], Countdown(int(sys.argv[2])))
    sys.argv = ["flowrun", *sys.argv[3:]]
    main()
