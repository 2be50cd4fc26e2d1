"""Timing of whole processes and the table of figures."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).parent / "data"
_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != _NO_BYTECODE}
"""Of the measured processes: as with users, a module is compiled once and not at every start."""
FLOWRUN = [sys.executable, "-m", "flowrun"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the table: what was measured, flowrun's value, the peer's value, and the bar that must be cleared."""

    name: str
    value: str
    peer: str = ""
    ratio: str = ""
    bar: str = ""
    cleared: bool | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """One whole process: wall seconds, peak resident MB, and the report that flowrun wrote."""

    seconds: float
    peak_mb: float
    report: dict[str, object]

    @property
    def engine_seconds(self) -> float:
        """From deployment to the end of the last task."""
        return float(str(self.report["duration_ms"])) / 1000


def run_pipeline(text: str, *arguments: str, timeout_s: float = 300, folder: Path | None = None) -> Run:
    """Run a pipeline in a process of its own; its Python modules are in `folder`."""
    with tempfile.TemporaryDirectory() as own:
        file = (folder or Path(own)) / "pipeline.yaml"
        file.write_text(textwrap.dedent(text))
        report = Path(own) / "report.json"
        command = [*FLOWRUN, "run", str(file), "--quiet", "--report", str(report), *arguments]
        seconds, peak = run_process(command, timeout_s)
        return Run(seconds, peak, json.loads(report.read_text()))


def run_process(command: list[str], timeout_s: float = 300) -> tuple[float, float]:
    """Wall seconds and peak resident MB of a command that must succeed."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT)
    _, errors = process.communicate(timeout=timeout_s)
    seconds = time.perf_counter() - began
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{errors.decode()[-2000:]}")
    return seconds, _peak_mb()


def run_measured(command: list[str], timeout_s: float = 300) -> tuple[float, float]:
    """Wall seconds and peak resident MB of one command that must succeed; the peak is that process's own."""
    with tempfile.TemporaryFile() as errors:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=ENVIRONMENT)
        watchdog = threading.Timer(timeout_s, process.kill)
        watchdog.start()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        watchdog.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            raise RuntimeError(f"{' '.join(command)} failed:\n{errors.read().decode()[-2000:]}")
    return seconds, usage.ru_maxrss / 1024


def _peak_mb() -> float:
    import resource

    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def median_of(runs: int, measure: Callable[[], float]) -> float:
    """The median of several measurements, after one that does not count."""
    measure()
    return statistics.median(measure() for _ in range(runs))


def best_engine_run(runs: int, measure: Callable[[], Run]) -> tuple[float, float]:
    """Median engine seconds and median whole-process seconds."""
    measured = [measure() for _ in range(runs + 1)][1:]
    return statistics.median(r.engine_seconds for r in measured), statistics.median(r.seconds for r in measured)


def table(figures: Iterable[Figure]) -> str:
    """The figures as a Markdown table."""
    lines = ["| figure | flowrun | peer | ratio | bar | |", "|---|---|---|---|---|---|"]
    for f in figures:
        mark = "" if f.cleared is None else "✓" if f.cleared else "✗"
        lines.append(f"| {f.name} | {f.value} | {f.peer} | {f.ratio} | {f.bar} | {mark} |")
    return "\n".join(lines)


def timed_in_a_fresh_process(code: str) -> float:
    """Seconds that `code` takes in a new interpreter, imports above its line `# begin` not counted: what flowrun's engine figure is."""
    before, _, timed = textwrap.dedent(code).partition("# begin\n")
    program = f"import time\n{before}began = time.perf_counter()\n{timed}\nprint(time.perf_counter() - began)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return float(done.stdout)


def machine() -> str:
    """What it was measured on."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    import pyarrow

    return f"{os.cpu_count()} cores, {model}; Python {sys.version.split()[0]}, pyarrow {pyarrow.__version__}"
