"""The shared suite in worker processes: what Apache Flink gave, whatever process a row went through."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.shared_suites import needs_shared
from tests.slices import everyday, in_ci
from tests.sql.test_flink_cases import CASES, EXPECTED, ROOT, SHARED, check_nexmark, fold_text, run_script

pytestmark = needs_shared(CASES and EXPECTED)


@pytest.mark.parametrize(("parallelism", "batch_rows"), everyday([(2, 7), (3, None)], 2))
@pytest.mark.parametrize("case", everyday(CASES, 13, ci=5), ids=lambda p: p.stem)
def test_gives_what_flink_gave(case: Path, parallelism: int, batch_rows: int | None, tmp_path: Path) -> None:
    wanted = json.loads(case.with_suffix(".json").read_text())
    variables = {"DATA": SHARED / "sqlsuite" / "data", "OUT": tmp_path}
    run_script(case, variables, parallelism, batch_rows, workers=2)
    said = fold_text(tmp_path, wanted["columns"], case.with_suffix(".json"))
    assert said.startswith("same"), said


@pytest.mark.exhaustive
@pytest.mark.parametrize("expected", in_ci(EXPECTED, 3), ids=lambda p: p.stem)
def test_nexmark(expected: Path, tmp_path: Path) -> None:
    script = ROOT / "pipelines" / "nexmark" / f"{expected.stem}.sql"
    events = {"EVENTS": SHARED / "nexmark" / "events.json", "SIDE_INPUT": SHARED / "nexmark" / "side_input.csv"}
    run_script(script, {**events, "FORMAT": "json", "OUT": tmp_path}, 2, 97, workers=2)
    check_nexmark(expected, tmp_path)
