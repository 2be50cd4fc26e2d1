"""Whole scripts over small files, with the rows that they end with: one case a feature or combination of features.

`cases/NAME.sql` reads tables from `${DATA}` and writes to `${OUT}`; `cases/NAME.json` holds the columns and the rows that its changes
add up to (`batch_rows`: those of a batch on Spark, where they differ). The expected rows were computed by DuckDB, or by hand where DuckDB
means something else than Apache Flink does; the scripts are Flink SQL. The data has NULLs, equal times, duplicates, non-ASCII text and
3.3 s of disorder; watermarks lag 5 s.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import pytest

from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import run_embedded
from tests.slices import everyday

HERE = Path(__file__).parent
CASES = sorted((HERE / "cases").glob("*.sql"))
_EXACT, _SIX_DIGITS = Context(prec=400), Decimal("0.000001")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(\.\d+)?Z?")

LAYOUTS: list[tuple[int, int | None]] = [(3, 7), (1, None)]


def layouts(place: int) -> list[tuple[int, int | None]]:
    """The ways to run a case, that of every day first: small batches in parallel for one in three, as they take five times as long."""
    return LAYOUTS if place % 3 == 0 else LAYOUTS[::-1]


@pytest.mark.parametrize(
    ("case", "parallelism", "batch_rows"),
    everyday([(case, *layout) for place, case in enumerate(CASES) for layout in layouts(place)], 6, ci=3),
    ids=lambda value: value.stem if isinstance(value, Path) else None,
)
def test_ends_with_the_expected_rows(case: Path, parallelism: int, batch_rows: int | None, tmp_path: Path) -> None:
    overrides = {"settings.parallelism": str(parallelism)}
    if batch_rows is not None:
        overrides["settings.batch_rows"] = str(batch_rows)
    variables = {"OUT": str(tmp_path)}
    if "${DATA}" in case.read_text():
        variables["DATA"] = str(HERE / "data")
    run_embedded(compile_pipeline(case, variables, overrides).job_graph)
    expected = json.loads(case.with_suffix(".json").read_text(), parse_float=Decimal)
    rows = folded(tmp_path, expected["columns"])
    assert rows == Counter(json.dumps(plain(row)) for row in expected["rows"])


def folded(folder: Path, columns: list[str]) -> Counter[str]:
    """The rows that the written changes add up to."""
    rows: Counter[str] = Counter()
    files = [f for f in sorted(folder.rglob("*")) if f.is_file() and f.name[0] not in "._"]
    for record in (json.loads(line, parse_float=Decimal) for file in files for line in file.read_text().splitlines()):
        is_change = {"op", "before", "after"} <= record.keys()
        for side, weight in (("before", -1), ("after", 1)) if is_change else ((None, 1),):
            row = record if side is None else record[side]
            if row is not None:
                rows[json.dumps(plain([row.get(c) for c in columns]))] += weight
    return Counter({row: count for row, count in rows.items() if count})


def plain(value: Any) -> Any:
    """Numbers as text, by value: whole ones exactly, others to six digits after the point. Times in one spelling, members by name.

    >>> plain(9007199254740993), plain(Decimal("9007199254740993.0")), plain(Decimal("0.30000000000000004"))
    ('9007199254740993', '9007199254740993', '0.3')
    """
    match value:
        case bool():
            return value
        case int() | Decimal():
            rounded = _EXACT.add(_EXACT.quantize(Decimal(value), _SIX_DIGITS), Decimal(0))  # no minus before zero
            return f"{rounded:f}".rstrip("0").rstrip(".")
        case float() if math.isfinite(value):
            return plain(Decimal(repr(value)))
        case str():
            time = _TIME.fullmatch(value)
            return f"{time[1]} {time[2]}{(time[3] or '').rstrip('0').rstrip('.')}" if time else value
        case list():
            return [plain(v) for v in value]
        case dict():
            return {k: plain(v) for k, v in sorted(value.items())}
    return value
