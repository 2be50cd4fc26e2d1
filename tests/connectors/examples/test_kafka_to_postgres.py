"""The example pipelines from Kafka to PostgreSQL, and the command that starts servers for them, as a new user runs them."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.running import ROOT
from tests.servers.__main__ import ORDERS, fill, variables
from tests.servers.kafka import KafkaBroker
from tests.servers.postgres import PostgresDatabase

pytestmark = pytest.mark.exhaustive


def until(process: subprocess.Popen[bytes], log: Path, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)


@pytest.mark.parametrize("name", ["kafka_to_postgres.sql", "kafka_to_postgres.yaml"])
def test_the_pipeline_gives_what_the_data_says(
    kafka: KafkaBroker,
    postgres: PostgresDatabase,
    tmp_path: Path,
    name: str,
) -> None:
    kafka.clear_topics("orders", "large_orders", "customers")
    fill(kafka, postgres)
    given = [part for name, value in variables(kafka, postgres).items() for part in ("--var", f"{name}={value}")]
    path = ROOT / "pipelines" / name
    log = tmp_path / "log"
    command = [
        sys.executable,
        "-m",
        "flowrun",
        "run",
        str(path),
        "--no-live",
        "--set",
        "settings.checkpoint.dir=state",
        *given,
    ]
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=out, stderr=out)
    try:
        # The last minute waits for a later order; all before it are complete.
        until(process, log, lambda: postgres.execute("SELECT count(DISTINCT window_start) FROM revenue") >= [(9,)])
        orders = [json.loads(v) for v in kafka.values("orders")]
        large = sorted(o["order_id"] for o in orders if o["amount"] >= 100)
        until(process, log, lambda: len(kafka.values("large_orders")) >= len(large))
        assert sorted(json.loads(v)["order_id"] for v in kafka.values("large_orders")) == large
        if name.endswith("sql"):
            postgres.execute("UPDATE customers SET tier = 'platinum' WHERE id = 7; DELETE FROM customers WHERE id = 8")
            until(process, log, lambda: len(kafka.values("customers")) >= 102)
            last = {json.loads(m.key())["id"]: m.value() for m in kafka.messages("customers")}
            assert json.loads(last[7])["tier"] == "platinum"
            assert last[8] is None
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
    assert len(orders) == ORDERS
    wanted: dict[tuple[str, str], tuple[int, float]] = {}
    for o in orders:
        key = (("gold", "silver", "bronze")[o["customer"] % 3], o["ts"][:16])
        count, amount = wanted.get(key, (0, 0.0))
        wanted[key] = (count + 1, amount + o["amount"])
    found = {(t, f"{at:%Y-%m-%d %H:%M}"): (n, a) for t, at, n, a in postgres.execute("SELECT * FROM revenue")}
    assert found == {key: value for key, value in wanted.items() if key in found}
    assert len(found) >= 27


def test_the_command_that_starts_the_servers_prints_two_that_work(tmp_path: Path) -> None:
    log = tmp_path / "servers.log"
    with log.open("wb") as out:
        servers = subprocess.Popen([sys.executable, "-m", "tests.servers"], cwd=ROOT, stdout=out, stderr=out)
    try:
        until(servers, log, lambda: "psql" in log.read_text())
        lines = re.findall(r"flowrun run (.*)\n", log.read_text())
        assert [Path(line.split()[0]).stem for line in lines] == ["kafka_to_postgres", "orders_history_then_kafka"]
        for line in lines:
            checked = [sys.executable, "-m", "flowrun", "validate", *shlex.split(line)]
            assert subprocess.run(checked, cwd=ROOT, capture_output=True, check=False).returncode == 0, line
    finally:
        servers.send_signal(signal.SIGINT)
        assert servers.wait(60) == 0, log.read_text()
