"""All jobs of a cluster are stopped together, and each says how it has ended."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest

from flowrun.cli.arguments import StopOptions
from flowrun.cli.ending_jobs import EndWatch, stop_jobs
from flowrun.core.record import record
from flowrun.errors import StateError
from flowrun.runners.rest_requests import RestReply
from flowrun.runtime.rpc.error_values import error_to_value

NO_PATIENCE = StopOptions(within_ms=0)


@record(eq=False, frozen=False)
class Job:
    """A job: it does what it is asked for if it is in one of these states, and then is in another."""

    name: str
    state: str = "running"
    obeys: tuple[str, ...] = ("running",)
    becomes: str = "finished"
    stopped_at: str | None = None
    asked: tuple[tuple[str, str | None], ...] = ()


class Cluster:
    """Answers for jobs. `each_look` is called whenever they are listed."""

    def __init__(self, *jobs: Job, each_look: Callable[[], None] = lambda: None) -> None:
        self.jobs = {job.name: job for job in jobs}
        self._each_look = each_look

    def ask(self, method: str, path: str, body: bytes | None = None) -> RestReply:
        if path == "/v1/jobs":
            self._each_look()
            return self._reply(200, {"jobs": [self._summary(job) for job in self.jobs.values()]})
        _, _, _, name, what = path.split("/")
        job = self.jobs[name]
        if what == "progress":
            return self._reply(200, self._progress(job))
        assert body is not None
        order = json.loads(body)
        job.asked = (*job.asked, (order["kind"], order["directory"]))
        if order["kind"] == "stop" and job.state not in job.obeys:
            return self._reply(409, {"error": "not now", "hint": None})
        job.state = "canceled" if order["kind"] == "cancel" else job.becomes
        return self._reply(202, {"order": "1"})

    def _reply(self, status: int, answer: object) -> RestReply:
        return RestReply(status, msgspec.json.encode(answer))

    def _summary(self, job: Job) -> dict[str, object]:
        pid = 0 if job.state in ("finished", "canceled", "failed") else 7
        return {"job_id": job.name, "name": job.name, "file": "f", "pid": pid, "started_ms": 0, "state": job.state}

    def _progress(self, job: Job) -> dict[str, object]:
        status = {"job_id": job.name, "name": job.name, "state": job.state, "at_ns": 0, "running_ms": 0, "vertices": []}
        if job.state == "failed":
            return {"status": status, "failure": error_to_value(StateError("no space", hint="make room"))}
        result = {"job_id": job.name, "name": job.name, "state": job.state, "duration_ms": 1.0, "vertices": []}
        return {"status": status, "result": {**result, "accumulators": {}, "stopped_at": job.stopped_at}}


def test_each_job_is_asked_once_and_says_where_it_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster(Job("a", stopped_at="/saved/a-1"), Job("b", becomes="failed"), Job("old", "finished"))
    watch = EndWatch(cluster, quiet=False, known=["old"])
    assert stop_jobs(cluster, StopOptions("/saved", 60_000), quiet=False) == ()
    cluster.jobs["c"] = Job("c", "canceled")
    watch.look()
    watch.look()
    assert cluster.jobs["a"].asked == cluster.jobs["b"].asked == (("stop", "/saved"),)
    said = capsys.readouterr().err
    assert said == (
        "stopping: each job with a savepoint\n'a' stopped at /saved/a-1\n'b' failed: no space; make room\n'c' cancelled\n"
    )
    assert watch.has_failures


def test_a_job_that_has_not_begun_is_cancelled() -> None:
    cluster = Cluster(Job("a", "created"))
    assert stop_jobs(cluster, StopOptions(within_ms=60_000), quiet=True) == ()
    assert cluster.jobs["a"].asked == (("cancel", None),)


def test_a_job_that_restarts_is_asked_again() -> None:
    job = Job("a", "restarting")
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        job.state = "running" if looks == 2 else job.state

    assert stop_jobs(Cluster(job, each_look=look), StopOptions(within_ms=60_000), quiet=True) == ()
    assert job.asked == (("stop", None), ("stop", None))


def test_who_does_not_stop_in_time_is_told() -> None:
    cluster = Cluster(Job("a", "restarting"), Job("b", "finished"))
    assert [job.name for job in stop_jobs(cluster, NO_PATIENCE, quiet=True)] == ["a"]
    left = stop_jobs(cluster, StopOptions(), quiet=True, is_enough=lambda: True)
    assert [job.name for job in left] == ["a"]
