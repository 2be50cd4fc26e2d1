"""Folders of files: by Spark's own writers where they write what flowrun's would, else by flowrun's writers in Spark's workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, cast

from flowrun.api.sink import Committable
from flowrun.connectors.filesystem.sink import FileSink
from flowrun.plan.nodes import Sink
from flowrun.spark.frame import SparkFrame
from flowrun.spark.output.folder_commit import CommitFolder, Replacement
from flowrun.spark.output.job import OutputJob, StagedOutput, name_of, place
from flowrun.spark.output.names import OutputName, output_name
from flowrun.spark.output.native_files import write_natively
from flowrun.spark.output.spelling import NotSpelledError
from flowrun.spark.output.workers import WriteTask, write_in_workers


def stage_files(sink: Sink, described: FileSink, frame: SparkFrame, job: OutputJob) -> StagedOutput:
    """Write the rows to hidden files below the sink's folder."""
    name = output_name(job, name_of(sink))
    folder = CommitFolder(described.location, name)
    folder.prepare()
    try:
        return _stage(sink, described, frame, folder, name)
    except BaseException:
        folder.discard()
        raise


def _stage(sink: Sink, described: FileSink, frame: SparkFrame, folder: CommitFolder, name: OutputName) -> StagedOutput:
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
    """(renames, marks) of what `FileSinkWriter`s ask for."""
    publish, marks = [], set()
    for payload in (c.payload for c in committables):
        if "mark" in payload:
            marks.add(cast(str, payload["mark"]))
        else:
            publish.append((cast(str, payload["from"]), cast(str, payload["to"])))
    return publish, sorted(marks)


@dataclass
class _StagedFiles:
    """Hidden files, and what makes them visible."""

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
