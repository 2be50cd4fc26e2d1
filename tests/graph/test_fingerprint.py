"""Fingerprints of job graphs: equal in every process that compiled the same, different where anything differs."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from flowrun.errors import ClusterError
from flowrun.graph.fingerprint import check_fingerprint, fingerprint
from flowrun.runners.compile import compile_pipeline
from tests.end_to_end.running import PIPELINES, ROOT

PROGRAM = """
import sys
from pathlib import Path
from flowrun.graph.fingerprint import fingerprint
from flowrun.runners.compile import compile_pipeline
for file in sys.argv[1:]:
    print(fingerprint(compile_pipeline(Path(file), {"EVENTS": "samples", "OUT": "o"} if file.endswith(".sql") else {}).job_graph))
"""


@pytest.mark.exhaustive
def test_processes_with_other_hash_seeds_give_the_same() -> None:
    files = [
        *sorted(PIPELINES.glob("*.yaml")),
        *(PIPELINES / "nexmark" / f"{q}.sql" for q in ("q0", "q4", "q7", "q16", "q20")),
    ]
    found = []
    for seed in ("1", "2"):
        command = [sys.executable, "-c", PROGRAM, *map(str, files)]
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        found.append(done.stdout.splitlines())
    assert found[0] == found[1]
    assert len(set(found[0])) == len(files), "pipelines differ"


def test_what_differs_is_named(tmp_path: Path) -> None:
    graphs = []
    for size in ("1s", "2s"):
        file = tmp_path / "p.yaml"
        file.write_text(
            "name: p\nsources: {s: {connector: datagen, schema: {k: BIGINT, ts: TIMESTAMP(3)}, number-of-rows: 1,"
            " watermark: {column: ts}}}\n"
            f"steps: {{w: {{from: s, key_by: k, window: {{type: tumbling, size: {size}}}, aggregate: COUNT(*) AS n}}}}\n"
            "sinks: {o: {from: w, connector: blackhole}}\n"
        )
        graphs.append(compile_pipeline(file).job_graph)
    check_fingerprint(graphs[0], fingerprint(graphs[0]))
    with pytest.raises(ClusterError, match=r"than by the job manager: .*'w -> Sink: o'"):
        check_fingerprint(graphs[0], fingerprint(graphs[1]))
    fewer = replace(graphs[0], vertices=graphs[0].vertices[:1])
    with pytest.raises(ClusterError, match=r"that (is|are) not there"):
        check_fingerprint(fewer, fingerprint(graphs[0]))
    key_groups = replace(graphs[0], vertices=tuple(replace(v, max_parallelism=7) for v in graphs[0].vertices))
    assert fingerprint(key_groups) != fingerprint(graphs[0])


def test_settings_are_a_part_of_it() -> None:
    graph = compile_pipeline(PIPELINES / "word_count.yaml").job_graph
    assert graph is not None
    other = replace(graph, settings=replace(graph.settings, batch_rows=7))
    with pytest.raises(ClusterError, match=r"than by the job manager: the settings\n"):
        check_fingerprint(other, fingerprint(graph))
    with pytest.raises(ClusterError):
        check_fingerprint(graph, "nonsense,a=")
