"""Metadata that somebody altered, with a right checksum: no file outside of the state's own folder is opened."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flowrun.api.state import OperatorState, Redistribution
from flowrun.core.clock import ManualClock
from flowrun.core.elements import CheckpointKind
from flowrun.errors import StateError
from flowrun.state.checkpoints import OperatorSubtaskState
from flowrun.state.kept_names import identity_state, read_identity
from flowrun.state.storage.documents import rendered
from flowrun.state.storage.folder import JobFolder, open_job_folder
from flowrun.state.storage.metadata_file import read_metadata, write_metadata
from flowrun.state.storage.parquet_storage import ParquetStorage
from flowrun.state.storage.state_path import resolve
from tests.state.storage.jobs import GROUPS, OPERATOR, bag, bag_segment, metadata, rows_of, take

Alter = Callable[[dict[str, Any]], None]


def altered(folder: Path, change: Alter) -> None:
    """Change metadata, and make its checksum right again."""
    path = folder / "_metadata.json"
    document = json.loads(path.read_text())
    for name in ("format_version", "checksum"):
        del document[name]
    change(document)
    path.write_bytes(rendered(document))


@pytest.fixture
def savepoint(tmp_path: Path) -> Path:
    """A savepoint with keyed state, and its state file once more beside it."""
    folder = open_job_folder(str(tmp_path / "jobs"), "my job", lineage="L", clock=ManualClock())
    writer = folder.writer(OPERATOR, "my op", 0, GROUPS)
    path, _ = take(
        folder, writer, 1, bag(bag_segment([(1, 2)])), kind=CheckpointKind.SAVEPOINT, directory=str(tmp_path)
    )
    folder.close()
    (file,) = Path(path).glob("*.parquet")
    shutil.copy(file, tmp_path / "elsewhere.parquet")
    return Path(path)


def keyed_rows(savepoint: Path) -> list[tuple[Any, ...]]:
    (state,) = read_metadata(str(savepoint)).operators[OPERATOR].subtasks.values()
    return rows_of(ParquetStorage(resolve(str(savepoint))).read_keyed([state.keyed["bag"]], GROUPS, str(savepoint)))


def names(path: str) -> Alter:
    def change(document: dict[str, Any]) -> None:
        document["operators"][0]["subtasks"]["0"]["bag"]["files"][0]["path"] = path

    return change


def test_the_state_is_read_as_it_was_written(savepoint: Path) -> None:
    assert keyed_rows(savepoint) == [(1, 2)]


@pytest.mark.parametrize(
    "path", ["../elsewhere.parquet", "ABSOLUTE", "./../elsewhere.parquet", "x/../../elsewhere.parquet"]
)
def test_keyed_state_is_not_read_from_elsewhere(savepoint: Path, path: str) -> None:
    altered(savepoint, names(path.replace("ABSOLUTE", str(savepoint.parent / "elsewhere.parquet"))))
    with pytest.raises(StateError, match="is not below that folder: it is absolute, or goes up"):
        keyed_rows(savepoint)


def test_symbolic_links_that_lead_out_are_not_followed(savepoint: Path) -> None:
    os.symlink(savepoint.parent / "elsewhere.parquet", savepoint / "link.parquet")
    altered(savepoint, names("link.parquet"))
    with pytest.raises(StateError, match="a symbolic link leads out"):
        keyed_rows(savepoint)
    os.symlink(savepoint, savepoint.parent / "moved")  # to name the savepoint itself by a link is the user's own choice
    (file,) = (f for f in savepoint.glob("*.parquet") if f.name != "link.parquet")
    altered(savepoint, names(file.name))
    assert keyed_rows(savepoint.parent / "moved") == [(1, 2)]


def test_operator_state_is_not_read_from_elsewhere(tmp_path: Path) -> None:
    folder: JobFolder = open_job_folder(str(tmp_path / "jobs"), "my job", lineage="L", clock=ManualClock())
    rows = OperatorState(pa.table({"a": [1]}), Redistribution.SPLIT)
    state = OperatorSubtaskState(OPERATOR, {}, {"splits": rows})
    place = tmp_path / "savepoint"
    place.mkdir()
    write_metadata(resolve(str(place)), metadata(folder, 1, state, kind=CheckpointKind.SAVEPOINT))
    folder.close()
    (file,) = place.glob("*.parquet")
    shutil.move(file, tmp_path / "elsewhere.parquet")

    def change(document: dict[str, Any]) -> None:
        document["operators"][0]["operator_state"][0]["file"]["path"] = "../elsewhere.parquet"

    altered(place, change)
    with pytest.raises(StateError, match="is not below that folder"):
        read_metadata(str(place))


@pytest.mark.parametrize("lineage", ["x/../../y", "..", "a/b", "a\n"])
def test_a_lineage_that_is_part_of_file_names_is_a_plain_name(savepoint: Path, lineage: str) -> None:
    altered(savepoint, lambda document: document.update(lineage=lineage))
    with pytest.raises(StateError, match="the lineage in the state is"):
        read_metadata(str(savepoint))


def test_the_identity_of_a_sink_is_a_plain_name() -> None:
    assert read_identity(identity_state("1f0c")) == "1f0c"
    with pytest.raises(StateError, match="the identity of a sink in the state"):
        read_identity(identity_state("../x"))
