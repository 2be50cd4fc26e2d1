"""Rows that wait for their commit: written durably, read only if they are as written, and removed with their reason to be."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from flowrun.errors import StateError
from flowrun.state.storage.staged_files import (
    StagedFile,
    StagedFileWriter,
    discard_staged,
    is_staged,
    read_staged,
    remove_staged,
    staged_name,
)
from flowrun.state.storage.state_path import StatePath, resolve

ROWS = pa.record_batch({"k": pa.array([1, 2, 3]), "v": pa.array(["a", None, "c"])})


@pytest.fixture
def folder(tmp_path: Path) -> StatePath:
    return resolve(str(tmp_path / "staged"))


def write(folder: StatePath, owner: str, unique: str) -> StagedFile:
    writer = StagedFileWriter(folder, staged_name(owner, unique), ROWS.schema)
    writer.write(ROWS)
    writer.write(ROWS.slice(1))
    return writer.finish()


def test_what_was_written_is_read(folder: StatePath) -> None:
    file = write(folder, "o", "1")
    assert file.rows == 5
    assert pa.Table.from_batches(read_staged(folder, file)).to_pydict() == {
        "k": [1, 2, 3, 2, 3],
        "v": ["a", None, "c", None, "c"],
    }


@pytest.mark.parametrize("damage", ["cut", "changed", "longer", "empty"])
def test_a_damaged_file_is_not_read(folder: StatePath, damage: str) -> None:
    file = write(folder, "o", "1")
    path = Path(folder.path) / file.name
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(
        {
            "cut": content[:-9],
            "changed": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
            "longer": content + b"\0",
            "empty": b"",
        }[damage]
    )
    with pytest.raises(StateError, match="are not as they were written"):
        list(read_staged(folder, file))


def test_a_file_that_is_gone_is_named(folder: StatePath) -> None:
    file = write(folder, "o", "1")
    remove_staged(folder, file.name)
    remove_staged(folder, file.name)
    assert not is_staged(folder, file.name)
    with pytest.raises(StateError, match=f"wait for their commit in '.*{file.name}' are gone"):
        list(read_staged(folder, file))


def test_an_abandoned_file_leaves_nothing(folder: StatePath) -> None:
    writer = StagedFileWriter(folder, staged_name("o", "1"), ROWS.schema)
    writer.write(ROWS)
    writer.abandon()
    writer.abandon()
    assert folder.entries() == []


def test_a_lineage_discards_its_own_files_but_those_that_are_needed(folder: StatePath) -> None:
    kept, gone, other = write(folder, "o", "1"), write(folder, "o", "2"), write(folder, "other", "1")
    (Path(folder.path) / "notes.txt").write_text("not ours")
    assert discard_staged(folder, "o", {kept.name}) == 1
    assert {e.name for e in folder.entries()} == {kept.name, other.name, "notes.txt"}
    assert gone.name not in {e.name for e in folder.entries()}
    assert discard_staged(folder / "nowhere", "o", ()) == 0


def test_a_path_out_of_the_folder_is_refused(folder: StatePath) -> None:
    file = write(folder, "o", "1")
    with pytest.raises(StateError, match="not below that folder"):
        list(read_staged(folder, StagedFile(f"../staged/{file.name}", file.rows, file.bytes, file.checksum)))
