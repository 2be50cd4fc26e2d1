"""`python -m tests.servers`: a Kafka broker and a PostgreSQL server with what pipelines read, until Ctrl-C.

These are `pipelines/kafka_to_postgres.sql` and `pipelines/orders_history_then_kafka.sql`.

They are those that the tests use (`.ci/install_servers` installs them), on free ports of this machine alone, and leave nothing behind.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
from datetime import UTC, datetime
from pathlib import Path

try:
    from tests.servers.kafka import KafkaBroker
    from tests.servers.kafka import why_not as why_no_kafka
    from tests.servers.postgres import PostgresDatabase, PostgresServer, binaries_folder
except ModuleNotFoundError as error:
    sys.exit(f"the servers need what the tests need ({error}): pip install -e '.[dev]'")

ORDERS = 10_000
SAMPLES = Path(__file__).parents[2] / "samples/orders"
LIVE_ORDERS, LIVE_FROM = "live_orders", "2024-03-01 10:03:00"
TABLES = """
CREATE TABLE customers (id bigint PRIMARY KEY, name text, tier text);
INSERT INTO customers SELECT i, 'customer ' || i, (ARRAY['gold', 'silver', 'bronze'])[1 + i % 3] FROM generate_series(0, 99) i;
CREATE TABLE revenue (tier text, window_start timestamp, orders bigint, amount double precision, PRIMARY KEY (tier, window_start));
"""


def fill(kafka: KafkaBroker, database: PostgresDatabase, orders: int = ORDERS) -> None:
    """The tables and topics of the pipeline, with customers and orders."""
    database.execute(TABLES)
    for topic in ("orders", "large_orders", "customers"):
        kafka.create_topic(2, name=topic)
    chance = random.Random(1)
    messages: list[list[bytes | None]] = [[], []]
    for number in range(orders):
        minute, second = divmod(number * 600 // orders, 60)
        row = {
            "order_id": number,
            "customer": chance.randrange(100),
            "amount": float(chance.randrange(1, 121)),
            "ts": f"2026-01-01 00:{minute:02}:{second:02}",
        }
        messages[number % 2].append(json.dumps(row).encode())
    for partition, given in enumerate(messages):
        kafka.produce("orders", given, partition=partition)


def fill_live_orders(kafka: KafkaBroker) -> None:
    """The topic of the newer orders of the samples; messages have the times of their orders."""
    kafka.create_topic(2, name=LIVE_ORDERS)
    lines = [line for file in sorted(SAMPLES.glob("*.json")) for line in file.read_bytes().splitlines()]
    timed = [(_millis(json.loads(line)["ts"]), line) for line in lines]
    newer = [(ms, line) for ms, line in timed if ms >= _millis(LIVE_FROM)]
    for partition in range(2):
        mine = newer[partition::2]
        kafka.produce(LIVE_ORDERS, [v for _, v in mine], partition=partition, timestamps=[ms for ms, _ in mine])


def _millis(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def variables(kafka: KafkaBroker, database: PostgresDatabase) -> dict[str, str]:
    """What the pipeline is told of the servers."""
    return {
        "BROKERS": kafka.bootstrap,
        "POSTGRES_HOST": database.host,
        "POSTGRES_PORT": str(database.port),
        "POSTGRES_DATABASE": database.name,
        "POSTGRES_USER": database.user,
        "POSTGRES_PASSWORD": database.password,
    }


def command() -> str:
    """How `flowrun` is called that is installed beside this Python."""
    beside = Path(sys.executable).parent / "flowrun"
    if shutil.which("flowrun") == str(beside) or not beside.exists():
        return "flowrun"
    return os.path.relpath(beside) if beside.is_relative_to(Path.cwd()) else str(beside)


def main() -> int:
    reason = why_no_kafka()
    found = binaries_folder()
    if reason is not None or found is None:
        print(reason or "there is no PostgreSQL: .ci/install_servers installs it", file=sys.stderr)
        return 2
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    with tempfile.TemporaryDirectory() as folder:
        broker = KafkaBroker(Path(folder))
        server = PostgresServer(found, Path(tempfile.mkdtemp(prefix="flowrun-postgres-")))
        try:
            broker.start()
            server.start()
            database = server.create_database()
            fill(broker, database)
            fill_live_orders(broker)
            given = " ".join(f"--var {name}={value}" for name, value in variables(broker, database).items())
            print(f"A broker at {broker.bootstrap} and a database at {database.jdbc_url}, until Ctrl-C. Try:\n")
            print(f"  {command()} run pipelines/kafka_to_postgres.sql {given}\n")
            print(f"  {command()} run pipelines/orders_history_then_kafka.sql --var BROKERS={broker.bootstrap}\n")
            print(f"  psql '{database.uri}' -c 'SELECT * FROM revenue ORDER BY 2, 1'", flush=True)
            over.wait()
        finally:
            broker.stop()
            server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
