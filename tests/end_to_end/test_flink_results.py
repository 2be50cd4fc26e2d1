"""The cases of `tests/cases` over the recorded data give the rows that Apache Flink 2.3 gave for the like SQL scripts.

The data and the recorded rows live beside the repository (`../shared/sqlsuite`), where the project's CI keeps them.
"""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from tests.end_to_end.running import ROOT, run_file
from tests.slices import everyday

CASES = ROOT / "tests" / "cases"
SUITE = ROOT.parent / "shared" / "sqlsuite"
WINDOWED = (
    "tumble_agg",
    "hop_agg",
    "cumulate_agg",
    "session_agg",
    "union_all",
    "tumble_offset_global",
    "window_cascade",
)
SHAPES = [(parallelism, rows) for parallelism in (1, 2, 3) for rows in (1, 7, 1024)]
RUNS = [
    (case.stem, *shape)
    for case in sorted(CASES.glob("*.yaml"))
    for shape in (SHAPES if case.stem in WINDOWED else [(1, 65_536), (3, 7)])
]


def folding() -> ModuleType:
    """The suite's own way to read and normalise results."""
    spec = importlib.util.spec_from_file_location("fold", SUITE / "fold.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if SUITE.exists():

    @pytest.mark.parametrize(("case", "parallelism", "batch_rows"), everyday(RUNS, 10, ci=5))
    @pytest.mark.filterwarnings("ignore::ResourceWarning")  # the suite's script leaves closing files to the interpreter
    def test_rows_equal_those_of_flink(tmp_path: Path, case: str, parallelism: int, batch_rows: int) -> None:
        run_file(
            CASES / f"{case}.yaml",
            {"DATA": SUITE / "data", "OUT": tmp_path / "out"},
            parallelism=parallelism,
            batch_rows=batch_rows,
        )
        recorded = json.loads((SUITE / "cases" / f"{case}.json").read_text())
        fold = folding()
        rows, _, negative = fold.fold(str(tmp_path / "out"), recorded["columns"])
        expected = Counter(json.dumps([fold.norm(value) for value in json.loads(row)]) for row in recorded["rows"])
        assert Counter(rows) == expected
        assert not negative
