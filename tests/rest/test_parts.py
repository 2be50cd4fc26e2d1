"""What the REST API tells of a job: its parts, typed and without secrets, for as many as ask."""

from __future__ import annotations

import http.client
import json
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from flowrun.core.recent_logs import RECENT_LOGS, RecentLogs
from flowrun.masking import learn_secret
from flowrun.rest.endpoint import JobEndpoint
from flowrun.rest.openapi import openapi_document
from flowrun.rest.routes import ROUTES
from flowrun.runners.control import Order
from flowrun.runners.job_document import document_of
from flowrun.runtime.job_details import FailureRecord, JobDetails, RestartedSubtasks
from flowrun.runtime.job_status import JobStatus
from flowrun.runtime.rpc.error_values import error_to_value
from flowrun.state.checkpoints import PipelineText
from tests.rest.control_fakes import FakeJob, controlled
from tests.slices import everyday

HOSTILE = "<img src=x onerror=alert(1)>\u202e\x1b]0;x\x07"


@pytest.fixture
def job() -> FakeJob:
    return FakeJob()


@pytest.fixture
def endpoint(job: FakeJob, tmp_path: Path) -> Iterator[JobEndpoint]:
    kept = PipelineText(
        "shop.sql", "SELECT 'hunter22'", "/shop", {"day": "1"}, {"settings.mode": "streaming"}, "/w", ("key",)
    )
    with controlled(job, tmp_path / "run", document=document_of(kept)) as endpoint:
        yield endpoint


def get(endpoint: JobEndpoint, part: str, *, token: str | None = None) -> tuple[http.client.HTTPResponse, Any]:
    path = part if part.startswith("/") else f"/v1/jobs/{endpoint.entry.job_id}/{part}".rstrip("/")
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.entry.port, timeout=10)
    connection.request("GET", path, headers={"Authorization": f"Bearer {token or endpoint.entry.token}"})
    response = connection.getresponse()
    text = response.read()
    connection.close()
    is_json = response.headers.get_content_type() == "application/json"
    return response, json.loads(text) if is_json else text


@pytest.mark.parametrize(
    "route",
    everyday((r for r in ROUTES if r.method == "GET" and r.gives not in (dict, bytes)), 4),
    ids=lambda r: r.path,
)
def test_each_part_is_as_the_document_says(endpoint: JobEndpoint, route: Any) -> None:
    assert endpoint.control.place(Order("savepoint")) == "1"
    endpoint.control.delivered("1")
    path = route.path.format(job_id=endpoint.entry.job_id, vertex="s", order="1")
    response, answer = get(endpoint, path)
    assert response.status == 200, answer
    document = openapi_document(ROUTES)
    schema = document["paths"][route.path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    jsonschema.validate(answer, {**schema, "components": document["components"]})


def test_the_parts_are_those_of_the_details(endpoint: JobEndpoint) -> None:
    overview = get(endpoint, "overview")[1]
    assert overview["job"]["name"] == "orders"
    assert [v["status"]["vertex_id"] for v in overview["details"]["vertices"]] == ["s", "k"]
    assert get(endpoint, "graph")[1]["exchanges"] == overview["details"]["exchanges"]
    assert get(endpoint, "vertices/s")[1] == overview["details"]["vertices"][0]
    assert get(endpoint, "checkpoints")[1]["history"] == overview["details"]["checkpoints"]
    assert get(endpoint, "config")[1] == {
        "settings": {"checkpoint.interval_ms": 1_000},
        "variables": {"day": "1"},
        "overrides": {"settings.mode": "streaming"},
        "withheld": ["key"],
    }
    assert get(endpoint, "vertices/nowhere")[0].status == 404


def test_secrets_are_masked_in_every_part(endpoint: JobEndpoint) -> None:
    learn_secret("hunter22")
    assert get(endpoint, "text")[1]["text"] == "SELECT '***'"


def test_a_failure_is_told_with_its_cause_and_what_was_restarted(endpoint: JobEndpoint, job: FakeJob) -> None:
    try:
        try:
            raise OSError(HOSTILE)
        except OSError as cause:
            raise RuntimeError("the sink failed") from cause
    except RuntimeError as error:
        value = error_to_value(error)
    job.failure = FailureRecord(
        5, "there", value, "sink", "k", 0, None, "restarted", None, (RestartedSubtasks("k", (0,)),)
    )
    (failure,) = get(endpoint, "exceptions")[1]["failures"]
    assert [link["message"] for link in failure["error"]["links"]] == ["the sink failed", HOSTILE]
    assert failure["restarted"] == [{"vertex_id": "k", "subtasks": [0]}]


def test_hostile_names_stay_json(tmp_path: Path) -> None:
    with controlled(FakeJob(), tmp_path, name=HOSTILE * 500) as endpoint:
        response, answer = get(endpoint, "/v1/jobs")
    assert answer["jobs"][0]["name"] == HOSTILE * 500
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("part", ["/", "/v1/jobs", "/nowhere", "overview", "/healthz"])
def test_every_answer_tells_a_browser_to_load_nothing_of_others(endpoint: JobEndpoint, part: str) -> None:
    headers = get(endpoint, part)[0].headers
    policy = headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert "Server" not in headers or "flowrun" in headers["Server"]


def test_the_page_and_health_need_no_token_and_tell_nothing(endpoint: JobEndpoint) -> None:
    for path in ("/", "/healthz", "/readyz"):
        response, answer = get(endpoint, path, token="wrong")
        assert response.status == 200
        assert "orders" not in str(answer)
    assert get(endpoint, "overview", token="wrong")[0].status == 403


def test_a_process_whose_job_does_not_run_is_not_ready(endpoint: JobEndpoint, job: FakeJob) -> None:
    from flowrun.runtime.lifecycle import JobState

    job.state = JobState.RESTARTING
    response, answer = get(endpoint, "/readyz")
    assert (response.status, answer["error"]) == (503, "no job runs")


def test_all_who_ask_at_once_share_one_answer(tmp_path: Path) -> None:
    entered, leave = threading.Event(), threading.Event()

    class Counted(FakeJob):
        made = 0

        def details(self) -> JobDetails:
            self.made += 1
            entered.set()
            assert leave.wait(10)
            return super().details()

    job = Counted()
    with controlled(job, tmp_path) as endpoint, ThreadPoolExecutor(12) as askers:
        asked = [askers.submit(get, endpoint, "overview") for _ in range(12)]
        assert entered.wait(10)
        assert get(endpoint, "")[0].status == 200, "other requests are answered meanwhile"
        leave.set()
        answers = [a.result()[1] for a in asked]
    assert all(answer == answers[0] for answer in answers)
    assert job.made <= 2, "a late one may come after half a second"


def test_a_job_that_fails_to_tell_is_a_clear_answer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(FakeJob):
        def status(self) -> JobStatus:
            raise KeyError("secret-inside")

    with controlled(Broken(), tmp_path) as endpoint:
        response, answer = get(endpoint, "")
    assert response.status == 500
    assert answer == {
        "error": "flowrun itself failed at this request",
        "hint": "the log of the job says more",
        "problems": [],
    }
    assert "a request of the REST API failed: GET" in caplog.text


def test_logs_are_asked_for_from_where_one_has_read(endpoint: JobEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    log = logging.getLogger("flowrun.tests")
    monkeypatch.setattr(log, "propagate", False)  # a command of another test may have had the root's lines kept, too
    log.addHandler(RECENT_LOGS)
    learn_secret("hunter22")
    begin = get(endpoint, "logs")[1]["last"]
    try:
        log.warning("one %s", HOSTILE)
        log.error("two hunter22")
        first = get(endpoint, f"logs?after={begin}")[1]
        assert [line["message"] for line in first["lines"]] == [
            "one <img src=x onerror=alert(1)>\\u202e\\u001b]0;x\\u0007",
            "two ***",
        ]
        assert [line["level"] for line in first["lines"]] == ["WARNING", "ERROR"]
        assert get(endpoint, f"logs?after={first['last']}")[1] == {"lines": [], "last": first["last"]}
    finally:
        log.removeHandler(RECENT_LOGS)
    for wrong in ("after=x", "after=-1", "before=1"):
        assert get(endpoint, f"logs?{wrong}")[0].status == 400


def test_only_the_last_lines_are_kept() -> None:
    logs = RecentLogs(2)
    for text in ("a", "b", "c" * 10_000):
        logs.handle(logging.makeLogRecord({"msg": text, "levelname": "INFO"}))
    kept = logs.after()
    assert [line.number for line in kept.lines] == [2, 3]
    assert kept.last == 3
    assert len(kept.lines[1].message) < 8_200


def test_fields_of_requests_are_described_where_they_are_declared() -> None:
    schemas = openapi_document(ROUTES)["components"]["schemas"]
    for name in ("TextRequest", "PreviewRequest", "SubmitRequest"):
        fields = schemas[name]["properties"]
        assert all(field.get("description") for field in fields.values()), name
        assert fields["secrets"]["description"] == "the same, for values that are shown and kept nowhere."
