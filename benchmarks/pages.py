"""What ten open pages cost the job that they show: in turn with none, in one run of the same job, several times.

Each page asks for the overview once a second on a connection that stays open, as the page in a browser does. Rows are divided by the
seconds of processor time that the job's process took, which depend less on what else the machine does than the clock does; and what
serving takes is measured by itself, on a job that has little to do.
"""

from __future__ import annotations

import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measuring import ENVIRONMENT, FLOWRUN, Figure

PAGES = 10
ROUNDS = 7
SECONDS = 4.0
PIPELINE = """
SET 'parallelism.default' = '2';
CREATE TABLE pages_rows (k BIGINT, v DOUBLE) WITH (
  'connector' = 'datagen', 'rows-per-second' = '%d', 'fields.k.min' = '1', 'fields.k.max' = '1000'
);
CREATE TABLE sums (k BIGINT, n BIGINT, total DOUBLE) WITH ('connector' = 'blackhole');
INSERT INTO sums SELECT k, COUNT(*), SUM(v) FROM pages_rows GROUP BY k;
"""
_BROWSER = """
import http.client, sys, threading, time
port, token, path, pages = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])

def page(delay):
    time.sleep(delay)
    connection = http.client.HTTPConnection("127.0.0.1", port)
    while True:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        connection.getresponse().read()
        time.sleep(1)

for number in range(pages):
    threading.Thread(target=page, args=(number / pages,)).start()
"""


def run() -> list[Figure]:
    with _job(1_000_000_000) as entry:
        _rows_per_cpu_second(entry)  # it has begun, and what the API needs is imported
        ratios = _in_turn(entry, _rows_per_cpu_second, lambda shown, alone: shown / alone)
    with _job(100) as entry:
        _cpu_share(entry)
        shares = _in_turn(entry, _cpu_share, lambda shown, alone: shown - alone)
    ratio, share = statistics.median(ratios), statistics.median(shares)
    return [
        Figure(
            f"rows a second of processor time with {PAGES} open pages, to those with none",
            f"{ratio:.3f} ({min(ratios):.3f} to {max(ratios):.3f})",
            bar="≥ 0.98",
            cleared=ratio >= 0.98,
        ),
        Figure(
            f"processor time that {PAGES} open pages take of the job's process",
            f"{share * 1000:.1f} ms/s ({min(shares) * 1000:.1f} to {max(shares) * 1000:.1f})",
            bar="≤ 20 ms/s",
            cleared=share <= 0.02,
        ),
    ]


@contextmanager
def _job(rows_per_second: int) -> Iterator[dict[str, str]]:
    """A running job, as it is registered."""
    with tempfile.TemporaryDirectory() as folder:
        file, registry = Path(folder) / "shown.sql", Path(folder) / "run"
        file.write_text(PIPELINE % rows_per_second)
        environment = {**ENVIRONMENT, "FLOWRUN_RUNTIME_DIR": str(registry)}
        command = [*FLOWRUN, "run", str(file), "--quiet", "--workers", "0"]
        job = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        try:
            while not (entries := list(registry.glob("*.json"))):
                time.sleep(0.1)
            yield json.loads(entries[0].read_text())
        finally:
            job.kill()
            job.wait()


def _in_turn(
    entry: dict[str, str], measure: Callable[[dict[str, str]], float], compare: Callable[[float, float], float]
) -> list[float]:
    """What comes of (with pages, without pages), in turn."""
    return [compare(*_round(entry, measure, pages_first=bool(number % 2))) for number in range(ROUNDS)]


def _round(
    entry: dict[str, str], measure: Callable[[dict[str, str]], float], *, pages_first: bool
) -> tuple[float, float]:
    """(the figure with pages, without)."""
    found: dict[bool, float] = {}
    for with_pages in (pages_first, not pages_first):
        if not with_pages:
            found[False] = measure(entry)
            continue
        path = f"/v1/jobs/{entry['job_id']}/overview"
        arguments = [str(entry["port"]), entry["token"], path, str(PAGES)]
        browser = subprocess.Popen([sys.executable, "-c", _BROWSER, *arguments], stderr=subprocess.DEVNULL)
        try:
            time.sleep(1)  # all are open
            found[True] = measure(entry)
        finally:
            browser.kill()
            browser.wait()
    return found[True], found[False]


def _rows_per_cpu_second(entry: dict[str, str]) -> float:
    before = _rows(entry), _cpu_seconds(int(entry["pid"]))
    time.sleep(SECONDS)
    after = _rows(entry), _cpu_seconds(int(entry["pid"]))
    return (after[0] - before[0]) / (after[1] - before[1])


def _cpu_share(entry: dict[str, str]) -> float:
    """Seconds of processor time a second."""
    before, began = _cpu_seconds(int(entry["pid"])), time.perf_counter()
    time.sleep(SECONDS)
    return (_cpu_seconds(int(entry["pid"])) - before) / (time.perf_counter() - began)


def _rows(entry: dict[str, str]) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", int(entry["port"]))
    connection.request("GET", f"/v1/jobs/{entry['job_id']}", headers={"Authorization": f"Bearer {entry['token']}"})
    rows = json.loads(connection.getresponse().read())["rows_read"]
    connection.close()
    return int(rows)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
