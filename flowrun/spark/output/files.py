"""Writes folders of files: with Spark's own writers if they write the same as flowrun's, else with flowrun's writers in Spark's workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, cast

import pyarrow as pa

from flowrun.api.sink import Committable
from flowrun.connectors.filesystem.sink import FileSink
from flowrun.plan.nodes import Sink
from flowrun.spark.arrow import fit
from flowrun.spark.frame import SparkFrame
from flowrun.spark.output.folder_commit import CommitFolder, Replacement
from flowrun.spark.output.job import OutputJob, StagedOutput, name_of, place
from flowrun.spark.output.names import OutputName, output_name
from flowrun.spark.output.native_files import write_natively
from flowrun.spark.output.spelling import NotSpelledError
from flowrun.spark.output.workers import WriteTask, write_in_workers
from flowrun.state.key_groups import key_groups

_BUCKET = "flowrun$bucket"
_Batches = Iterable[pa.RecordBatch]


def stage_files(sink: Sink, described: FileSink, frame: SparkFrame, job: OutputJob) -> StagedOutput:
    """Write the rows to hidden files below the sink's folder."""
    return _staged(sink, described, frame, job, _stage_parts)


def stage_table(sink: Sink, described: FileSink, frame: SparkFrame, job: OutputJob) -> StagedOutput:
    """Write the rows, one for each key, to the hidden files that a stream's sink would write: a stream that restores replaces them."""
    return _staged(sink, described, frame, job, _stage_buckets)


_Stage = Callable[[Sink, FileSink, SparkFrame, CommitFolder, OutputName], StagedOutput]


def _staged(sink: Sink, described: FileSink, frame: SparkFrame, job: OutputJob, stage: _Stage) -> StagedOutput:
    name = output_name(job, name_of(sink))
    folder = CommitFolder(described.location, name, described.mode)
    folder.prepare()
    try:
        return stage(sink, described, frame, folder, name)
    except BaseException:
        folder.discard()
        raise


def _stage_buckets(
    sink: Sink, described: FileSink, frame: SparkFrame, folder: CommitFolder, name: OutputName
) -> StagedOutput:
    task = WriteTask(described, place(sink), name.attempt, name.owner, identity=name.identity)
    written = write_in_workers(task, _by_bucket(described, frame))
    publish, _ = _steps(written.committables)
    return _StagedFiles(name_of(sink), written.rows, folder, folder.replacement(publish))


def _by_bucket(described: FileSink, frame: SparkFrame) -> SparkFrame:
    """The rows with each bucket of the table in a partition of its own."""
    from pyspark.sql.types import IntegerType, StructType

    form = StructType([*frame.data.schema.fields]).add(_BUCKET, IntegerType(), False)
    numbered = frame.data.mapInArrow(partial(_with_bucket, described), form)
    return replace(frame, data=numbered.repartitionById(described.key_groups, _BUCKET).drop(_BUCKET))


def _with_bucket(described: FileSink, batches: _Batches) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows:
            keys = fit(batch, described.schema).select(described.primary_key).columns
            yield batch.append_column(_BUCKET, pa.array(key_groups(keys, described.key_groups)))


def _stage_parts(
    sink: Sink, described: FileSink, frame: SparkFrame, folder: CommitFolder, name: OutputName
) -> StagedOutput:
    mark = "" if described.partition_commit is None else described.partition_commit.file_name
    try:
        native = write_natively(described, frame, folder.files, name)
    except NotSpelledError:
        task = WriteTask(described, place(sink), name.attempt, name.owner)
        written = write_in_workers(task, frame)
        publish, marks = _steps(written.committables)
        return _StagedFiles(name_of(sink), written.rows, folder, folder.replacement(publish, marks, mark=mark))
    folders = {final.rpartition("/")[0] for _, final in native.publish}
    marks = [f"{f}/{mark}" for f in sorted(folders)] if mark else []
    steps = folder.replacement(native.publish, marks, native.scratch, mark)
    return _StagedFiles(name_of(sink), native.rows, folder, steps)


def _steps(committables: Sequence[Committable]) -> tuple[list[tuple[str, str]], list[str]]:
    """(the renames, the marks) of the committables of `FileSinkWriter`s."""
    publish, marks = [], set()
    for payload in (c.payload for c in committables):
        if "mark" in payload:
            marks.add(cast(str, payload["mark"]))
        else:
            publish.append((cast(str, payload["from"]), cast(str, payload["to"])))
    return publish, sorted(marks)


@dataclass
class _StagedFiles:
    """Hidden files that `commit` makes visible."""

    runs_on_commit: ClassVar[bool] = False

    name: str
    rows: int
    folder: CommitFolder
    replacement: Replacement
    done: bool = field(default=False, init=False)

    def commit(self) -> None:
        if not self.done:
            self.folder.commit(self.replacement)
            self.done = True

    def abort(self) -> None:
        if not self.done:
            self.done = True
            self.folder.discard()
