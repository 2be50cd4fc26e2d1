"""Streams in Spark's executors give the rows that they give in one process, and what Apache Flink gave."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.end_to_end.running import PIPELINES, SAMPLES, run_file, written_files
from tests.shared_suites import needs_shared
from tests.slices import in_ci
from tests.spark.streams.many_runs import run_all
from tests.sql.test_flink_cases import CASES, EXPECTED, ROOT, SHARED, check_nexmark, fold_text

EXAMPLES = ("orders_per_minute.yaml", "card_testing.yaml", "orders_in_dollars.sql")
"""Whose rows do not depend on how fast late ones come."""
PARTS = 12


def test_examples(tmp_path: Path) -> None:
    inputs = {"SAMPLES": SAMPLES}
    runs = []
    for name in EXAMPLES:
        out = tmp_path / "spark" / name
        runs.append(["run", PIPELINES / name, "-p", 2, "--var", f"SAMPLES={SAMPLES}", "--var", f"OUT={out}"])
    run_all(runs)
    for name in EXAMPLES:
        run_file(PIPELINES / name, {**inputs, "OUT": tmp_path / "embedded" / name}, parallelism=2)
        wanted = lines(tmp_path / "embedded" / name)
        assert wanted
        assert lines(tmp_path / "spark" / name) == wanted, name


def lines(folder: Path) -> Counter[str]:
    """Of all files below a folder, JSON or CSV."""
    return Counter(line for file in written_files(folder) for line in file.read_text(encoding="utf-8").splitlines())


@needs_shared(CASES and EXPECTED)
@pytest.mark.parametrize("part", in_ci(range(PARTS), PARTS))
def test_the_shared_suite(part: int, tmp_path: Path) -> None:
    cases = CASES[part::PARTS]
    data = f"DATA={SHARED / 'sqlsuite' / 'data'}"
    given = ["-p", 2, "--set", "settings.batch_rows=7", "--var", data]
    run_all([["run", case, *given, "--var", f"OUT={tmp_path / case.stem}"] for case in cases])
    for case in cases:
        recorded = case.with_suffix(".json")
        said = fold_text(tmp_path / case.stem, json.loads(recorded.read_text())["columns"], recorded)
        assert said.startswith("same"), f"{case.stem}: {said}"


@needs_shared(CASES and EXPECTED)
@pytest.mark.soak
@pytest.mark.parametrize("part", range(PARTS))
def test_nexmark(part: int, tmp_path: Path) -> None:
    queries = EXPECTED[part::PARTS]
    inputs = {"EVENTS": SHARED / "nexmark" / "events.json", "SIDE_INPUT": SHARED / "nexmark" / "side_input.csv"}
    variables = [text for name, value in inputs.items() for text in ("--var", f"{name}={value}")]
    scripts = [ROOT / "pipelines" / "nexmark" / f"{query.stem}.sql" for query in queries]
    given = ["-p", 2, "--var", "FORMAT=json", *variables]
    run_all([["run", script, *given, "--var", f"OUT={tmp_path / script.stem}"] for script in scripts])
    for query in queries:
        check_nexmark(query, tmp_path / query.stem)
