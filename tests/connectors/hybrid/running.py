"""Jobs over history in files or a lake table, and Kafka behind it, in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.connectors.hybrid.tables import BEGIN_MS, stamp, write_rows
from tests.end_to_end.running import json_rows
from tests.servers.kafka import KafkaBroker

SWITCH, END = 600, 900
"""Seconds: history has the rows up to a while behind the switch, the topic those from a while before it up to the end."""
SCRIPT = """
SET 'execution.checkpointing.interval' = '100 ms';
SET 'restart-strategy.type' = 'none';
CREATE TABLE rows_in (id BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '2' SECOND) WITH (
  'connector' = 'hybrid', 'source-identifiers' = 'history,live', {switch} {history},
  'live.connector' = 'kafka', 'live.topic' = '{topic}', 'live.properties.bootstrap.servers' = '{broker}', 'live.format' = 'json',
  'live.properties.max.partition.fetch.bytes' = '2000', 'live.properties.queued.max.messages.kbytes' = '16' {more});
CREATE TABLE ids (id BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out/ids', 'format' = 'json');
CREATE TABLE counts (window_start TIMESTAMP(3), n BIGINT)
  WITH ('connector' = 'filesystem', 'path' = 'out/counts', 'format' = 'json');
INSERT INTO ids SELECT id FROM rows_in;
INSERT INTO counts SELECT window_start, COUNT(*) FROM TUMBLE(TABLE rows_in, DESCRIPTOR(ts), INTERVAL '10' SECOND)
  GROUP BY window_start, window_end;
"""
FILES = "'history.connector' = 'filesystem', 'history.path' = 'old', 'history.format' = 'json'"
DELTA = "'history.connector' = 'delta', 'history.table-path' = 'lake'"
TO_DELTA = f"""
CREATE TABLE old (id BIGINT, ts TIMESTAMP(3)) WITH ({FILES.replace("history.", "")});
CREATE TABLE lake (id BIGINT, ts TIMESTAMP(3)) WITH ({DELTA.replace("history.", "")});
INSERT INTO lake SELECT * FROM old;
"""


def end(process: subprocess.Popen[str]) -> None:
    """Kill a process, if it has not ended."""
    process.kill()
    process.wait()


class HybridJob:
    """A job that copies and counts rows, and the folder that it goes on from. Rows have the number of their second as id."""

    def __init__(
        self, broker: KafkaBroker, folder: Path, *, history: str = FILES, switch: bool = True, more: str = ""
    ) -> None:
        self.folder = folder
        self.broker = broker
        self.topic = broker.create_topic(2)
        for number in range(4):  # beyond the switch, where the topic has the rows as well
            write_rows(folder / "old" / f"{number}.json", range(number * 160, number * 160 + 160))
        if history == DELTA:
            (folder / "lake.sql").write_text(TO_DELTA)
            self.run("run", "lake.sql", "--set", "settings.checkpoint.interval=10s")
        self.produce(range(SWITCH - 200, END))
        text = SCRIPT.format(
            history=history, topic=self.topic, broker=broker.bootstrap, more=more,
            switch=f"'switch-time' = '{stamp(SWITCH)}', 'switch-slack' = '1 min'," if switch else "",
        )  # fmt: skip
        (folder / "job.sql").write_text(text)

    def produce(self, seconds: range) -> None:
        """Messages with the time of their rows, to both partitions in turn."""
        for partition in range(2):
            mine = [s for s in seconds if s % 2 == partition]
            values: list[bytes | None] = [json.dumps({"id": s, "ts": stamp(s)}).encode() for s in mine]
            times = [BEGIN_MS + s * 1000 for s in mine]
            self.broker.produce(self.topic, values, partition=partition, timestamps=times)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """A process of flowrun, whose words go to a log."""
        command = words if words[0] == "-m" else ("-m", "flowrun", *words)
        with (self.folder / "log").open("w") as log:
            return subprocess.Popen([sys.executable, *command], cwd=self.folder, stdout=log, stderr=log, text=True)

    @property
    def said(self) -> str:
        """What the last process has said so far."""
        return (self.folder / "log").read_text()

    def run(self, *words: str, code: int = 0) -> str:
        """Run flowrun to its end; what it says."""
        process = self.start(*words)
        try:
            assert process.wait(timeout=240) == code, self.said
        finally:
            end(process)
        return self.said

    @property
    def ids(self) -> Counter[int]:
        """The ids that are written, and how often."""
        return Counter(int(str(row["id"])) for row in json_rows(self.folder / "out/ids"))

    def until_rows(self, process: subprocess.Popen[str], rows: int, *, kill: bool = True) -> None:
        """Wait until so many rows are written, and kill the process then."""
        self._until(process, lambda: self.ids.total() >= rows)
        if kill:
            end(process)

    def _until(self, process: subprocess.Popen[str], holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 200
        try:
            while not holds():
                assert process.poll() is None, self.said
                assert time.monotonic() < deadline, self.said
                time.sleep(0.05)
        except BaseException:
            end(process)
            raise

    def until(self, process: subprocess.Popen[str], rows: int) -> None:
        """Wait until so many rows are written, and the windows that they complete, and kill the process then."""
        self._until(process, lambda: len(json_rows(self.folder / "out/counts")) >= rows // 10 - 2)
        self.until_rows(process, rows)

    def check(self, rows: int = END) -> None:
        """Each row is there once, and each window that was complete counts ten of them."""
        assert self.ids == Counter(range(rows))
        counts = {str(row["window_start"]): row["n"] for row in json_rows(self.folder / "out/counts")}
        full = {stamp(s): 10 for s in range(0, rows - 20, 10)}
        assert {start: counts.get(start) for start in full} == full
        assert set(counts.values()) == {10}
