"""What ten open pages cost the job that they show, in turn with ten that show another job: so the machine has as much else to do.

Each page asks for the overview once a second on a connection that stays open, as the page in a browser does. Rows are divided by the
seconds of processor time that the job's process took, which depend less on what else the machine does than the clock does; and what
serving takes is measured by itself, on a job that has little to do.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measuring import ENVIRONMENT, FLOWRUN, Figure

PAGES = 10
ROUNDS = 20
SECONDS = 2.0
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
    with _job(1_000_000_000) as busy, _job(100) as idle, _browser(busy) as own, _browser(idle) as other:
        rates = _in_turn(busy, own, other)
    shown, alone = (
        sum(rows for rows, _ in found) / sum(cpu for _, cpu in found) for found in (rates[True], rates[False])
    )
    with _job(100) as first, _job(100) as second, _browser(first) as own, _browser(second) as other:
        shares = _in_turn(first, own, other)
    share = (sum(cpu for _, cpu in shares[True]) - sum(cpu for _, cpu in shares[False])) / (ROUNDS * SECONDS)
    return [
        Figure(
            f"rows a second of processor time with {PAGES} open pages, to those with pages of another job",
            f"{shown / alone:.3f}",
            bar="≥ 0.98",
            cleared=shown / alone >= 0.98,
        ),
        Figure(
            f"processor time that {PAGES} open pages take of the job's process",
            f"{share * 1000:.1f} ms/s",
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


@contextmanager
def _browser(entry: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process with the pages, all of which are open."""
    arguments = [str(entry["port"]), entry["token"], f"/v1/jobs/{entry['job_id']}/overview", str(PAGES)]
    browser = subprocess.Popen([sys.executable, "-c", _BROWSER, *arguments])
    try:
        time.sleep(4)  # the job has begun, and what the API needs is imported
        yield browser
    finally:
        browser.kill()
        browser.wait()


def _in_turn(
    entry: dict[str, str], own: subprocess.Popen[bytes], other: subprocess.Popen[bytes]
) -> dict[bool, list[tuple[int, float]]]:
    """Whether the job's own pages ask → (rows, seconds of processor time) of each stretch. Those that do not ask are suspended."""
    found: dict[bool, list[tuple[int, float]]] = {True: [], False: []}
    for number in range(2 * ROUNDS):
        asks = number % 4 in (1, 2)
        for browser, may in ((own, asks), (other, not asks)):
            browser.send_signal(signal.SIGCONT if may else signal.SIGSTOP)
        before = _rows(entry), _cpu_seconds(int(entry["pid"]))
        time.sleep(SECONDS)
        after = _rows(entry), _cpu_seconds(int(entry["pid"]))
        found[asks].append((after[0] - before[0], after[1] - before[1]))
    return found


def _rows(entry: dict[str, str]) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", int(entry["port"]))
    connection.request("GET", f"/v1/jobs/{entry['job_id']}", headers={"Authorization": f"Bearer {entry['token']}"})
    rows = json.loads(connection.getresponse().read())["rows_read"]
    connection.close()
    return int(rows)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
