"""The slots of one job of a session cluster, as its job manager process asks for them."""

from __future__ import annotations

import threading
import time

from flowrun.errors import StateError
from flowrun.graph.fingerprint import fingerprint
from flowrun.graph.job_graph import JobGraph
from flowrun.runners.embedded import JobStateOptions, LocalJob, start_embedded
from flowrun.runners.rescaling import JobVersion
from flowrun.runners.session.messages import JobsGateway
from flowrun.runners.workers import slots_needed
from flowrun.runtime.cluster.worker_cluster import WorkerCluster
from flowrun.runtime.rpc.address import Address

MORE_SLOTS_MS = 10_000
"""How long a job that is to be rescaled waits for the slots that it lacks, while it runs as it was."""
_LOOK_S = 0.05


class SessionJobSlots:
    """Thread-safe.

    Args:
        jobs: the dispatcher.
    """

    def __init__(self, jobs: JobsGateway) -> None:
        self._jobs = jobs
        self._checkpoint_id = 0
        self._lock = threading.Lock()
        self._place = ""
        self._needed = 0

    def listen(self, place: Address) -> None:
        """Workers may connect now, there."""
        self._place = str(place)

    def begin(self, slots: int, checkpoint_id: int = 0) -> None:
        """Ask for the slots that the job needs at first, unless it has.

        Args:
            slots: how many.
            checkpoint_id: of the checkpoint that the job goes on from, if an earlier process has left one; else 0.
        """
        if (slots, checkpoint_id) != (self._needed, self._checkpoint_id):
            self._checkpoint_id = checkpoint_id
            self._require(slots)

    def check(self, cluster: WorkerCluster, job_graph: JobGraph) -> None:
        """Get the slots that a job graph needs, beside what the present one has; for `Rescaling`.

        Raises:
            StateError: they do not come.
        """
        before, needed = self._needed, slots_needed(job_graph)
        if needed > before:
            self._require(needed)
        until = time.monotonic() + MORE_SLOTS_MS / 1000
        while (there := cluster.slots_there or 0) < needed:
            if time.monotonic() >= until:
                self._require(before)
                raise StateError(
                    f"it needs {needed} slots, and the cluster has given it {there}", hint="start more task managers"
                )
            time.sleep(_LOOK_S)

    def start(self, cluster: WorkerCluster, version: JobVersion, options: JobStateOptions) -> LocalJob:
        """Start the execution that follows another one; for `Rescaling`. Raises as `start_embedded`."""
        needed = slots_needed(version.job_graph)
        cluster.prepare(needed, version.text)
        job = start_embedded(version.job_graph, cluster=cluster, state=options)
        if version.text is not None:
            self._jobs.rescale_job(version.text, fingerprint(version.job_graph))
        self._require(needed)
        return job

    def release_idle(self, cluster: WorkerCluster) -> None:
        """Give back what the job does not need since it was rescaled. To be called while all its subtasks run."""
        needed = self._needed
        if (cluster.slots_there or 0) > needed:
            cluster.manager.release_idle(needed)

    def end(self) -> None:
        """The job needs no slots any more. To be told before its workers go: who lost them would be given others."""
        self._require(0)

    def _require(self, slots: int) -> None:
        with self._lock:
            self._needed = slots
            self._jobs.require_slots(self._place, slots, self._checkpoint_id)
