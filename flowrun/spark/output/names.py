"""Names of files of batches, by which a later run finds the files that it replaces, and no others."""

from __future__ import annotations

import hashlib
import re

from flowrun.core.record import record
from flowrun.spark.output.job import ALL, OutputJob

_ODD = re.compile(r"[^A-Za-z0-9_]+")
_KEY_DIGITS = 10


@record
class OutputName:
    """The name of one output of one run.

    Attributes:
        sink: the name of the sink.
        period: the period of the run.
        key: a hash of pipeline, sink and period, which the files that a run replaces have in their names.
        run: an id that no other run has.
    """

    sink: str
    period: str
    key: str
    run: str

    @property
    def stem(self) -> str:
        """The text that the names of the run's visible files begin with.

        >>> output_name(OutputJob("p", "all", "r1"), "out").stem
        'part-out-all-0e8e946088-r1'
        """
        return f"part-{self.sink}-{self.period}-{self.key}-{self.run}"

    @property
    def attempt(self) -> str:
        """The stem in the form that writers of the connector take: they put `part-` before it."""
        return self.stem.removeprefix("part-")

    @property
    def identity(self) -> str:
        """The name of the files of a table by key, which a stream is to go on with.

        >>> output_name(OutputJob("p", "all", "r1"), "out").identity
        '0e8e946088-r1'
        """
        return f"{self.key}-{self.run}"

    @property
    def owner(self) -> str:
        """The owner in the names of unfinished files, which is the same for all runs of this output."""
        return f"batch-{self.key}"

    @property
    def scratch(self) -> str:
        """The name of a hidden folder of this run."""
        return f"{self.scratch_prefix}{self.run}"

    @property
    def scratch_prefix(self) -> str:
        """The text that the names of the hidden folders of all runs begin with."""
        return f".batch-{self.key}-"

    @property
    def journal(self) -> str:
        """The name of the journal, a hidden file that says what a commit does."""
        return f".commit-{self.key}.json"

    @property
    def is_of_all(self) -> bool:
        """Whether the run writes all of the output, and not only a period of it."""
        return self.period == ALL

    def is_part(self, file_name: str) -> bool:
        """Whether a visible file is a part file, whose name has no meaning for readers."""
        return file_name.startswith("part-")

    def is_replaced(self, file_name: str) -> bool:
        """Whether a visible file was written by another run of the same output, or by a stream that restored from it."""
        return (
            file_name.startswith(("part-", "table-"))
            and f"-{self.key}-" in file_name
            and f"-{self.key}-{self.run}" not in file_name
        )


def output_name(job: OutputJob, sink: str) -> OutputName:
    """The name under which a run writes a sink."""
    key = hashlib.sha256("\0".join((job.pipeline, sink, job.period)).encode()).hexdigest()[:_KEY_DIGITS]
    return OutputName(_plain(sink), _plain(job.period), key, _plain(job.run_id))


def _plain(text: str) -> str:
    return _ODD.sub("_", text)
