"""Partitioned output is partitioned input."""

import json
from collections import Counter
from pathlib import Path

from tests.end_to_end.running import json_rows, run_text

WRITE = """
name: write
sources:
  rows: {connector: filesystem, path: "${DATA}", format: json, schema: {id: BIGINT, day: STRING, v: INT}}
sinks:
  out: {from: rows, connector: filesystem, path: "${DIR}", format: json, partition_by: [day, v]}
"""
READ = """
name: read
sources:
  rows:
    connector: filesystem
    path: "${DIR}"
    format: json
    schema: {id: BIGINT, day: STRING, v: INT}
    partition_by: [day, v]
steps:
  some: {from: rows, filter: v > 1 OR v IS NULL}
sinks:
  out: {from: some, connector: filesystem, path: "${OUT}", format: json}
"""


def test_a_partitioned_folder_is_read_back_with_its_columns(tmp_path: Path) -> None:
    rows = [{"id": i, "day": f"2024-03-0{1 + i % 3}", "v": None if i % 5 == 0 else i % 4} for i in range(60)]
    data = tmp_path / "data.json"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run_text(tmp_path, WRITE, {"DATA": data, "DIR": tmp_path / "parts"})
    assert (tmp_path / "parts" / "day=2024-03-01" / "v=1").is_dir()
    run_text(tmp_path, READ, {"DIR": tmp_path / "parts", "OUT": tmp_path / "out"})
    expected = [row for row in rows if row["v"] is None or int(str(row["v"])) > 1]
    assert Counter(map(json.dumps, json_rows(tmp_path / "out"))) == Counter(map(json.dumps, expected))
