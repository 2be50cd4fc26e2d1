"""A savepoint goes on in an edited pipeline: steps are found by their names, so no uid is needed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import JobStateOptions, start_embedded
from tests.end_to_end.running import json_rows
from tests.recovery.gates import SOURCE
from tests.recovery.pipelines import write_pipeline, write_rows
from tests.recovery.runs import TIMEOUT_MS, run_to_end


def test_a_filter_added_steps_reordered_and_a_new_sink(tmp_path: Path) -> None:
    write_rows(tmp_path, 11, late=False)
    file, state = write_pipeline(tmp_path, "tumbling", 2, unaligned=False), tmp_path / "state"
    file.write_text(file.read_text().replace(", uid: results", ""))
    SOURCE.close_after(1_200)
    with start_embedded(compile_pipeline(file).job_graph, state=JobStateOptions(str(state))) as job:
        SOURCE.reached.wait(TIMEOUT_MS / 1000)
        ticket = job.take_snapshot(str(tmp_path / "savepoints"), stop=True)
        SOURCE.drip()
        savepoint = ticket.wait(TIMEOUT_MS)
        job.wait(TIMEOUT_MS)
    before = sum(int(str(row["n"])) for row in json_rows(tmp_path / "out"))

    edited = file.read_text()
    held = '  held: {from: rows, map: "tests.recovery.gates:source_gate", parallelism: 1}\n'
    assert held in edited
    edited = edited.replace(held, '  wanted: {from: held, filter: "id >= 0"}\n').replace(
        "from: held, key_by", "from: wanted, key_by"
    )
    edited = edited.replace(
        "sinks:\n",
        f'{held}sinks:\n  all: {{from: wanted, connector: filesystem, path: "{tmp_path}/all", format: json}}\n',
    )
    file.write_text(edited)
    SOURCE.open()
    job_graph = compile_pipeline(file, overrides={"settings.parallelism": "3"}).job_graph
    with start_embedded(job_graph, state=JobStateOptions(str(state), restore_from=savepoint)) as job:
        job.wait(TIMEOUT_MS)

    whole = tmp_path / "whole"
    write_rows(whole, 11, late=False)
    run_to_end(write_pipeline(whole, "tumbling", 2, unaligned=False), whole / "state")
    windows, expected = json_rows(tmp_path / "out"), json_rows(whole / "out")
    assert before > 0
    assert Counter(map(str, windows)) == Counter(map(str, expected))
    ids = [int(str(row["id"])) for row in json_rows(tmp_path / "all")]
    assert len(ids) == len(set(ids))
    assert set(ids) == set(range(min(ids), 3_000)), "the new sink has every row after the savepoint"
