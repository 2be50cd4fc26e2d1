"""The folder of a job: who owns it, what its checkpoints are numbered, what is deleted and when."""

from __future__ import annotations

import errno
import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from flowrun.api.state import OperatorSnapshot, OperatorState, StateSegment
from flowrun.core.clock import ManualClock
from flowrun.core.elements import CheckpointKind
from flowrun.errors import StateError
from flowrun.state.checkpoints import OperatorSubtaskState
from flowrun.state.storage.documents import document_at, named_paths
from flowrun.state.storage.folder import JobFolder, open_job_folder
from flowrun.state.storage.lock import FolderLock, highest_number
from flowrun.state.storage.metadata_file import read_metadata
from flowrun.state.storage.parquet_storage import ParquetStorage
from flowrun.state.storage.state_path import StatePath, resolve
from flowrun.state.storage.writer import KeyedWriter
from tests.examples import examples
from tests.state.storage.file_systems import elsewhere, failing
from tests.state.storage.jobs import GROUPS, OPERATOR, bag, bag_segment, metadata, rows_of, take

CHECKPOINT = CheckpointKind.CHECKPOINT
SAVEPOINT = CheckpointKind.SAVEPOINT


def opened(directory: Path, lineage: str = "L") -> JobFolder:
    return open_job_folder(str(directory), "my job", lineage=lineage, clock=ManualClock())


def writer(folder: JobFolder) -> KeyedWriter:
    return KeyedWriter(OPERATOR, "my op", 0, GROUPS, folder.storage.root)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[JobFolder]:
    made = opened(tmp_path)
    yield made
    made.close()


def files_in(folder: JobFolder | Path) -> set[str]:
    root = Path(folder.job_folder) if isinstance(folder, JobFolder) else folder
    return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()} - {".lock"}


# ---- ownership


def test_the_folder_is_named_after_the_job(folder: JobFolder, tmp_path: Path) -> None:
    assert folder.job_folder == str(tmp_path / "my-job")


def test_a_second_owner_is_refused_and_told_who_has_it(folder: JobFolder, tmp_path: Path) -> None:
    with pytest.raises(StateError, match=rf"my-job' is in use by process {os.getpid()} on ") as error:
        opened(tmp_path)
    assert "flowrun stop" in (error.value.hint or "")
    folder.close()
    folder.close()
    opened(tmp_path).close()


def test_other_jobs_may_share_the_directory(folder: JobFolder, tmp_path: Path) -> None:
    open_job_folder(str(tmp_path), "other job", lineage="L", clock=ManualClock()).close()


def test_the_lock_of_a_killed_process_is_gone(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from flowrun.core.clock import SystemClock\n"
        "from flowrun.state.storage.folder import open_job_folder\n"
        "folder = open_job_folder(sys.argv[1], 'my job', lineage='L', clock=SystemClock())\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(StateError, match=f"in use by process {process.pid} on"):
            opened(tmp_path)
        process.send_signal(signal.SIGKILL)
        process.wait()
    opened(tmp_path).close()


def test_a_lock_file_cut_off_by_a_death_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "my-job").mkdir()
    (tmp_path / "my-job" / ".lock").write_text('{"owner": {"pi')
    opened(tmp_path).close()


def elsewhere_opened(location: StatePath) -> JobFolder:
    return JobFolder(location / "my-job", "my job", lineage="L", clock=ManualClock())


def test_elsewhere_a_file_says_who_owns_the_folder(tmp_path: Path) -> None:
    folder = elsewhere_opened(elsewhere(tmp_path))
    with pytest.raises(StateError, match="in use by process") as error:
        elsewhere_opened(elsewhere(tmp_path))
    assert "if that process is gone, delete fake://store/state/my-job/.lock" in (error.value.hint or "")
    folder.close()
    elsewhere_opened(elsewhere(tmp_path)).close()


def test_where_no_number_was_noted_the_highest_is_0(tmp_path: Path) -> None:
    for folder in (resolve(str(tmp_path)), elsewhere(tmp_path)):
        folder.make_folder()
        lock = FolderLock(folder, ManualClock())
        assert lock.highest == 0
        assert json.loads((folder / ".lock").read_bytes())["highest"] == 0
        lock.release()


@pytest.mark.parametrize("below", ["file/new", "file/new/newer"])
def test_a_folder_below_a_file_cannot_be_made(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match="Not a directory") as raised:
        resolve(str(tmp_path / below)).make_folder()
    assert raised.value.hint == "a part of the path is a file: remove it, or name another folder"
    with pytest.raises(StateError, match="File exists"):
        resolve(str(tmp_path / "file")).make_folder()


@pytest.mark.parametrize(
    ("content", "highest"), [('{"highest": 7}', 7), ("{}", 0), ('{"highest": 7', None), (None, None)]
)
def test_the_highest_number_can_be_read_without_the_lock(
    tmp_path: Path, content: str | None, highest: int | None
) -> None:
    if content is not None:
        (tmp_path / ".lock").write_text(content)
    assert highest_number(resolve(str(tmp_path))) == highest


@pytest.mark.parametrize(("host", "refused"), [("another-host", True), (None, False)])
def test_elsewhere_only_processes_of_this_machine_are_known_to_be_gone(
    tmp_path: Path, host: str | None, refused: bool
) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    elsewhere_opened(elsewhere(tmp_path)).close()
    lock = tmp_path / "state" / "my-job" / ".lock"
    owner = {"host": host or os.uname().nodename, "pid": process.pid, "since_ms": 0, "token": "x"}
    lock.write_text(json.dumps({"owner": owner, "highest": 4}))
    if refused:
        with pytest.raises(StateError, match=f"process {process.pid} on another-host"):
            elsewhere_opened(elsewhere(tmp_path))
    else:
        folder = elsewhere_opened(elsewhere(tmp_path))
        assert folder.next_checkpoint_id == 5
        folder.close()


@pytest.mark.parametrize("answer", [None, PermissionError])
def test_elsewhere_a_process_that_is_there_owns_the_folder_whoever_runs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: type[OSError] | None
) -> None:
    elsewhere_opened(elsewhere(tmp_path)).close()
    lock = tmp_path / "state" / "my-job" / ".lock"
    owner = {"host": os.uname().nodename, "pid": os.getppid(), "since_ms": 0, "token": "x"}
    lock.write_text(json.dumps({"owner": owner, "highest": 4}))

    def ask(pid: int, number: int) -> None:
        assert (pid, number) == (os.getppid(), 0)
        if answer is not None:
            raise answer("it belongs to somebody else")

    monkeypatch.setattr(os, "kill", ask)
    with pytest.raises(StateError, match=f"in use by process {os.getppid()}"):
        elsewhere_opened(elsewhere(tmp_path))


# ---- numbers


def test_numbers_grow_over_owners_and_unfinished_checkpoints(tmp_path: Path) -> None:
    folder = opened(tmp_path)
    assert folder.next_checkpoint_id == 1
    folder.begin(4, CHECKPOINT, None)
    assert folder.next_checkpoint_id == 5
    folder.close()
    folder = opened(tmp_path)  # removes the unfinished one
    assert files_in(folder) == set()
    assert folder.next_checkpoint_id == 5
    folder.begin(9, SAVEPOINT, str(tmp_path / "sp"))
    folder.close()
    folder = opened(tmp_path)
    assert folder.next_checkpoint_id == 10
    folder.close()


def test_a_number_is_not_used_twice(folder: JobFolder) -> None:
    take(folder, writer(folder), 1, bag(bag_segment([(1, 1)])))
    with pytest.raises(StateError, match=r"cannot begin checkpoint 1: .* has files of another"):
        folder.begin(1, CHECKPOINT, None)


# ---- savepoints


def test_savepoints_have_names_of_their_own(folder: JobFolder, tmp_path: Path) -> None:
    first = folder.begin(1, SAVEPOINT, str(tmp_path / "sp"))
    second = folder.begin(1, SAVEPOINT, str(tmp_path / "sp"))
    assert first == str(tmp_path / "sp" / "savepoint-my-job-1")
    assert second.startswith(first + "-")
    assert folder.begin(2, SAVEPOINT, None) == str(tmp_path / "savepoint-my-job-2")


def test_an_aborted_savepoint_leaves_nothing_a_complete_one_stays(folder: JobFolder, tmp_path: Path) -> None:
    path, _ = take(
        folder, writer(folder), 1, bag(bag_segment([(1, 1)])), kind=SAVEPOINT, directory=str(tmp_path / "sp")
    )
    folder.discard(path, [])
    folder.retain([])
    assert read_metadata(path).checkpoint_id == 1
    target = folder.begin(2, SAVEPOINT, str(tmp_path / "sp"))
    writer(folder).write(2, target, SAVEPOINT, bag(bag_segment([(1, 1)])))
    folder.discard(target, [])
    assert not os.path.exists(target)


# ---- what is deleted


def test_retained_checkpoints_keep_the_files_of_forgotten_ones_that_they_name(folder: JobFolder) -> None:
    made = writer(folder)
    first, second = bag_segment([(1, 1), (2, 2)]), bag_segment([(3, 3)])
    _, one = take(folder, made, 1, bag(first))
    take(folder, made, 2, bag(first, second))
    folder.retain([2])
    assert sorted(folder.existing()) == [2]
    assert {p.split("/")[0] for p in files_in(folder)} == {"chk-1", "chk-2"}
    assert [p for p in files_in(folder) if p.startswith("chk-1")] == [r.file.path for r in one.keyed["bag"].files]
    take(folder, made, 3, bag(second))
    folder.retain([3])
    assert not os.path.exists(f"{folder.job_folder}/chk-1")


def test_other_lineages_are_left_alone(tmp_path: Path) -> None:
    folder = opened(tmp_path, "first")
    take(folder, writer(folder), 1, bag(bag_segment([(1, 1)])), lineage="first")
    folder.close()
    folder = opened(tmp_path, "second")
    for number in (2, 3):
        take(folder, writer(folder), number, bag(bag_segment([(1, 1)])), lineage="second")
    folder.retain([3])
    assert sorted(folder.existing()) == [1, 3]
    assert folder.existing()[1].lineage == "first"
    folder.close()


def test_a_new_owner_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    folder = opened(tmp_path)
    made = writer(folder)
    segment = bag_segment([(1, 1)])
    take(folder, made, 1, bag(segment))
    target = folder.begin(2, CHECKPOINT, None)
    made.write(2, target, CHECKPOINT, bag(segment, bag_segment([(2, 2)])))
    Path(target, "half.parquet.tmp").write_text("x")
    Path(folder.job_folder, "chk-1", "_metadata.json.1234.tmp").write_text("x")
    Path(folder.job_folder, "chk-1", "notes.txt").write_text("mine")
    before = files_in(folder)
    folder.close()
    folder = opened(tmp_path)
    assert before - files_in(folder) == {p for p in before if p.startswith("chk-2/") or p.endswith(".tmp")}
    assert not os.path.exists(target)
    folder.close()


def test_nothing_that_an_unreadable_checkpoint_may_name_is_removed(tmp_path: Path) -> None:
    folder = opened(tmp_path)
    made = writer(folder)
    first, second = bag_segment([(1, 1), (2, 2)]), bag_segment([(3, 3)])
    take(folder, made, 1, bag(first))
    take(folder, made, 2, bag(first, second))
    folder.retain([2])
    folder.begin(3, CHECKPOINT, None)
    Path(folder.job_folder, "chk-3", "x.parquet").touch()
    folder.close()
    damaged = Path(folder.job_folder, "chk-2", "_metadata.json")
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-1])
    folder = opened(tmp_path)
    assert folder.existing() == {}
    folder.close()
    damaged.write_bytes(content)
    folder = opened(tmp_path)
    state = folder.existing()[2].operators[OPERATOR].subtasks[0]
    assert rows_of(folder.read_keyed([state.keyed["bag"]], GROUPS, folder.job_folder)) == [(1, 1), (2, 2), (3, 3)]
    assert not os.path.exists(f"{folder.job_folder}/chk-3")
    folder.close()


def test_an_aborted_checkpoint_removes_its_own_files_only(folder: JobFolder) -> None:
    made = writer(folder)
    segment = bag_segment([(1, 1)])
    take(folder, made, 1, bag(segment))
    before = files_in(folder)
    target = folder.begin(2, CHECKPOINT, None)
    state = made.write(2, target, CHECKPOINT, bag(segment, bag_segment([(2, 2)])))
    files = [r.file for r in state.keyed["bag"].files]
    assert len(files) == 2
    folder.discard(target, files)
    folder.discard(target, files)
    assert files_in(folder) == before
    with pytest.raises(StateError, match="cannot write the state file"):
        made.write(2, target, CHECKPOINT, bag(bag_segment([(2, 2)])))  # an upload that was still under way


def test_a_late_acknowledgement_of_a_complete_checkpoint_takes_only_its_own_file(folder: JobFolder) -> None:
    made = writer(folder)
    _, state = take(folder, made, 1, bag(bag_segment([(1, 1)])))
    late = writer(folder).write(1, f"{folder.job_folder}/chk-1", CHECKPOINT, bag(bag_segment([(1, 1)])))
    before = files_in(folder)
    (mine,), (theirs,) = ([r.file for r in s.keyed["bag"].files] for s in (state, late))
    folder.discard(f"{folder.job_folder}/chk-1", [mine, theirs])
    assert before - files_in(folder) == {theirs.path}


def test_a_checkpoint_under_way_keeps_what_it_may_refer_to(folder: JobFolder) -> None:
    made = writer(folder)
    segments = [bag_segment([(n, n)]) for n in range(4)]
    _, one = take(folder, made, 1, bag(*segments))
    second = folder.begin(2, CHECKPOINT, None)
    third = folder.begin(3, CHECKPOINT, None)
    state_2 = made.write(2, second, CHECKPOINT, bag(segments[3]))  # rewrites: does not name chk-1
    state_3 = writer_after(folder, one, segments).write(3, third, CHECKPOINT, bag(*segments[:2]))
    assert state_3.keyed["bag"].files[0].file.path.startswith("chk-1/")
    folder.finish(second, metadata(folder, 2, state_2))
    folder.retain([2])
    folder.finish(third, metadata(folder, 3, state_3))
    folder.retain([3])
    assert rows_of(folder.read_keyed([state_3.keyed["bag"]], GROUPS, folder.job_folder)) == [(0, 0), (1, 1)]


def writer_after(folder: JobFolder, state: OperatorSubtaskState, segments: list[StateSegment]) -> KeyedWriter:
    """A writer that believes that checkpoint 1, as `state` says, is the last complete one."""
    made = writer(folder)
    target = folder.begin(99, CHECKPOINT, None)
    written = made.write(99, target, CHECKPOINT, bag(*segments))
    (ours,), (real,) = (s.keyed["bag"].files for s in (written, state))
    os.replace(f"{folder.job_folder}/{ours.file.path}", f"{folder.job_folder}/{real.file.path}")
    folder.discard(target, [])
    pending = made._pending[99].segments["bag"]
    for segment, placed in list(pending.items()):
        pending[segment] = type(placed)(placed.number, real.file, placed.rows)  # type: ignore[index]
    made.completed(99)
    return made


def test_a_checkpoint_that_names_a_file_which_is_gone_never_exists(folder: JobFolder) -> None:
    made = writer(folder)
    segment = bag_segment([(1, 1)])
    take(folder, made, 1, bag(segment))
    folder.retain([])
    target = folder.begin(2, CHECKPOINT, None)
    state = made.write(2, target, CHECKPOINT, bag(segment))
    with pytest.raises(StateError, match=r"checkpoint 2 refers to files that are not there: chk-1/my-op"):
        folder.finish(target, metadata(folder, 2, state))
    assert files_in(folder) == set()


# ---- clean failure


def test_a_file_in_the_way_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(StateError, match=r"cannot make the folder '.*/state/my-job'"):
        opened(tmp_path / "state")


@pytest.mark.parametrize(
    ("code", "words", "hint"),
    [
        (errno.ENOSPC, "No space left on device", "free some space"),
        (errno.EROFS, "Read-only file system", "read-only: name another folder"),
        (errno.EACCES, "Permission denied", "check who may write there"),
        (errno.EDQUOT, "Disk quota exceeded", "quota"),
    ],
)
@pytest.mark.parametrize("at", ["splits", "views.sql", "_metadata.json", "move _metadata.json"])
def test_metadata_that_cannot_be_written_leaves_nothing_of_itself(
    tmp_path: Path, code: int, words: str, hint: str, at: str
) -> None:
    broken = False

    def fails(action: str, path: str) -> None:
        if broken and at.rsplit(maxsplit=1)[-1] in path and action == ("move" if " " in at else "write"):
            raise OSError(code, os.strerror(code))

    folder = elsewhere_opened(failing(tmp_path, fails))
    target = folder.begin(1, CHECKPOINT, None)
    state = OperatorSubtaskState(OPERATOR, {}, {"splits": OperatorState(pa.table({"x": [1]}))})
    broken = True
    with pytest.raises(StateError, match=words) as error:
        folder.finish(target, metadata(folder, 1, state))
    assert hint in (error.value.hint or "")
    assert files_in(tmp_path / "state" / "my-job") == set()
    assert folder.existing() == {}
    broken = False
    assert folder.finish(target, metadata(folder, 1, state)) == target
    folder.close()


@pytest.mark.parametrize("action", ["make", "list", "create"])
def test_a_folder_that_cannot_be_used_is_one_error(tmp_path: Path, action: str) -> None:
    def fails(what: str, path: str) -> None:
        if what == action:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with pytest.raises(StateError, match=r"cannot .* 'fake://store/state/my-job.*': Permission denied"):
        elsewhere_opened(failing(tmp_path, fails))


def test_tasks_in_other_processes_need_only_the_storage(folder: JobFolder) -> None:
    storage: ParquetStorage = pickle.loads(pickle.dumps(folder.storage))
    target = folder.begin(1, CHECKPOINT, None)
    made = storage.writer(OPERATOR, "my op", 0, GROUPS)
    state = made.write(1, target, CHECKPOINT, bag(bag_segment([(1, 1)])))
    assert rows_of(storage.read_keyed([state.keyed["bag"]], GROUPS, folder.job_folder)) == [(1, 1)]


@pytest.mark.parametrize("place", [lambda p: resolve(f"file://{p}"), elsewhere], ids=["file uri", "elsewhere"])
def test_all_of_it_works_on_other_file_systems(tmp_path: Path, place: Callable[[Path], StatePath]) -> None:
    folder = elsewhere_opened(place(tmp_path))
    made = writer(folder)
    first, second = bag_segment([(1, 1), (2, 2)]), bag_segment([(3, 3)])
    take(folder, made, 1, bag(first))
    _, state = take(folder, made, 2, bag(first, second))
    folder.retain([2])
    assert rows_of(folder.read_keyed([state.keyed["bag"]], GROUPS, folder.job_folder)) == [(1, 1), (2, 2), (3, 3)]
    assert folder.existing()[2].operators[OPERATOR].subtasks[0] == state
    folder.discard(folder.begin(3, CHECKPOINT, None), [])
    folder.close()


# ---- nothing needed is ever deleted


class Owners(RuleBasedStateMachine):
    """Random lives of a job's folder: checkpoints complete, abort, overlap and are forgotten; processes die anywhere."""

    directory: Path
    folder: JobFolder
    lineage: str

    @initialize()
    def first_owner(self) -> None:
        self.directory = Path(os.environ["FLOWRUN_TEST_FOLDER"]) / os.urandom(6).hex()
        self.lineage = "0"
        self.segments: list[StateSegment] = []
        self.under_way: dict[int, tuple[str, OperatorSubtaskState | None]] = {}
        self.complete: dict[int, str] = {}
        self.take_over()

    def take_over(self) -> None:
        self.folder = opened(self.directory, self.lineage)
        self.writer = writer(self.folder)
        self.under_way = {}
        self.number = self.folder.next_checkpoint_id
        self.segments = [bag_segment([(n, n)]) for n in range(3)]

    @rule(rows=st.integers(0, 4), drop=st.integers(0, 4))
    def state_changes(self, rows: int, drop: int) -> None:
        self.segments = [*self.segments[drop:], bag_segment([(n, self.number) for n in range(rows)])]

    @precondition(lambda self: len(self.under_way) < 3)
    @rule()
    def begin(self) -> None:
        self.under_way[self.number] = (self.folder.begin(self.number, CHECKPOINT, None), None)
        self.number += 1

    @precondition(lambda self: any(s is None for _, s in self.under_way.values()))
    @rule()
    def upload(self) -> None:
        number = min(n for n, (_, s) in self.under_way.items() if s is None)
        target = self.under_way[number][0]
        snapshot = OperatorSnapshot(
            operator={"s": OperatorState(pa.table({"x": [number]}))}, segmented=bag(*self.segments).segmented
        )
        self.under_way[number] = (target, self.writer.write(number, target, CHECKPOINT, snapshot))

    @precondition(lambda self: any(s is not None for _, s in self.under_way.values()))
    @rule(data=st.data(), told=st.booleans(), retained=st.integers(1, 3))
    def complete_one(self, data: st.DataObject, told: bool, retained: int) -> None:
        number = data.draw(st.sampled_from(sorted(n for n, (_, s) in self.under_way.items() if s is not None)))
        target, state = self.under_way.pop(number)
        assert state is not None
        self.folder.finish(target, metadata(self.folder, number, state, lineage=self.lineage))
        self.complete[number] = self.lineage
        if told:
            self.writer.completed(number)
        for older in [n for n in self.under_way if n < number]:  # subsumed
            self.folder.discard(self.under_way.pop(older)[0], [])
        own = sorted(n for n, lineage in self.complete.items() if lineage == self.lineage)
        for forgotten in own[:-retained]:
            del self.complete[forgotten]
        self.folder.retain(own[-retained:])

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.under_way)))
        target, state = self.under_way.pop(number)
        self.folder.discard(target, [] if state is None else [r.file for r in state.keyed["bag"].files])

    @rule(fresh=st.booleans())
    def killed_and_started_again(self, fresh: bool) -> None:
        self.folder.close()
        if fresh:
            self.lineage = str(int(self.lineage) + 1)
        before = self.number
        self.take_over()
        assert self.number == before
        assert self.orphans() == set()

    @invariant()
    def every_file_that_metadata_names_is_there(self) -> None:
        if not hasattr(self, "folder"):
            return
        found = files_in(self.folder)
        for number in self.complete:
            place = self.folder.storage.root / f"chk-{number}"
            assert named_paths(document_at(place), f"chk-{number}") <= found
        assert sorted(self.folder.existing()) == sorted(self.complete)
        if not self.under_way:
            self.folder.retain(list(self.complete))
            assert self.orphans() == set()

    def orphans(self) -> set[str]:
        named: set[str] = set()
        for number in self.complete:
            named |= named_paths(document_at(self.folder.storage.root / f"chk-{number}"), f"chk-{number}")
        return files_in(self.folder) - named

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.close()


def test_whatever_happens_no_named_file_is_missing_and_no_other_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOWRUN_TEST_FOLDER", str(tmp_path))
    run_state_machine_as_test(Owners, settings=examples(25, stateful_step_count=25))
