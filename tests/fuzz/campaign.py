"""Hours of damaged inputs: `python -m tests.fuzz.campaign script --seconds 3600 --findings FOLDER`.

With `atheris` installed (a fuzzer over libFuzzer) inputs that reach new code are kept and damaged further; without it every input starts
from a right text. Each kind of failure is written once, to a file of the folder that says what happened and with which text; the number of
inputs and of findings goes to standard output. The exit code is 1 if there were findings.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
import random
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path
from types import FrameType

SLOW_SECONDS = 10
"""What takes longer is a finding too; of processor time, so that a machine that stood still is none."""


class TooSlowError(BaseException):
    """An input holds the interpreter; no `except Exception` may hide it."""


class Campaign:
    """Hands inputs to a target, and writes down what should not have happened."""

    def __init__(self, name: str, findings: Path, seconds: float, inputs: int) -> None:
        from tests.fuzz import targets

        self.name = name
        self.target, seeds = targets.TEXT_TARGETS[name]
        self.seeds = seeds()
        self.mutator = targets.mutator(name, self.seeds)
        if name == "spark":
            targets.session()  # starting Spark is not counted as an input's time
        self.count = 0
        self.found = 0
        self._findings = findings
        self._known: set[str] = set()
        self._inputs = inputs
        self._end = time.monotonic() + seconds
        self._reported = 0
        findings.mkdir(parents=True, exist_ok=True)

    @property
    def over(self) -> bool:
        """Whether it ran for as long as it was to."""
        return time.monotonic() > self._end or self.count >= self._inputs

    def one(self, text: str) -> None:
        """Try one input."""
        self.count += 1
        signal.setitimer(signal.ITIMER_PROF, SLOW_SECONDS)
        try:
            self.target(text)
        except (Exception, TooSlowError) as error:
            signal.setitimer(signal.ITIMER_PROF, 0)
            self._note(error, text)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        if self.count >= self._reported + 5000:
            self._reported = self.count
            self.report()

    def report(self) -> None:
        """Say how far it has come."""
        print(f"{self.name}: {self.count} inputs, {self.found} findings", flush=True)

    def _note(self, error: BaseException, text: str) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if "/flowrun/" in f.filename] or list(frames)
        kind = "|".join([type(error).__name__, *(f"{Path(f.filename).name}:{f.lineno}" for f in own[-2:])])
        if kind in self._known:
            return
        self._known.add(kind)
        self.found += 1
        name = f"{self.name}-{hashlib.sha1(kind.encode()).hexdigest()[:10]}.txt"
        told = "".join(traceback.format_exception(error)[-14:])
        (self._findings / name).write_text(
            f"{kind}\n{told}\n==== input\n{text}", encoding="utf-8", errors="surrogatepass"
        )


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise TooSlowError(f"more than {SLOW_SECONDS} s")


def _guided(campaign: Campaign, corpus: Path, seed: int) -> None:
    """Let libFuzzer choose which inputs are damaged further."""
    import atheris

    corpus.mkdir(parents=True, exist_ok=True)
    for text in campaign.seeds:
        data = text.encode("utf-8", "surrogatepass")
        (corpus / hashlib.sha1(data).hexdigest()).write_bytes(data)

    def one(data: bytes) -> None:
        campaign.one(data.decode("utf-8", "replace"))
        if campaign.over:
            campaign.report()
            os._exit(1 if campaign.found else 0)

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        chance = random.Random(seed)
        text = data.decode("utf-8", "replace")
        damaged = (
            campaign.mutator.damaged(text, chance) if text and chance.random() < 0.9 else campaign.mutator.fresh(chance)
        )
        return damaged.encode("utf-8", "surrogatepass")[:max_size]

    ours = [f"-handle_{name}=0" for name in ("int", "term")]
    options = [f"-seed={seed}", "-max_len=12000", "-timeout=86400", "-rss_limit_mb=6000", "-verbosity=0", *ours]
    atheris.Setup([sys.argv[0], *options, str(corpus)], one, custom_mutator=mutate)
    atheris.Fuzz()


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--inputs", type=int, default=10**9)
    parser.add_argument("--seed", type=int, default=random.randrange(2**31))
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"))
    parser.add_argument("--unguided", action="store_true", help="without coverage")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGPROF, _too_slow)
    guided = not given.unguided
    if guided:
        try:
            import atheris
        except ImportError:
            print("atheris is not installed: inputs are not chosen by coverage", file=sys.stderr)
            guided = False
        else:
            with atheris.instrument_imports(include=["flowrun"]):
                from tests.fuzz import targets
            assert targets
    campaign = Campaign(given.target, given.findings, given.seconds, given.inputs)
    print(f"{given.target}: seed {given.seed}", flush=True)
    if guided:
        _guided(campaign, given.findings / f"corpus-{given.target}", given.seed)
    chance = random.Random(given.seed)
    while not campaign.over:
        campaign.one(campaign.mutator.fresh(chance))
    campaign.report()
    return 1 if campaign.found else 0


if __name__ == "__main__":
    sys.exit(main())
