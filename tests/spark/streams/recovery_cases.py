"""Cases of the recovery matrices on one Spark, one after the other:
`python -m tests.spark.streams.recovery_cases FOLDER < cases.json > ends.json`.

`cases.json` is a list of `Case`; `ends.json` has for each how long it took, how many processes were lost in it, and what went wrong, if
anything did.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path

from flowrun.core.record import record
from flowrun.runners.compile import CompiledPipeline, compile_pipeline
from flowrun.runners.embedded import JobStateOptions, LocalJob, start_embedded
from flowrun.runners.job_text import SentJob, sent_job
from flowrun.runners.recompiling import recompiling
from flowrun.runners.rescaling import RescalableJob
from flowrun.runners.spark_stream import StreamOptions, cluster_on_spark
from flowrun.runners.start_rescalable import JobPlace, start_rescalable
from flowrun.runtime.cluster.worker_cluster import WorkerCluster
from flowrun.runtime.watchdog.job_board import JobBoard
from flowrun.spark.session import SparkOptions, open_session
from tests.cluster.worker_jobs import kill
from tests.recovery.far_gates import PLACE, serving
from tests.recovery.gates import NAMED, RESULTS, SOURCE
from tests.recovery.runs import compare_with_killed, reached
from tests.recovery.test_rescaling import compare
from tests.spark.session_fixture import QUICK_JAVA
from tests.spark.streams.many_runs import LOCAL_CLUSTER, LONGEST_S, ROOT

POLL_MS = 20.0
PATIENCE_S = 600.0


@record
class Case:
    """A case of a matrix.

    Attributes:
        pipeline: its name among those of `tests.recovery.pipelines`.
        seed: of all that is random.
        unaligned: whether barriers overtake rows.
        restored_at: the parallelism at which it goes on after it was killed; None: it is rescaled while it runs.
    """

    pipeline: str
    seed: int
    unaligned: bool
    restored_at: int | None = None


def run_cases(folder: Path, cases: Sequence[Case]) -> None:
    """Run cases on Spark, each in a folder of its own; all must pass."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.streams.recovery_cases", str(folder)],
        input=json.dumps(list(map(asdict, cases))),
        capture_output=True, text=True, timeout=LONGEST_S, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    for case, (_, _, wrong) in zip(cases, json.loads(done.stdout), strict=True):
        assert wrong is None, f"{case}: {wrong}"


class OnSpark:
    """A place whose task executors are in Spark's executors, some of which are killed; each life of a job has new ones."""

    def __init__(self) -> None:
        self.lost = 0
        """Processes that were killed."""
        self._cluster: WorkerCluster | None = None

    @contextmanager
    def start(self, file: Path, state: Path, *, resume: bool) -> Iterator[LocalJob]:
        """Start a pipeline, afresh or from its newest checkpoint."""
        compiled = compile_pipeline(file)
        options = JobStateOptions(str(state), compiled.text, restore_from=str(state) if resume else None)
        with (
            self._started(compiled, sent_job(compiled.text, {}, {})) as cluster,
            start_embedded(compiled.job_graph, cluster=cluster, state=options) as job,
        ):
            yield job

    @contextmanager
    def start_rescalable(self, file: Path, state: Path) -> Iterator[RescalableJob]:
        """Start a pipeline afresh, which can be rescaled."""
        compiled = compile_pipeline(file)
        sent = sent_job(compiled.text, {}, {})
        again = recompiling(compiled, {}, {}, sent=sent.text)
        with self._started(compiled, sent) as cluster, closing(JobBoard(compiled.job_graph)) as board:
            options = JobStateOptions(str(state), compiled.text)
            with start_rescalable(compiled, options, again, JobPlace(cluster, board)) as job:
                yield job

    def take_down(self, job: LocalJob, rng: random.Random) -> None:
        """Cancel it; often it has lost a process before, and gone on for a while."""
        if rng.random() < 0.6:
            SOURCE.close_after(rng.randrange(1, 400))
            restarts = job.status().restarts
            self.lose_a_process(rng)
            while job.status().restarts == restarts and job.wait(POLL_MS) is None:
                pass
            RESULTS.open()
            reached(job)
        job.cancel()

    def lose_a_process(self, rng: random.Random) -> None:
        """Kill a task executor, or the Python worker of Spark that has started it."""
        assert self._cluster is not None
        found = sorted(worker.registration.pid for worker in self._cluster.manager.workers)
        if not found:  # those that were killed just now
            return
        pid = rng.choice(found)
        kill(pid if rng.random() < 0.5 else _parent(pid))
        self.lost += 1

    def lose_a_process_or_fail(self, rng: random.Random) -> None:
        """Have rows fail, or a process die."""
        if rng.random() < 0.5:
            SOURCE.fail_once()
        else:
            self.lose_a_process(rng)

    @contextmanager
    def _started(self, compiled: CompiledPipeline, sent: SentJob) -> Iterator[WorkerCluster]:
        with cluster_on_spark(
            compiled.job_graph, sent, StreamOptions(SparkOptions(), patience_s=PATIENCE_S)
        ) as cluster:
            self._cluster = cluster
            yield cluster


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def _run(case: Case, folder: Path) -> tuple[float, int, str | None]:
    place, began, wrong = OnSpark(), time.monotonic(), None
    try:
        if case.restored_at is not None:
            compare_with_killed(
                folder, case.pipeline, case.restored_at, case.seed, unaligned=case.unaligned, place=place
            )
        else:
            compare(
                folder, case.pipeline, case.seed, unaligned=case.unaligned, start=place.start_rescalable,
                disturb=place.lose_a_process_or_fail,
            )  # fmt: skip
    except Exception:
        wrong = traceback.format_exc()[-3000:]
    finally:
        SOURCE.open()
        RESULTS.open()
    return round(time.monotonic() - began, 1), place.lost, wrong


def _main(folder: Path) -> None:
    ends = []
    with serving(NAMED) as gates:
        path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
        conf = {**QUICK_JAVA, f"spark.executorEnv.{PLACE}": gates, "spark.executorEnv.PYTHONPATH": path}
        session = open_session(SparkOptions(LOCAL_CLUSTER, conf=conf))
        for number, about in enumerate(json.load(sys.stdin)):
            case = Case(**about)
            own = folder / str(number)
            own.mkdir(parents=True)
            ends.append(_run(case, own))
            print(case, *ends[-1], file=sys.stderr, flush=True)
        session.stop()
    json.dump(ends, sys.stdout)


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
