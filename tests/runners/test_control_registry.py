"""The registry of running jobs: only this user's, only live ones, never in a folder that others can use."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from flowrun.errors import ClusterError
from flowrun.runners.registry import JobEntry, JobRegistry, new_entry, process_start, runtime_folders


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state" / "flowrun"


def entry(job_id: str = "a1", started_ms: int = 5, **changes: object) -> JobEntry:
    return replace(new_entry(job_id, "orders", "orders.yaml", 4711, started_ms), **changes)  # type: ignore[arg-type]


def put(folder: Path, found: JobEntry) -> Path:
    """An entry as a process of before left it."""
    path = folder / f"{found.job_id}.json"
    path.write_text(json.dumps(asdict(found)))
    return path


def test_what_is_added_is_found_oldest_first_until_it_is_removed(folder: Path) -> None:
    registry = JobRegistry([folder])
    assert registry.entries() == ()
    late, early = entry("b2", 9), entry("a1", 5)
    registry.add(late)
    registry.add(early)
    assert registry.entries() == (early, late)
    registry.remove("b2")
    registry.remove("b2")
    assert registry.entries() == (early,)


def test_folder_and_files_are_private_whatever_the_umask(folder: Path) -> None:
    before = os.umask(0)
    try:
        JobRegistry([folder]).add(entry())
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [(f.name, stat.S_IMODE(f.stat().st_mode)) for f in folder.iterdir()] == [("a1.json", 0o600)]


def test_tokens_are_long_and_new_each_time() -> None:
    first, second = entry().token, entry().token
    assert first != second
    assert len(bytes.fromhex(first)) == 32


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_folder_that_others_may_use_is_refused(folder: Path, mode: int) -> None:
    folder.mkdir(parents=True)
    folder.chmod(mode)
    for use in (lambda: JobRegistry([folder]).add(entry()), lambda: JobRegistry([folder]).entries()):
        with pytest.raises(ClusterError, match=rf"others may use it \(mode {mode:04o}\); run: chmod 700"):
            use()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_refused(folder: Path) -> None:
    folder.mkdir(parents=True, mode=0o700)
    os.chown(folder, 12345, -1)
    with pytest.raises(ClusterError, match="belongs to user 12345"):
        JobRegistry([folder]).add(entry())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_somebody_else_is_not_believed(folder: Path) -> None:
    registry = JobRegistry([folder])
    registry.add(entry())
    os.chown(folder / "a1.json", 12345, -1)
    assert registry.entries() == ()


def test_a_link_instead_of_the_folder_is_refused(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.parent.mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ClusterError, match="cannot be used"):
        JobRegistry([folder]).add(entry())


def test_what_is_no_entry_is_passed_over(folder: Path, tmp_path: Path) -> None:
    registry = JobRegistry([folder])
    registry.add(entry())
    (folder / "broken.json").write_text("{")
    (folder / "other.json").write_text('{"job_id": 1}')
    (folder / "wrong.json").write_text(json.dumps({**asdict(entry()), "port": "80"}))
    (folder / "token.json").write_text(json.dumps({**asdict(entry("d4")), "token": "a\r\nHost: evil"}))
    (folder / "port.json").write_text(json.dumps({**asdict(entry("e5")), "port": 70_000}))
    (folder / "note.txt").write_text("")
    (folder / "folder.json").mkdir()
    (tmp_path / "copy.json").write_text(json.dumps(asdict(entry("c3"))))
    (folder / "link.json").symlink_to(tmp_path / "copy.json")
    assert [e.job_id for e in registry.entries()] == ["a1"]
    assert (folder / "broken.json").exists(), "nothing that is not ours is deleted"


def test_entries_of_dead_processes_are_cleaned_up(folder: Path) -> None:
    registry = JobRegistry([folder])
    registry.add(entry("alive"))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        started = process_start(process.pid)
        assert started is not None
        other = put(folder, entry("other", pid=process.pid, process_start=started))
        assert {e.job_id for e in registry.entries()} == {"alive", "other"}
    assert {e.job_id for e in registry.entries()} == {"alive"}
    assert not other.exists()


def test_a_later_process_with_the_same_pid_is_another_one(folder: Path) -> None:
    registry = JobRegistry([folder])
    registry.add(entry("mine"))
    stale = put(folder, entry("stale", process_start="an earlier boot/7"))
    assert [e.job_id for e in registry.entries()] == ["mine"]
    assert not stale.exists()


def test_where_the_system_does_not_say_when_a_process_began_its_pid_decides(folder: Path) -> None:
    registry = JobRegistry([folder])
    registry.add(entry("mine", process_start=""))
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
        put(folder, entry("gone", process_start="", pid=process.pid))
    assert [e.job_id for e in registry.entries()] == ["mine"]


def test_jobs_of_another_machine_with_the_same_home_are_neither_shown_nor_deleted(folder: Path) -> None:
    registry = JobRegistry([folder])
    registry.add(entry("mine"))
    elsewhere = put(folder, entry("elsewhere", host="another", process_start="x"))
    assert [e.job_id for e in registry.entries()] == ["mine"]
    assert elsewhere.exists()


def test_jobs_are_found_whether_or_not_the_terminal_has_a_session_folder(tmp_path: Path) -> None:
    session = runtime_folders({"XDG_RUNTIME_DIR": str(tmp_path / "run"), "HOME": str(tmp_path)})
    plain = runtime_folders({"HOME": str(tmp_path)})
    JobRegistry(plain).add(entry())
    assert [e.job_id for e in JobRegistry(session).entries()] == ["a1"]
    assert runtime_folders({"XDG_RUNTIME_DIR": "relative", "XDG_STATE_HOME": "/s"}) == (Path("/s/flowrun/run"),)
    assert runtime_folders({"FLOWRUN_RUNTIME_DIR": "/x", "HOME": "/h"}) == (Path("/x"),)


def test_the_second_folder_serves_if_the_first_cannot_be_used(tmp_path: Path, folder: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    registry = JobRegistry([shared, folder])
    registry.add(entry())
    assert [e.job_id for e in registry.entries()] == ["a1"]
    assert list(shared.iterdir()) == []
    registry.remove("a1")
    assert registry.entries() == ()


def test_without_any_folder_adding_says_so() -> None:
    with pytest.raises(ClusterError, match="set HOME"):
        JobRegistry(runtime_folders({})).add(entry())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ClusterError, match="cannot be used"):
        JobRegistry([tmp_path / "flowrun"]).add(entry())


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "flowrun").write_text("")
    with pytest.raises(ClusterError, match="Not a directory"):
        JobRegistry([tmp_path / "flowrun"]).add(entry())


def test_what_one_process_leaves_another_takes_once(tmp_path: Path) -> None:
    registry = JobRegistry([tmp_path / "run"])
    assert registry.take("5f") is None
    registry.leave("5f", b"secret")
    (left,) = (tmp_path / "run").iterdir()
    assert left.stat().st_mode & 0o077 == 0
    assert registry.entries() == ()
    assert (registry.take("5f"), registry.take("5f")) == (b"secret", None)
