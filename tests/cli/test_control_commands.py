"""`jobs`, `savepoint`, `stop` and `cancel`, against jobs that do as the test says."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from flowrun.cli.running_jobs import RunningJobs, choose, choose_known, wait_for_answer
from flowrun.core.clock import ManualClock
from flowrun.errors import PipelineError, StateError
from flowrun.runners.control_client import client_of
from flowrun.runners.job_document import document_of
from flowrun.runners.registry import JobRegistry, new_entry
from flowrun.runtime.lifecycle import JobState
from flowrun.state.checkpoints import PipelineText
from tests.end_to_end.conftest import Command
from tests.rest.control_fakes import FakeJob, FakeTicket, controlled


@pytest.fixture
def jobs(own_registry: Path) -> Iterator[dict[str, FakeJob]]:
    """Two running jobs."""
    running = {"orders": FakeJob("aaaa1111" * 4), "payments": FakeJob("aabb2222" * 4)}
    with ExitStack() as stack:
        for name, job in running.items():
            stack.enter_context(controlled(job, own_registry, name=name))
        yield running


def test_jobs_lists_what_runs(flowrun: Command, jobs: dict[str, FakeJob]) -> None:
    table = flowrun("jobs").out.splitlines()
    assert [line.split()[:2] for line in table] == [["ID", "NAME"], ["aaaa1111", "orders"], ["aabb2222", "payments"]]
    for part in ("running (2 restarts)", "6.0 k", "3.0 k", "7, ", "ago (1 failed)"):
        assert part in table[1], table[1]
    listed = json.loads(flowrun("jobs", "--json").out)
    assert [job["name"] for job in listed] == ["orders", "payments"]
    assert listed[0]["checkpoints"]["last"]["path"] == "/state/chk-7"
    assert "token" not in listed[0]


def test_a_job_that_does_not_answer_is_listed_while_its_process_lives(flowrun: Command, own_registry: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        entry = new_entry("cccc3333" * 4, "frozen", "frozen.yaml", nobody.getsockname()[1], 0)
        JobRegistry([own_registry]).add(entry)
        line = flowrun("jobs").out.splitlines()[1]
        assert line.split()[:2] == ["cccc3333", "frozen"]
        assert "does not answer" in line
        (listed,) = json.loads(flowrun("jobs", "--json").out)
        assert (listed["state"], listed["rows_read"], "token" in listed) == ("does not answer", None, False)
    JobRegistry([own_registry]).remove(entry.job_id)


def test_jobs_says_when_nothing_runs(flowrun: Command) -> None:
    assert flowrun("jobs").out == "no job runs\n"
    assert flowrun("jobs", "--json").out == "[]\n"


@pytest.mark.parametrize("command", ["savepoint", "stop", "cancel"])
def test_a_job_that_does_not_run_is_wrong_input(flowrun: Command, command: str) -> None:
    outcome = flowrun(command, "orders")
    assert outcome.code == 2
    assert "no job of yours runs on this machine" in outcome.err


def test_a_savepoint_goes_to_standard_output_and_how_to_resume_to_standard_error(
    flowrun: Command, jobs: dict[str, FakeJob], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs["orders"].answer_with = "/my keep/savepoint-1"
    monkeypatch.chdir(tmp_path)
    outcome = flowrun("savepoint", "orders", "keep")
    assert outcome.code == 0, outcome.err
    assert outcome.out == "/my keep/savepoint-1\n"
    assert outcome.err == "resume with:\n  flowrun resume --from-savepoint '/my keep/savepoint-1'\n"
    asked = ("snapshot", str(tmp_path / "keep"), True, False, False)
    assert jobs["orders"].asked == [asked], "DIR is relative to the terminal in which the command is given"
    assert jobs["payments"].asked == []


def test_a_uri_stays_as_it_is_and_without_a_folder_the_job_decides(flowrun: Command, jobs: dict[str, FakeJob]) -> None:
    jobs["orders"].answer_with = "x"
    flowrun("savepoint", "aaaa", "s3://bucket/keep")
    flowrun("savepoint", "aaaa")
    assert [asked[1] for asked in jobs["orders"].asked] == ["s3://bucket/keep", None]


def test_a_savepoint_that_fails_says_why(flowrun: Command, jobs: dict[str, FakeJob]) -> None:
    jobs["orders"].refusal = StateError("the job takes no checkpoints", hint="set settings.checkpoint")
    outcome = flowrun("savepoint", "orders")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == "error: the job takes no checkpoints\n  hint: set settings.checkpoint\n"


def test_a_savepoint_that_takes_too_long_goes_on_without_us(flowrun: Command, jobs: dict[str, FakeJob]) -> None:
    outcome = flowrun("savepoint", "orders", "--timeout", "0s")
    assert outcome.code == 1
    assert "taking a savepoint of 'orders': not done after 0 ms" in outcome.err
    jobs["orders"].tickets[0].succeed("late")


def test_stop_ends_with_a_checkpoint_or_a_savepoint(flowrun: Command, jobs: dict[str, FakeJob]) -> None:
    jobs["orders"].answer_with = "/state/orders/chk-8"
    jobs["payments"].answer_with = "/keep/savepoint-2"
    stopped = flowrun("stop", "orders", "--drain")
    assert stopped.code == 0, stopped.err
    assert stopped.out == "/state/orders/chk-8\n"
    assert "'orders' is stopped\nresume with:\n  flowrun resume --from-savepoint /state/orders/chk-8\n" in stopped.err
    assert flowrun("stop", "payments", "--savepoint", "/keep").out == "/keep/savepoint-2\n"
    assert jobs["orders"].asked == [("snapshot", None, False, True, True)]
    assert jobs["payments"].asked == [("snapshot", "/keep", True, True, False)]


@pytest.mark.parametrize("command", ["savepoint", "stop"])
def test_the_command_that_resumes_names_secret_variables_and_the_folder_of_functions(
    flowrun: Command, own_registry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    folder = tmp_path / "my shop"
    folder.mkdir()
    kept = PipelineText("p.yaml", "steps: {a: {map: {function: f}}}", str(folder), withheld=("KEY", "PW"))
    job = FakeJob()
    job.answer_with = "/keep/7"
    with controlled(job, own_registry, document=document_of(kept)):
        monkeypatch.chdir(folder)
        here = flowrun("savepoint", "orders").err
        monkeypatch.chdir(tmp_path)
        elsewhere = flowrun(command, "orders").err
    resume, secrets = "flowrun resume --from-savepoint /keep/7", "--secret-var KEY=… --secret-var PW=…"
    assert here.splitlines()[-1].strip() == f"{resume} {secrets}"
    assert elsewhere.splitlines()[-1].strip() == f"{resume} --functions-from '{folder}' {secrets}"


def test_cancel_ends_a_job(flowrun: Command, jobs: dict[str, FakeJob]) -> None:
    outcome = flowrun("cancel", "aabb")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "'payments' is cancelled\n")
    assert jobs["payments"].asked == [("cancel",)]


@pytest.mark.parametrize("given", ["soon", "5", "-1s"])
def test_a_timeout_is_a_duration(flowrun: Command, given: str) -> None:
    outcome = flowrun("savepoint", "x", f"--timeout={given}")
    assert outcome.code == 2
    assert "is no duration" in outcome.err


def entries() -> list[object]:
    made = [("aaaa1111", "orders"), ("aabb2222", "orders"), ("cccc3333", "payments"), ("orders99", "dddd")]
    return [replace(new_entry(i, n, "f", 1, 0), pid=7) for i, n in made]


def on_a_cluster(ended: Sequence[object] = ()) -> RunningJobs:
    return RunningJobs(entries(), ended, lambda entry: entry, "on a cluster", lambda entry: True, "look elsewhere")


@pytest.mark.parametrize(("wanted", "found"), [("aaaa", "aaaa1111"), ("payments", "cccc3333"), ("orders9", "orders99")])
def test_a_job_is_found_by_its_name_or_the_beginning_of_its_id(wanted: str, found: str) -> None:
    assert choose(wanted, on_a_cluster()).job_id == found


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("orders", "'orders' fits 2 running jobs: aaaa1111 ('orders', process 7), aabb2222 ('orders', process 7)"),
        ("aa", "'aa' fits 2 running jobs"),
        ("payment", "did you mean 'payments'?"),
        ("zzz", "running: 'dddd' (orders99), 'orders' (aaaa1111), 'orders' (aabb2222), 'payments' (cccc3333)"),
        ("", "no running job has the id or name ''"),
    ],
)
def test_a_job_that_is_not_clear_is_asked_for_again(wanted: str, message: str) -> None:
    with pytest.raises(PipelineError) as refused:
        choose(wanted, on_a_cluster())
    assert message in str(refused.value)


@pytest.mark.parametrize(("wanted", "found"), [("gone", "eeee6666"), ("eeee5", "eeee5555"), ("payments", "cccc3333")])
def test_what_asks_also_those_that_ended_finds_the_newest_unless_one_runs(wanted: str, found: str) -> None:
    made = [("eeee5555", "gone"), ("eeee6666", "gone"), ("eeee7777", "payments")]
    ended = [replace(new_entry(i, n, "f", 1, 0), pid=7) for i, n in made]
    jobs = on_a_cluster(ended)
    assert choose_known(wanted, jobs).job_id == found
    with pytest.raises(PipelineError, match="no running job has the id or name 'zzz'"):
        choose_known("zzz", jobs)
    with pytest.raises(PipelineError, match="fits 2 running jobs"):
        choose_known("orders", jobs)


def test_waiting_says_so_now_and_then(own_registry: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = FakeJob()
    clock = ManualClock()
    with controlled(job, own_registry):
        client = client_of(JobRegistry([own_registry]).entries()[0])
        order = client.place("savepoint")
        answers: list[object] = []

        def wait() -> None:
            answers.append(wait_for_answer(client, order, clock, doing="taking a savepoint", timeout_ms=None))

        job.waits_for = "slots: needs 2 slots, 1 of 1 are free"
        thread = threading.Thread(target=wait)
        thread.start()
        said = ""
        while said.count("\n") < 2:
            clock.advance(200)
            said += capsys.readouterr().err
        answer(job.tickets[0])
        while thread.is_alive():
            clock.advance(200)
        thread.join()
    for line in said.splitlines():
        assert re.fullmatch(
            r"taking a savepoint … [0-9a-z. ]+, it waits for slots: needs 2 slots, 1 of 1 are free", line
        )
    assert answers == [{"state": "done", "path": "/keep/1", "job_state": "running", "message": None, "hint": None}]


def test_a_job_that_has_not_begun_is_not_stopped(flowrun: Command, jobs: dict[str, FakeJob]) -> None:
    jobs["orders"].state, jobs["orders"].waits_for = JobState.CREATED, "slots: needs 2 slots, 0 of 0 are free"
    for options in ((), ("--savepoint", "keep")):
        outcome = flowrun("stop", "orders", *options)
        assert outcome.code == 1
        assert outcome.err.startswith("error: the job has not begun: it waits for slots\n  hint: cancel it"), (
            outcome.err
        )
    assert jobs["orders"].asked == [], "it would be answered when there are slots, which may be never"
    assert flowrun("cancel", "orders").code == 0


def answer(ticket: FakeTicket) -> None:
    ticket.succeed("/keep/1")
