"""Pipelines as users run them: SQL and YAML, jobs that fail, are killed and go on."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.connectors.http.die_at import COMMIT_PHASES
from tests.end_to_end.conftest import Command
from tests.end_to_end.running import ROOT, run_file
from tests.recovery.chaos import command, live_to_phase, run_to_end
from tests.servers.http import HttpServer, Received, Reply

pytestmark = pytest.mark.exhaustive

PIPELINE = """
name: chaos
settings:
  parallelism: 2
  checkpoint: {{interval: 100ms, dir: "{folder}/state", retain: 2}}
  restart: {{strategy: fixed_delay, attempts: 20, delay: 200ms}}
sources:
  rows:
    connector: datagen
    number-of-rows: {rows}
    rows-per-second: {rate}
    fields: {{id: {{kind: sequence, start: 0, end: {last}}}}}
    schema: {{id: BIGINT}}
    computed: {{k: "id % 10"}}
steps:
  counted: {{sql: "SELECT k, COUNT(*) AS n FROM rows GROUP BY k"}}
sinks:
  raw:
    from: rows
    connector: http
    url: "{url}/rows"
    format: json
    sink: {{delivery-guarantee: exactly-once, request: {{mode: {mode}}}, batch: {{max-size: 50}}}}
    retry-strategy: {{exponential-delay: {{initial-backoff: 10ms}}}}
    schema: {{id: BIGINT, k: BIGINT}}
  counts:
    from: counted
    connector: http
    url: "{url}/counts/{{k}}"
    insert-method: put
    format: json
    schema: {{k: BIGINT, n: BIGINT}}
    primary_key: [k]
"""


class ChaoticJob:
    """A job that posts rows exactly once, and keeps resources up to date by key."""

    def __init__(self, server: HttpServer, folder: Path, rows: int, rate: int, mode: str = "single") -> None:
        self.server, self.folder, self.rows = server, folder, rows
        self.file = folder / "chaos.yaml"
        text = PIPELINE.format(folder=folder, url=server.url, rows=rows, last=rows - 1, rate=rate, mode=mode)
        self.file.write_text(text)

    def check(self) -> None:
        """By its keys the server has taken every row once, and the last count of each key is the right one."""
        bodies = [r.json() for r in self.server.taken if r.path == "/rows"]
        ids = [row["id"] for body in bodies for row in (body if isinstance(body, list) else [body])]
        assert sorted(ids) == list(range(self.rows))
        last = {r.path: r.json()["n"] for r in self.server.taken if r.path != "/rows"}
        assert last == {f"/counts/{k}": self.rows // 10 for k in range(10)}


OFTEN = "between the last answer and the record"


@pytest.mark.parametrize(
    "phase", [pytest.param(p, marks=[] if p == OFTEN else pytest.mark.soak) for p in COMMIT_PHASES]
)
def test_a_kill_in_each_phase_of_a_commit(http_server: HttpServer, tmp_path: Path, phase: str) -> None:
    job = ChaoticJob(http_server, tmp_path, rows=1_000, rate=2_000, mode="json-array")
    done = live_to_phase(tmp_path, job.file, "tests.connectors.http.die_at", phase, 2)
    assert done.returncode == -9, done.stderr
    run_to_end(tmp_path, job.file)
    job.check()


def test_a_kill_while_requests_are_on_their_way(http_server: HttpServer, tmp_path: Path) -> None:
    job = ChaoticJob(http_server, tmp_path, rows=600, rate=2_000)
    seen: list[int] = []
    process = subprocess.Popen(command(tmp_path, job.file, 2), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def taken_but_never_heard_of(request: Received) -> Reply:
        if request.path == "/rows":
            seen.append(1)
            if len(seen) == 100:
                os.kill(process.pid, signal.SIGKILL)
        return Reply()

    http_server.answer = taken_but_never_heard_of
    assert process.wait(timeout=240) == -9
    before = {r.key for r in http_server.received}
    run_to_end(tmp_path, job.file)
    job.check()
    again = [r for r in http_server.received if r.path == "/rows" and r.key in before]
    assert len(again) > len({r.key for r in again}), "some were sent again, under the keys that they had"


@pytest.mark.parametrize("rounds", [2, pytest.param(60, marks=pytest.mark.soak)])
def test_kills_at_random_requests(http_server: HttpServer, tmp_path: Path, rounds: int) -> None:
    job = ChaoticJob(http_server, tmp_path, rows=max(1_000, 200 * rounds), rate=500, mode="json-array")
    chance = random.Random(rounds)
    for _ in range(rounds):
        left = itertools.count(chance.randrange(1, 8), -1)
        process = subprocess.Popen(command(tmp_path, job.file, 2), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

        def kill_at_the_last(
            request: Received, process: subprocess.Popen[bytes] = process, left: Iterator[int] = left
        ) -> Reply:
            if request.path == "/rows" and next(left) <= 1:
                process.kill()
            return Reply()

        http_server.answer = kill_at_the_last
        said = process.communicate(timeout=240)[1]
        assert process.returncode in (0, -9), said
    http_server.answer = lambda _: Reply()
    run_to_end(tmp_path, job.file)
    job.check()


def test_the_server_goes_away_and_returns(http_server: HttpServer, tmp_path: Path) -> None:
    job = ChaoticJob(http_server, tmp_path, rows=1_500, rate=1_000, mode="json-array")
    log = tmp_path / "log"
    with log.open("w") as output:
        process = subprocess.Popen(command(tmp_path, job.file, 2), stdout=output, stderr=output)
        begun, pause = time.monotonic(), threading.Event()
        while not http_server.taken:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() - begun < 240
            pause.wait(0.02)
        http_server.stop()
        pause.wait(0.3)
        http_server.start()
        assert process.wait(timeout=240) == 0, log.read_text()
    job.check()


SCRIPT = """
CREATE TABLE numbers (id BIGINT, seen AS PROCTIME()) WITH (
  'connector' = 'datagen', 'number-of-rows' = '6', 'fields.id.kind' = 'sequence', 'fields.id.start' = '1',
  'fields.id.end' = '6');
CREATE TABLE people (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'http', 'url' = '{url}/people/{{id}}', 'format' = 'json', 'bearer-token' = '${{secret:env:TOKEN}}',
  'retry-strategy.exponential-delay.initial-backoff' = '10 ms', 'request.timeout' = '1 s' {lookup});
CREATE TABLE greetings (id BIGINT, name STRING) WITH (
  'connector' = 'http', 'url' = '{url}/greetings', 'format' = 'json', 'headers.X-Api-Key' = '${{secret:env:TOKEN}}',
  'retry-strategy.exponential-delay.initial-backoff' = '10 ms', 'sink.max-retries' = '1' {sink});
INSERT INTO greetings
SELECT n.id, p.name FROM numbers AS n LEFT JOIN people FOR SYSTEM_TIME AS OF n.seen AS p ON n.id % 3 = p.id;
"""
SECRET = "hidden-token-word"


@pytest.fixture(autouse=True)
def the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", SECRET)


def script(folder: Path, server: HttpServer, lookup: str = "", sink: str = "") -> str:
    path = folder / "s.sql"
    path.write_text(SCRIPT.format(url=server.url, lookup=lookup, sink=sink))
    return str(path)


def people(request: Received) -> Reply:
    if request.path.startswith("/people/"):
        number = request.path.rpartition("/")[2]
        return Reply(404) if number == "0" else Reply(200, json.dumps({"name": f"person {number}"}).encode())
    return Reply()


@pytest.mark.parametrize("lookup", ["", ", 'lookup.async' = 'true'", ", 'lookup.cache' = 'FULL'"])
def test_rows_are_looked_up_and_sent(flowrun: Command, http_server: HttpServer, tmp_path: Path, lookup: str) -> None:
    http_server.answer = people
    done = flowrun("run", script(tmp_path, http_server, lookup), "--no-live")
    assert done.code == 0, done.err
    assert SECRET not in done.out + done.err
    sent = [r for r in http_server.taken if r.path == "/greetings"]
    assert {(r.json()["id"], r.json()["name"]) for r in sent} == {
        (n, None if n % 3 == 0 else f"person {n % 3}") for n in range(1, 7)
    }
    assert {r.headers["x-api-key"] for r in sent} == {SECRET}
    assert {r.headers["authorization"] for r in http_server.received if "people" in r.path} == {f"Bearer {SECRET}"}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "/greetings",
            "sink 'greetings': POST {url}/greetings: the server answers 500 Internal Server Error: *** is wrong",
        ),
        (
            "/people",
            "lookup in 'people': GET {url}/people/{{id}}: the server answers 500 Internal Server Error: *** is wrong",
        ),
    ],
)
def test_a_job_that_fails_says_why_and_shows_no_secret(
    flowrun: Command, http_server: HttpServer, tmp_path: Path, path: str, message: str
) -> None:
    http_server.answer = lambda r: Reply(500, f"{SECRET} is wrong".encode()) if r.path.startswith(path) else people(r)
    done = flowrun("run", script(tmp_path, http_server, ", 'lookup.max-retries' = '1'"), "--no-live")
    assert done.code == 1
    assert message.format(url=http_server.url) in done.err
    assert SECRET not in done.out + done.err
    assert "Traceback" not in done.err


def test_a_wrong_option_is_shown_where_it_stands(flowrun: Command, http_server: HttpServer, tmp_path: Path) -> None:
    file = script(tmp_path, http_server, sink=", 'retry-codes' = '5XX,never'")
    done = flowrun("validate", file)
    assert done.code == 2
    assert "option 'retry-codes' has 'never', which is no status code" in done.err + done.out
    assert re.search(r"s\.sql:\d+:\d+", done.err + done.out)
    assert http_server.received == []


def test_explain_says_what_exactly_once_rests_on(flowrun: Command, http_server: HttpServer, tmp_path: Path) -> None:
    file = script(tmp_path, http_server, sink=", 'sink.delivery-guarantee' = 'exactly-once'")
    text = "SET 'execution.checkpointing.interval' = '1 s';\n" + Path(file).read_text()
    Path(file).write_text(text)
    done = flowrun("explain", file)
    (told,) = [line for line in done.out.splitlines() if line.startswith("sink 'greetings': exactly once — ")]
    assert "if the server takes requests of the same Idempotency-Key once" in told
    assert SECRET not in done.out + done.err
    assert http_server.received == []


def test_the_example_of_the_page_runs(http_server: HttpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", "word")
    names = {"1": "Ann", "2": "Bob", "3": "Cy"}

    def answer(request: Received) -> Reply:
        if request.path.startswith("/customers"):
            wanted = parse_qs(urlsplit(request.path).query)["id"][0]
            return Reply(200, json.dumps({"data": [{"id": int(wanted), "name": names[wanted]}]}).encode())
        return Reply(201)

    http_server.answer = answer
    (example,) = re.findall(r"```sql\n(.*?)```", (ROOT / "docs/connectors/http.md").read_text(), re.DOTALL)
    path = tmp_path / "script.sql"
    path.write_text(example.replace("https://api.example.com", http_server.url))
    run_file(path)
    last = {r.path: r.json() for r in http_server.taken if r.path.startswith("/spent/")}
    assert set(last) == {"/spent/Ann", "/spent/Bob", "/spent/Cy"}
    assert sum(row["orders"] for row in last.values()) == 100
