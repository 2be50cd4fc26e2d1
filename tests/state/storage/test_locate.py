"""What a user's path names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flowrun.core.clock import ManualClock
from flowrun.core.elements import CheckpointKind
from flowrun.errors import StateError
from flowrun.state.storage.folder import open_job_folder
from flowrun.state.storage.locate import locate, locate_in
from flowrun.state.storage.state_path import resolve
from flowrun.state.storage.writer import KeyedWriter
from tests.state.storage.file_systems import elsewhere
from tests.state.storage.jobs import COMMITTED_AFTER, GROUPS, OPERATOR, bag, bag_segment, take


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A checkpoint directory with jobs `my-job` (checkpoints 1 and 2, 3 unfinished) and `other` (1), and a savepoint."""
    directory = tmp_path / "state"
    for name, numbers in (("my job", [1, 2]), ("other", [1])):
        folder = open_job_folder(str(directory), name, lineage="L", clock=ManualClock())
        writer = KeyedWriter(OPERATOR, "op", 0, GROUPS, resolve(folder.job_folder))
        segment = bag_segment([(1, 1)])
        for number in numbers:
            take(folder, writer, number, bag(segment))
        if name == "my job":
            take(folder, writer, 3, bag(segment), kind=CheckpointKind.SAVEPOINT, directory=str(tmp_path / "savepoints"))
            writer.write(
                3, folder.begin(3, CheckpointKind.CHECKPOINT, None), CheckpointKind.CHECKPOINT, bag(segment, segment)
            )
            Path(folder.job_folder, "chk-3", "x.parquet").write_text("unfinished")
        folder.close()
    return directory


def test_a_savepoint_is_its_own_root(state: Path) -> None:
    path = state.parent / "savepoints" / "savepoint-my-job-3"
    found = locate(str(path))
    assert (found.root, found.folder, found.metadata.kind) == (str(path), str(path), CheckpointKind.SAVEPOINT)
    assert locate(f"file://{path}") == found


def test_one_checkpoint_has_its_jobs_folder_as_root(state: Path) -> None:
    found = locate(str(state / "my-job" / "chk-1"))
    assert (found.root, found.metadata.checkpoint_id) == (str(state / "my-job"), 1)
    assert locate(str(state / "my-job" / "chk-1" / "_metadata.json")) == found


def test_a_jobs_folder_means_its_newest_complete_checkpoint(state: Path) -> None:
    assert locate(str(state / "my-job")).folder == str(state / "my-job" / "chk-2")


def test_ten_is_newer_than_nine(tmp_path: Path) -> None:
    folder = open_job_folder(str(tmp_path), "j", lineage="L", clock=ManualClock())
    writer = KeyedWriter(OPERATOR, "op", 0, GROUPS, resolve(folder.job_folder))
    for number in (9, 10):
        take(folder, writer, number, bag())
    folder.close()
    assert locate(str(tmp_path)).metadata.checkpoint_id == 10


def test_a_directory_of_several_jobs_needs_a_name(state: Path) -> None:
    with pytest.raises(StateError, match="checkpoints of several jobs: 'my-job', 'other'") as error:
        locate(str(state))
    assert error.value.hint == f"name one of them, for example {state}/my-job"
    assert locate(str(state), job_name="my job").metadata.job_name == "my job"
    with pytest.raises(StateError, match="no checkpoint of job 'othr', but of 'my-job', 'other'") as error:
        locate(str(state), job_name="othr")
    assert error.value.hint == "did you mean 'other'?"


def test_a_relative_path_starts_in_the_working_directory(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(state)
    assert locate("my-job").folder == str(state / "my-job" / "chk-2")


def test_an_unfinished_checkpoint_is_refused_and_the_newest_complete_one_named(state: Path) -> None:
    with pytest.raises(StateError, match="chk-3' was never completed") as error:
        locate(str(state / "my-job" / "chk-3"))
    assert error.value.hint == f"the newest complete one is {state}/my-job/chk-2"


def test_a_damaged_newest_checkpoint_is_never_passed_over(state: Path) -> None:
    (state / "my-job" / "chk-2" / "_metadata.json").write_text("{")
    with pytest.raises(StateError, match=r"chk-2/_metadata\.json' is truncated") as error:
        locate(str(state / "my-job"))
    assert error.value.hint == f"go on from another checkpoint: --from-savepoint {state}/my-job/chk-1{COMMITTED_AFTER}"


def test_nothing_there_offers_near_names(state: Path) -> None:
    with pytest.raises(StateError, match="no checkpoint or savepoint at") as error:
        locate(str(state / "my-jub"))
    assert error.value.hint == f"did you mean {state}/my-job?"


def test_something_else_there_is_listed(tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / f"file{number}").touch()
    with pytest.raises(StateError, match=re.escape("there is: file0, file1,") + ".* and 2 more"):
        locate(str(tmp_path))


def test_a_folder_of_savepoints_lists_them(state: Path) -> None:
    with pytest.raises(StateError, match="no checkpoints, but savepoints: savepoint-my-job-3"):
        locate(str(state.parent / "savepoints"))


@pytest.mark.parametrize("text", ["", "  ", "nonsense://x/y", "a\0b"])
def test_paths_that_are_none(text: str) -> None:
    with pytest.raises(StateError):
        locate(text)


def test_another_file_system(state: Path) -> None:
    found = locate_in(elsewhere(state.parent) / "my-job")
    assert (found.root, found.folder) == ("fake://store/state/my-job", "fake://store/state/my-job/chk-2")
