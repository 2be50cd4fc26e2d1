"""Jobs for a browser to look at: a real one in a process of its own, and one whose every text is hostile."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from flowrun.core.record import record
from flowrun.runners.registry import JobEntry, JobRegistry

START_S = 60

SHOP = """\
-- Orders of a shop, by currency, and what was paid for them.
SET 'pipeline.name' = 'shop revenue';
SET 'parallelism.default' = '2';
SET 'execution.checkpointing.interval' = '500 ms';
SET 'state.checkpoints.dir' = '{state}';

CREATE TABLE orders (
  user_id BIGINT, currency INT, amount DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'datagen', 'rows-per-second' = '2000', 'fields.currency.min' = '1', 'fields.currency.max' = '9',
        'fields.user_id.max' = '500', 'fields.user_id.min' = '1', 'fields.ts.max-past' = '1 s');
CREATE TABLE payments (
  payer BIGINT, paid DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'datagen', 'rows-per-second' = '500', 'fields.payer.min' = '1', 'fields.payer.max' = '500',
        'fields.ts.max-past' = '1 s');
CREATE TABLE revenue (w TIMESTAMP(3), currency INT, total DOUBLE) WITH ('connector' = 'blackhole');
CREATE TABLE settled (user_id BIGINT, amount DOUBLE, paid DOUBLE) WITH ('connector' = 'blackhole');

INSERT INTO revenue
  SELECT window_start, currency, SUM(amount)
  FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' SECOND))
  GROUP BY window_start, window_end, currency;
INSERT INTO settled
  SELECT o.user_id, o.amount, p.paid
  FROM orders o JOIN payments p ON o.user_id = p.payer AND p.ts BETWEEN o.ts AND o.ts + INTERVAL '1' SECOND;
"""


@record
class ShownJob:
    """A job with its page.

    Attributes:
        entry: as it is registered.
        process: that runs it.
    """

    entry: JobEntry
    process: subprocess.Popen[bytes]

    @property
    def address(self) -> str:
        """Of its page, with the token."""
        return address_of(self.entry)


def address_of(entry: JobEntry) -> str:
    """Of the page of a job, with the token."""
    return f"http://127.0.0.1:{entry.port}/#token={entry.token}"


@contextmanager
def run_shown(folder: Path, text: str, name: str = "shop.sql", workers: int = 0) -> Iterator[ShownJob]:
    """Run a pipeline by `flowrun run` until the block ends; its state is below `folder`."""
    folder.mkdir(exist_ok=True)
    file, runtime = folder / name, folder / "run"
    file.write_text(text.replace("{state}", str(folder / "state")), encoding="utf-8")
    environment = {**os.environ, "FLOWRUN_RUNTIME_DIR": str(runtime)}
    command = [sys.executable, "-m", "flowrun", "run", "--workers", str(workers), "--quiet", name]
    with (folder / "run.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + START_S
        while not (entries := JobRegistry([runtime]).entries() if runtime.exists() else ()):
            assert process.poll() is None, (folder / "run.log").read_text()
            assert time.monotonic() < deadline, "the job is not registered"
            time.sleep(0.05)
        yield ShownJob(entries[0], process)
    finally:
        process.kill()
        process.wait()


Value = TypeVar("Value")


def with_texts(value: Value, text: str, kept: frozenset[str]) -> Value:
    """A value of records with `text` in place of every text in it, but in fields of those names: ids, by which parts find each other."""
    found: Any = value
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        found = text
    elif is_dataclass(value) and not isinstance(value, type):
        given = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
        changed = {
            name: v if name in kept and isinstance(v, str) else with_texts(v, text, kept) for name, v in given.items()
        }
        found = replace(value, **changed)
    elif isinstance(value, dict):
        found = {
            (k if isinstance(k, Enum) or k in kept else f"{text}{i}"): with_texts(v, text, kept)
            for i, (k, v) in enumerate(value.items())
        }
    elif isinstance(value, tuple | list):
        found = type(value)(with_texts(v, text, kept) for v in value)
    return found  # type: ignore[no-any-return]


def savepoints_in(folder: Path) -> list[Path]:
    """The folders of savepoints below a folder that are complete."""
    return sorted(f.parent for f in folder.rglob("_metadata.json"))
