"""Keeps which version of a pipeline a job runs, in the process of its job master."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Protocol

from flowrun.core.clock import Clock
from flowrun.errors import FlowrunError
from flowrun.runners.compile import CompiledPipeline
from flowrun.runners.versions.history import VersionHistory
from flowrun.runtime.cluster.job_files import JobFiles
from flowrun.runtime.job_status import JobStatus
from flowrun.state.storage.state_path import resolve

_log = logging.getLogger(__name__)


class KeptJob(Protocol):
    """What is needed of a job."""

    @property
    def checkpoint_root(self) -> str | None: ...

    def status(self) -> JobStatus: ...


class VersionKeeper:
    """Keeps the version of one job that was started by itself, not as a part of an upgrade, once it has completed a checkpoint.

    Args:
        compiled: the pipeline.
        functions_from: the folder that its functions were imported from; None: that of its text.
        restored_from: the savepoint or checkpoint that it began at.
        clock: time.
        files: its modules, if they came with the job; None: they are looked for in the folder.
    """

    def __init__(
        self,
        compiled: CompiledPipeline,
        functions_from: Path | None,
        restored_from: str | None,
        clock: Clock,
        files: JobFiles | None = None,
    ) -> None:
        self._files = files
        self._compiled = compiled
        self._functions_from = functions_from
        self._restored_from = restored_from
        self._began_ms = clock.now_ms()
        self._has_begun = False
        self._is_kept = False

    def look(self, job: KeptJob) -> None:
        """Keep the version if it is time. To be called now and then; what cannot be kept is a warning in the log."""
        if self._is_kept or job.checkpoint_root is None:
            return
        try:
            if not self._has_begun:
                self._has_begun = True
                superseded = VersionHistory(resolve(job.checkpoint_root)).supersede()
                if superseded is not None:
                    _log.warning("an upgrade to version %d that was not finished is given up", superseded.new)
            checkpoints = job.status().checkpoints
            if checkpoints is not None and checkpoints.completed:
                self._is_kept = True
                self._keep(job.checkpoint_root)
        except FlowrunError as error:
            self._is_kept = True
            _log.warning("the version of the pipeline is not kept: %s", error.message)

    def _keep(self, folder: str) -> None:
        from flowrun.runners.versions.making import modules_in_cache, version_of  # they know every kind of node

        files = modules_in_cache(self._compiled, self._functions_from) if self._files is None else self._files
        version = version_of(self._compiled, self._began_ms, files=files, restored_from=self._restored_from)
        VersionHistory(resolve(folder)).note_running(version)


def keeper_of(
    compiled: object,
    functions_from: Path | None,
    restored_from: str | None,
    clock: Clock,
    files: JobFiles | None = None,
) -> VersionKeeper | None:
    """What keeps the version of a job that runs by itself; None: it is a program, which has none."""
    if not isinstance(compiled, CompiledPipeline):
        return None
    return VersionKeeper(compiled, functions_from, restored_from, clock, files)
