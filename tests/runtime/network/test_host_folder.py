"""Folders that belong to a process: they go with it, however it ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from flowrun.runtime.network import host_folder
from flowrun.runtime.network.host_folder import (
    HostFolder,
    clear_owned,
    owned_folder,
    remove_abandoned,
    remove_if_abandoned,
    remove_owned,
    remove_rest,
)


class Owner:
    """A process that makes a folder and lives until it is told otherwise; `then` is done by it, with the folder."""

    def __init__(self, parent: Path, then: Callable[[Path], object] = lambda _: None) -> None:
        told, tell = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            folder = owned_folder(parent)
            (folder / "rows").write_text("some")
            then(folder)
            os.write(tell, str(folder).encode())
            signal.pause()
        os.close(tell)
        self.folder = Path(os.read(told, 4096).decode())
        os.close(told)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def test_what_nobody_owns_any_more_goes_with_the_next_folder(tmp_path: Path) -> None:
    owner, other = Owner(tmp_path), Owner(tmp_path)
    mine = owned_folder(tmp_path)
    assert owner.folder.exists(), "it is in use"
    owner.kill()
    again = owned_folder(tmp_path)
    assert not owner.folder.exists()
    assert other.folder.exists()
    assert mine.exists(), "one's own are in use, too"
    other.kill()
    remove_abandoned(tmp_path)
    assert {*tmp_path.iterdir()} == {mine, again}
    for folder in (mine, again, mine):
        remove_owned(folder)
    assert list(tmp_path.iterdir()) == []


def test_processes_that_the_owner_has_started_do_not_own_its_folder(tmp_path: Path) -> None:
    children: list[int] = []

    read_end, write_end = os.pipe()

    def told(folder: Path) -> None:
        child = os.fork()
        if child == 0:
            signal.pause()
        os.write(write_end, f"{child} ".encode())

    owner = Owner(tmp_path, told)
    children.append(int(os.read(read_end, 100).decode()))
    assert not remove_if_abandoned(owner.folder)
    owner.kill()
    assert remove_if_abandoned(owner.folder), "although its child lives"
    assert list(tmp_path.iterdir()) == []
    for child in children:
        os.kill(child, signal.SIGKILL)
    os.close(read_end)
    os.close(write_end)


def test_a_process_that_was_forked_removes_its_owner_s_folder_only_when_that_is_gone(tmp_path: Path) -> None:
    mine = owned_folder(tmp_path)
    pid = os.fork()
    if pid == 0:
        os._exit(int(remove_if_abandoned(mine)))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert mine.exists()
    remove_owned(mine)


def test_what_is_being_made_and_what_is_no_folder_of_ours_is_left_alone(tmp_path: Path) -> None:
    made = tmp_path / f"{host_folder.PREFIX}half"
    made.mkdir()
    (tmp_path / f"{host_folder.PREFIX}file").write_text("a file")
    (tmp_path / "other").mkdir()
    remove_abandoned(tmp_path)
    assert len(list(tmp_path.iterdir())) == 3


def test_a_folder_that_is_cleared_is_still_owned(tmp_path: Path) -> None:
    mine = owned_folder(tmp_path)
    (mine / "job").mkdir()
    clear_owned(mine)
    pid = os.fork()
    if pid == 0:
        os._exit(int(remove_if_abandoned(mine)))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert [p.name for p in mine.iterdir()] == [".owner"]
    remove_owned(mine)


@pytest.mark.parametrize("name", ["tcp://127.0.0.1:6123", "../escape", "a/b"])
def test_parts_of_a_folder_are_within_it(tmp_path: Path, name: str) -> None:
    part = HostFolder(tmp_path, "id").within(name)
    assert part.id == "id"
    assert part.path.parent == tmp_path
    assert part.path.resolve() != tmp_path.parent


def test_a_process_below_the_owner_deletes_what_a_killed_owner_left_and_nothing_of_a_living_one(tmp_path: Path) -> None:
    living, killed = Owner(tmp_path), Owner(tmp_path)
    remove_rest(living.folder, os.getppid())
    assert living.folder.exists()
    killed.kill()
    remove_rest(killed.folder, os.getppid())
    assert not killed.folder.exists()
    for path in living.folder.iterdir():  # the owner has deleted it, and somebody wrote there since
        path.unlink()
    (living.folder / "late").write_text("rows")
    remove_rest(living.folder, os.getppid())
    assert not living.folder.exists()
    living.kill()
