"""The last rows of an exchange over the REST API, from worker processes too, and without secrets."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from flowrun.runners.registry import JobEntry
from tests.rest.asking import Api
from tests.rest.control_fakes import FakeJob, controlled
from tests.rest.shown_jobs import SHOP, run_shown


def ask(entry: JobEntry, method: str, part: str, body: object = None) -> tuple[int, Any]:
    return Api(f"http://127.0.0.1:{entry.port}", entry.token).ask(method, f"/v1/jobs/{entry.job_id}/{part}", body)[:2]


def test_a_request_reaches_the_job_and_is_no_order_that_the_end_waits_for(tmp_path: Path) -> None:
    job = FakeJob()
    with controlled(job, tmp_path) as endpoint:
        status, answer = ask(endpoint.entry, "POST", "samples", {"exchange": "x", "seconds": 7})
        assert (status, job.asked) == (202, [("sample", "x", 7_000)])
        assert ask(endpoint.entry, "GET", f"orders/{answer['order']}")[1]["state"] == "done"
        for wrong in (
            {"exchange": "x", "seconds": 301},
            {"exchange": ""},
            {"seconds": 1},
            {"exchange": "x", "rows": 1},
        ):
            assert ask(endpoint.entry, "POST", "samples", wrong)[0] == 400


@pytest.mark.exhaustive
def test_rows_come_from_worker_processes(tmp_path: Path) -> None:
    with run_shown(tmp_path, SHOP, workers=2) as job:
        deadline = time.monotonic() + 30
        exchanges = ask(job.entry, "GET", "graph")[1]["exchanges"]
        [exchange] = [e for e in exchanges if "payer" in e["partitioner"]]
        assert ask(job.entry, "POST", "samples", {"exchange": "nowhere"})[0] == 409
        assert ask(job.entry, "POST", "samples", {"exchange": exchange["exchange_id"], "seconds": 20})[0] == 202
        rows: list[str] = []
        while not rows:
            assert time.monotonic() < deadline
            subtasks = ask(job.entry, "GET", f"vertices/{exchange['source']}")[1]["subtasks"]
            assert {s["worker"] for s in subtasks} == {"w1", "w2"}
            rows = [row for s in subtasks for row in s["rows"].get(exchange["exchange_id"], ())]
        assert {frozenset(json.loads(row)) for row in rows} == {frozenset({"payer", "paid", "ts"})}
