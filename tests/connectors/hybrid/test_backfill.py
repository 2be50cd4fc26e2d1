"""A backfill of history, and the stream that goes on from its savepoint with Kafka: both together count each row once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connectors.hybrid.running import DELTA, END, FILES, SWITCH, HybridJob
from tests.connectors.hybrid.tables import stamp
from tests.end_to_end.conftest import Command, flowrun
from tests.servers.kafka import KafkaBroker

__all__ = ["flowrun"]
pytestmark = [pytest.mark.exhaustive, pytest.mark.usefixtures("spark")]


def backfill(flowrun: Command, job: HybridJob, to: int, *words: str, code: int = 0) -> str:
    done = flowrun("backfill", "job.sql", "--to", stamp(to).replace(" ", "T"), "-q", *words)
    assert done.code == code, done.err
    return done.err


@pytest.mark.parametrize(("history", "to"), [(FILES, SWITCH - 95), (DELTA, SWITCH)], ids=["files", "delta"])
def test_the_stream_goes_on_where_the_backfill_ended(
    kafka: KafkaBroker, flowrun: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, history: str, to: int
) -> None:
    monkeypatch.chdir(tmp_path)
    job = HybridJob(kafka, tmp_path, history=history)
    backfill(flowrun, job, to, "--savepoint", "savepoints")
    assert sorted(job.ids) == list(range(to))
    (savepoint,) = (tmp_path / "savepoints").iterdir()
    process = job.start("resume", "--from-savepoint", str(savepoint), "-p", "2")
    job.until(process, END)
    job.check()


def test_offsets_are_those_that_the_backfill_found(
    kafka: KafkaBroker, flowrun: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = HybridJob(kafka, tmp_path)
    backfill(flowrun, job, SWITCH, "--savepoint", "savepoints")
    kafka.delete_records(job.topic, 0, 250)
    (savepoint,) = (tmp_path / "savepoints").iterdir()
    said = job.run("resume", "--from-savepoint", str(savepoint), code=1)
    assert f"topic '{job.topic}', partition 0: the position to read on at is not there any more" in said


def test_a_backfill_needs_rows_that_have_an_end(
    kafka: KafkaBroker, flowrun: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = HybridJob(kafka, tmp_path)
    said = backfill(flowrun, job, SWITCH + 1, code=2)
    assert "source 'rows_in' has no end (connector hybrid)" in said
    assert "end a backfill at its 'switch-time' or earlier" in said
    script = (tmp_path / "job.sql").read_text()
    (tmp_path / "job.sql").write_text(
        script.replace("TUMBLE(TABLE rows_in, DESCRIPTOR(ts),", "SESSION(TABLE rows_in, DESCRIPTOR(ts),")
    )
    said = backfill(flowrun, job, SWITCH, code=2)
    assert "source 'rows_in': rows behind the range are needed, too" in said
    assert not (tmp_path / "out").exists()


def test_without_a_time_for_the_switch_there_is_no_savepoint(
    kafka: KafkaBroker, flowrun: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bounded = ", 'live.scan.startup.mode' = 'earliest-offset', 'live.scan.bounded.mode' = 'latest-offset'"
    job = HybridJob(kafka, tmp_path, switch=False, more=bounded)
    said = backfill(flowrun, job, SWITCH, "--savepoint", "savepoints", code=2)
    assert "reads sources one after the other without a time for the switch" in said
    assert not (tmp_path / "savepoints").exists()
