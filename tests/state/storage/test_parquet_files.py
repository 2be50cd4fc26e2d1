"""State files: what is written is read back, any range of key groups, and no damage goes unnoticed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from flowrun.api.state import KeyGroupRange
from flowrun.errors import InternalError, StateError
from flowrun.state.checkpoints import StateFile
from flowrun.state.storage.parquet_read import DamagedFileError, StateFileReader
from flowrun.state.storage.parquet_types import as_schema
from flowrun.state.storage.parquet_write import write_keyed_rows, write_rows
from flowrun.state.storage.state_path import resolve
from tests.examples import examples
from tests.state.storage.arrow_values import TYPES, columns
from tests.state.storage.file_systems import elsewhere, failing

GROUPS = KeyGroupRange(0, 8)
FOLDER_FIXTURE = examples(50, suppress_health_check=[HealthCheck.function_scoped_fixture])


def keyed(groups: list[int], **values: pa.Array) -> pa.Table:
    return pa.table({"__key_group": pa.array(groups, pa.int32()), **values})


def read(path: Path, file: StateFile, groups: KeyGroupRange | None = None) -> pa.Table:
    with StateFileReader(resolve(str(path)), file) as reader:
        return reader.rows(groups)


@FOLDER_FIXTURE
@given(data=st.data())
def test_rows_of_every_type_come_back_exactly(tmp_path: Path, data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 8))
    kinds = data.draw(st.lists(TYPES, min_size=1, max_size=3))
    fields = [pa.field(f"c{i}", k, metadata={b"of": b"field"}) for i, k in enumerate(kinds)]
    schema = pa.schema([pa.field("__key_group", pa.int32(), nullable=False), *fields], {b"any": b"thing"})
    groups = pa.array(sorted(data.draw(st.lists(st.integers(0, 7), min_size=rows, max_size=rows))), pa.int32())
    table = pa.Table.from_arrays([groups, *(data.draw(columns(k, rows)) for k in kinds)], schema=schema)
    path = tmp_path / f"{len(os.listdir(tmp_path))}.parquet"
    file = write_keyed_rows(resolve(str(path)), path.name, table, [], GROUPS, {})
    back = as_schema(read(path, file), table.schema)
    back.validate(full=True)
    assert back.schema.equals(table.schema, check_metadata=True)
    assert str(back.to_pydict()) == str(table.to_pydict())


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["x", None, "x"]).dictionary_encode(),
        pa.array([7, None, 7]).dictionary_encode(),
        pa.array([1, None, 3], pa.date64()),
        pa.array([1.5, None, float("nan")], pa.float16()),
        pa.array([b"abc", None, b"def"], pa.binary(3)),
        pa.array(["a", None, "c"], pa.string_view()),
        pa.array([[1, 2], None, [None, 4]], pa.list_(pa.int8(), 2)),
        pa.array([[1], None, []], pa.large_list(pa.timestamp("s"))),
        pa.array([{"t": 1}, None, {"t": None}], pa.struct([("t", pa.time32("s"))])),
        pa.array([-0.0, float("nan"), float("inf")]),
    ],
    ids=lambda c: str(c.type),
)
def test_rarer_types_come_back_exactly(tmp_path: Path, column: pa.Array) -> None:
    path = tmp_path / "x.parquet"
    table = keyed([0, 1, 2], c=column)
    back = as_schema(read(path, write_keyed_rows(resolve(str(path)), "x", table, [], GROUPS, {})), table.schema)
    assert back.schema == table.schema
    assert str(back["c"].to_pylist()) == str(table["c"].to_pylist())


def test_a_type_that_parquet_cannot_hold_is_named(tmp_path: Path) -> None:
    table = keyed([0], c=pa.nulls(1, pa.month_day_nano_interval()))
    with pytest.raises(StateError, match="month_day_nano_interval"):
        write_keyed_rows(resolve(str(tmp_path / "x.parquet")), "x", table, [], GROUPS, {})
    assert os.listdir(tmp_path) == []


def big_table(rows: int) -> pa.Table:
    rng = np.random.default_rng(7)
    return keyed(
        rng.integers(0, 8, rows).tolist(), k=pa.array(rng.integers(0, 1000, rows)), at=pa.array(np.arange(rows))
    )


def test_rows_are_sorted_by_group_and_key_and_row_groups_end_where_key_groups_do(tmp_path: Path) -> None:
    table, path = big_table(300_000), tmp_path / "x.parquet"
    file = write_keyed_rows(resolve(str(path)), "x", table, ["k"], GROUPS, {})
    rows = pq.read_table(path)
    groups, keys, at = (rows[name].to_numpy().astype(np.int64) for name in ("__key_group", "k", "at"))
    packed = (groups * 1000 + keys) * 1_000_000 + at
    assert (np.diff(packed) > 0).all()
    assert list(file.offsets) == np.searchsorted(groups, range(9)).tolist()
    borders = np.cumsum(
        [pq.read_metadata(path).row_group(i).num_rows for i in range(pq.read_metadata(path).num_row_groups)]
    )
    assert len(borders) > 2
    assert set(borders.tolist()) <= set(file.offsets)
    assert min(np.diff([0, *borders.tolist()])) >= 32_768


def test_a_small_file_is_one_row_group(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    write_keyed_rows(resolve(str(path)), "x", big_table(50_000), ["k"], GROUPS, {})
    assert pq.read_metadata(path).num_row_groups == 1


def test_a_large_key_group_is_several_row_groups(tmp_path: Path) -> None:
    rows = (1 << 20) + 5
    table = keyed([3], k=pa.array([0])).take(pa.array(np.zeros(rows, np.int64)))
    path = tmp_path / "x.parquet"
    file = write_keyed_rows(resolve(str(path)), "x", table, ["k"], GROUPS, {})
    assert pq.read_metadata(path).num_row_groups == 2
    assert read(path, file, KeyGroupRange(3, 4)).num_rows == rows
    assert read(path, file, KeyGroupRange(4, 8)).num_rows == 0


def test_wide_rows_make_smaller_row_groups(tmp_path: Path) -> None:
    table = keyed(list(range(8)), k=pa.array(["x" * (8 << 20)] * 8))
    path = tmp_path / "x.parquet"
    file = write_keyed_rows(resolve(str(path)), "x", table, [], GROUPS, {})
    assert pq.read_metadata(path).num_row_groups > 1
    assert read(path, file, KeyGroupRange(5, 6)).num_rows == 1


@pytest.mark.parametrize("wanted", [(0, 8), (0, 1), (3, 5), (7, 8), (5, 5), (6, 20), (9, 12)])
def test_exactly_the_wanted_key_groups_are_read(tmp_path: Path, wanted: tuple[int, int]) -> None:
    table, path = big_table(200_000), tmp_path / "x.parquet"
    file = write_keyed_rows(resolve(str(path)), "x", table, ["k"], GROUPS, {})
    back = read(path, file, KeyGroupRange(*wanted))
    expected = [g for g in table["__key_group"].to_pylist() if wanted[0] <= g < wanted[1]]
    assert sorted(back["__key_group"].to_pylist()) == sorted(expected)


def test_rows_of_another_subtasks_key_groups_are_a_bug(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="key groups 0 to 9 in a subtask that owns 0 to 7"):
        write_keyed_rows(resolve(str(tmp_path / "x")), "x", keyed([9, 0]), [], GROUPS, {})


def test_several_pieces_of_memory_are_merged(tmp_path: Path) -> None:
    table = pa.concat_tables([big_table(1000), big_table(10), big_table(0), big_table(500)])
    path = tmp_path / "x.parquet"
    file = write_keyed_rows(resolve(str(path)), "x", table, ["k"], GROUPS, {})
    assert sorted(map(tuple, (r.values() for r in read(path, file).to_pylist()))) == sorted(
        map(tuple, (r.values() for r in table.to_pylist()))
    )


def test_unkeyed_rows_keep_their_order(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    file = write_rows(resolve(str(path)), "x", pa.table({"x": [3, 1, 2]}), {"flowrun.note": "hello"})
    assert read(path, file)["x"].to_pylist() == [3, 1, 2]
    assert pq.read_metadata(path).metadata[b"flowrun.note"] == b"hello"


# ---- damage


@pytest.fixture
def small(tmp_path: Path) -> tuple[Path, StateFile]:
    path = tmp_path / "x.parquet"
    table = keyed([0, 1, 1, 5], k=pa.array(["a", "b", None, "d"]), v=pa.array([1, 2, 3, 4]))
    return path, write_keyed_rows(resolve(str(path)), "x.parquet", table, ["k"], GROUPS, {})


def test_every_flipped_bit_is_noticed(small: tuple[Path, StateFile]) -> None:
    path, file = small
    content = path.read_bytes()
    for position in range(len(content)):
        altered = bytearray(content)
        altered[position] ^= 1 << (position % 8)
        path.write_bytes(altered)
        with pytest.raises(DamagedFileError, match="altered"):
            read(path, file)


def test_every_truncation_is_noticed(small: tuple[Path, StateFile]) -> None:
    path, file = small
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(DamagedFileError, match=f"truncated: expected {len(content)} bytes, it has {length}"):
            read(path, file)


def test_bytes_added_at_the_end_are_noticed(small: tuple[Path, StateFile]) -> None:
    path, file = small
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(DamagedFileError, match="altered"):
        read(path, file)


def test_another_whole_file_of_the_same_size_is_noticed(small: tuple[Path, StateFile]) -> None:
    path, file = small
    other = path.parent / "y.parquet"
    table = keyed([0, 1, 1, 5], k=pa.array(["a", "b", None, "e"]), v=pa.array([1, 2, 3, 4]))
    write_keyed_rows(resolve(str(other)), "x.parquet", table, ["k"], GROUPS, {})
    assert other.stat().st_size == file.size
    with pytest.raises(DamagedFileError, match="checksum of its footer"):
        read(other, file)


def test_damage_to_key_groups_that_are_not_wanted_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    file = write_keyed_rows(resolve(str(path)), "x", big_table(300_000), ["k"], GROUPS, {})
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    assert read(path, file, KeyGroupRange(7, 8)).num_rows > 0
    with pytest.raises(DamagedFileError, match="altered between bytes 0 and"):
        read(path, file, KeyGroupRange(0, 1))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DamagedFileError, match=r"'.*gone\.parquet' is missing"):
        read(tmp_path / "gone.parquet", StateFile("gone.parquet", 1, 1, ""))


def test_other_readers_check_the_pages(small: tuple[Path, StateFile]) -> None:
    path, _ = small
    content = bytearray(path.read_bytes())
    column = pq.read_metadata(path).row_group(0).column(2)
    content[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    path.write_bytes(content)
    with pytest.raises(OSError, match="CRC"):
        pq.read_table(path, page_checksum_verification=True)


# ---- failures of the file system


def test_another_file_system_than_the_local_disk(tmp_path: Path) -> None:
    location = elsewhere(tmp_path)
    location.make_folder()
    file = write_keyed_rows(location / "x.parquet", "x.parquet", big_table(1000), ["k"], GROUPS, {})
    with StateFileReader(location / "x.parquet", file) as reader:
        assert reader.rows(KeyGroupRange(2, 3)).num_rows == file.offsets[3] - file.offsets[2]


@pytest.mark.parametrize("after_writes", [0, 1, 2, 5])
def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, after_writes: int) -> None:
    writes = 0

    def full(action: str, path: str) -> None:
        nonlocal writes
        if action == "write":
            writes += 1
            if writes > after_writes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    location = failing(tmp_path, full)
    location.make_folder()
    with pytest.raises(StateError, match=r"cannot write the state file 'fake://.*/x\.parquet': No space left") as error:
        write_keyed_rows(location / "x.parquet", "x", big_table(300_000), ["k"], GROUPS, {})
    assert "free some space" in (error.value.hint or "")
    assert location.entries() == []


def test_a_folder_that_is_gone_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="No such file or directory"):
        write_keyed_rows(resolve(str(tmp_path / "gone" / "x.parquet")), "x", big_table(10), [], GROUPS, {})
