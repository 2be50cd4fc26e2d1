"""`flowrun why`, against jobs that run in this process, and pipelines that do not run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowrun.masking import learn_secret
from flowrun.runners.versions.history import VersionHistory
from flowrun.runners.versions.records import HealthRules, Phase, Upgrade
from flowrun.state.storage.state_path import resolve
from tests.end_to_end.conftest import Command
from tests.rest.control_fakes import FakeJob, controlled
from tests.runners.why.jobs import ORDERS, job_graph, order, read, running, until

PIPELINE = (
    ORDERS
    + """
CREATE TABLE s (id BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO s SELECT id FROM orders WHERE amount > 5;
"""
)


@pytest.fixture
def job(own_registry: Path) -> Iterator[FakeJob]:
    job = FakeJob("aaaa1111" * 4)
    with controlled(job, own_registry, name="orders"):
        yield job


def test_a_running_job_tells_its_findings(flowrun: Command, job: FakeJob) -> None:
    outcome = flowrun("why", "orders")
    assert (outcome.code, outcome.err) == (0, "")
    first, _, rest = outcome.out.partition("\n")
    assert first.startswith("job 'orders' (aaaa1111): ")
    assert "[loses]" in rest
    assert "What to do:" in rest
    shown = json.loads(flowrun("why", "aaaa", "--json").out)
    assert shown["about"] == "job 'orders' (aaaa1111)"
    assert {"kind", "severity", "title", "text", "vertices", "operator", "figures", "remedy"} == set(
        shown["findings"][0]
    )


def test_what_a_terminal_would_obey_is_shown_as_text(flowrun: Command, own_registry: Path) -> None:
    with controlled(FakeJob("bbbb1111" * 4), own_registry, name="\x1b]0;evil\x07\u202e"):
        outcome = flowrun("why", "bbbb")
    assert outcome.code == 0, outcome.err
    assert "\\u001b]0;evil\\u0007" in outcome.out
    assert not {"\x1b", "\x07", "\u202e"} & set(outcome.out)


def test_a_job_that_does_not_run_is_wrong_input(flowrun: Command, job: FakeJob) -> None:
    outcome = flowrun("why", "ordesr")
    assert outcome.code == 2
    assert "did you mean" in outcome.err


def test_a_pipeline_that_does_not_run_and_has_no_checkpoint(
    flowrun: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sql").write_text(PIPELINE)
    outcome = flowrun("why", "job.sql")
    assert outcome.code == 0
    assert "there is no checkpoint of it" in outcome.out
    (tmp_path / "job.sql").write_text(PIPELINE.replace("amount > 5", "1 = 2"))
    assert "[blocks] sink 's' never gets a row" in flowrun("why", "job.sql").out


def test_a_pipeline_that_an_upgrade_has_stopped(
    flowrun: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = "SET 'execution.checkpointing.interval' = '1s'; SET 'execution.checkpointing.dir' = 'state';\n"
    (tmp_path / "orders.sql").write_text(settings + PIPELINE)
    assert "upgrade" not in flowrun("why", "orders.sql").out
    upgrade = Upgrade("u1", Phase.STOPPING, 1, 2, "job", 7, HealthRules(1_000))
    VersionHistory(resolve(str(tmp_path / "state" / "orders"))).write_upgrade(upgrade)
    told = flowrun("why", "orders.sql").out
    assert "[blocks] an upgrade to version 2 is not finished: stopping the old version" in told
    assert "flowrun apply FILE --continue" in told


def test_a_file_with_errors_is_wrong_input(flowrun: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sql").write_text(PIPELINE.replace("amount > 5", "amont > 5"))
    outcome = flowrun("why", "job.sql")
    assert outcome.code == 2
    assert "amont" in outcome.err


def test_secrets_are_not_shown(flowrun: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    learn_secret("hunter2222")
    (tmp_path / "job.sql").write_text(PIPELINE.replace("amount > 5", "user_id = 'hunter2222'"))
    for options in ((), ("--json",)):
        outcome = flowrun("why", "job.sql", "--row", '{"id": 1, "user_id": "x", "ts": "2024-03-01 00:00:01"}', *options)
        assert outcome.code == 0, outcome.err
        assert "is not true" in outcome.out
        assert "hunter2222" not in outcome.out


@pytest.mark.exhaustive
def test_one_row_is_followed(flowrun: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sql").write_text(PIPELINE)
    row = json.dumps(order(7, 1, amount=3))
    outcome = flowrun("why", "job.sql", "--row", row)
    assert outcome.code == 0, outcome.err
    assert "x Filter 's.filter' drops it: (amount > 5) is not true.  (job.sql:" in outcome.out
    assert "note: the operators had no state" in outcome.out
    shown = json.loads(flowrun("why", "job.sql", "--row", json.dumps(order(7, 1, amount=9)), "--json").out)
    assert shown["end"] == "It reaches sink 's' as +I[id = 7]."
    assert [s["verdict"] for s in shown["steps"]][-1] == "arrives"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--row", "{"), "--row is no JSON"),
        (("--row", '{"nix": 1}'), "no source has the columns 'nix'"),
        (("--row", '{"id": 1}', "--source", "x"), "there is no source 'x'"),
        (("--from-savepoint", "nowhere"), "nowhere"),
    ],
)
def test_what_is_asked_wrongly(
    flowrun: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sql").write_text(PIPELINE)
    outcome = flowrun("why", "job.sql", *options)
    assert outcome.code == 2
    assert message in outcome.err


@pytest.mark.exhaustive
def test_the_running_job_of_a_file_is_asked_else_its_last_checkpoint(
    flowrun: Command, tmp_path: Path, own_registry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    windows = (
        ORDERS
        + """
    CREATE TABLE totals (s TIMESTAMP(3), n BIGINT) WITH ('connector' = 'blackhole');
    INSERT INTO totals SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
    GROUP BY window_start, window_end;
    """
    )
    state = tmp_path / "state"
    settings = {"checkpoint__interval": "10m", "checkpoint__dir": str(state)}
    sources = {"orders": {"p0": [[order(1, 70), order(2, 100)]]}}
    graph = job_graph(tmp_path, windows, sources, **settings)
    file = str(tmp_path / "job.sql")
    options = ("--set", "settings.checkpoint.interval=10m", "--set", f"settings.checkpoint.dir={state}")
    with running(graph, state) as job, controlled(job, own_registry, name="job", file=file):
        until(job, read({"orders": 2}))
        asked = flowrun("why", "job.sql")
        assert asked.out.startswith("job 'job'"), asked.err
        assert "'totals.aggregate' waits for event time" in asked.out
        job.take_snapshot(savepoint=False).wait(10_000)
        row = flowrun("why", "job.sql", "--row", json.dumps(order(3, 75)), *options)
    assert "in window [2024-03-01 00:01:00, 2024-03-01 00:02:00)" in row.out, row.err
    assert "note: the state is that of checkpoint 1" in row.out
    after = flowrun("why", "job.sql", *options)
    assert "it does not run; checkpoint 1 is of" in after.out, after.err
    assert "At the checkpoint: The first that comes out is window [2024-03-01 00:01:00" in after.out
    named = flowrun("why", "job.sql", "--from-savepoint", str(state))
    assert "At the checkpoint:" in named.out, named.err
