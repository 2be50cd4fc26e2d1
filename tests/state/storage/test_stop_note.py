"""A job that was stopped with a savepoint is not resumed from an older checkpoint by mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.errors import StateError
from flowrun.state.storage.locate import locate
from flowrun.state.storage.state_path import resolve
from flowrun.state.storage.stop_note import STOP_NOTE_FILE, StopNote, read_stop_note, write_stop_note


def test_a_note_comes_back(tmp_path: Path) -> None:
    folder = resolve(str(tmp_path))
    assert read_stop_note(folder) is None
    write_stop_note(folder, StopNote(7, "/savepoints/a b"))
    assert read_stop_note(folder) == StopNote(7, "/savepoints/a b")


def test_a_damaged_note_is_an_error(tmp_path: Path) -> None:
    (tmp_path / STOP_NOTE_FILE).write_text('{"checkpoint_id": ')
    with pytest.raises(StateError, match=r"_stopped\.json' is damaged"):
        read_stop_note(resolve(str(tmp_path)))


def test_the_root_names_the_savepoint(tmp_path: Path) -> None:
    job = tmp_path / "orders"
    job.mkdir()
    write_stop_note(resolve(str(job)), StopNote(7, "/savepoints/s7"))
    for path in (tmp_path, job):
        with pytest.raises(StateError, match="was stopped with a savepoint, which is newer") as raised:
            locate(str(path))
        assert raised.value.hint == "resume from /savepoints/s7"
