"""A job goes back to an older checkpoint or savepoint: what sinks committed after it is not there twice, unless the user says so."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner

from flowrun.cli.main import cli
from flowrun.errors import StateError
from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import JobStateOptions, LocalJob, start_embedded
from flowrun.runtime.checkpoint.after_restore import AfterRestore
from flowrun.runtime.lifecycle import JobState
from flowrun.state.storage.state_path import resolve
from tests.end_to_end.running import bag, json_rows
from tests.recovery.gates import SOURCE
from tests.recovery.pipelines import HEAD, HELD
from tests.recovery.runs import TIMEOUT_MS, left_of

STEPS = """
  passed: {from: held, filter: id >= 0}
  totals: {from: passed, key_by: [k], aggregate: SUM(v) AS s, uid: totals}
"""
SINKS = """
sinks:
  out: {from: passed, connector: filesystem, path: "FOLDER/out", format: json, partition_by: [k]}
  raw: {from: passed, connector: filesystem, path: "FOLDER/raw", format: json}
  kept: {from: totals, connector: filesystem, path: "FOLDER/kept", format: json, primary_key: [k]}
  changes: {from: totals, connector: filesystem, path: "FOLDER/changes", format: debezium-json}
"""


PIECES, ROWS_OF_A_PIECE = 6, 40
WATCHING = "    source.monitor-interval: 5ms"


@dataclass
class Job:
    """A pipeline that watches a folder, into which its input comes in pieces, and its runs."""

    folder: Path
    checkpoints: bool = True
    unread: dict[str, int] = field(default_factory=dict)
    """Path of a snapshot → pieces of the input that it has not seen."""
    state: str = "state"
    """The folder of checkpoints, below that of the job."""

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        head = HEAD.format(name="going-back", parallelism=2, folder=self.folder, unaligned=False)
        head = head.replace("input/rows.json", "input").replace("format: json", f"format: json\n{WATCHING}")
        lines = [line.replace("interval: 1h", "interval: 1h, retain: 20") for line in head.splitlines()]
        kept = [line for line in lines if self.checkpoints or "checkpoint:" not in line]
        text = "\n".join(kept) + HELD + STEPS + SINKS.replace("FOLDER", str(self.folder))
        (self.folder / "pipeline.yaml").write_text(text)
        (self.folder / "input").mkdir()

    def start(self, after: str | None = None, choice: AfterRestore = AfterRestore.REFUSE, **overrides: str) -> LocalJob:
        """Start it, afresh or from a snapshot."""
        given = {k.replace("__", "."): v for k, v in overrides.items()}
        compiled = compile_pipeline(self.folder / "pipeline.yaml", {}, given)
        options = JobStateOptions(str(self.folder / self.state), restore_from=after, committed_after=choice)
        return start_embedded(compiled.job_graph, state=options)

    def bring(self, up_to: int) -> None:
        """Let the input have so many pieces."""
        for number in range(up_to):
            path = self.folder / "input" / f"{number}.json"
            ids = range(number * ROWS_OF_A_PIECE, (number + 1) * ROWS_OF_A_PIECE)
            rows = [{"id": i, "k": f"k{i * 7 % 5}", "v": i * 37 % 101, "ts": "2024-01-01 00:00:00"} for i in ids]
            if not path.exists():
                hidden = path.with_name(f".{number}")
                hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
                hidden.rename(path)

    def read(self, pieces: int, *, up_to: int) -> None:
        """Have the running job read so many pieces, which are all that there are then."""
        SOURCE.close_after(pieces * ROWS_OF_A_PIECE)
        self.bring(up_to)
        assert SOURCE.reached.wait(TIMEOUT_MS / 1000)
        SOURCE.open()

    def snapshot(self, job: LocalJob, seen: int, *, savepoint: bool, stop: bool = False) -> str:
        """Take a snapshot; gives its path."""
        directory = str(self.folder / "saved") if savepoint else None
        path = job.take_snapshot(directory, savepoint=savepoint, stop=stop).wait(TIMEOUT_MS)
        self.unread[path] = PIECES - seen
        return path

    def run_in_steps(self) -> list[str]:
        """One piece at a time, two checkpoints, a savepoint, one more of each; then the job is taken down. Gives their paths."""
        paths = []
        with self.start() as job:
            for seen, savepoint in enumerate((False, False, True, False, True), start=1):
                self.read(1, up_to=seen)
                paths.append(self.snapshot(job, seen, savepoint=savepoint))
            job.cancel()
            job.wait(TIMEOUT_MS)
        return paths

    def checkpoint_from(self, after: str, choice: AfterRestore) -> str:
        """Go on from a snapshot, take a checkpoint at the end of the input; then the job is taken down. Gives its path."""
        with self.start(after, choice) as job:
            self.read(self.unread[after], up_to=PIECES)
            path = self.snapshot(job, PIECES, savepoint=False)
            job.cancel()
            job.wait(TIMEOUT_MS)
        return path

    def finish(
        self, after: str | None = None, choice: AfterRestore = AfterRestore.REFUSE, **overrides: str
    ) -> dict[str, Counter[str]]:
        """Read all of the input and stop; gives what the sinks show."""
        with self.start(after, choice, **overrides) as job:
            self.read(PIECES if after is None else self.unread[after], up_to=PIECES)
            self.snapshot(job, PIECES, savepoint=not self.checkpoints, stop=True)
            result = job.wait(TIMEOUT_MS)
        assert result is not None
        assert result.state is JobState.FINISHED
        return self.written

    @property
    def written(self) -> dict[str, Counter[str]]:
        """What the sinks show."""
        rows = {name: json_rows(self.folder / name) for name in ("out", "raw", "kept", "changes")}
        return {name: left_of(found) if name == "changes" else bag(found) for name, found in rows.items()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Counter[str]]:
    """The rows of a run that nothing interrupts."""
    return Job(tmp_path_factory.mktemp("whole")).finish()


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_it_does_not_start_unless_the_user_says_what_becomes_of_the_rows(job: Job) -> None:
    first, *_ = job.run_in_steps()
    before = job.written
    with pytest.raises(StateError, match="would write rows again that were committed after it: sink 'out': ") as raised:
        job.start(first)
    assert "sink 'raw': " in raised.value.message
    assert "sink 'kept'" not in raised.value.message, "its files are replaced: nothing is there twice"
    assert "--committed-after remove" in (raised.value.hint or "")
    assert job.written == before


@pytest.mark.parametrize("which", [0, 2, 4])
def test_rows_are_there_once_whichever_snapshot_it_goes_back_to(
    job: Job, whole: dict[str, Counter[str]], which: int
) -> None:
    paths = job.run_in_steps()
    assert job.finish(paths[which], AfterRestore.REMOVE, settings__parallelism="3") == whole


def test_it_can_go_back_again_and_again(job: Job, whole: dict[str, Counter[str]]) -> None:
    first, second, savepoint, *_ = job.run_in_steps()
    again = job.checkpoint_from(second, AfterRestore.REMOVE)
    with pytest.raises(StateError, match="counts on rows that are there no more"):
        job.start(savepoint, AfterRestore.REMOVE)
    assert job.finish(first, AfterRestore.REMOVE) == whole
    assert not Path(again).exists(), "it counted on rows that were taken back"
    assert job.finish(first, AfterRestore.REMOVE) == whole


def test_what_is_recommended_for_a_damaged_checkpoint_is_right(job: Job, whole: dict[str, Counter[str]]) -> None:
    paths = job.run_in_steps()
    newest = Path(paths[3])
    metadata = newest / "_metadata.json"
    metadata.write_bytes(metadata.read_bytes()[:-40])
    with pytest.raises(StateError, match="altered") as raised:
        job.start(str(job.folder / "state"))
    hint = raised.value.hint or ""
    assert f"--from-savepoint {paths[1]} --committed-after remove" in hint
    assert job.finish(paths[1], AfterRestore.REMOVE) == whole


def test_rows_stay_twice_if_the_user_says_so(job: Job, whole: dict[str, Counter[str]]) -> None:
    first, *_ = job.run_in_steps()
    job.checkpoint_from(first, AfterRestore.KEEP)
    raw = bag(json_rows(job.folder / "raw"))
    assert set(raw) == set(whole["raw"])
    assert raw.total() == whole["raw"].total() + 3 * ROWS_OF_A_PIECE, "those of checkpoints 2 and 4 and of savepoint 3"


def test_files_that_somebody_moved_are_named(job: Job, whole: dict[str, Counter[str]]) -> None:
    first, *_ = job.run_in_steps()
    known = {f for f in (job.folder / "raw").iterdir() if not f.name.startswith(".")}
    with pytest.raises(StateError) as refused:
        job.start(first)
    moved = next(f for f in known if str(f) in refused.value.message)
    moved.unlink()
    with pytest.raises(StateError, match=f"1 file .{moved}. that were committed after .* are not there any more"):
        job.start(first, AfterRestore.REMOVE)
    assert job.finish(first, AfterRestore.REMOVE_EXISTING) == whole


def test_the_newest_checkpoint_needs_no_choice(job: Job, whole: dict[str, Counter[str]]) -> None:
    *_, newest, _ = job.run_in_steps()
    assert job.finish(newest) == whole


@pytest.mark.parametrize("checkpoints", [True, False])
def test_a_savepoint_is_gone_back_to_from_runs_that_went_on_from_it_elsewhere(
    tmp_path: Path, whole: dict[str, Counter[str]], checkpoints: bool
) -> None:
    job = Job(tmp_path, checkpoints=checkpoints)
    with job.start() as running:
        job.read(2, up_to=2)
        savepoint = job.snapshot(running, 2, savepoint=True, stop=True)
        running.wait(TIMEOUT_MS)
    shutil.rmtree(tmp_path / "state")  # as on another machine: what follows has a history of its own
    assert job.finish(savepoint) == whole
    with pytest.raises(StateError, match="would write rows again"):
        job.start(savepoint)
    assert job.finish(savepoint, AfterRestore.REMOVE) == whole


def test_a_damaged_log_is_named(job: Job) -> None:
    first, *_ = job.run_in_steps()
    log = max((Path(job.folder) / "state" / "going-back" / "_commits").iterdir(), key=lambda f: f.stat().st_size)
    log.write_bytes(log.read_bytes().replace(b"committables", b"comittables", 1))
    with pytest.raises(StateError, match=f"'{resolve(str(log))}' is damaged"):
        job.start(first)


@pytest.mark.parametrize("state", ["state", "elsewhere"])
def test_the_files_of_a_sink_tell_what_was_committed_when_the_folder_of_checkpoints_is_gone(
    job: Job, whole: dict[str, Counter[str]], state: str
) -> None:
    _, _, savepoint, _, later = job.run_in_steps()
    before = job.written
    shutil.rmtree(job.folder / "state")
    job.state = state
    with pytest.raises(StateError, match="would write rows again that were committed after it: ") as raised:
        job.start(savepoint)
    assert {"sink 'out': ", "sink 'raw': "} <= set(re.findall(r"sink '\w+': ", raised.value.message))
    assert "sink 'kept'" not in raised.value.message, "its files are replaced: nothing is there twice"
    arguments = ["resume", str(job.folder / "pipeline.yaml"), "--from-savepoint", savepoint, "--quiet"]
    refused = CliRunner().invoke(cli, [*arguments, "--set", f"settings.checkpoint.dir={job.folder / state}"])
    assert refused.exit_code == 2, refused.output
    assert "would write rows again that were committed after it" in refused.output
    assert job.written == before
    assert job.finish(savepoint, AfterRestore.REMOVE) == whole
    job.state = "another"
    with pytest.raises(StateError, match="counts on rows that are there no more"):
        job.start(later, AfterRestore.REMOVE)
    assert job.finish(savepoint, AfterRestore.REMOVE) == whole


def test_rows_are_there_twice_only_once_the_user_said_so(job: Job, whole: dict[str, Counter[str]]) -> None:
    _, _, savepoint, *_ = job.run_in_steps()
    shutil.rmtree(job.folder / "state")
    newest = job.checkpoint_from(savepoint, AfterRestore.KEEP)
    raw = bag(json_rows(job.folder / "raw"))
    assert raw.total() == whole["raw"].total() + ROWS_OF_A_PIECE, "those of checkpoint 4"
    with job.start(newest) as running:  # it is the newest of what goes on: nothing is to be chosen again
        running.cancel()
        running.wait(TIMEOUT_MS)
    assert bag(json_rows(job.folder / "raw")) == raw


def test_a_savepoint_may_have_been_gone_on_from_where_nobody_can_look(job: Job, whole: dict[str, Counter[str]]) -> None:
    with job.start() as running:
        job.read(2, up_to=2)
        savepoint = job.snapshot(running, 2, savepoint=True, stop=True)
        running.wait(TIMEOUT_MS)
    job.state = "second"
    assert job.finish(savepoint) == whole, "nothing was committed after it"
    shutil.rmtree(job.folder / "second")
    job.state = "third"
    with pytest.raises(StateError, match="would write rows again"):
        job.start(savepoint)
    assert job.finish(savepoint, AfterRestore.REMOVE) == whole


def test_a_later_savepoint_is_refused_when_an_earlier_one_was_gone_back_to_elsewhere(
    job: Job, whole: dict[str, Counter[str]]
) -> None:
    *_, savepoint, _, later = job.run_in_steps()
    job.state = "elsewhere"
    assert job.finish(savepoint, AfterRestore.REMOVE) == whole
    with pytest.raises(StateError, match="counts on rows that are there no more"):
        job.start(later, AfterRestore.REMOVE)


def test_what_a_job_commits_after_it_failed_behind_a_savepoint_is_told_apart(
    job: Job, whole: dict[str, Counter[str]]
) -> None:
    with job.start() as running:
        job.read(1, up_to=1)
        job.snapshot(running, 1, savepoint=False)
        job.read(1, up_to=2)
        savepoint = job.snapshot(running, 2, savepoint=True)
        SOURCE.fail_once()
        job.read(2, up_to=3)  # the job goes back to the checkpoint, which is before the savepoint
        job.snapshot(running, 3, savepoint=False)
        running.cancel()
        running.wait(TIMEOUT_MS)
    shutil.rmtree(job.folder / "state")
    with pytest.raises(StateError, match="would write rows again"):
        job.start(savepoint)
    assert job.finish(savepoint, AfterRestore.REMOVE) == whole
