"""Of jobs in which nothing is wrong nothing is said to be: all pipelines of this repository, and random ones against an oracle."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from flowrun.runners.compile import CompiledPipeline, compile_file
from flowrun.runners.embedded import start_embedded
from flowrun.runners.why.finding import Severity, Thresholds
from flowrun.runners.why.rules import findings
from flowrun.runners.why.summary import summary
from tests.end_to_end.running import json_rows
from tests.runners.why.jobs import ORDERS, PAYMENTS, found_at_end, job_graph, one, order, payment

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).parents[3]
OUTSIDE = {"kafka_to_postgres", "orders_history_then_kafka"}
PIPELINES = sorted(p for p in (ROOT / "pipelines").iterdir() if p.suffix in (".sql", ".yaml") and p.stem not in OUTSIDE)


@pytest.mark.parametrize("file", PIPELINES, ids=lambda p: p.name)
def test_nothing_is_wrong_with_the_pipelines_of_this_repository(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    job = compile_file(file, {"OUT": str(tmp_path)} if "${OUT" in file.read_text() else {}, {})
    assert isinstance(job, CompiledPipeline)
    with start_embedded(job.job_graph) as running:
        running.wait()
    details = running.details()
    found = findings(details)
    assert {f.severity for f in found} <= {Severity.INFORMS}, found
    told = summary(details, found)
    assert told.startswith("nothing is wrong that can be seen: the job has finished; sources have read"), told


JOIN = (
    ORDERS
    + PAYMENTS
    + """
CREATE TABLE s (id BIGINT, paid BIGINT) WITH ('connector' = 'blackhole');
CREATE TABLE totals (u STRING, n BIGINT) WITH ('connector' = 'filesystem', 'path' = '{totals}', 'format' = 'json');
INSERT INTO s SELECT o.id, p.paid FROM (SELECT * FROM orders WHERE amount > {least}) o
 JOIN payments p ON o.user_id = p.payer;
INSERT INTO totals SELECT user_id, COUNT(*)
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY user_id, window_start, window_end;
"""
)


@pytest.mark.parametrize("seed", range(12))
def test_what_is_counted_is_what_happened(tmp_path: Path, seed: int) -> None:
    """Filters, NULL keys, matches and late rows of a random job, against a loop over its rows."""
    chance = random.Random(seed)
    users = [f"u{i}" for i in range(chance.choice([1, 3, 40]))]
    least = chance.choice([0, 5, 10])

    def user() -> str | None:
        return None if chance.random() < 0.1 else chance.choice(users)

    at, orders = 100, []
    for i in range(chance.randint(1, 120)):
        at += chance.choice([0, 1, 30])
        orders.append(order(i, max(at - chance.choice([0, 0, 0, 4, 90]), 0), user(), chance.randint(1, 10)))
    payments = [payment(i, i, user()) for i in range(chance.randint(0, 40))]
    step = chance.randint(1, 20)
    batches = {
        "orders": {"p0": [orders[i : i + step] for i in range(0, len(orders), step)]},
        "payments": {"q0": [payments]},
    }
    parallelism = chance.choice(["1", "2"])
    text = JOIN.replace("{least}", str(least)).replace("{totals}", str(tmp_path / "totals"))
    graph = job_graph(tmp_path, text, batches, ends=True, parallelism=parallelism)
    found = found_at_end(graph)

    passed = [o for o in orders if o["amount"] > least]
    _agrees(found, "filter", len(orders) - len(passed))
    payers = Counter(p["payer"] for p in payments if p["payer"] is not None)
    nulls = sum(o["user_id"] is None for o in passed) + sum(p["payer"] is None for p in payments)
    _agrees(found, "null_keys", nulls)
    matches = sum(payers[o["user_id"]] for o in passed if o["user_id"] is not None)
    # a join of which all rows have NULL keys has no match either, and is told of for these
    left, right = [o for o in passed if o["user_id"] is not None], [p for p in payments if p["payer"] is not None]
    both = bool(passed) and bool(payments)
    assert ("join_without_matches" in found) is (both and matches == 0 and bool(left or right)), found
    assert ("join_side_empty" in found) is (bool(passed) != bool(payments)), found
    highest, late = -(1 << 60), 0
    for o in orders:
        seconds = _seconds(o["ts"])
        window_end = (seconds // 60 + 1) * 60
        late += window_end <= highest - 5
        highest = max(highest, seconds)
    dropped = len(orders) - sum(int(str(row["n"])) for row in json_rows(tmp_path / "totals"))
    _agrees(found, "late_rows", dropped)
    if parallelism == "1":
        assert dropped == late
    else:  # one subtask of the source has no partition: how long it holds the watermark back, until it has ended, is chance
        assert dropped <= late


def _agrees(found: dict, kind: str, dropped: int) -> None:
    if dropped:
        assert one(found, kind).figures["dropped"] == dropped
    else:
        assert kind not in found


def _seconds(text: str) -> int:
    hours, minutes, seconds = text[-8:].split(":")
    return int(hours) * 3600 + int(minutes) * 60 + int(seconds)


def test_findings_of_a_job_that_is_well_say_by_what_one_sees_it(tmp_path: Path) -> None:
    text = ORDERS + "CREATE TABLE s (id BIGINT) WITH ('connector' = 'blackhole'); INSERT INTO s SELECT id FROM orders;"
    graph = job_graph(tmp_path, text, {"orders": {"p0": [[order(1, 1)]]}}, ends=True)
    with start_embedded(graph) as job:
        job.wait()
    details = job.details()
    assert findings(details, Thresholds()) == ()
    assert summary(details, ()).endswith("the job has finished; sources have read 1 row, sinks have taken 1 row")
