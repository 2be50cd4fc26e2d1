"""Jobs of SQL scripts in processes of their own, which are killed and go on from their newest checkpoint."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

_SOON_S = 240


class ResumedJob:
    """A job with one life after the other; a context, at whose end the last one is over.

    Args:
        folder: for its script, its state, and what it says.
        script: its text.
        variables: of the script.
    """

    def __init__(self, folder: Path, script: str, variables: Mapping[str, str]) -> None:
        self._folder = folder
        self._variables = variables
        self._lives = 0
        self._process: subprocess.Popen[str] | None = None
        (folder / "job.sql").write_text(script)

    def start(self, *words: str, parallelism: int = 2, options: Sequence[str] = ()) -> subprocess.Popen[str]:
        """Begin, or go on from the newest checkpoint; `words` are what Python runs, `options` are flowrun's."""
        state = self._folder / "state"
        how = ("resume", "--from-savepoint", str(state)) if self.checkpoints() else ("run",)
        command = [
            sys.executable, *(words or ("-m", "flowrun")), *how, "job.sql",
            *itertools.chain(*(("--var", f"{k}={v}") for k, v in self._variables.items())),
            "--set", f"settings.checkpoint.dir={state}", "--parallelism", str(parallelism), "--no-live", *options,
        ]  # fmt: skip
        self._lives += 1
        with (self._folder / f"life-{self._lives}.log").open("w") as log:
            self._process = subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log, text=True)
        return self._process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def said(self) -> str:
        """What the last life has said so far."""
        return (self._folder / f"life-{self._lives}.log").read_text()

    def finish(self, process: subprocess.Popen[str] | None = None) -> None:
        """The last life."""
        process = process or self.start()
        assert process.wait(timeout=240) == 0, self.said

    def checkpoints(self) -> set[str]:
        """The names of those that are complete."""
        return {path.parent.name for path in (self._folder / "state").glob("*/chk-*/_metadata.json")}

    def until(self, process: subprocess.Popen[str], holds: Callable[[], object]) -> None:
        """Wait for something that comes while this life goes on."""
        deadline = time.monotonic() + _SOON_S
        while not holds():
            assert process.poll() is None, self.said
            assert time.monotonic() < deadline, self.said
            time.sleep(0.02)

    def wait_for_checkpoint(self, process: subprocess.Popen[str], before: set[str]) -> None:
        """Until there is a newer one than these, or the job is over."""
        self.until(process, lambda: process.poll() is not None or not self.checkpoints() <= before)

    def live_and_die(self, seconds: float, parallelism: int, *, from_checkpoint: bool) -> bool:
        """A life that is ended from outside, so long after its start or its first checkpoint; whether it was not over before."""
        before = self.checkpoints()
        process = self.start(parallelism=parallelism)
        if from_checkpoint:
            self.wait_for_checkpoint(process, before)
        return not self.is_over(process, seconds)

    def is_over(self, process: subprocess.Popen[str], seconds: float) -> bool:
        """Whether it ends within this time, without an error; else it is killed."""
        try:
            assert process.wait(timeout=seconds) == 0, self.said
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return False
        return True


def kill_rounds(job: ResumedJob, rng: random.Random, rounds: int) -> None:
    """Lives of random lengths, and one to the end."""
    for _ in range(rounds):
        early = rng.random() < 0.2
        seconds = rng.uniform(0.2, 3.0) if early else rng.uniform(0.0, 0.6)
        if not job.live_and_die(seconds, rng.choice((1, 2, 3)), from_checkpoint=not early):
            return
    job.finish()
