"""The embedded runner with state on disk: folders, locks, savepoints, resuming from what users name, and another parallelism."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
from checkpoint_fakes import Numbers, Once, Table, pipeline
from runtime_fakes import until

from flowrun.core.recovery import CheckpointSettings, RestartSettings
from flowrun.errors import StateError
from flowrun.graph.job_graph import JobGraph
from flowrun.runners.embedded import JobStateOptions, LocalJob, SnapshotTicket, start_embedded
from flowrun.runtime.checkpoint.after_restore import AfterRestore
from flowrun.runtime.job_status import JobResult
from flowrun.runtime.lifecycle import JobState
from flowrun.state.checkpoints import PipelineText
from flowrun.state.storage.metadata_file import read_metadata

TOTAL = 400
BY_HAND = CheckpointSettings(interval_ms=3_600_000, retain=2)
AT_ONCE = RestartSettings("fixed_delay", attempts=3, delay_ms=0)


def start(graph: JobGraph, folder: Path, **more: object) -> LocalJob:
    return start_embedded(graph, state=JobStateOptions(str(folder), **more))  # type: ignore[arg-type]


def end(job: LocalJob) -> JobResult:
    with job:
        result = job.wait(30_000)
    assert result is not None
    assert result.state is JobState.FINISHED
    return result


def stopped(source: Numbers, table: Table, folder: Path, parallelism: int = 2) -> tuple[str, str]:
    """A job that is stopped with a checkpoint after 40 rows, and had a savepoint before: the paths of both."""
    with start(pipeline(source, table, checkpoint=BY_HAND, parallelism=parallelism), folder) as job:
        until(lambda: job.status().vertices[2].records_in == 40)
        savepoint = job.take_snapshot(str(folder / "mine")).wait(20_000)
        checkpoint = job.take_snapshot(savepoint=False, stop=True).wait(20_000)
        result = job.wait(20_000)
    assert result is not None
    assert result.stopped_at == checkpoint
    assert table.rows() == list(range(40))
    return savepoint, checkpoint


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("named", ["the checkpoint", "the job's folder", "the root of checkpoints"])
def test_a_stopped_job_is_resumed_from_what_the_user_names(tmp_path: Path, named: str, parallelism: int) -> None:
    table = Table()
    _, checkpoint = stopped(Numbers(TOTAL, released=10), table, tmp_path)
    path = {"the checkpoint": checkpoint, "the job's folder": str(tmp_path / "test")}.get(named, str(tmp_path))
    graph = pipeline(Numbers(TOTAL), table, checkpoint=BY_HAND, parallelism=parallelism)
    end(start(graph, tmp_path, restore_from=path))
    assert table.rows() == list(range(TOTAL))


def test_what_is_resumed_in_the_same_folder_continues_the_lineage_and_the_numbers(tmp_path: Path) -> None:
    table = Table()
    savepoint, checkpoint = stopped(Numbers(TOTAL, released=10), table, tmp_path)
    graph = pipeline(Numbers(TOTAL), table, checkpoint=BY_HAND)
    end(start(graph, tmp_path, restore_from=str(tmp_path)))
    newest = max((tmp_path / "test").glob("chk-*"), key=lambda f: int(f.name[4:]))
    before, after = read_metadata(checkpoint), read_metadata(str(newest))
    assert after.checkpoint_id > before.checkpoint_id
    assert after.lineage == before.lineage
    assert [owner for owner, _ in table.orphans] == [after.lineage], "orphans of the first run are looked for"
    assert read_metadata(savepoint).lineage == before.lineage


def test_a_fresh_run_leaves_checkpoints_of_others_alone_and_numbers_on(tmp_path: Path) -> None:
    _, checkpoint = stopped(Numbers(TOTAL, released=10), Table(), tmp_path)
    table = Table()
    end(start(pipeline(Numbers(TOTAL), table, checkpoint=BY_HAND), tmp_path))
    assert table.rows() == list(range(TOTAL))
    assert table.orphans == []
    old = read_metadata(checkpoint)
    others = [read_metadata(str(f)) for f in (tmp_path / "test").glob("chk-*") if str(f) != checkpoint]
    assert others
    assert all(m.lineage != old.lineage and m.checkpoint_id > old.checkpoint_id for m in others)


def test_two_jobs_cannot_own_one_folder(tmp_path: Path) -> None:
    with start(pipeline(Numbers(TOTAL, released=1), Table(), checkpoint=BY_HAND), tmp_path), pytest.raises(StateError):
        start(pipeline(Numbers(TOTAL), Table(), checkpoint=BY_HAND), tmp_path)
    end(start(pipeline(Numbers(TOTAL), Table(), checkpoint=BY_HAND), tmp_path))


def test_nothing_to_resume_from_is_said_before_anything_runs(tmp_path: Path) -> None:
    source = Numbers(TOTAL)
    with pytest.raises(StateError, match="there is no checkpoint or savepoint"):
        start(pipeline(source, Table(), checkpoint=BY_HAND), tmp_path, restore_from=str(tmp_path / "nowhere"))
    assert source.enumerators == []


def test_a_savepoint_of_a_job_without_checkpoints_needs_no_folder_of_its_own(tmp_path: Path) -> None:
    source, table = Numbers(TOTAL, released=10), Table()
    with start(pipeline(source, table), tmp_path / "state") as job:
        until(lambda: job.status().vertices[2].records_in == 40)
        assert not (tmp_path / "state").exists(), "nothing is made before it is needed"
        assert job.checkpoint_root is None
        given = job.take_snapshot(str(tmp_path / "mine")).wait(20_000)
        unnamed = job.take_snapshot(stop=True).wait(20_000)
        result = job.wait(20_000)
    assert result is not None
    assert result.stopped_at == unnamed
    assert given == str(tmp_path / "mine" / "savepoint-test-1")
    assert unnamed == str(tmp_path / "state" / "savepoint-test-2")
    kept = [path.name for path in (tmp_path / "state" / "test").iterdir()]
    assert kept == ["_commits"], "what was committed after the first savepoint, for whoever goes back to that"
    assert result.checkpoints is not None
    assert result.checkpoints.completed == 2
    end(start(pipeline(Numbers(TOTAL), table, parallelism=3), tmp_path / "state", restore_from=unnamed))
    assert table.rows() == list(range(TOTAL))


def test_a_moved_savepoint_is_resumed_into_another_folder_with_a_lineage_of_its_own(tmp_path: Path) -> None:
    table = Table()
    savepoint, _ = stopped(Numbers(TOTAL, released=10), table, tmp_path / "a")
    image = Table(dict(table.staged), dict(table.visible))
    moved = Path(savepoint).rename(tmp_path / "moved")
    graph = pipeline(Numbers(TOTAL), image, checkpoint=BY_HAND, parallelism=1)
    end(start(graph, tmp_path / "b", restore_from=str(moved)))
    assert image.rows() == list(range(TOTAL))
    assert image.orphans == []
    newest = next((tmp_path / "b" / "test").glob("chk-*"))
    assert read_metadata(str(newest)).lineage != read_metadata(str(moved)).lineage


def test_a_sink_whose_output_tells_nothing_needs_the_record_of_commits_or_the_users_word(tmp_path: Path) -> None:
    table = Table()
    savepoint, _ = stopped(Numbers(TOTAL, released=10), table, tmp_path / "a")
    (tmp_path / "a" / "test").rename(tmp_path / "a" / "hidden")
    graph = pipeline(Numbers(TOTAL), table, checkpoint=BY_HAND)
    lost = f"sink .* committed after savepoint 1 of 'test' is not known: the record of it was in '{tmp_path / 'a' / 'test'}'"
    for choice in (AfterRestore.REFUSE, AfterRestore.REMOVE, AfterRestore.REMOVE_EXISTING, AfterRestore.REFUSE):
        with pytest.raises(StateError, match=lost) as refused:
            start(graph, tmp_path / "b", restore_from=savepoint, committed_after=choice)
        assert "--committed-after keep" in (refused.value.hint or "")
    end(start(graph, tmp_path / "b", restore_from=savepoint, committed_after=AfterRestore.KEEP))
    assert table.rows() == list(range(TOTAL))


def test_a_folder_of_checkpoints_that_was_moved_still_has_the_record_of_commits(tmp_path: Path) -> None:
    table = Table()
    savepoint, _ = stopped(Numbers(TOTAL, released=10), table, tmp_path / "a")
    (tmp_path / "a" / "test").rename(tmp_path / "moved")
    (tmp_path / "b").mkdir()
    (tmp_path / "moved").rename(tmp_path / "b" / "test")
    graph = pipeline(Numbers(TOTAL), table, checkpoint=BY_HAND)
    end(start(graph, tmp_path / "b", restore_from=savepoint))
    assert table.rows() == list(range(TOTAL))


def test_the_text_of_the_pipeline_is_in_every_snapshot(tmp_path: Path) -> None:
    text = PipelineText("orders.yaml", "name: test", "/home/me", {"DAY": "1"}, {"settings.parallelism": "2"})
    with start(pipeline(Numbers(TOTAL, released=1), Table(), checkpoint=BY_HAND), tmp_path, pipeline=text) as job:
        found = read_metadata(job.take_snapshot().wait(20_000))
    assert found.pipeline == text
    assert isinstance(found.job_graph, dict)
    assert found.job_name == "test"


def test_settings_say_where_checkpoints_go_when_the_caller_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    configured = CheckpointSettings(interval_ms=3_600_000, directory=str(tmp_path / "configured"))
    for settings, folder in ((configured, tmp_path / "configured"), (BY_HAND, tmp_path / ".flowrun" / "state")):
        with start_embedded(pipeline(Numbers(TOTAL), Table(), checkpoint=settings)) as job:
            assert job.checkpoint_root == str(folder / "test")
            job.wait(20_000)
        assert list((folder / "test").glob("chk-*/_metadata.json"))


def test_a_snapshot_from_a_signal_handler_while_the_main_thread_waits(tmp_path: Path) -> None:
    tickets: list[SnapshotTicket] = []
    with start(pipeline(Numbers(TOTAL, released=10), Table(), checkpoint=BY_HAND), tmp_path) as job:
        until(lambda: job.status().vertices[2].records_in == 40)
        previous = signal.signal(
            signal.SIGUSR1, lambda number, frame: tickets.append(job.take_snapshot(savepoint=False, stop=True))
        )
        try:
            signal.raise_signal(signal.SIGUSR1)
            result = job.wait(20_000)
        finally:
            signal.signal(signal.SIGUSR1, previous)
    assert result is not None
    assert result.stopped_at == tickets[0].wait()


def test_a_restart_in_process_reads_what_is_on_disk(tmp_path: Path) -> None:
    source, table, once = Numbers(TOTAL, released=20), Table(), Once(None)
    graph = pipeline(source, table, between=once.create, checkpoint=BY_HAND, restart=AT_ONCE)
    with start(graph, tmp_path) as job:
        until(lambda: job.status().vertices[2].records_in == 80)
        job.take_snapshot(savepoint=False).wait(20_000)
        once.at = 1
        source.release()
        result = job.wait(20_000)
    assert result is not None
    assert result.restarts == 1
    assert result.checkpoints is not None
    assert result.checkpoints.completed == 2
    assert table.rows() == list(range(TOTAL))


def test_a_folder_that_cannot_be_written_is_said_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    source = Numbers(TOTAL)
    with pytest.raises(StateError):
        start(pipeline(source, Table(), checkpoint=BY_HAND), tmp_path / "file")
    assert source.enumerators == []
