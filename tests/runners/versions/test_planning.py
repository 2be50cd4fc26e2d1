"""Which state of a running job a new version is compared with."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from flowrun.core.clock import ManualClock
from flowrun.core.elements import CheckpointKind
from flowrun.errors import PipelineError
from flowrun.runners.versions.planning import FIRST_CHECKPOINT_MS, newest_state
from flowrun.state.checkpoints import OperatorSubtaskState
from flowrun.state.storage.folder import JobFolder
from flowrun.state.storage.state_path import resolve
from tests.state.storage.jobs import OPERATOR, metadata


class WaitedFor(ManualClock):
    """Goes on when somebody waits, and calls a function before it does."""

    def __init__(self, call: Callable[[], None]) -> None:
        super().__init__()
        self._call = call

    def wait(self, condition: threading.Condition, timeout_ms: float | None) -> bool:
        assert timeout_ms is not None
        self._call()
        self.advance(int(timeout_ms))
        return False


def test_the_first_checkpoint_of_a_job_that_has_just_begun_is_waited_for(tmp_path: Path) -> None:
    folder = JobFolder(resolve(str(tmp_path)) / "my-job", "my job", lineage="L", clock=ManualClock())
    waits: list[int] = []

    def complete_at_last() -> None:
        waits.append(len(waits))
        if len(waits) == 3:
            target = folder.begin(1, CheckpointKind.CHECKPOINT, None)
            folder.finish(target, metadata(folder, 1, OperatorSubtaskState(OPERATOR)))

    try:
        found = newest_state(resolve(str(tmp_path)) / "my-job", "my job", WaitedFor(complete_at_last))
    finally:
        folder.close()
    assert (found.checkpoint_id, len(waits)) == (1, 3)


def test_it_is_not_waited_for_without_end(tmp_path: Path) -> None:
    clock = WaitedFor(lambda: None)
    with pytest.raises(PipelineError, match="'my job' has no checkpoint yet that could be compared with"):
        newest_state(resolve(str(tmp_path)), "my job", clock)
    assert clock.now_ms() == FIRST_CHECKPOINT_MS
