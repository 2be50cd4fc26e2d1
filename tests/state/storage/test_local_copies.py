"""Copies of state files on this machine, for files that are elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from flowrun.errors import StateError
from flowrun.state.checkpoints import StateFile
from flowrun.state.storage.local_copies import LocalCopies, local_copies
from flowrun.state.storage.parquet_read import StateFileReader
from flowrun.state.storage.parquet_write import state_file
from flowrun.state.storage.state_path import StatePath
from tests.state.storage.file_systems import elsewhere

ROWS = pa.RecordBatch.from_pydict({"a": list(range(1_000))})


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("FLOWRUN_CACHE_DIR", str(tmp_path / "cache"))
    local_copies.cache_clear()
    yield tmp_path / "cache" / "state"
    local_copies.cache_clear()


def write(location: StatePath, rows: pa.RecordBatch = ROWS) -> StateFile:
    location.parent.make_folder()
    with state_file(location, rows.schema, rows, {}) as writer:
        writer.add(rows)
        return writer.finish(location.name, None, ())


def is_readable(location: StatePath, file: StateFile) -> bool:
    try:
        with StateFileReader(location, file):
            return True
    except StateError:
        return False


def fail_to_write(location: StatePath) -> None:
    with state_file(location, ROWS.schema, ROWS, {}) as writer:
        writer.add(ROWS)
        raise OSError("the store is gone")


def test_a_file_elsewhere_is_read_from_its_copy(tmp_path: Path, cache: Path) -> None:
    location = elsewhere(tmp_path / "store") / "one.parquet"
    file = write(location)
    (copy,) = cache.iterdir()
    assert copy.read_bytes() == (tmp_path / "store" / "state" / "one.parquet").read_bytes()
    assert copy.stat().st_mode & 0o777 == 0o600
    (tmp_path / "store" / "state" / "one.parquet").unlink()
    assert is_readable(location, file)
    copy.unlink()
    assert not is_readable(location, file)


def test_a_damaged_copy_and_one_of_a_file_of_the_same_name_do_not_count(tmp_path: Path, cache: Path) -> None:
    location = elsewhere(tmp_path / "store") / "one.parquet"
    file = write(location)
    (copy,) = cache.iterdir()
    content = bytearray(copy.read_bytes())
    content[len(content) // 2] ^= 1
    copy.write_bytes(content)
    assert is_readable(location, file)
    assert not copy.exists(), "a damaged copy is deleted"
    write(location, ROWS.slice(1))
    assert not is_readable(location, file)
    copies = LocalCopies(cache)
    copy_of_another = copies.begin("fake://two")
    copy_of_another.write(bytes(100))
    copy_of_another.keep("crc32:1")
    assert copies.open("fake://two", "crc32:1", 100) is not None
    assert copies.open("fake://two", "crc32:2", 100) is None
    assert copies.open("fake://two", "crc32:1", 99) is None


def test_files_on_this_machine_have_no_copies_and_nobody_needs_to_have_any(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flowrun.state.storage.state_path import resolve

    write(resolve(str(tmp_path / "here")) / "one.parquet")
    assert not cache.exists()
    local_copies.cache_clear()
    monkeypatch.setenv("FLOWRUN_LOCAL_STATE_BYTES", "0")
    location = elsewhere(tmp_path / "store") / "one.parquet"
    assert is_readable(location, write(location))
    assert not cache.exists()
    local_copies.cache_clear()
    monkeypatch.setenv("FLOWRUN_LOCAL_STATE_BYTES", "much")
    assert local_copies() is None


def test_a_write_that_fails_leaves_no_copy_and_a_copy_that_fails_no_trace(tmp_path: Path, cache: Path) -> None:
    location = elsewhere(tmp_path / "store") / "one.parquet"
    location.parent.make_folder()
    with pytest.raises(StateError):
        fail_to_write(location)
    assert list(cache.iterdir()) == []
    copies = local_copies()
    assert copies is not None
    copy = copies.begin("fake://store/two")
    os.close(copy._file.fileno())  # type: ignore[union-attr]
    for _ in range(100):
        copy.write(b"x" * 10_000)  # the buffer is full some time
    copy.keep("crc32:0")
    assert list(cache.iterdir()) == []


def test_what_was_used_last_stays(tmp_path: Path) -> None:
    copies = LocalCopies(tmp_path, most_bytes=250)
    for number in range(3):
        copy = copies.begin(f"fake://{number}")
        copy.write(bytes(100))
        for age, place in enumerate(sorted(tmp_path.iterdir(), key=lambda p: p.stat().st_mtime, reverse=True)):
            os.utime(place, (1_000_000_000 - age, 1_000_000_000 - age))
        assert copies.open("fake://0", "crc32:0", 100) is not None or number == 0
        copy.keep("crc32:0")
    assert [copies.open(f"fake://{number}", "crc32:0", 100) is not None for number in range(3)] == [True, False, True]
