"""How files of batches are called, so that a later run finds those that it replaces, and no others."""

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
        sink: of the table.
        period: of the run.
        key: of pipeline, sink and period: what a run replaces has it.
        run: unique to the run.
    """

    sink: str
    period: str
    key: str
    run: str

    @property
    def stem(self) -> str:
        """With what the visible files of the run begin.

        >>> output_name(OutputJob("p", "all", "r1"), "out").stem
        'part-out-all-0e8e946088-r1'
        """
        return f"part-{self.sink}-{self.period}-{self.key}-{self.run}"

    @property
    def attempt(self) -> str:
        """The stem as writers of the connector take it, which put `part-` before it."""
        return self.stem.removeprefix("part-")

    @property
    def identity(self) -> str:
        """Of a table that a stream is to go on with.

        >>> output_name(OutputJob("p", "all", "r1"), "out").identity
        '0e8e946088-r1'
        """
        return f"{self.key}-{self.run}"

    @property
    def owner(self) -> str:
        """In the names of unfinished files, those of former runs too."""
        return f"batch-{self.key}"

    @property
    def scratch(self) -> str:
        """A hidden folder of this run."""
        return f"{self.scratch_prefix}{self.run}"

    @property
    def scratch_prefix(self) -> str:
        """With what the hidden folders of all runs begin."""
        return f".batch-{self.key}-"

    @property
    def journal(self) -> str:
        """A hidden file that says what a commit does."""
        return f".commit-{self.key}.json"

    @property
    def is_of_all(self) -> bool:
        """Whether the run writes all of the output, not a period of it."""
        return self.period == ALL

    def is_part(self, file_name: str) -> bool:
        """Whether a visible file is one whose name nobody needs to know."""
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
