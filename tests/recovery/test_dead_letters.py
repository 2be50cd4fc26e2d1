"""Dead letters are there once: over savepoints, checkpoints that are gone on from, and going back."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from flowrun.runtime.checkpoint.after_restore import AfterRestore
from tests.end_to_end.running import bag, json_rows
from tests.recovery.runs import TIMEOUT_MS
from tests.recovery.test_going_back import PIECES, ROWS_OF_A_PIECE, Job

Rows = Counter[str]


class Failing(Job):
    """Of each piece of the input one record cannot be decoded, four rows cannot be computed and one cannot be written."""

    def __post_init__(self) -> None:
        super().__post_init__()
        path = self.folder / "pipeline.yaml"
        text = path.read_text().replace(
            "settings:\n", f"settings:\n  on_error: dead-letter\n  dead_letters: {self.folder}/dead\n"
        )
        text = text.replace(
            "passed: {from: held, filter: id >= 0}", "passed: {from: held, filter: 100 / (id % 10) >= 0}"
        )
        lines = (
            f'  lines: {{from: texts, connector: filesystem, path: "{self.folder}/lines", format: raw, uid: lines}}\n'
        )
        bad = "CONCAT('two\\n', CAST(id AS STRING))"
        step = f'  texts: {{from: passed, select: ["CASE WHEN id % 40 = 5 THEN {bad} ELSE k END AS s"]}}\n'
        path.write_text(text.replace("\nsinks:\n", "\n" + step + "\nsinks:\n") + lines)

    def bring(self, up_to: int) -> None:
        for number in range(up_to):
            path = self.folder / "input" / f"{number}.json"
            ids = range(number * ROWS_OF_A_PIECE, (number + 1) * ROWS_OF_A_PIECE)
            rows = [json.dumps({"id": i, "k": f"k{i * 7 % 5}", "v": i, "ts": "2024-01-01 00:00:00"}) for i in ids]
            if not path.exists():
                hidden = path.with_name(f".{number}")
                hidden.write_text("\n".join(["broken", *rows]) + "\n")
                hidden.rename(path)

    @property
    def letters(self) -> tuple[Rows, Rows]:
        """Dead letters by kind, and each of them."""
        found = json_rows(self.folder / "dead")
        return Counter(str(r["kind"]) for r in found), Counter(f"{r['place']} {r['text']} {r['file']}" for r in found)

    @property
    def lines(self) -> Rows:
        """What the sink of lines shows."""
        files = [f for f in (self.folder / "lines").rglob("part-*") if not f.name.startswith(".")]
        return Counter(line for f in files for line in f.read_text().splitlines())


ALL = Counter({"decoding": PIECES, "expression": 4 * PIECES, "sink": PIECES})


class FailingIntoSink(Failing):
    """The same with a sink of its own for the letters, in two subtasks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        path = self.folder / "pipeline.yaml"
        sink = f'  letters: {{connector: filesystem, path: "{self.folder}/dead", format: json, parallelism: 2}}\n'
        text = path.read_text().replace(f"dead_letters: {self.folder}/dead", "dead_letters: {sink: letters}")
        path.write_text(text + sink)


@pytest.fixture(params=[Failing, pytest.param(FailingIntoSink, marks=pytest.mark.exhaustive)])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Failing:
    made: Failing = request.param(tmp_path)
    return made


def assert_once(job: Failing) -> None:
    kinds, each = job.letters
    assert kinds == ALL
    assert set(each.values()) == {1}
    assert sum(job.lines.values()) == PIECES * (ROWS_OF_A_PIECE - 5)
    assert len(bag(json_rows(job.folder / "raw"))) == PIECES * ROWS_OF_A_PIECE - 4 * PIECES


def test_they_are_there_once_over_a_stop_with_a_savepoint_at_another_parallelism(job: Failing) -> None:
    with job.start() as running:
        job.read(2, up_to=2)
        savepoint = job.snapshot(running, 2, savepoint=True, stop=True)
        running.wait(TIMEOUT_MS)
    assert job.letters[0] == Counter({"decoding": 2, "expression": 8, "sink": 2})
    job.finish(savepoint, settings__parallelism="3")
    assert_once(job)


@pytest.mark.parametrize("which", [0, 2, 4])
def test_they_are_there_once_whichever_snapshot_a_job_that_was_taken_down_goes_back_to(
    job: Failing, which: int
) -> None:
    paths = job.run_in_steps()
    job.finish(paths[which], AfterRestore.REMOVE)
    assert_once(job)
