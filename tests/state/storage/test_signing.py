"""Signed metadata: with a key, only what was written with it is read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flowrun.core.clock import ManualClock
from flowrun.core.elements import CheckpointKind
from flowrun.errors import StateError
from flowrun.state.checkpoints import OperatorSubtaskState
from flowrun.state.storage.folder import open_job_folder
from flowrun.state.storage.metadata_file import read_metadata, write_metadata
from flowrun.state.storage.state_path import resolve
from tests.state.storage.jobs import OPERATOR, metadata
from tests.state.storage.test_altered_paths import altered

KEY = "0123456789abcdef0123456789abcdef"


def written(tmp_path: Path) -> Path:
    folder = open_job_folder(str(tmp_path / "jobs"), "my job", lineage="L", clock=ManualClock())
    place = tmp_path / "savepoint"
    place.mkdir()
    state = OperatorSubtaskState(OPERATOR, {}, {})
    write_metadata(resolve(str(place)), metadata(folder, 1, state, kind=CheckpointKind.SAVEPOINT))
    folder.close()
    return place


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWRUN_STATE_KEY", KEY)


@pytest.mark.usefixtures("key")
def test_what_was_written_with_the_key_is_read_with_it_and_without_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = written(tmp_path)
    lines = (place / "_metadata.json").read_text().splitlines()
    assert re.fullmatch(r'  "signature": "hmac-sha256:[0-9a-f]{64}",', lines[3])
    assert read_metadata(str(place)).checkpoint_id == 1
    (tmp_path / "key").write_text(KEY + "\n")
    monkeypatch.delenv("FLOWRUN_STATE_KEY")
    assert read_metadata(str(place)).checkpoint_id == 1
    monkeypatch.setenv("FLOWRUN_STATE_KEY_FILE", str(tmp_path / "key"))
    assert read_metadata(str(place)).checkpoint_id == 1


@pytest.mark.usefixtures("key")
def test_altered_metadata_with_a_right_checksum_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = written(tmp_path)
    signature = (place / "_metadata.json").read_text().splitlines()[3]
    monkeypatch.delenv("FLOWRUN_STATE_KEY")
    altered(place, lambda document: document.update(job_name="another"))
    text = (place / "_metadata.json").read_text()
    assert signature in text, "as whoever altered it would leave it"
    monkeypatch.setenv("FLOWRUN_STATE_KEY", KEY)
    with pytest.raises(StateError, match=r"(the signature of .* is wrong: it was altered)|is not signed"):
        read_metadata(str(place))


@pytest.mark.usefixtures("key")
def test_another_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = written(tmp_path)
    monkeypatch.setenv("FLOWRUN_STATE_KEY", "f" * 32)
    with pytest.raises(StateError, match="or signed with another key"):
        read_metadata(str(place))


def test_metadata_without_signature_is_refused_if_there_is_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = written(tmp_path)
    assert "signature" not in (place / "_metadata.json").read_text()
    monkeypatch.setenv("FLOWRUN_STATE_KEY", KEY)
    with pytest.raises(StateError, match="is not signed, but FLOWRUN_STATE_KEY"):
        read_metadata(str(place))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("FLOWRUN_STATE_KEY", "short", "is too short: 5 bytes"),
        ("FLOWRUN_STATE_KEY_FILE", "/nowhere/key", "cannot read the key of state"),
    ],
)
def test_a_key_that_is_none_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    place = written(tmp_path)
    monkeypatch.setenv(name, value)
    with pytest.raises(StateError, match=said):
        read_metadata(str(place))
