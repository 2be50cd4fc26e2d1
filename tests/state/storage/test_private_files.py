"""Who may read state: its owner, unless the pipeline says otherwise."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from flowrun.api.state import OperatorState, Redistribution
from flowrun.core.clock import ManualClock
from flowrun.core.elements import CheckpointKind
from flowrun.state.checkpoints import OperatorSubtaskState
from flowrun.state.storage.descriptor import StorageDescriptor
from flowrun.state.storage.folder import open_job_folder
from tests.state.storage.jobs import GROUPS, OPERATOR, bag, bag_segment, metadata, take


@pytest.fixture(autouse=True)
def common_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(root: Path) -> tuple[set[str], set[str]]:
    """Modes of folders and of files below a folder, itself included."""
    found = [root, *root.rglob("*")]
    folders = {f"{p.stat().st_mode & 0o777:o}" for p in found if p.is_dir()}
    return folders, {f"{p.stat().st_mode & 0o777:o}" for p in found if p.is_file()}


@pytest.mark.parametrize("by_worker", [False, True], ids=["by its owner", "by a worker"])
@pytest.mark.parametrize(("shared", "expected"), [(False, ({"700"}, {"600"})), (True, ({"755"}, {"644"}))])
def test_folders_and_files_of_checkpoints_and_savepoints(
    tmp_path: Path, shared: bool, expected: tuple[set[str], set[str]], by_worker: bool
) -> None:
    root = tmp_path / "made"
    folder = open_job_folder(str(root / "state"), "my job", lineage="L", clock=ManualClock(), shared=shared)
    storage = StorageDescriptor(folder.job_folder, shared).open() if by_worker else folder
    writer = storage.writer(OPERATOR, "my op", 0, GROUPS)
    take(folder, writer, 1, bag(bag_segment([(1, 2)])))
    target = folder.begin(2, CheckpointKind.SAVEPOINT, str(root / "savepoints"))
    rows = OperatorState(pa.table({"a": [1]}), Redistribution.SPLIT)
    state = OperatorSubtaskState(OPERATOR, {}, {"splits": rows})
    folder.finish(target, metadata(folder, 2, state, kind=CheckpointKind.SAVEPOINT))
    folder.note_stop(2, target)
    folder.close()
    assert modes(root) == expected


def test_a_folder_that_is_there_keeps_its_permissions(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o755)
    open_job_folder(str(tmp_path / "state"), "my job", lineage="L", clock=ManualClock()).close()
    assert f"{(tmp_path / 'state').stat().st_mode & 0o777:o}" == "755"
    assert f"{(tmp_path / 'state' / 'my-job').stat().st_mode & 0o777:o}" == "700"
