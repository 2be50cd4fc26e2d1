"""Bounded runs whose joins are ordered by the sizes of their tables go on from a savepoint in that order, however the files have grown."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.cli.restoring import pipeline_and_state
from flowrun.errors import StateError
from flowrun.plan.explain import plan_text
from flowrun.runners.compile import CompiledPipeline, compile_pipeline
from flowrun.runners.embedded import JobStateOptions, start_embedded
from flowrun.runtime.lifecycle import JobState
from tests.end_to_end.running import json_rows
from tests.sql.recovery_gates import FUNCTIONS, GATES

TIMEOUT_MS = 60_000
SCRIPT = f"""{FUNCTIONS}
CREATE TABLE items (id BIGINT, o BIGINT, p BIGINT) WITH ('connector'='filesystem', 'path'='items', 'format'='csv');
CREATE TABLE orders (o BIGINT, day BIGINT) WITH ('connector'='filesystem', 'path'='orders', 'format'='csv');
CREATE TABLE parts (p BIGINT, brand BIGINT) WITH ('connector'='filesystem', 'path'='parts', 'format'='csv');
CREATE TABLE joined (id BIGINT, day BIGINT, brand BIGINT) WITH ('connector'='filesystem', 'path'='out', 'format'='json');
INSERT INTO joined SELECT i.id, o.day, p.brand FROM (SELECT * FROM items WHERE gate_a(id)) AS i
  JOIN orders AS o ON i.o = o.o JOIN parts AS p ON i.p = p.p WHERE p.brand = 3;
"""


def write(file: Path, rows: list[tuple[int, ...]]) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(",".join(map(str, row)) + "\n" for row in rows))


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Few orders and few parts, so that few parts are joined with the items first."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "items/1.csv", [(i, i % 50, i % 50) for i in range(6_000)])
    write(tmp_path / "orders/1.csv", [(o, o % 7) for o in range(50)])
    write(tmp_path / "parts/1.csv", [(p, p % 5) for p in range(50)])
    path = tmp_path / "pipeline.sql"
    path.write_text(SCRIPT)
    return path


def stopped(compiled: CompiledPipeline) -> str:
    """Run until about half of the items are read; gives the savepoint."""
    gate = GATES["a"]
    gate.close_after(1_000)
    with start_embedded(compiled.job_graph, state=JobStateOptions("state", pipeline=compiled.text)) as job:
        assert gate.reached.wait(30)
        ticket = job.take_snapshot("savepoints", savepoint=True, stop=True)
        gate.drip()
        savepoint = ticket.wait(TIMEOUT_MS)
        gate.open()
        assert job.wait(TIMEOUT_MS) is not None
    return savepoint


@pytest.mark.parametrize("given", [True, False], ids=["with the file", "without it"])
def test_a_savepoint_is_read_in_the_order_that_it_was_made_in(given: bool, script: Path) -> None:
    options = {"settings.batch_rows": "10"}
    first = compile_pipeline(script, {}, options)
    unordered = compile_pipeline(script, {}, {**options, "settings.join_reorder": "false"})
    assert plan_text(first.optimised) != plan_text(unordered.optimised), (
        "the joins do not move: there is nothing to test"
    )
    savepoint = stopped(first)
    write(script.parent / "parts/2.csv", [(p, p % 5) for p in range(50, 60_000)])
    write(script.parent / "items/2.csv", [(i, i % 50, i % 50) for i in range(6_000, 6_100)])
    assert plan_text(compile_pipeline(script, {}, options).optimised) == plan_text(unordered.optimised), (
        "now it is as good as written"
    )
    compiled, found = pipeline_and_state(
        script if given else None, savepoint, {}, options, functions_from=Path.cwd(), runs=True, quiet=True
    )
    assert plan_text(compiled.optimised) == plan_text(first.optimised)
    with start_embedded(
        compiled.job_graph, state=JobStateOptions("state", restore_from=found.folder, pipeline=compiled.text)
    ) as job:
        result = job.wait(TIMEOUT_MS)
    assert result is not None
    assert result.state is JobState.FINISHED
    rows = sorted(tuple(row.values()) for row in json_rows(script.parent / "out"))
    assert rows == [(i, i % 50 % 7, 3) for i in range(6_100) if i % 50 % 5 == 3]


def test_state_of_the_written_order_is_read_in_that_order(script: Path) -> None:
    """As that of older versions, which did not know of sizes."""
    unordered = compile_pipeline(script, {}, {"settings.batch_rows": "10", "settings.join_reorder": "false"})
    savepoint = stopped(unordered)
    compiled, _ = pipeline_and_state(script, savepoint, {}, {}, functions_from=None, runs=True, quiet=True)
    assert plan_text(compiled.optimised) == plan_text(unordered.optimised)


def test_state_of_one_order_is_never_taken_for_that_of_another(script: Path) -> None:
    savepoint = stopped(compile_pipeline(script, {}, {"settings.batch_rows": "10"}))
    unordered, _ = pipeline_and_state(
        script, savepoint, {}, {"settings.join_reorder": "false"}, functions_from=None, runs=True, quiet=True
    )
    with pytest.raises(StateError, match=r"o\.join|joined\.join"):
        start_embedded(unordered.job_graph, state=JobStateOptions("state", restore_from=savepoint)).wait(TIMEOUT_MS)
