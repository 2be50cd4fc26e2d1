"""Random pipelines over random data give DuckDB's rows.

To replay one seed: `python -m pytest tests/end_to_end/test_random_pipelines.py -k "[17]"`; to search on:
`python -m tests.end_to_end.test_random_pipelines FIRST LAST`, which prints every case that differs.
"""

from __future__ import annotations

import json
import math
import random
import sys
import tempfile
import traceback
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from flowrun.connectors import memory
from flowrun.core.type_parser import parse_type
from tests.end_to_end.random_pipelines import SCHEMA, Case, json_line, make_case, moment
from tests.end_to_end.running import run_file, written_files

SEEDS = 40
SOAK_CHUNKS, SOAK_CHUNK = 40, 100
ROWS_OF_SOURCES = pa.schema([(name, parse_type(type).arrow) for name, (type, _) in SCHEMA.items()])


def run_case(case: Case, folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of every sink: half of the seeds collect them in memory, the others in Parquet files."""
    rng = random.Random(case.seed)
    document = json.loads(json.dumps(case.document))
    for name, files in case.rows.items():
        for number, rows in enumerate(files):
            path = folder / name / f"part-{number:02d}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(json_line(row, rng) + "\n" for row in rows), encoding="utf-8")
        document["sources"][name] |= {"connector": "filesystem", "path": str(folder / name), "format": "json"}
    in_memory = rng.random() < 0.5
    for name, sink in document["sinks"].items():
        to_files = {"connector": "filesystem", "path": str(folder / name), "format": "parquet"}
        sink.update({"connector": "memory", "table": name} if in_memory else to_files)
    path = folder / "pipeline.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), encoding="utf-8")
    memory.clear()
    run_file(path)
    return {table: _collected(f"out_{table}", in_memory, folder, columns) for table, columns in case.expected.items()}


def _collected(sink: str, in_memory: bool, folder: Path, columns: Any) -> list[tuple[Any, ...]]:
    if in_memory:
        tables = [pa.Table.from_batches([b.columns]) for b in memory.take(sink)]
    else:
        tables = [pq.ParquetFile(f).read() for f in written_files(folder / sink)] if (folder / sink).exists() else []
    for table in tables:
        assert table.column_names == list(columns), f"{sink} has columns {table.column_names}, not {list(columns)}"
    return [row for table in tables for row in zip(*(c.to_pylist() for c in table.columns), strict=True)]


def expected_rows(case: Case) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of every sink by DuckDB; none at all if the case is in doubt."""
    with duckdb.connect(config={"threads": 1}) as connection:
        for name, files in case.rows.items():
            rows = [{**r, "t": moment(r["t"]), "ts": moment(r["ts"])} for file in files for r in file]
            connection.register("arrow_rows", pa.Table.from_pylist(rows, schema=ROWS_OF_SOURCES))
            times = "t::TIMESTAMP AS t, ts::TIMESTAMP AS ts"
            connection.execute(f"CREATE TEMP TABLE {name}_rows AS SELECT * REPLACE ({times}) FROM arrow_rows")
        for statement in case.script:
            connection.execute(statement)
        if any(connection.execute(doubt).fetchone() for doubt in case.doubts):
            return {}
        return {
            table: connection.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()
            for table, columns in case.expected.items()
        }


def _plain(value: Any) -> Any:
    """A value that compares across the two: numbers by value, doubles by six digits."""
    if isinstance(value, float):
        return f"{value:.6g}" if value else "0"
    if isinstance(value, list):
        return tuple(map(_plain, value))
    return value.normalize() if isinstance(value, Decimal) and value else value


def difference(found: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> str:
    """What two multisets of rows do not share; empty if they are equal."""
    left, right = (Counter(tuple(map(_plain, row)) for row in rows) for rows in (found, expected))
    if left == right or _nearly(found, expected):
        return ""
    lines = [f"{len(found)} rows, {len(expected)} expected"]
    lines += [f"  unexpected {n} x {row}" for row, n in list((left - right).items())[:8]]
    lines += [f"  missing    {n} x {row}" for row, n in list((right - left).items())[:8]]
    return "\n".join(lines)


def _nearly(found: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> bool:
    """Whether rows are equal but for the last digits of doubles."""
    groups: list[dict[Any, list[list[float]]]] = []
    for rows in (found, expected):
        by_rest: dict[Any, list[list[float]]] = defaultdict(list)
        for row in rows:
            rest = tuple("float" if isinstance(v, float) else _plain(v) for v in row)
            by_rest[rest].append([v for v in row if isinstance(v, float)])
        groups.append(by_rest)
    left, right = groups
    return left.keys() == right.keys() and all(
        len(left[k]) == len(right[k])
        and all(
            math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6)
            for p, q in zip(sorted(left[k]), sorted(right[k]), strict=True)
            for a, b in zip(p, q, strict=True)
        )
        for k in left
    )


def check(seed: int, folder: Path) -> str:
    """What is wrong with a seed, with all that is needed to replay it; empty if nothing is."""
    case = make_case(seed)
    problem = ""
    try:
        expected = expected_rows(case)
    except duckdb.Error as error:
        problem = f"DuckDB refuses the script: {error}"
    else:
        try:
            found = run_case(case, folder)
        except Exception:
            problem = traceback.format_exc()
        else:
            parts = {table: difference(found[table], rows) for table, rows in expected.items()}
            problem = "\n".join(f"{table}: {text}" for table, text in parts.items() if text)
    if not problem:
        return ""
    text = folder / "pipeline.yaml"
    shown = [f"seed {seed} differs: {problem}", text.read_text(encoding="utf-8") if text.exists() else ""]
    for name, files in case.rows.items():
        shown += [f"-- {name}, file {i}\n" + "\n".join(map(str, rows)) for i, rows in enumerate(files)]
    return "\n".join([*shown, *(f"{statement};" for statement in case.script)])


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_pipeline(tmp_path: Path, seed: int) -> None:
    problem = check(seed, tmp_path)
    assert not problem, problem


@pytest.mark.soak
@pytest.mark.parametrize("first", range(SEEDS, SEEDS + SOAK_CHUNKS * SOAK_CHUNK, SOAK_CHUNK))
def test_many_random_pipelines(tmp_path: Path, first: int) -> None:
    for seed in range(first, first + SOAK_CHUNK):
        problem = check(seed, tmp_path / str(seed))
        assert not problem, problem


def search(first: int, last: int) -> None:
    """Print every seed in a range that differs."""
    wrong = 0
    for seed in range(first, last):
        with tempfile.TemporaryDirectory() as folder:
            problem = check(seed, Path(folder))
        if problem:
            wrong += 1
            print(f"{'=' * 100}\n{problem}", flush=True)
    print(f"{last - first} seeds, {wrong} differ")


if __name__ == "__main__":
    search(int(sys.argv[1]), int(sys.argv[2]))
