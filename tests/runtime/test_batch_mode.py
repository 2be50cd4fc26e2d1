"""Batch mode on the local cluster: stage by stage, through files that are gone at the end, whatever the end is."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from runtime_fakes import Collect, ListSource, Seen, job, pairs, random_rows, rows, until, vertex

from flowrun.core.clock import SystemClock
from flowrun.core.elements import IDLE, MAX_WATERMARK, RecordBatch, Watermark
from flowrun.core.recovery import RestartSettings
from flowrun.errors import ConnectorError, JobFailedError, PartitionLostError, StateError
from flowrun.graph.job_graph import JobGraph, JobSettings, ResultType
from flowrun.graph.partitioner import KeyGroupPartitioner
from flowrun.runtime.job_status import JobResult
from flowrun.runtime.jobmaster.job_state import JobStateOptions
from flowrun.runtime.local_cluster import LocalCluster
from flowrun.runtime.network import partition_files

BATCH = JobSettings(batch_mode=True, restart=RestartSettings("fixed_delay", attempts=3, delay_ms=0))


def run(graph: JobGraph, folder: Path) -> JobResult:
    with LocalCluster(SystemClock(), spill_dir=folder) as cluster:
        result = cluster.submit(graph).wait()
    assert result is not None
    return result


def files(folder: Path) -> set[str]:
    return {p.name for p in folder.rglob("*.arrows")}


class Watching(Collect):
    """Tells of each batch before it is passed on."""

    def __init__(self, seen: Seen, watch: Callable[[RecordBatch], object]) -> None:
        super().__init__(seen)
        self._watch = watch

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        self._watch(batch)
        super().process_batch(batch, input_index)


def three_stages(
    first: Callable[[RecordBatch], object] = id,
    second: Callable[[RecordBatch], object] = id,
    third: Callable[[RecordBatch], object] = id,
    parallelism: int = 2,
) -> tuple[JobGraph, Seen]:
    """source → middle → sink, with 20,000 rows a source subtask."""
    seen = Seen()
    source = vertex(
        "source",
        lambda: ListSource(lambda s: [random_rows(2000, 10 * s + i) for i in range(10)]),
        lambda: Watching(Seen(), first),
        parallelism=parallelism,
    )
    middle = vertex("middle", lambda: Watching(Seen(), second), parallelism=parallelism)
    middle.read(source, KeyGroupPartitioner((0,)))
    sink = vertex("sink", lambda: Watching(seen, third), parallelism=parallelism).read(
        middle, KeyGroupPartitioner((1,))
    )
    return job(source, middle, sink, settings=BATCH, type=ResultType.BLOCKING), seen


def expected(parallelism: int = 2) -> Counter[tuple[int, int]]:
    return Counter(pairs([random_rows(2000, 10 * s + i) for s in range(parallelism) for i in range(10)]))


def test_a_stage_begins_when_the_one_before_has_ended(tmp_path: Path) -> None:
    written, begun = list[int](), list[int]()
    graph, seen = three_stages(lambda b: written.append(b.num_rows), lambda b: begun.append(sum(written)))
    result = run(graph, tmp_path)
    assert set(begun) == {40_000}, "nothing is read before all is written"
    assert Counter(seen.pairs()) == expected()
    assert list(tmp_path.iterdir()) == []
    assert result.restarts == 0


def test_files_go_when_they_have_been_read(tmp_path: Path) -> None:
    there: list[set[str]] = []
    graph, _ = three_stages(third=lambda _: there.append(files(tmp_path)), parallelism=1)
    run(graph, tmp_path)
    assert there[-1] == {"middle>sink.0.-0.0.arrows"}, "those between source and middle are gone"
    assert list(tmp_path.iterdir()) == []


class Failing:
    """Raises once, when so many batches have come."""

    def __init__(self, after: int, error: Callable[[], BaseException] = lambda: ValueError("once")) -> None:
        self._left = after
        self._error = error
        self._lock = threading.Lock()

    def __call__(self, batch: RecordBatch) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                raise self._error()


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_failed_stage_runs_again_without_the_one_before(tmp_path: Path, parallelism: int) -> None:
    read: list[int] = []
    graph, seen = three_stages(lambda b: read.append(b.num_rows), Failing(1), parallelism=parallelism)
    result = run(graph, tmp_path)
    assert result.restarts == 1
    assert sum(read) == 20_000 * parallelism, "sources are read once"
    assert Counter(seen.pairs()) == expected(parallelism)
    assert list(tmp_path.iterdir()) == []


def test_lost_files_are_written_again(tmp_path: Path) -> None:
    read: list[int] = []

    def error() -> BaseException:
        for path in tmp_path.rglob("source>middle*.arrows"):
            path.unlink()
        return ValueError("and its input is gone")

    graph, seen = three_stages(lambda b: read.append(b.num_rows), Failing(1, error), parallelism=1)
    result = run(graph, tmp_path)
    assert result.restarts == 2
    assert sum(read) == 40_000, "the source was read again"
    assert Counter(seen.pairs()) == expected(1)


def test_damaged_files_are_noticed(tmp_path: Path) -> None:
    def error() -> BaseException:
        for path in tmp_path.rglob("source>middle*.arrows"):
            path.unlink()  # the old one is mapped into memory
            path.write_bytes(b"nonsense" * 100)
        return ValueError("and its input is damaged")

    graph, _ = three_stages(second=Failing(1, error), parallelism=1)
    graph = replace(graph, settings=replace(BATCH, restart=RestartSettings("fixed_delay", attempts=1, delay_ms=0)))
    with pytest.raises(JobFailedError) as caught:
        run(graph, tmp_path)
    assert isinstance(caught.value.__cause__, PartitionLostError)
    assert "spilled rows are lost" in str(caught.value.__cause__)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_clear_error_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class FullDisk:
        def __init__(self, path: str, mode: str) -> None:
            self._file = pa.OSFile(path, mode)
            self.closed = False

        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            if self._file.tell() + len(memoryview(data)) > 50_000:
                raise OSError(28, "No space left on device")
            return int(self._file.write(data))

        def flush(self) -> None:
            self._file.flush()

        def close(self) -> None:
            self.closed = True
            self._file.close()

    class Arrow:
        def __getattr__(self, name: str) -> Any:
            return FullDisk if name == "OSFile" else getattr(pa, name)

    monkeypatch.setattr(partition_files, "pa", Arrow())
    graph, _ = three_stages()
    graph = replace(graph, settings=replace(BATCH, restart=None))
    with pytest.raises(JobFailedError) as caught:
        run(graph, tmp_path)
    cause = caught.value.__cause__
    assert isinstance(cause, ConnectorError)
    assert "cannot spill rows between two stages" in cause.message
    assert "No space left on device" in cause.message
    assert "TMPDIR" in (cause.hint or "")
    assert list(tmp_path.iterdir()) == []


def test_a_cancelled_job_leaves_nothing(tmp_path: Path) -> None:
    reached, go = threading.Event(), threading.Event()

    def wait(_: RecordBatch) -> None:
        reached.set()
        assert go.wait(20)

    graph, _ = three_stages(second=wait)
    with LocalCluster(SystemClock(), spill_dir=tmp_path) as cluster:
        master = cluster.submit(graph)
        assert reached.wait(20)
        assert files(tmp_path)
        master.cancel()
        go.set()
        until(lambda: master.wait(10) is not None)
    assert list(tmp_path.iterdir()) == []


def test_event_time_stands_still_until_its_end(tmp_path: Path) -> None:
    before, after = Seen(), Seen()
    source = vertex(
        "source", lambda: ListSource(lambda _: [rows([1]), Watermark(5), rows([2]), IDLE]), lambda: Collect(before)
    )
    sink = vertex("sink", lambda: Collect(after)).read(source)
    run(job(source, sink, settings=BATCH, type=ResultType.BLOCKING), tmp_path)
    for seen in (before, after):
        assert [e for e in seen.elements[0, 0] if not isinstance(e, RecordBatch)] == [MAX_WATERMARK, "end", "finish"]


def test_a_job_that_is_stopped_processes_what_was_read_to_its_end(tmp_path: Path) -> None:
    seen = Seen()
    source = vertex("source", lambda: ListSource(lambda _: [rows([1, 2])], endless=True))
    sink = vertex("sink", lambda: Collect(seen)).read(source, KeyGroupPartitioner((0,)))
    graph = job(source, sink, settings=BATCH, type=ResultType.BLOCKING)
    with LocalCluster(SystemClock(), spill_dir=tmp_path) as cluster:
        master = cluster.submit(graph)
        until(lambda: master.status().vertices[0].records_out == 2)
        master.stop(drain=False)
        assert master.wait() is not None
    assert seen.pairs() == [(1, 0), (2, 1)]
    assert seen.of(Watermark) == [MAX_WATERMARK]
    assert list(tmp_path.iterdir()) == []


def test_there_are_no_savepoints(tmp_path: Path) -> None:
    graph, _ = three_stages()
    with LocalCluster(SystemClock(), spill_dir=tmp_path) as cluster:
        master = cluster.submit(graph)
        ticket = master.take_snapshot(None, savepoint=True, stop=False, drain=False)
        with pytest.raises(Exception, match="a job in batch mode has no checkpoints and no savepoints"):
            ticket.wait(10_000)
        master.wait()


def test_nothing_is_restored(tmp_path: Path) -> None:
    graph, _ = three_stages()
    with (
        LocalCluster(SystemClock(), spill_dir=tmp_path) as cluster,
        pytest.raises(
            StateError,
            match="job 'test' runs in batch mode, which begins at the beginning: it cannot restore from there",
        ),
    ):
        cluster.submit(graph, state=JobStateOptions(str(tmp_path / "state"), restore_from="there"))
