"""Requests that come to the REST API by another way than HTTP are answered as those of HTTP are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flowrun.core.typed_values import to_kind
from flowrun.rest.answering import answer_request
from flowrun.rest.served import OneJob
from flowrun.runtime.job_progress import JobProgress
from flowrun.runtime.lifecycle import JobState
from flowrun.runtime.rpc.error_values import error_from_value
from tests.rest.asking import Api
from tests.rest.control_fakes import FakeJob, controlled

HERE = "/v1/jobs/0123456789abcdef"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/jobs", None),
        ("GET", HERE, None),
        ("GET", f"{HERE}/overview", None),
        ("GET", f"{HERE}/why", None),
        ("GET", f"{HERE}/progress", None),
        ("GET", f"{HERE}/vertices/s", None),
        ("GET", f"{HERE}/vertices/unknown", None),
        ("GET", f"{HERE}/logs?after=1000000", None),
        ("GET", f"{HERE}/logs?before=1", None),
        ("GET", f"{HERE}/orders/9", None),
        ("GET", "/v1/jobs/unknown", None),
        ("POST", f"{HERE}/orders", {"kind": "rescale"}),
        ("POST", f"{HERE}/orders", {"kind": "explode"}),
        ("POST", "/v1/jobs", {"text": "SELECT 1"}),
        ("GET", "/metrics", None),
    ],
)
def test_answers_are_those_of_http(tmp_path: Path, method: str, path: str, body: dict[str, str] | None) -> None:
    with controlled(FakeJob(), tmp_path) as endpoint:
        api = Api(f"http://127.0.0.1:{endpoint.entry.port}/", endpoint.entry.token)
        status, over_http, _ = api.ask(method, path, body)
        data = None if body is None else json.dumps(body).encode()
        reply = answer_request(OneJob(endpoint.entry.job_id, endpoint.control), method, path, data)
    assert reply.status == status
    if path == "/metrics":  # also of this process, which has done something meanwhile
        assert b"flowrun_job_" in reply.data
    else:
        assert json.loads(reply.data) == over_http


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with controlled(FakeJob(), tmp_path) as endpoint:
        jobs = OneJob(endpoint.entry.job_id, endpoint.control)
        assert answer_request(jobs, "GET", "/v2/jobs", None).status == 404
        assert answer_request(jobs, "DELETE", HERE, None).status == 404
        assert answer_request(jobs, "POST", f"{HERE}/orders", None).status == 400, "there is no body"


def test_how_a_job_ended_is_told(tmp_path: Path) -> None:
    job = FakeJob()
    with controlled(job, tmp_path) as endpoint:
        jobs = OneJob(endpoint.entry.job_id, endpoint.control)

        def told() -> JobProgress:
            return to_kind(json.loads(answer_request(jobs, "GET", f"{HERE}/progress", None).data), JobProgress)

        assert not told().is_over
        job.answer_with, job.state = "/state/chk-8", JobState.FINISHED
        ended = told()
        assert ended.is_over
        assert ended.result is not None
        assert (ended.result.stopped_at, ended.result.state) == ("/state/chk-8", JobState.FINISHED)
        job.state = JobState.FAILED
        failure = told().failure
        assert failure is not None
        assert "no space" in str(error_from_value(failure))
