"""The log: text and JSON lines that say where they come from, in a file or on standard error, without secrets."""

from __future__ import annotations

import http.client
import json
import logging
import signal
import threading
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from flowrun.cli.logs import JsonLines, LogOptions, TextLines, start_log
from flowrun.core.log_context import LogContext, log_context, log_for_subtask, logging_for_job
from flowrun.core.recent_logs import RecentLogs
from flowrun.masking import learn_secret
from flowrun.runners.registry import JobEntry, JobRegistry
from tests.end_to_end.conftest import Command
from tests.end_to_end.processes import started, wait_for

HOSTILE = "a\x1b]0;x\x07\nb\u202e\ud800"


def logged(formatter: logging.Formatter, message: str, *, error: BaseException | None = None) -> str:
    info = None if error is None else (type(error), error, error.__traceback__)
    return formatter.format(logging.LogRecord("flowrun.x", logging.WARNING, "x.py", 1, message, (), info))


def in_subtask(formatter: logging.Formatter, message: str, vertex: str = "Source: rows") -> str:
    """As a subtask's thread logs it."""
    lines: list[str] = []

    def run() -> None:
        log_for_subtask(LogContext("j1", "orders", vertex, 1, 3, "v_1_0", "w-7"))
        lines.append(logged(formatter, message))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return lines[0]


def test_text_says_which_subtask_logs_it() -> None:
    assert logged(TextLines(), "slow").endswith(" WARNING flowrun.x: slow")
    assert in_subtask(TextLines(), "slow").endswith(" WARNING flowrun.x [Source: rows (2/3), w-7]: slow")


def test_json_says_all_that_is_known() -> None:
    line = json.loads(in_subtask(JsonLines(), "slow"))
    assert datetime.fromisoformat(line.pop("time")).utcoffset() is not None
    assert line == {
        "level": "WARNING", "logger": "flowrun.x", "message": "slow", "job_id": "j1", "job": "orders",
        "vertex": "Source: rows", "subtask": 1, "attempt": "v_1_0", "worker": "w-7",
    }  # fmt: skip
    assert set(json.loads(logged(JsonLines(), "slow"))) == {"time", "level", "logger", "message"}


def test_all_executions_of_a_job_have_its_id() -> None:
    with logging_for_job("first", "orders"):
        assert json.loads(in_subtask(JsonLines(), "slow"))["job_id"] == "first"
    with logging_for_job("other", "payments"):
        assert json.loads(in_subtask(JsonLines(), "slow"))["job_id"] == "j1"


def test_an_error_comes_with_its_traceback() -> None:
    try:
        raise ValueError("not hunter22")
    except ValueError as error:
        learn_secret("hunter22")
        line = json.loads(logged(JsonLines(), "it failed", error=error))
        text = logged(TextLines(), "it failed", error=error)
    assert (line["error"]["type"], line["error"]["message"]) == ("ValueError", "not ***")
    assert "test_logs.py" in line["error"]["traceback"]
    assert "hunter22" not in line["error"]["traceback"] + text


@pytest.mark.parametrize("formatter", [TextLines(), JsonLines()], ids=["text", "json"])
def test_hostile_messages_and_names_stay_where_they_are(formatter: logging.Formatter) -> None:
    learn_secret("hunter22")
    line = in_subtask(formatter, f"{HOSTILE} hunter22", vertex=f"{HOSTILE} hunter22")
    assert not {"\x1b", "\x07", "\u202e"} & set(line)
    assert "hunter22" not in line
    if isinstance(formatter, JsonLines):
        assert line.isascii()
        assert len(line.splitlines()) == 1
        assert json.loads(line)["message"] == f"{HOSTILE} ***"


def test_a_process_knows_its_job_while_it_runs_it() -> None:
    with logging_for_job("j2", "payments"):
        assert (log_context().job_id, log_context().job) == ("j2", "payments")
    assert log_context().job is None


def test_a_worker_tells_its_lines_once_and_they_are_numbered_anew() -> None:
    of_worker, of_job = RecentLogs(), RecentLogs()
    for number in range(150):
        of_worker.handle(logging.makeLogRecord({"msg": f"line {number}", "levelname": "INFO"}))
    of_job.handle(logging.makeLogRecord({"msg": "own", "levelname": "INFO"}))
    told = []
    while lines := of_worker.take_untold():
        told.append(len(lines))
        of_job.add(lines)
    assert told == [100, 50], "a report stays small"
    kept = of_job.after()
    assert kept.last == 151
    assert [line.number for line in kept.lines] == list(range(1, 152))
    assert [line.message for line in kept.lines[:2]] == ["own", "line 0"]


def test_a_file_that_cannot_be_written_is_wrong_input(flowrun: Command, tmp_path: Path) -> None:
    outcome = flowrun("run", tmp_path / "no.yaml", "--log-file", tmp_path / "none" / "log")
    assert outcome.code == 2
    assert "--log-file" in outcome.err
    assert "No such file or directory" in outcome.err


def test_a_file_that_was_moved_away_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, root = logging.getLogger("flowrun.tests.moved"), logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    file = tmp_path / "log"
    start_log(LogOptions("info", "json", file))
    log.info("one")
    file.rename(tmp_path / "log.1")
    log.info("two")
    for handler in root.handlers:
        handler.close()
    assert [json.loads(path.read_text())["message"] for path in (tmp_path / "log.1", file)] == ["one", "two"]


PIPELINE = """
name: counted
settings: {{parallelism: 2, checkpoint: {{interval: 50ms, dir: '{folder}/state'}}}}
sources:
  rows: {{connector: datagen, schema: {{id: BIGINT}}, rows-per-second: 100}}
steps:
  told: {{from: rows, key_by: [id], process: {{function: 'talk:Told', schema: {{id: BIGINT}}}}}}
sinks:
  out: {{from: told, connector: blackhole}}
"""
FUNCTIONS = """
import logging

from flowrun.api.process_function import KeyedProcessFunction

_log = logging.getLogger("talk")


class Told(KeyedProcessFunction):
    def process_element(self, row, context):
        _log.warning("row %d", row["id"])
        yield row
"""


@pytest.mark.exhaustive
def test_functions_of_users_log_from_all_processes_into_one_file_and_to_who_asks_the_job(
    tmp_path: Path, own_registry: Path
) -> None:
    file, log = tmp_path / "pipeline.yaml", tmp_path / "log"
    file.write_text(PIPELINE.format(folder=tmp_path))
    (tmp_path / "talk.py").write_text(FUNCTIONS)
    with started("run", file, "--workers", 2, "--log-format", "json", "--log-file", log, "-q", cwd=tmp_path) as process:
        asked: list[dict[str, Any]] = []

        def both_are_heard() -> bool:
            for entry in JobRegistry([own_registry]).entries():
                asked.extend(logs_after(entry, asked[-1]["number"] if asked else 0))
            return len({line["worker"] for line in asked if line["logger"] == "talk"}) == 2

        wait_for(both_are_heard, process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    told = [line for line in lines if line["logger"] == "talk"]
    assert {line["job"] for line in told} == {"counted"}, err
    assert {(line["subtask"], line["worker"]) for line in told} >= {(line["subtask"], line["worker"]) for line in asked}
    assert {line["subtask"] for line in told} == {0, 1}
    assert all("told" in line["vertex"] for line in told)
    numbers = [line["number"] for line in asked]
    assert numbers == sorted(set(numbers))


def logs_after(entry: JobEntry, number: int) -> list[dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", entry.port, timeout=10)
    connection.request(
        "GET", f"/v1/jobs/{entry.job_id}/logs?after={number}", headers={"Authorization": f"Bearer {entry.token}"}
    )
    lines: list[dict[str, Any]] = json.loads(connection.getresponse().read())["lines"]
    connection.close()
    return lines
