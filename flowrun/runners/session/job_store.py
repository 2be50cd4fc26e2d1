"""The jobs of a dispatcher in a folder, so that another dispatcher can go on with them.

Each job is a file of its own, which is written when the job is submitted, and again when it is rescaled or over. Values of secret variables
are not in it: a job that has some cannot be gone on with, and says so.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from flowrun.api.source import JsonValue
from flowrun.core.record import record
from flowrun.errors import RpcError, StateError
from flowrun.runners.session.messages import JobSubmission
from flowrun.runtime.job_progress import JobProgress
from flowrun.runtime.rpc.codec import decode, encode
from flowrun.state.storage.state_path import StatePath

_SUFFIX = ".job"

_log = logging.getLogger(__name__)


@record
class StoredJob:
    """A job as it is kept.

    Attributes:
        job_id: unique in the cluster.
        submission: without values of secret variables.
        contents: of its files, by digest.
        started_ms: when it was submitted, epoch ms.
        last: how it ended; None: it has not.
        description: at its end; see `JobControl.describe`.
    """

    job_id: str
    submission: JobSubmission
    contents: Mapping[str, bytes] = field(repr=False)
    started_ms: int
    last: JobProgress | None = None
    description: JsonValue = None


class JobStore:
    """Thread-safe, as long as calls for one job come one after the other.

    Args:
        folder: made if missing.

    Raises:
        StateError: it cannot be made.
    """

    def __init__(self, folder: StatePath) -> None:
        self._folder = folder
        folder.make_folder()

    def save(self, job: StoredJob) -> None:
        """Keep a job in place of what is kept of it. Raises StateError: it cannot be written."""
        text = replace(job.submission.text, secrets={})
        stored = replace(job, submission=replace(job.submission, text=text))
        (self._folder / f"{job.job_id}{_SUFFIX}").write_atomically(encode(stored, StoredJob))

    def remove(self, job_id: str) -> None:
        """Forget a job; harmless if it is not there."""
        (self._folder / f"{job_id}{_SUFFIX}").remove_quietly()

    def load(self) -> Sequence[StoredJob]:
        """All jobs that are kept, in the order of their submission. A file that is damaged is left alone, with a warning.

        Raises:
            StateError: the folder cannot be read.
        """
        found: list[StoredJob] = []
        for entry in self._folder.entries():
            if not entry.name.endswith(_SUFFIX):
                continue
            content = (self._folder / entry.name).read_bytes()
            try:
                if content is not None:
                    found.append(decode(content, StoredJob))
            except (RpcError, StateError) as error:
                _log.warning(
                    "%s is not the file of a job of this version: %s", self._folder / entry.name, error.message
                )
        return sorted(found, key=lambda job: job.started_ms)
