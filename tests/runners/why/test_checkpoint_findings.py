"""What is found in a checkpoint of a job that does not run, and in the text of a pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.core.clock import SystemClock
from flowrun.runners.compile import compile_file
from flowrun.runners.why.checkpoint_findings import checkpoint_findings
from flowrun.runners.why.finding import Severity, Thresholds
from flowrun.runners.why.isolated import check_fits
from flowrun.runners.why.text_findings import streaming_job_graph, text_findings
from flowrun.state.storage.locate import locate
from tests.runners.why.jobs import (
    ORDERS,
    PAYMENTS,
    Found,
    by_kind,
    job_graph,
    one,
    order,
    payment,
    read,
    running,
    until,
)
from tests.runners.why.test_row_story import JOIN, WINDOWS, checkpoint_of, compiled

pytestmark = pytest.mark.exhaustive

LITTLE = Thresholds(skewed_rows=20, growing_rows=10)


def found_at(folder: Path, text: str, sources: dict, counts: dict[str, int]) -> Found:
    snapshot = checkpoint_of(folder, text, sources, counts)
    graph = check_fits(compiled(folder, text), snapshot)
    return by_kind(checkpoint_findings(snapshot, graph, SystemClock(), LITTLE))


def test_windows_that_were_open_say_until_when(tmp_path: Path) -> None:
    found = found_at(tmp_path, WINDOWS, {"orders": {"p0": [[order(1, 70), order(2, 100)]]}}, {"orders": 2})
    waits = one(found, "waits_for_event_time")
    assert waits.text.startswith("At the checkpoint: The first that comes out is window [2024-03-01 00:01:00")
    assert waits.severity is Severity.INFORMS
    assert "watermark_held_back" not in found


def test_a_split_that_was_behind(tmp_path: Path) -> None:
    sources = {"orders": {"p0": [[order(1, 10), order(2, 300)]], "p1": [[order(3, 20)]]}}
    held = one(found_at(tmp_path, WINDOWS, sources, {"orders": 3}), "watermark_held_back")
    assert held.figures["split"] == "p1"
    assert held.figures["behind_ms"] == pytest.approx(280_000, abs=1)
    assert held.severity is Severity.RISKS, "how long it had been silent is not known"


def test_keys_that_have_most_of_the_state(tmp_path: Path) -> None:
    users = ["bob"] * 30 + [f"u{i}" for i in range(10)]
    sources = {
        "orders": {"p0": [[order(i, i, user) for i, user in enumerate(users)]]},
        "payments": {"q0": [[payment(1, 1, "nobody")]]},
    }
    graph = job_graph(tmp_path, JOIN, sources)
    join = next(o.name for v in graph.vertices for o in v.operators if "Join" in type(o.factory).__name__)
    heavy = one(found_at(tmp_path, JOIN, sources, {join: 41}), "heavy_keys")
    assert heavy.figures["key user_id = 'bob'"] == 30
    assert "30 (75 %)" in heavy.text


def test_state_that_was_larger_in_each_checkpoint(tmp_path: Path) -> None:
    state, batches = tmp_path / "state", [0]
    sources = {
        "orders": {"p0": [[order(10 * b + i, i, f"u{b}{i}") for i in range(10)] for b in range(4)]},
        "payments": {"q0": [[payment(1, 1, "nobody")]]},
    }
    settings = {"checkpoint__interval": "10m", "checkpoint__dir": str(state), "checkpoint__retain": "5"}
    graph = job_graph(tmp_path, JOIN, sources, batches=batches, **settings)
    join = next(o.name for v in graph.vertices for o in v.operators if "Join" in type(o.factory).__name__)
    kinds = []
    with running(graph, state) as job:
        for taken in range(1, 5):
            batches[0] = taken
            until(job, read({join: 10 * taken + 1}))
            snapshot = locate(job.take_snapshot(savepoint=False).wait(10_000))
            fitting = check_fits(compiled(tmp_path, JOIN), snapshot)
            kinds.append(by_kind(checkpoint_findings(snapshot, fitting, SystemClock(), LITTLE)))
    assert ["state_grows" in found for found in kinds] == [False, False, True, True], "two checkpoints are no trend"
    told = one(kinds[-1], "state_grows")
    assert (told.figures["entries"], told.figures["file_rows_before"], told.figures["file_rows"]) == (41, 11, 41)


def test_a_job_that_had_come_to_its_end(tmp_path: Path) -> None:
    state = tmp_path / "state"
    graph = job_graph(
        tmp_path, WINDOWS, {"orders": {"p0": [[order(1, 1)]]}}, checkpoint__interval="10m", checkpoint__dir=str(state)
    )
    with running(graph, state) as job:
        until(job, read({"orders": 1}))
        path = job.take_snapshot(savepoint=False, stop=True, drain=True).wait(10_000)
        job.wait()
    snapshot = locate(path)
    found = checkpoint_findings(snapshot, check_fits(compiled(tmp_path, WINDOWS), snapshot), SystemClock())
    assert [f.kind for f in found] == ["at_end"]


@pytest.mark.parametrize(("condition", "kinds"), [("1 = 2", ["never_true"]), ("id = 2", [])])
def test_a_condition_that_is_never_true(tmp_path: Path, condition: str, kinds: list[str]) -> None:
    file = tmp_path / "job.sql"
    sink = "CREATE TABLE s (id BIGINT) WITH ('connector' = 'blackhole');"
    file.write_text(f"{ORDERS}{sink} INSERT INTO s SELECT id FROM orders WHERE amount > 1 AND {condition};")
    job = compile_file(file, {}, {})
    found = text_findings(job)
    assert [f.kind for f in found if f.severity is Severity.BLOCKS] == kinds
    if kinds:
        assert "((amount > 1) AND (1 = 2))" in found[0].text
    assert streaming_job_graph(job).name == job.job_graph.name


def test_ids_of_operators_do_not_depend_on_how_a_pipeline_runs(tmp_path: Path) -> None:
    file = tmp_path / "job.sql"
    file.write_text(JOIN)
    ids = [
        {
            o.operator_id
            for v in streaming_job_graph(compile_file(file, {}, {"settings.parallelism": p})).vertices
            for o in v.operators
        }
        for p in ("1", "3")
    ]
    assert ids[0] == ids[1] == {o.operator_id for v in compiled(tmp_path, JOIN).vertices for o in v.operators}
    assert PAYMENTS in JOIN
