"""Jobs that are killed before, at and after the switch: every row is there once, and no window counts a row that others had."""

from __future__ import annotations

import contextlib
import random
import subprocess
from pathlib import Path

import pytest

from tests.connectors.hybrid.die_at import COUNTS, SWITCH_PHASES
from tests.connectors.hybrid.running import END, HybridJob, end
from tests.servers.kafka import KafkaBroker

pytestmark = pytest.mark.exhaustive


def life(job: HybridJob, parallelism: int, *words: str) -> tuple[str, ...]:
    """The words that begin the job, or let it go on from its newest checkpoint."""
    known = any((job.folder / "state").glob("*/chk-*/_metadata.json"))
    return (
        *words, *(("resume", "--from-savepoint", "state") if known else ("run",)), "job.sql",
        "--set", "settings.checkpoint.dir=state", "--set", "settings.batch_rows=10", "--workers", "0",
        "-p", str(parallelism), "--no-live",
    )  # fmt: skip


OF_CI = ("before the switch", "when a reader of the stream begins")


@pytest.mark.parametrize("phase", [p if p in OF_CI else pytest.param(p, marks=pytest.mark.soak) for p in SWITCH_PHASES])
def test_a_kill_at_the_switch(kafka: KafkaBroker, tmp_path: Path, phase: str) -> None:
    job = HybridJob(kafka, tmp_path)
    job.run(*life(job, 2, "-m", "tests.connectors.hybrid.die_at", phase, str(COUNTS.get(phase, 1))), code=-9)
    job.until(job.start(*life(job, 1)), END)
    job.check()


def test_kills_at_random_times_and_other_parallelisms(kafka: KafkaBroker, tmp_path: Path) -> None:
    random_kills(HybridJob(kafka, tmp_path), random.Random(5), 2)


@pytest.mark.soak
def test_forty_kills_at_random_times(kafka: KafkaBroker, tmp_path: Path) -> None:
    random_kills(HybridJob(kafka, tmp_path), random.Random(6), 40)


def random_kills(job: HybridJob, chance: random.Random, kills: int) -> None:
    """Each life writes some more rows, and a moment later it is killed; where it would run dry, there are more messages."""
    rows = END
    for _ in range(kills):
        wanted = job.ids.total() + chance.randint(1, 200)
        while rows < wanted:
            job.produce(range(rows, rows + 100))
            rows += 100
        slow = ("-m", "tests.connectors.hybrid.die_at", "before the switch", "1000")
        process = job.start(*life(job, chance.choice((1, 2, 3)), *slow))
        job.until_rows(process, wanted, kill=False)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(chance.uniform(0.0, 0.3))
        end(process)
    job.until(job.start(*life(job, 2)), rows)
    job.check(rows)


def test_messages_that_go_before_they_are_read_end_the_job(kafka: KafkaBroker, tmp_path: Path) -> None:
    job = HybridJob(kafka, tmp_path)
    job.run(*life(job, 1, "-m", "tests.connectors.hybrid.die_at", "before the switch", "1"), code=-9)
    assert any((tmp_path / "state").glob("*/chk-*/_metadata.json")), "a checkpoint knows the offsets"
    kafka.delete_records(job.topic, 1, 250)
    said = job.run(*life(job, 1), code=1)
    assert f"topic '{job.topic}', partition 1: the position to read on at is not there any more" in said


@pytest.mark.soak
def test_a_stream_goes_on_with_what_comes_after_the_switch(kafka: KafkaBroker, tmp_path: Path) -> None:
    job = HybridJob(kafka, tmp_path)
    process = job.start(*life(job, 2))
    job.until_rows(process, END, kill=False)
    job.produce(range(END, END + 100))
    job.until(process, END + 100)
    job.check(END + 100)
