"""The savepoint that later versions must still restore: `python -m tests.recovery.kept FOLDER` makes one of the present version.

It holds every kind of keyed state, rows of event time, timers and source positions; nothing was written before it was taken.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import JobStateOptions, start_embedded
from tests.recovery.gates import SOURCE

HERE = Path(__file__).parent / "savepoints"
PIPELINE = HERE / "pipeline.yaml"
BEFORE = 1_500
"""Rows that the savepoint has seen, about: no window was due by then."""


def make(folder: Path) -> str:
    """Run the pipeline and take the savepoint in the middle; gives its path."""
    SOURCE.close_after(BEFORE)
    compiled = compile_pipeline(PIPELINE, {"OUT": str(folder / "out")})
    text = replace(compiled.text, file_name="pipeline.yaml", directory=str(folder), working_directory=str(folder))
    options = JobStateOptions(directory=str(folder), pipeline=text)
    with start_embedded(compiled.job_graph, state=options) as job:
        SOURCE.reached.wait(60)
        ticket = job.take_snapshot(str(folder))
        SOURCE.drip()
        path = ticket.wait(60_000)
        job.cancel()
        SOURCE.open()
    return path


if __name__ == "__main__":
    print(make(Path(sys.argv[1])))
