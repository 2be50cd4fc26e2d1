"""A pipeline into tables of a lake: rows that are appended, and counts by key; and what there must be in the end."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import duckdb

KEYS = 10
PIPELINE = """
name: chaos
settings:
  parallelism: 2
  checkpoint: {{interval: {interval}, dir: "{folder}/state", retain: 2}}
sources:
  rows:
    connector: datagen
    number-of-rows: {rows}
    rows-per-second: {rate}
    fields: {{id: {{kind: sequence, start: 0, end: {last}}}}}
    schema: {{id: BIGINT}}
    computed: {{k: "id % 10"}}
steps:
  counts:
    from: rows
    key_by: [k]
    aggregate: ["COUNT(*) AS n", "SUM(id) AS total"]
    uid: counts
sinks:
  raw: {{from: rows, {raw}, partition_by: [k], schema: {{id: BIGINT, k: BIGINT}}}}
  counted: {{from: counts, {counted}, primary_key: [k]}}
"""


APPENDED = PIPELINE[: PIPELINE.index("steps:")] + PIPELINE[PIPELINE.index("sinks:") : PIPELINE.index("  counted:")]
"""The same without counts: what is applied by key cannot be taken back."""


def options(kind: str, folder: Path, name: str) -> str:
    """The options of a sink as YAML in one line."""
    if kind == "delta":
        return f'connector: delta, table-path: "{folder}/{name}"'
    return (
        f'connector: iceberg, catalog-name: c, catalog-type: sql, uri: "sqlite:///{folder}/catalog.db", '
        f'warehouse: "{folder}/warehouse", catalog-table: {name}'
    )


def write_pipeline(
    folder: Path, kind: str, *, rows: int, rate: int, interval: str = "100ms", pipeline: str = PIPELINE
) -> Path:
    """The pipeline file."""
    path = folder / "chaos.yaml"
    path.write_text(
        pipeline.format(
            folder=folder,
            rows=rows,
            last=rows - 1,
            rate=rate,
            interval=interval,
            raw=options(kind, folder, "raw"),
            counted=options(kind, folder, "counted"),
        )
    )
    return path


def read(folder: Path, kind: str, name: str) -> list[tuple[int, ...]]:
    """The rows of a table, by DuckDB from the files that the table's own library names."""
    if kind == "delta":
        from deltalake import DeltaTable

        table = DeltaTable(str(folder / name)).to_pyarrow_table()
    else:
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog(
            "c", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse"
        )
        table = catalog.load_table(f"default.{name}").scan().to_arrow()
    columns = "id, k" if name == "raw" else "k, n, total"
    found: list[tuple[int, ...]] = duckdb.connect().execute(f'SELECT {columns} FROM "table" ORDER BY ALL').fetchall()
    assert table is not None
    return found


def check(folder: Path, kind: str, rows: int) -> None:
    """Every id exactly once; every count right."""
    counts = Counter(row[0] for row in read(folder, kind, "raw"))
    twice = [i for i, n in counts.items() if n > 1]
    missing = sorted(set(range(rows)) - set(counts))
    assert not twice, f"{len(twice)} ids came twice, the first {twice[:5]}"
    assert not missing, f"{len(missing)} ids are missing, the first {missing[:5]}"
    members = [range(k, rows, KEYS) for k in range(KEYS)]
    assert read(folder, kind, "counted") == [(k, len(m), sum(m)) for k, m in enumerate(members)]
