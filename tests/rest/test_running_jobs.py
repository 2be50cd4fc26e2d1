"""The REST API of jobs that run: of one process, of worker processes, and of a cluster, compared with its own OpenAPI document."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import booleans
from schemathesis import Case

from flowrun.rest.compilation import Purpose, compiled_here
from flowrun.rest.metric_names import BY_FAMILY
from flowrun.rest.texts import Compilation, SubmitRequest
from tests.cluster.clusters import Session, session
from tests.end_to_end.processes import started, wait_for
from tests.rest.asking import Api
from tests.rest.control_fakes import FakeJob, controlled
from tests.rest.scraping import parsed, values
from tests.rest.test_texts import NUMBERS

pytestmark = pytest.mark.exhaustive

SQL = """
SET 'execution.checkpointing.interval' = '200ms';
SET 'flowrun.checkpoint.dir' = 'state';
SET 'pipeline.name' = 'counted';
CREATE TABLE orders (user_id BIGINT, secret_note STRING) WITH (
  'connector' = 'datagen', 'rows-per-second' = '1000', 'fields.user_id.min' = '1', 'fields.user_id.max' = '9'
);
CREATE TABLE found (user_id BIGINT, n BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO found SELECT user_id, COUNT(*) FROM orders WHERE secret_note <> '${note}' GROUP BY user_id;
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLOWRUN_RUNTIME_DIR", str(tmp_path / "registry"))
    (tmp_path / "counted.sql").write_text(SQL)
    return tmp_path


@contextmanager
def running(folder: Path, *options: object) -> Iterator[tuple[Any, Api]]:
    """The process of a job that has taken a checkpoint, and its REST API."""
    with started("run", "counted.sql", "--no-live", "--secret-var", "note=hunter22", *options, cwd=folder) as process:
        wait_for(lambda: list(folder.glob("state/counted/chk-*/_metadata.json")), process)
        with started("ui", cwd=folder) as ui:
            out, said = ui.communicate(timeout=30)
        assert out.startswith("http://127.0.0.1:"), said
        yield process, Api.of_page(out)


def check_parts(api: Api, job_id: str, parallelism: int) -> None:
    """That each part of a job tells what it does."""
    of_job = f"/v1/jobs/{job_id}"
    overview = api.get(f"{of_job}/overview")
    assert overview["job"]["name"] == overview["details"]["status"]["name"] == "counted"
    graph = api.get(f"{of_job}/graph")
    ids = [vertex["vertex_id"] for vertex in graph["vertices"]]
    assert [(e["source"], e["target"]) for e in graph["exchanges"]] == [(ids[0], ids[1])]
    for vertex in ids:
        subtasks = api.get(f"{of_job}/vertices/{vertex}")["subtasks"]
        assert [s["state"] for s in subtasks] == ["running"] * parallelism
    history = api.get(f"{of_job}/checkpoints")["history"]
    done = [c for c in history if c["status"] == "completed"]
    assert done
    assert sum(v["state_bytes"] for v in done[-1]["vertices"]) > 0
    assert api.get(f"{of_job}/exceptions") == {"failures": []}
    config = api.get(f"{of_job}/config")
    assert config["settings"]["checkpoint.interval_ms"] == 200
    assert config["withheld"] == ["note"]
    text = api.get(f"{of_job}/text")
    assert (text["language"], "${note}" in text["text"]) == ("sql", True)
    assert "hunter22" not in json.dumps([overview, graph, config, text, history])
    check_metrics(api.get("/metrics"), job_id, ids, parallelism)


def check_metrics(scraped: bytes, job_id: str, vertices: list[str], parallelism: int) -> None:
    """That a scrape has each subtask once, and what it does."""
    series = parsed(scraped)
    assert values(series, "flowrun_job_state", job_id=job_id, state="running") == [1]
    for vertex in vertices:
        found = values(series, "flowrun_task_numRecordsIn_total", job_id=job_id, vertex_id=vertex)
        assert len(found) == parallelism
    assert values(series, "flowrun_operator_stateSize", job_id=job_id)[0] > 0
    assert {
        name for name, _ in series if name.startswith("flowrun") and name.removesuffix("_total") not in BY_FAMILY
    } == set()
    assert b"hunter22" not in scraped


def test_a_job_with_workers_is_seen_and_ordered_by_two_at_once(folder: Path) -> None:
    with running(folder, "-p", 2, "--workers", 2) as (process, api):
        (job,) = api.get("/v1/jobs")["jobs"]
        check_parts(api, job["job_id"], 2)
        orders = f"/v1/jobs/{job['job_id']}/orders"
        taken: list[str] = []

        def take(name: str) -> None:
            status, placed, _ = api.ask("POST", orders, {"kind": "savepoint", "directory": str(folder / name)})
            assert status == 202
            while (answer := api.get(f"{orders}/{placed['order']}"))["state"] == "pending":
                threading.Event().wait(0.02)
            taken.append(answer["path"])

        writers = [threading.Thread(target=take, args=(name,)) for name in ("one", "two")]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert sorted(Path(path).parent.name for path in taken) == ["one", "two"]
        placed = api.ask("POST", orders, {"kind": "stop"})[1]
        answer = api.get(f"{orders}/{placed['order']}")
        while answer["state"] == "pending":
            answer = api.get(f"{orders}/{placed['order']}")
        assert (answer["state"], answer["job_state"]) == ("done", "finished")
        assert process.wait(timeout=30) == 0, process.communicate()[1]


def test_a_page_is_open_while_the_job_ends(folder: Path) -> None:
    with running(folder, "--workers", 0) as (process, api):
        (job,) = api.get("/v1/jobs")["jobs"]
        check_parts(api, job["job_id"], 1)
        answers: list[int] = []
        gone = threading.Event()

        def look() -> None:
            while True:
                try:
                    status, answer, _ = api.ask("GET", f"/v1/jobs/{job['job_id']}/overview")
                except OSError:
                    gone.set()
                    return
                assert "raceback" not in json.dumps(answer["job"] if status == 200 else answer)
                answers.append(status)

        pages = [threading.Thread(target=look) for _ in range(3)]
        for page in pages:
            page.start()
        with started("cancel", "counted", cwd=folder) as cancel:
            assert cancel.communicate(timeout=30)[1] == "'counted' is cancelled\n"
        said = process.communicate(timeout=30)[1]
        for page in pages:
            page.join(timeout=30)
        assert gone.is_set()
        assert set(answers) == {200}
        assert "raceback" not in said


def test_a_cluster_serves_its_jobs_also_when_they_have_ended(folder: Path) -> None:
    with session(folder, managers=1, slots=2) as cluster:
        job_id = cluster.flowrun(
            "run", "counted.sql", "--secret-var", "note=hunter22", "-p", 2, "--detach"
        ).stdout.strip()
        wait_for(lambda: list(folder.glob("state/counted/chk-*/_metadata.json")), cluster.dispatcher)
        page = cluster.flowrun("ui", "counted").stdout.strip()
        assert page.endswith(f"&/jobs/{job_id}")
        api = Api.of_page(page)
        check_parts(api, job_id, 2)
        orders = f"/v1/jobs/{job_id}/orders"
        placed = api.ask("POST", orders, {"kind": "cancel"})[1]
        wait_for(lambda: api.get(f"{orders}/{placed['order']}")["state"] == "done", cluster.dispatcher)
        wait_for(lambda: api.ask("POST", orders, {"kind": "cancel"})[0] == 409, cluster.dispatcher)
        assert "${note}" in api.get(f"/v1/jobs/{job_id}/text")["text"]
        wait_for(lambda: api.get(f"/v1/jobs/{job_id}/overview")["job"]["state"] == "canceled", cluster.dispatcher)
        ended = api.get(f"/v1/jobs/{job_id}/overview")
        assert ended["details"]["status"]["state"] == "canceled"
        assert len(ended["details"]["vertices"]) == 2
        check_submission(api, folder, cluster)


def check_submission(api: Api, folder: Path, cluster: Session) -> None:
    """That a text with errors is refused, and one without runs."""
    status, answer, _ = api.ask("POST", "/v1/jobs", {"text": "INSERT INTO x SELECT 1;"})
    assert status == 422
    assert {p["line"] for p in answer["problems"]} == {1}, answer
    body = {"text": NUMBERS, "variables": {"out": str(folder / "out")}, "secrets": {"note": "hunter22"}}
    status, answer, _ = api.ask("POST", "/v1/jobs", body)
    assert status == 201, answer
    job = f"/v1/jobs/{answer['job_id']}"
    for part in ("overview", "graph", "checkpoints", "exceptions", "config", "text", "logs"):
        assert api.ask("GET", f"{job}/{part}")[0] in (200, 503), "it may not have begun"
    wait_for(lambda: api.get(job)["state"] == "finished", cluster.dispatcher)
    wait_for(lambda: api.ask("GET", f"{job}/overview")[0] == 200, cluster.dispatcher)  # its process tells that last
    assert sum(len(f.read_text().splitlines()) for f in (folder / "out").glob("*.json")) == 10
    assert "hunter22" not in str([api.get(f"{job}/{part}") for part in ("text", "config", "overview")])


OFTEN = settings(
    max_examples=6,
    database=None,
    derandomize=True,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def check_against_the_document(api: Api, real: dict[str, str], methods: set[str]) -> list[str]:
    """Generate requests of each operation, and compare what comes with what the document says; gives the operations.

    Args:
        api: of a job.
        real: values of parameters of paths, which half of the requests have.
        methods: of the operations.
    """
    schema = schemathesis.openapi.from_dict(api.get("/v1/openapi.json"))
    headers = {"Authorization": f"Bearer {api.token}"}
    asked = []
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.method.upper() not in methods:
            continue
        asked.append(operation.label)

        @OFTEN
        @given(case=operation.as_strategy(), is_real=booleans())
        def check(case: Case, is_real: bool) -> None:
            if is_real:
                case.path_parameters = {name: real.get(name, v) for name, v in (case.path_parameters or {}).items()}
            case.call_and_validate(base_url=api.url.rstrip("/"), headers=headers)

        check()
    return asked


def test_what_a_running_job_answers_is_what_the_document_says(folder: Path) -> None:
    with running(folder) as (_, api):
        (job,) = api.get("/v1/jobs")["jobs"]
        vertex = api.get(f"/v1/jobs/{job['job_id']}/graph")["vertices"][0]["vertex_id"]
        asked = check_against_the_document(api, {"job_id": job["job_id"], "vertex": vertex, "order": "1"}, {"GET"})
    assert len(asked) >= 14


def test_orders_and_texts_are_taken_and_refused_as_the_document_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compiled(request: SubmitRequest, purpose: Purpose) -> Compilation:
        return compiled_here(replace(request, secrets={}), purpose)  # a process for each would take half a minute

    monkeypatch.setattr("flowrun.rest.routes.compile_elsewhere", compiled)
    job = FakeJob()
    job.answer_with = "/keep/savepoint-1"
    with controlled(job, tmp_path) as endpoint:
        api = Api(f"http://127.0.0.1:{endpoint.entry.port}/", endpoint.entry.token)
        check_against_the_document(api, {"job_id": job.job_id}, {"POST"})
        for number in range(1, 257):
            endpoint.control.delivered(str(number))
    assert job.asked
