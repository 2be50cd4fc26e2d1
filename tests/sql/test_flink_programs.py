"""Changes that Apache Flink's own planner programs expect, row by row: their queries over their rows, one row a batch.

The rows are those of Flink's `OverWindowTestPrograms` and `RankTestPrograms`, before and after their restore.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flowrun.connectors import memory
from flowrun.core.elements import RecordBatch, RowKind
from tests.end_to_end.running import run_file

VALUES = [
    ("key1", 1, 100),
    ("key1", 2, 200),
    ("key1", 5, 500),
    ("key1", 6, 600),
    ("key2", 1, 100),
    ("key2", 2, 200),
    ("key1", 4, 400),
]
SUM = "SELECT k, val, ts, SUM(val) OVER ({}ORDER BY val {} BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS s FROM t"
PARTITION = "PARTITION BY k "
COUNTED = SUM.replace(
    " FROM t", ", COUNT(k) OVER ({}ORDER BY val {} BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS c FROM t"
)
EACH = """
+I[key1, 1, 100, 1] +I[key1, 2, 200, 3] +I[key1, 5, 500, 8] +I[key1, 6, 600, 14] +I[key2, 1, 100, 1] +I[key2, 2, 200, 3]
+I[key1, 4, 400, 7] -U[key1, 5, 500, 8] +U[key1, 5, 500, 12] -U[key1, 6, 600, 14] +U[key1, 6, 600, 18]
"""
EACH_COUNTED = """
+I[key1, 1, 100, 1, 1] +I[key1, 2, 200, 3, 2] +I[key1, 5, 500, 8, 3] +I[key1, 6, 600, 14, 4] +I[key2, 1, 100, 1, 1]
+I[key2, 2, 200, 3, 2] +I[key1, 4, 400, 7, 3] -U[key1, 5, 500, 8, 3] +U[key1, 5, 500, 12, 4] -U[key1, 6, 600, 14, 4]
+U[key1, 6, 600, 18, 5]
"""
ALL_RANGE = """
+I[key1, 1, 100, 1] +I[key1, 2, 200, 3] +I[key1, 5, 500, 8] +I[key1, 6, 600, 14]
-U[key1, 1, 100, 1] +U[key1, 1, 100, 2] +I[key2, 1, 100, 2] -U[key1, 2, 200, 3] +U[key1, 2, 200, 4]
-U[key1, 5, 500, 8] +U[key1, 5, 500, 9] -U[key1, 6, 600, 14] +U[key1, 6, 600, 15]
-U[key1, 2, 200, 4] +U[key1, 2, 200, 6] +I[key2, 2, 200, 6] -U[key1, 5, 500, 9] +U[key1, 5, 500, 11]
-U[key1, 6, 600, 15] +U[key1, 6, 600, 17]
+I[key1, 4, 400, 10] -U[key1, 5, 500, 11] +U[key1, 5, 500, 15] -U[key1, 6, 600, 17] +U[key1, 6, 600, 21]
"""
ALL_ROWS = """
+I[key1, 1, 100, 1] +I[key1, 2, 200, 3] +I[key1, 5, 500, 8] +I[key1, 6, 600, 14]
+I[key2, 1, 100, 2] -U[key1, 2, 200, 3] +U[key1, 2, 200, 4] -U[key1, 5, 500, 8] +U[key1, 5, 500, 9]
-U[key1, 6, 600, 14] +U[key1, 6, 600, 15]
+I[key2, 2, 200, 6] -U[key1, 5, 500, 9] +U[key1, 5, 500, 11] -U[key1, 6, 600, 15] +U[key1, 6, 600, 17]
+I[key1, 4, 400, 10] -U[key1, 5, 500, 11] +U[key1, 5, 500, 15] -U[key1, 6, 600, 17] +U[key1, 6, 600, 21]
"""
FIRST = [(2, "a", 6), (4, "b", 8), (6, "c", 10), (1, "a", 5), (3, "b", 7), (5, "c", 9), (4, "d", 7), (3, "e", 8)]
COUNTS = [*FIRST[:-1], (0, "a", 8)]
BEST = "SELECT a, b, rn FROM (SELECT a, b, ROW_NUMBER() OVER (PARTITION BY b ORDER BY c) AS rn FROM t) WHERE rn = 1"
APPEND_FAST = """
+I[2, a, 1] +I[4, b, 1] +I[6, c, 1] -U[2, a, 1] +U[1, a, 1] -U[4, b, 1] +U[3, b, 1] -U[6, c, 1] +U[5, c, 1]
+I[4, d, 1] +I[3, e, 1]
"""
MOST = """SELECT a, b, n, rn FROM (SELECT a, b, n, ROW_NUMBER() OVER (PARTITION BY b ORDER BY n DESC, a) AS rn
  FROM (SELECT a, b, COUNT(*) AS n FROM t GROUP BY a, b)) WHERE rn <= 10"""
UPDATE_FAST = """
+I[2, a, 1, 1] +I[4, b, 1, 1] +I[6, c, 1, 1] -U[2, a, 1, 1] +U[1, a, 1, 1] +I[2, a, 1, 2] -U[4, b, 1, 1] +U[3, b, 1, 1]
+I[4, b, 1, 2] -U[6, c, 1, 1] +U[5, c, 1, 1] +I[6, c, 1, 2] +I[4, d, 1, 1]
-U[1, a, 1, 1] +U[0, a, 1, 1] -U[2, a, 1, 2] +U[1, a, 1, 2] +I[2, a, 1, 3]
"""


def changes_of(folder: Path, columns: str, query: str, result: str, *batches: list[tuple[Any, ...]]) -> list[str]:
    """The changes that a query makes, as text. Each batch has rows, with a row kind in front if the table changes."""
    names = [c.split()[0] for c in columns.split(", ")]
    given = []
    for rows in batches:
        marks = [kind for kind, *_ in rows] if isinstance(rows[0][0], RowKind) else None
        values = [row[1:] for row in rows] if marks else rows
        batch = pa.RecordBatch.from_pydict({n: [v[i] for v in values] for i, n in enumerate(names)})
        types = [pa.string() if "STRING" in c else pa.int64() for c in columns.split(", ")]
        batch = batch.cast(pa.schema(list(zip(names, types, strict=True))))
        given.append(
            RecordBatch(batch, row_kinds=None if marks is None else pa.array([int(k) for k in marks], pa.int8()))
        )
    memory.clear()
    memory.put("given", given)
    path = folder / "script.sql"
    path.write_text(
        f"CREATE TABLE t ({columns}) WITH ('connector' = 'memory', 'table' = 'given');\n"
        f"CREATE TABLE r ({result}) WITH ('connector' = 'memory', 'table' = 'made');\nINSERT INTO r {query};\n"
    )
    run_file(path, batch_rows=1)
    made = []
    for batch in memory.take("made"):
        kinds = [0] * batch.num_rows if batch.row_kinds is None else batch.row_kinds.to_pylist()
        rows = zip(*(c.to_pylist() for c in batch.columns.columns), strict=True)
        made += [f"{RowKind(k).symbol}[{', '.join(map(str, row))}]" for k, row in zip(kinds, rows, strict=True)]
    return made


def listed(text: str) -> list[str]:
    return text.replace("\n", " ").strip().replace("] ", "]\n").splitlines()


@pytest.mark.parametrize(
    ("query", "more", "wanted"),
    [
        (SUM.format(PARTITION, "RANGE"), "", EACH),
        (SUM.format(PARTITION, "ROWS"), "", EACH),
        (COUNTED.format(PARTITION, "RANGE", PARTITION, "RANGE"), ", c BIGINT", EACH_COUNTED),
        (COUNTED.format(PARTITION, "ROWS", PARTITION, "ROWS"), ", c BIGINT", EACH_COUNTED),
        (SUM.format("", "RANGE"), "", ALL_RANGE),
        (SUM.format("", "ROWS"), "", ALL_ROWS),
    ],
    ids=["range", "rows", "two range", "two rows", "all range", "all rows"],
)
def test_over_inserts_by_a_column_that_is_no_time(query: str, more: str, wanted: str, tmp_path: Path) -> None:
    columns = "k STRING, val BIGINT, ts BIGINT"
    assert changes_of(tmp_path, columns, query, f"{columns}, s BIGINT{more}", *([v] for v in VALUES)) == listed(wanted)


def test_rank_over_inserts_updates_the_first_row(tmp_path: Path) -> None:
    made = changes_of(
        tmp_path, "a BIGINT, b STRING, c BIGINT", BEST, "a BIGINT, b STRING, rn BIGINT", *([v] for v in FIRST)
    )
    assert made == listed(APPEND_FAST)


def test_rank_over_changes_deletes_and_inserts(tmp_path: Path) -> None:
    changing = [[(RowKind.INSERT, *v)] for v in FIRST] + [[(RowKind.DELETE, *FIRST[0])]]
    made = changes_of(tmp_path, "a BIGINT, b STRING, c BIGINT", BEST, "a BIGINT, b STRING, rn BIGINT", *changing)
    assert made == [c.replace("-U", "-D").replace("+U", "+I") for c in listed(APPEND_FAST)]


def test_rank_of_counts(tmp_path: Path) -> None:
    columns = "a BIGINT, b STRING, c BIGINT"
    made = changes_of(tmp_path, columns, MOST, "a BIGINT, b STRING, n BIGINT, rn BIGINT", *([v] for v in COUNTS))
    assert made == listed(UPDATE_FAST)


def test_over_changes_updates_what_was_updated(tmp_path: Path) -> None:
    before, after = RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER
    first = [[(RowKind.INSERT, *v)] for v in VALUES[:4]]
    update = [(before, "key1", 2, 200), (after, "key1", 3, 200)]
    columns = "k STRING, val BIGINT, ts BIGINT"
    made = changes_of(tmp_path, columns, SUM.format(PARTITION, "RANGE"), f"{columns}, s BIGINT", *first, update)
    assert made[4:] == listed(
        "-U[key1, 2, 200, 3] +U[key1, 3, 200, 4] -U[key1, 5, 500, 8] +U[key1, 5, 500, 9] "
        "-U[key1, 6, 600, 14] +U[key1, 6, 600, 15]"
    )
