"""The external sort of batch mode: rows of a key together, in the order in which they came, whatever fits into memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.core.elements import RecordBatch
from flowrun.errors import ConnectorError
from flowrun.runtime.task.key_sort import KeysEnd, KeySort, SortedRows
from flowrun.state.key_groups import hash_columns

Rows = list[tuple[str | None, int, int | None, int]]
"""Key, number, event time, kind."""


def batch(rows: Rows, timed: bool, changing: bool) -> RecordBatch:
    columns = pa.record_batch({"k": pa.array([r[0] for r in rows], pa.string()), "n": pa.array([r[1] for r in rows])})
    times = pa.array([r[1] for r in rows], pa.int64()) if timed else None
    return RecordBatch(columns, times, pa.array([r[3] for r in rows], pa.int8()) if changing else None)


PARTS = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.lists(
            st.sampled_from([None, "", "a", "b", "c", "long enough to be hashed in words"]), min_size=1, max_size=9
        ),
        st.booleans(),
        st.booleans(),
    ),
    max_size=12,
)


@given(PARTS, st.sampled_from([1, 3, 100]), st.sampled_from([0, 300, 1 << 20]))
def test_keys_come_one_after_the_other(
    tmp_path_factory: pytest.TempPathFactory,
    parts: list[tuple[int, list[str | None], bool, bool]],
    size: int,
    memory: int,
) -> None:
    folder = tmp_path_factory.mktemp("sorted")
    sort = KeySort({0: (0,), 1: (0,)}, lambda: folder, size, memory)
    given_rows: dict[tuple[int, str | None], list[tuple[int, int | None, int]]] = {}
    number = 0
    for index, keys, timed, changing in parts:
        rows: Rows = []
        for key in keys:
            kind = number % 4 if changing else 0
            rows.append((key, number, None, kind))
            given_rows.setdefault((index, key), []).append((number, number if timed else None, kind))
            number += 1
        sort.add(index, batch(rows, timed, changing))
    found: dict[tuple[int, str | None], list[tuple[int, int | None, int]]] = {}
    ended: set[str | None] = set()
    present: set[str | None] = set()
    of_input = -1
    for element in sort.merged():
        if isinstance(element, KeysEnd):
            assert present
            ended |= present
            present, of_input = set(), -1
            continue
        assert isinstance(element, SortedRows)
        assert element.input_index >= of_input, "one input after the other"
        of_input = element.input_index
        rows_of = element.rows
        times = [None] * rows_of.num_rows if rows_of.timestamps is None else rows_of.timestamps.to_pylist()
        kinds = [0] * rows_of.num_rows if rows_of.row_kinds is None else rows_of.row_kinds.to_pylist()
        for row, time, kind in zip(rows_of.columns.to_pylist(), times, kinds, strict=True):
            assert row["k"] not in ended
            present.add(row["k"])
            found.setdefault((of_input, row["k"]), []).append((row["n"], time, kind))
    assert found == given_rows
    assert not present
    assert list(folder.iterdir()) == [], "files go when they have been read"
    sort.close()


def test_what_was_not_read_goes_too(tmp_path: Path) -> None:
    sort = KeySort({0: (0,)}, lambda: tmp_path, 10, 100)
    for number in range(20):
        sort.add(0, batch([(str(number), number, None, 0)] * 10, True, False))
    assert sort.files > 5
    assert next(sort.merged())
    sort.close()
    assert list(tmp_path.iterdir()) == []


def test_a_key_with_more_rows_than_fit_is_given_in_parts(tmp_path: Path) -> None:
    sort = KeySort({0: (0,)}, lambda: tmp_path, 10, 1000)
    for number in range(100):
        sort.add(0, batch([("one", 10 * number + i, None, 0) for i in range(10)], False, False))
    elements = list(sort.merged())
    assert [isinstance(e, KeysEnd) for e in elements] == [False] * (len(elements) - 1) + [True]
    rows = [e.rows for e in elements if isinstance(e, SortedRows)]
    assert max(r.num_rows for r in rows) <= 10
    assert [n for r in rows for n in r.columns.column("n").to_pylist()] == list(range(1000))


FULL = """
import resource, sys
from pathlib import Path
import numpy as np
import pyarrow as pa
from flowrun.core.elements import RecordBatch
from flowrun.errors import ConnectorError
from flowrun.runtime.task.key_sort import KeySort
from flowrun.state.key_groups import hash_columns
folder = Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
sort = KeySort({0: (0,)}, lambda: folder, 100_000, 1000)
try:
    sort.add(0, RecordBatch(pa.record_batch({"k": pa.array(range(100_000))})))
except ConnectorError as error:
    print(error)
sort.close()
print(list(folder.iterdir()))
"""


def test_a_file_that_cannot_grow_is_one_clear_error_and_leaves_nothing(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    ).stdout.splitlines()
    assert told[0].startswith(f"cannot spill rows to be sorted by key to {tmp_path}: ")
    assert told[1] == "  hint: free space there, or set TMPDIR to a larger disk"
    assert told[2] == "[]"


def test_lost_files_are_one_clear_error(tmp_path: Path) -> None:
    sort = KeySort({0: (0,)}, lambda: tmp_path, 10, 100)
    sort.add(0, batch([("a", 1, None, 0)] * 10, True, False))
    for path in tmp_path.iterdir():
        path.unlink()
    with pytest.raises(ConnectorError, match="rows that were sorted by key are lost"):
        list(sort.merged())
    sort.close()


def test_keys_that_come_together_have_hashes_far_from_each_other(tmp_path: Path) -> None:
    """Operators find keys by the hash: in a table of keys in the order of their hashes they would all begin at one place."""
    sort = KeySort({0: (0,)}, lambda: tmp_path, 1000, 1 << 30)
    sort.add(0, RecordBatch(pa.record_batch({"k": pa.array(range(100_000))})))
    first = next(sort.merged())
    assert isinstance(first, SortedRows)
    top_bits = hash_columns([first.rows.columns.column(0)]) >> np.uint64(56)
    assert len(set(top_bits.tolist())) > 200
