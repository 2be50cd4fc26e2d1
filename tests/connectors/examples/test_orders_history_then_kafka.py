"""`pipelines/orders_history_then_kafka`: each order counts once, whether a file has it, the topic, or both."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from tests.end_to_end.running import PIPELINES, SAMPLES, json_rows
from tests.servers.__main__ import LIVE_ORDERS, fill_live_orders
from tests.servers.kafka import KafkaBroker

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def orders(kafka: KafkaBroker) -> KafkaBroker:
    fill_live_orders(kafka)
    return kafka


def expected() -> list[tuple[str, int, int, int]]:
    """Minute, orders, revenue in cents and users, from the files alone: together they hold every order of the samples."""
    found: dict[str, tuple[int, int, set[str]]] = {}
    for file in (SAMPLES / "orders").glob("*.json"):
        for order in map(json.loads, file.read_text().splitlines()):
            if order["status"] == "paid":
                minute = order["ts"][:16] + ":00"
                count, cents, users = found.get(minute, (0, 0, set()))
                cents += round((order["amount"] or 0) * 100)
                found[minute] = (count + 1, cents, users | {order["user_id"]})
    return sorted((m, n, c, len(u)) for m, (n, c, u) in found.items())


@pytest.mark.parametrize(
    ("file", "parallelism"), [("orders_history_then_kafka.sql", 3), ("orders_history_then_kafka.yaml", 1)]
)
def test_each_order_counts_once(orders: KafkaBroker, tmp_path: Path, file: str, parallelism: int) -> None:
    given = {"SAMPLES": SAMPLES, "OUT": tmp_path, "BROKERS": orders.bootstrap, "LIVE_END": "latest-offset"}
    done = subprocess.run(
        [
            sys.executable, "-m", "flowrun", "run", str(PIPELINES / file), "-p", str(parallelism),
            *(w for n, v in given.items() for w in ("--var", f"{n}={v}")),
        ],
        cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "late" not in done.stdout + done.stderr
    rows = json_rows(tmp_path / "orders_history_then_kafka")
    counted = [(r["window_start"], r["orders"], round(float(r["revenue"]) * 100), r["users"]) for r in rows]
    assert sorted(counted) == expected()


def test_the_topic_and_the_files_overlap(orders: KafkaBroker) -> None:
    switch = datetime(2024, 3, 1, 10, 6)
    stamps = [datetime.fromisoformat(json.loads(v)["ts"]) for v in orders.values(LIVE_ORDERS)]
    assert min(stamps) < switch < max(stamps)
