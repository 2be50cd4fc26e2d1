"""What a job goes on from, as the command line finds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.cli.restoring import absolute_location, go_to_working_directory, kept_text, locate_state
from flowrun.core.elements import CheckpointKind
from flowrun.errors import PipelineError
from flowrun.state.checkpoints import CheckpointMetadata, PipelineText
from flowrun.state.storage.locate import SnapshotPath


def found(pipeline: PipelineText | None) -> SnapshotPath:
    metadata = CheckpointMetadata(
        7, CheckpointKind.CHECKPOINT, 0, 1, "orders", "l", "/state/orders", "0.1", pipeline, None, {}
    )
    return SnapshotPath("/state/orders", "/state/orders/chk-7", metadata)


def test_local_paths_are_made_absolute_where_the_command_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ada")
    assert absolute_location("state") == str(tmp_path / "state")
    assert absolute_location("~/state") == "/home/ada/state"
    assert absolute_location("gs://bucket/state") == "gs://bucket/state"


def test_a_path_without_state_is_wrong_input(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"nothing-here"):
        locate_state(str(tmp_path / "nothing-here"), None)


def test_an_empty_path_is_not_the_working_directory() -> None:
    with pytest.raises(PipelineError, match="the path of the savepoint or checkpoint is empty"):
        locate_state("", None)


def test_a_file_is_no_state_and_nobody_is_told_to_remove_it(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text("name: orders")
    with pytest.raises(PipelineError, match="is a file, not a savepoint or checkpoint") as refused:
        locate_state(str(file), None)
    assert "remove" not in str(refused.value)


def test_an_empty_folder_is_no_near_match_of_itself(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    with pytest.raises(PipelineError, match="there is no checkpoint or savepoint") as refused:
        locate_state(str(tmp_path / "state"), None)
    assert "did you mean" not in str(refused.value)


def test_state_of_a_job_made_in_python_needs_a_file() -> None:
    kept = PipelineText("orders.yaml", "", "/somewhere")
    assert kept_text(found(kept)) is kept
    with pytest.raises(PipelineError, match="no text was kept") as refused:
        kept_text(found(None))
    assert "flowrun resume --from-savepoint /state/orders/chk-7 FILE" in str(refused.value)


def test_the_job_goes_on_where_it_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir("/")
    kept = PipelineText("orders.yaml", "", str(tmp_path), working_directory=str(tmp_path))
    go_to_working_directory(kept, quiet=False)
    assert Path.cwd() == tmp_path
    assert capsys.readouterr().err == f"working directory: {tmp_path}, in which the job was started\n"
    go_to_working_directory(kept, quiet=False)
    assert capsys.readouterr().err == "", "nothing to say when it is the same"
