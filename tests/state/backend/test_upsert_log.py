"""The log of a state table against a dictionary: whatever is appended, the newest row of a key counts."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from flowrun.api.state import DELETED_COLUMN, KEY_GROUP_COLUMN, KeyGroupRange
from flowrun.state.backend.upsert_log import UpsertLog
from flowrun.state.storage.folding import fold_segments
from tests.examples import examples

SCHEMA = pa.schema(
    [
        (KEY_GROUP_COLUMN, pa.int32()),
        ("a", pa.string()),
        ("b", pa.float64()),
        ("v", pa.int64()),
        (DELETED_COLUMN, pa.bool_()),
    ]
)
CHANGES = st.lists(
    st.dictionaries(
        st.tuples(st.sampled_from(["x", "y", None]), st.sampled_from([0.5, float("nan"), None])),
        st.one_of(st.none(), st.integers(0, 9)),
        max_size=5,
    ),
    max_size=60,
)


def segment(changes: dict[tuple[str | None, float | None], int | None]) -> pa.Table:
    return pa.table(
        {
            KEY_GROUP_COLUMN: pa.array([0] * len(changes), pa.int32()),
            "a": pa.array([a for a, _ in changes], pa.string()),
            "b": pa.array([b for _, b in changes], pa.float64(), from_pandas=False),
            "v": pa.array(list(changes.values()), pa.int64()),
            DELETED_COLUMN: [v is None for v in changes.values()],
        },
        schema=SCHEMA,
    )


@examples(80)
@given(CHANGES, st.integers(1, 5))
def test_a_log_is_a_dictionary(snapshots: list[dict[tuple[str | None, float | None], int | None]], every: int) -> None:
    log = UpsertLog(SCHEMA, ("a", "b"))
    state: dict[str, int] = {}
    for number, changes in enumerate(snapshots):
        unique = {str(k): (k, v) for k, v in changes.items()}
        rows = segment(dict(unique.values()))
        log.append(rows.num_rows, lambda rows=rows: rows)
        for key, (_, value) in unique.items():
            if value is None:
                state.pop(key, None)
            else:
                state[key] = value
        if number % every == 0:
            table = log.table(len(state))
            live = fold_segments(table, KeyGroupRange(0, 1))
            got = {str((r["a"], r["b"])): r["v"] for r in live.to_pylist()}
            assert got == state
            assert len(table.segments) <= 26


def test_segments_are_made_once_and_only_when_read() -> None:
    made: list[int] = []

    def make(number: int) -> pa.Table:
        made.append(number)
        return segment({("x", float(number)): number})

    log = UpsertLog(SCHEMA, ("a", "b"))
    for number in range(40):
        log.append(1, lambda number=number: make(number))
        table = log.table(40)
    assert made == []
    for _ in range(2):
        assert sum(s.rows().num_rows for s in table.segments) == 40
    assert sorted(made) == list(range(40))


def test_a_log_without_live_rows_is_empty() -> None:
    log = UpsertLog(SCHEMA, ("a", "b"))
    log.append(1, lambda: segment({("x", 0.5): 1}))
    log.append(1, lambda: segment({("x", 0.5): None}))
    assert log.table(0).segments == ()
    assert log.rows == 0
