"""Looks at all jobs of this machine, or of a cluster, again and again: `flowrun top`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from flowrun.cli.views.job_look import ASKED, SILENT, JobLook, job_look, silent
from flowrun.core.clock import Clock
from flowrun.core.record import record
from flowrun.errors import FlowrunError
from flowrun.runtime.job_details import JobDetails

if TYPE_CHECKING:
    from flowrun.cli.cluster_arguments import ClusterOptions
    from flowrun.runners.control_client import ListedJob

_PATIENCE_S = 1.0
"""How long a look waits for jobs that do not answer; the next one shows what they say meanwhile."""
_SILENT_AFTER_MS = 5_000
"""After which it is said that a job does not answer. The first answer of a busy job takes a second or two."""
_THREADS = 8


@record(eq=False)
class LookedAt:
    """Where jobs are looked for.

    Attributes:
        entries: gives those that there are now.
        details: tells of one; raises FlowrunError if it does not.
        where: as a clause: `on this machine`.
        threads: how many may be asked at a time.
    """

    entries: Callable[[], Sequence[ListedJob]]
    details: Callable[[Any], JobDetails]
    where: str
    threads: int = _THREADS


@contextmanager
def looked_at(cluster: ClusterOptions | None) -> Iterator[LookedAt]:
    """The jobs of this user on this machine, or those of a cluster that are not over.

    Raises:
        ClusterError: the cluster cannot be reached.
    """
    if cluster is None:
        from flowrun.cli.running_jobs import HERE
        from flowrun.runners.control_client import client_of
        from flowrun.runners.registry import JobRegistry

        yield LookedAt(JobRegistry().entries, lambda entry: client_of(entry).details(), HERE)
        return
    from flowrun.runners.control_client import JobClient
    from flowrun.runtime.lifecycle import JobState

    with cluster.client() as client:
        yield LookedAt(
            lambda: [job for job in client.list_jobs() if not JobState(job.state).is_terminal],
            lambda entry: JobClient(client, entry).details(),
            f"on {cluster}",
            threads=1,
        )


class JobLooks:
    """Asks all jobs at once, and remembers what it needs for rates.

    Args:
        place: where they are.
        clock: of ages and rates.
    """

    def __init__(self, place: LookedAt, clock: Clock) -> None:
        self._place = place
        self._clock = clock
        self._threads = ThreadPoolExecutor(place.threads, "flowrun-top")
        self._asked: dict[str, Future[JobDetails]] = {}
        self._since_ns: dict[str, int] = {}
        self._last: dict[str, JobLook] = {}
        self._rows: dict[str, tuple[int, int]] = {}

    def look(self) -> list[JobLook]:
        """All jobs now, oldest first. Blocks for `_PATIENCE_S` at most, beside listing them."""
        entries = self._place.entries()
        ids = {entry.job_id for entry in entries}
        for known in (self._asked, self._since_ns, self._last, self._rows):
            for job_id in known.keys() - ids:
                del known[job_id]
        for entry in entries:
            if entry.job_id not in self._asked:
                self._asked[entry.job_id] = self._threads.submit(self._place.details, entry)
                self._since_ns[entry.job_id] = self._clock.monotonic_ns()
        wait(self._asked.values(), _PATIENCE_S)
        return [found for entry in entries if (found := self._answer(entry)) is not None]

    def close(self) -> None:
        """Wait for nobody any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _answer(self, entry: ListedJob) -> JobLook | None:
        """What the job says; None: it has just ended."""
        asked = self._asked[entry.job_id]
        if not asked.done():
            last = self._last.get(entry.job_id, JobLook(entry.job_id, entry.name, ASKED))
            waited_ms = (self._clock.monotonic_ns() - self._since_ns[entry.job_id]) / 1e6
            return last if waited_ms < _SILENT_AFTER_MS else silent(last)
        del self._asked[entry.job_id]
        try:
            details = asked.result()
        except FlowrunError:
            there = entry.job_id in {e.job_id for e in self._place.entries()}
            return JobLook(entry.job_id, entry.name, SILENT) if there else None
        found = job_look(details, self._clock.now_ms(), self._rows.get(entry.job_id), entry.name)
        self._rows[entry.job_id] = (found.rows_read or 0, details.status.at_ns)
        self._last[entry.job_id] = found
        return found
