"""Scripts that are taken down in the middle of their input, and go on from a snapshot at another parallelism."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flowrun.core.clock import Clock
from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import JobStateOptions, LocalJob, SnapshotTicket, start_embedded
from flowrun.runtime.job_status import JobResult, VertexStatus
from flowrun.runtime.lifecycle import ExecutionState, JobState
from tests.sql.random_tables import RandomTable
from tests.sql.recovery_gates import FUNCTIONS, GATES, RESULTS

TIMEOUT_MS = 60_000
PATIENCE_S = 0.005
SOURCE = "Source: {}_rows"


def gated_tables(tables: Sequence[RandomTable], folder: Path) -> str:
    """DDL of the tables `a`, `b`, `c` as views over the files, whose rows pass a gate."""
    text = [FUNCTIONS]
    for table in tables:
        name = table.name
        ddl = table.ddl(folder).replace(f"CREATE TABLE {name} ", f"CREATE TABLE {name}_rows ")
        if table.keyed:  # before rows are normalised: what is dropped then comes to the gate, too
            listed = ", ".join(c.name for c in table.columns)
            text.append(ddl.replace(", PRIMARY KEY", f", passes AS gate_{name}(id), PRIMARY KEY"))
            text.append(f"CREATE VIEW {name} AS SELECT {listed} FROM {name}_rows WHERE passes;")
            continue
        text.append(ddl)
        text.append(f"CREATE VIEW {name} AS SELECT * FROM {name}_rows WHERE gate_{name}(id);")
    return "\n".join(text)


@dataclass
class Job:
    """A script that is run in several lives.

    Attributes:
        script: the file.
        folder: for its state.
        lines: table → rows of its file.
        read: for each life that ended by itself or was taken down: table → rows that its source emitted.
        log: what was done, for the message of a failed test.
    """

    script: Path
    folder: Path
    lines: Mapping[str, int]
    unaligned: bool = False
    clock: Clock | None = None
    read: list[dict[str, int]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    _from: str | None = None

    def interrupt(self, chance: random.Random) -> bool:
        """One life that ends in the middle: with a savepoint, or killed some rows after a checkpoint.

        Gives False if it came to its end before.
        """
        batch_rows = chance.choice([1, 3, 7])
        stops = {name: chance.randrange(1, max(2, rows // 3)) for name, rows in self.lines.items()}
        stopped, further = chance.random() < 0.4, chance.choice([None, 1, chance.randrange(1, 40)])
        for name, gate in GATES.items():
            gate.close_after(stops.get(name))
        RESULTS.close_after(chance.randrange(1, 20) if self.unaligned else None)
        with self._start(chance.choice([1, 2, 3]), batch_rows) as job:
            self.log[-1] += f" to {stops}, {'stopped' if stopped else f'killed after {further} more'}"
            if self._waits(job):
                ticket = job.take_snapshot(
                    str(self.folder / "savepoints") if stopped else None, savepoint=stopped, stop=stopped
                )
                self._until_under_way(job, ticket)
                for gate in (*GATES.values(), RESULTS):
                    gate.drip()
                self._from = ticket.wait(TIMEOUT_MS)
                if not stopped:
                    self._go_on(job, further)
            for gate in (*GATES.values(), RESULTS):
                gate.open()
            ended = job.wait(TIMEOUT_MS)
        assert ended is not None, "the job did not end"
        self._note(ended)
        return ended.state is JobState.CANCELED or ended.stopped_at is not None

    def _go_on(self, job: LocalJob, further: int | None) -> None:
        """Rows that the checkpoint does not hold; then the end."""
        if further is not None:
            for gate in GATES.values():
                gate.close_after(further)
            RESULTS.open()
            self._waits(job)
        job.cancel()

    def finish(self, parallelism: int, batch_rows: int = 10_000) -> None:
        """The life that comes to its end."""
        for gate in (*GATES.values(), RESULTS):
            gate.open()
        with self._start(parallelism, batch_rows) as job:
            ended = job.wait(TIMEOUT_MS)
        assert ended is not None, "the job did not end"
        assert ended.state is JobState.FINISHED
        self._note(ended)

    def half_read(self) -> bool:
        """Whether a life that went on from a snapshot began in the middle of a table."""
        return any(0 < rows < self.lines[name] for life in self.read[1:] for name, rows in life.items())

    def _start(self, parallelism: int, batch_rows: int) -> LocalJob:
        settings = {
            "parallelism": parallelism, "batch_rows": batch_rows, "max_parallelism": 12, "checkpoint.interval": "1h",
            "checkpoint.dir": self.folder / "state", "checkpoint.unaligned": str(self.unaligned).lower(),
        }  # fmt: skip
        overrides = {f"settings.{k}": str(v) for k, v in settings.items()}
        self.log.append(f"parallelism {parallelism}, batches of {batch_rows}, from {self._from}")
        options = JobStateOptions(directory=str(self.folder / "state"), restore_from=self._from)
        return start_embedded(compile_pipeline(self.script, {}, overrides).job_graph, clock=self.clock, state=options)

    def _waits(self, job: LocalJob) -> bool:
        """Wait until every source is held or has ended, or the results hold them up; False if the job ends."""
        held = 0
        while job.wait(0) is None:
            sources = _sources(job.status().vertices)
            moving = [n for n, v in sources.items() if not GATES[n].reached.is_set() and not _ended(v)]
            if not moving:
                return True
            GATES[moving[0]].reached.wait(PATIENCE_S)
            held = held + 1 if RESULTS.reached.is_set() else 0
            if held > 20:  # back pressure from the results reached the sources before their rows
                return True
        return False

    @staticmethod
    def _until_under_way(job: LocalJob, ticket: SnapshotTicket) -> None:
        """Wait until the snapshot has begun: only then may rows come, or all of them have come before it."""
        while not ticket.is_answered and job.wait(PATIENCE_S * 1000) is None:
            status = job.status()
            if status.checkpoints is not None and status.checkpoints.in_progress:
                return
            if any(ExecutionState.INITIALIZING in v.states for v in status.vertices):
                RESULTS.drip()  # the rows that were in flight come before a subtask runs, and before the next snapshot

    def _note(self, ended: JobResult) -> None:
        self.read.append({name: v.records_in for name, v in _sources(ended.vertices).items()})


def _sources(vertices: Sequence[VertexStatus]) -> dict[str, VertexStatus]:
    """Table → the vertex that begins with its source."""
    return {n: v for v in vertices for n in GATES if v.name.startswith(SOURCE.format(n))}


def _ended(vertex: VertexStatus) -> bool:
    return set(vertex.states) == {ExecutionState.FINISHED}
