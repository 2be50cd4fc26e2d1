"""Which of a cluster, Spark, and processes of this machine runs a job: what the command line asks for; `FLOWRUN_CLUSTER` is a default."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.conftest import Command

NOBODY = "127.0.0.1:1"
"""Where no cluster answers."""
IDS = """
CREATE TABLE ids (id BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '10');
CREATE TABLE found (id BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
INSERT INTO found SELECT id FROM ids;
"""
NO_MASTER = ("--spark-master", "nonsense")
TRIED_SPARK = "'nonsense' is no Spark master"
TRIED_CLUSTER = f"cannot connect to tcp://{NOBODY}"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ids.sql").write_text(IDS)
    (tmp_path / "batch.sql").write_text("SET 'execution.runtime-mode' = 'batch';" + IDS)
    (tmp_path / "secret").write_text("5" * 64)
    (tmp_path / "secret").chmod(0o600)
    monkeypatch.setenv("FLOWRUN_CLUSTER_SECRET_FILE", "secret")
    return tmp_path


@pytest.fixture
def default_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWRUN_CLUSTER", NOBODY)


@pytest.mark.usefixtures("default_cluster")
def test_the_variable_names_the_cluster_of_jobs_that_ask_for_no_other_place(flowrun: Command) -> None:
    assert TRIED_CLUSTER in flowrun("run", "ids.sql", "--detach").err


@pytest.mark.usefixtures("default_cluster")
@pytest.mark.parametrize("workers", ["0", "auto"])
def test_workers_of_this_machine_count_more_than_the_variable(flowrun: Command, folder: Path, workers: str) -> None:
    outcome = flowrun("run", "ids.sql", "--workers", workers)
    assert outcome.code == 0, outcome.err
    assert list((folder / "out").iterdir())


@pytest.mark.usefixtures("default_cluster")
@pytest.mark.parametrize("asked", [("ids.sql", "--on", "spark"), ("ids.sql", "--mode", "batch"), ("batch.sql",)])
def test_spark_counts_more_than_the_variable(flowrun: Command, asked: tuple[str, ...]) -> None:
    outcome = flowrun("run", *asked, *NO_MASTER)
    assert (outcome.code, TRIED_SPARK in outcome.err) == (2, True), outcome.err


@pytest.mark.usefixtures("default_cluster")
@pytest.mark.parametrize("asked", [("ids.sql", "--workers", "2"), ("ids.sql", "--on", "spark"), ("batch.sql",)])
def test_only_jobs_of_a_cluster_are_detached(flowrun: Command, asked: tuple[str, ...]) -> None:
    outcome = flowrun("run", *asked, "--detach")
    assert (outcome.code, "--detach goes with" in outcome.err) == (2, True), outcome.err


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("ids.sql", "--workers", "2"), "--workers is for jobs of this machine"),
        (("ids.sql", "--on", "spark"), "--cluster does not go with --on spark"),
        (("batch.sql",), "--cluster goes with --mode streaming"),
    ],
)
def test_a_cluster_on_the_command_line_contradicts_another_place(
    flowrun: Command, asked: tuple[str, ...], said: str
) -> None:
    outcome = flowrun("run", *asked, "--cluster", NOBODY)
    assert (outcome.code, said in outcome.err) == (2, True), outcome.err


def test_certificates_go_with_what_listens(flowrun: Command) -> None:
    outcome = flowrun("run", "ids.sql", "--tls", "certificates")
    assert (outcome.code, "--tls goes with --cluster, --rest or --on spark" in outcome.err) == (2, True), outcome.err
    outcome = flowrun("run", "ids.sql", "--on", "spark", "--tls", "certificates")
    assert (outcome.code, "certificates/cert.pem" in outcome.err) == (1, True), outcome.err
