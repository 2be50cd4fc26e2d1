"""Jobs that a dispatcher keeps for the next one."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from flowrun.errors import JobFailedError
from flowrun.runners.session.job_store import JobStore, StoredJob
from flowrun.runners.session.messages import JobSubmission
from flowrun.runtime.cluster_messages import JobFile, JobText
from flowrun.runtime.job_progress import JobProgress
from flowrun.runtime.job_status import JobStatus
from flowrun.runtime.lifecycle import JobState
from flowrun.runtime.rpc.error_values import error_to_value
from flowrun.state.checkpoints import PipelineText
from flowrun.state.storage.state_path import resolve


def stored(job_id: str, started_ms: int, last: JobProgress | None = None) -> StoredJob:
    kept = PipelineText("p.yaml", "name: p", "/there", {"A": "1"}, withheld=("B",))
    text = JobText(kept, {"B": "hidden treasure"}, (JobFile("mine.py", "0" * 64, 3),))
    submission = JobSubmission("p", text, "f" * 64, "/state/chk-1", True, "keep")
    return StoredJob(job_id, submission, {"0" * 64: b"x=1"}, started_ms, last, {"rows": [1, None]})


def test_jobs_come_back_in_order_without_their_secrets(tmp_path: Path) -> None:
    store = JobStore(resolve(str(tmp_path / "jobs")))
    failure = error_to_value(JobFailedError("it broke", hint="mend it"))
    over = JobProgress(JobStatus("b", "p", JobState.FAILED, 1, 2, ()), None, failure)
    store.save(stored("b", 2, over))
    store.save(stored("a", 1))
    store.save(stored("c", 3))
    store.remove("c")
    store.remove("c")
    first, second = JobStore(resolve(str(tmp_path / "jobs"))).load()
    assert (first.job_id, second.job_id, first.last, second.last) == ("a", "b", None, over)
    assert first.submission.text.secrets == {}
    assert first.submission.text.pipeline.withheld == ("B",)
    assert (first.contents, first.description) == ({"0" * 64: b"x=1"}, {"rows": [1, None]})
    assert not any(b"treasure" in path.read_bytes() for path in tmp_path.rglob("*.job"))


def test_a_damaged_file_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = JobStore(resolve(str(tmp_path)))
    store.save(stored("a", 1))
    store.save(stored("b", 2))
    damaged = tmp_path / "a.job"
    damaged.write_bytes(damaged.read_bytes()[:40])
    (tmp_path / "readme.txt").write_text("not a job")
    with caplog.at_level(logging.WARNING):
        assert [job.job_id for job in store.load()] == ["b"]
    assert f"{damaged} is not the file of a job of this version" in caplog.text
    assert damaged.exists()
