"""Whole pipelines with Kafka at their ends, by the command as users type it."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flowrun.operators.letters import decode_headers
from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import run_embedded
from flowrun.runtime.lifecycle import JobState
from tests.connectors.kafka.test_source import login
from tests.end_to_end.running import json_rows
from tests.servers.kafka import PASSWORD, KafkaBroker
from tests.servers.postgres import PostgresDatabase
from tests.shared_suites import needs_shared
from tests.spark.session_fixture import QUICK_RUN
from tests.sql.test_flink_cases import CASES, SHARED, fold_text

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).parents[3]
OF_CI = ("dedup_last", "group_agg", "interval_join", "tumble_agg")
BOUNDED = "'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset'"


def flowrun(folder: Path, script: str, *words: str, code: int = 0, command: str = "run") -> str:
    """What it says."""
    (folder / "job.sql").write_text(script)
    done = subprocess.run(
        [sys.executable, "-m", "flowrun", command, "job.sql", *words],
        cwd=folder, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode == code, said
    return said


def table(name: str, columns: str, broker: str, topic: str, *options: str) -> str:
    given = ", ".join([f"'topic' = '{topic}'", f"'properties.bootstrap.servers' = '{broker}'", *options])
    return f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'kafka', {given});\n"


def test_the_example_of_the_page(kafka: KafkaBroker, tmp_path: Path) -> None:
    page = (ROOT / "docs/connectors/kafka.md").read_text()
    found = re.search(r"```sql\n(.*?)```", page, re.DOTALL)
    assert found is not None
    kafka.clear_topics("orders", "large-orders", "totals")
    kafka.create_topic(2, name="orders")
    kafka.create_topic(2, name="large-orders")
    kafka.create_topic(1, name="totals")
    orders = [{"order_id": i, "user_id": "ab"[i % 2], "amount": i * 60.0} for i in range(4)]
    kafka.produce("orders", [json.dumps(o).encode() for o in orders])
    flowrun(tmp_path, found[1], "--var", f"BROKERS={kafka.bootstrap}", command="validate")
    flowrun(tmp_path, found[1], "--var", f"BROKERS={kafka.bootstrap}")
    large = sorted((m.key(), json.loads(m.value())["order_id"]) for m in kafka.messages("large-orders"))
    assert large == [(b"a", 2), (b"b", 3)]
    totals = {m.key(): json.loads(m.value()) for m in kafka.messages("totals")}
    assert totals[b"a"] == {"user_id": "a", "orders": 2, "amount": 120.0}
    assert totals[b"b"] == {"user_id": "b", "orders": 2, "amount": 240.0}


@needs_shared(CASES)
@pytest.mark.parametrize("case", [c for c in CASES if c.stem in OF_CI], ids=lambda p: p.stem)
def test_the_shared_suite_with_kafka_gives_the_same_rows(kafka: KafkaBroker, tmp_path: Path, case: Path) -> None:
    check_case(kafka, tmp_path, case)


@needs_shared(CASES)
@pytest.mark.soak
@pytest.mark.parametrize("case", [c for c in CASES if c.stem not in OF_CI], ids=lambda p: p.stem)
def test_the_rest_of_the_shared_suite_with_kafka(kafka: KafkaBroker, tmp_path: Path, case: Path) -> None:
    check_case(kafka, tmp_path, case)


def check_case(kafka: KafkaBroker, folder: Path, case: Path) -> None:
    """The script of a case, with topics in place of its files."""
    wanted = json.loads(case.with_suffix(".json").read_text())
    target = kafka.create_topic(1)
    to_broker = f"'connector'='kafka','properties.bootstrap.servers'='{kafka.bootstrap}'"

    def of_topic(found: re.Match[str]) -> str:
        if found[1] == "${OUT}":
            return f"{to_broker},'topic'='{target}'"
        topic = kafka.create_topic(1)
        lines = Path(found[1].replace("${DATA}", str(SHARED / "sqlsuite" / "data"))).read_bytes().splitlines()
        kafka.produce(topic, list(lines))
        return f"{to_broker},'topic'='{topic}',{BOUNDED}"

    script, count = re.subn(r"'connector'='filesystem','path'='([^']*)'", of_topic, case.read_text())
    assert count > 1
    flowrun(folder, script)
    written = folder / "written"
    written.mkdir()
    (written / "rows.json").write_bytes(b"\n".join(kafka.values(target)))
    assert fold_text(written, wanted["columns"], case.with_suffix(".json")).startswith("same")


def test_a_batch_on_spark_reads_a_bounded_topic_and_writes_one(kafka: KafkaBroker, tmp_path: Path) -> None:
    source, target = kafka.create_topic(3), kafka.create_topic(1)
    for partition in range(3):
        kafka.produce(source, [b'{"id": %d, "v": 2}' % i for i in range(partition, 300, 3)], partition=partition)
    columns = "id BIGINT, v BIGINT"
    script = (
        table("rows_in", f"{columns}, part INT METADATA FROM 'partition' VIRTUAL", kafka.bootstrap, source, "'format' = 'json'", BOUNDED)
        + table("rows_out", "part INT, n BIGINT, total BIGINT", kafka.bootstrap, target, "'format' = 'json'")
        + "INSERT INTO rows_out SELECT part, COUNT(*), SUM(v) FROM rows_in GROUP BY part;"
    )  # fmt: skip
    flowrun(tmp_path, script, "--mode", "batch", *QUICK_RUN)
    rows = sorted(tuple(json.loads(v).values()) for v in kafka.values(target))
    assert rows == [(0, 100, 200), (1, 100, 200), (2, 100, 200)]


def test_yaml_reads_and_writes_what_stands_beside_the_rows(kafka: KafkaBroker, tmp_path: Path) -> None:
    source, target = kafka.create_topic(2), kafka.create_topic(1)
    kafka.produce(source, [b'{"id": 1}', b'{"id": 2}'], partition=1, headers=[("trace", b"x")])
    written = "connector: kafka, properties.bootstrap.servers: '${BROKERS}', format: json"
    document = f"""
sources:
  rows:
    connector: kafka
    topic: {source}
    properties.bootstrap.servers: ${{BROKERS}}
    scan: {{startup.mode: earliest-offset, bounded.mode: latest-offset}}
    format: json
    schema: {{id: BIGINT}}
    metadata: {{part: partition, place: offset, at: timestamp, marks: headers}}
    computed: {{later: at + INTERVAL '1' HOUR}}
steps:
  moved: {{from: rows, select: [id, part, place, later, marks]}}
sinks:
  out: {{from: moved, {written}, topic: {target}, metadata: {{later: timestamp, marks: headers}}}}
"""
    (tmp_path / "job.yaml").write_text(document)
    compiled = compile_pipeline(tmp_path / "job.yaml", {"BROKERS": kafka.bootstrap}, {})
    assert run_embedded(compiled.job_graph).state is JobState.FINISHED
    read = {json.loads(m.value())["id"]: m.timestamp()[1] for m in kafka.messages(source)}
    found = kafka.messages(target)
    rows = sorted((json.loads(m.value()) for m in found), key=lambda row: row["id"])
    assert rows == [{"id": 1, "part": 1, "place": 0}, {"id": 2, "part": 1, "place": 1}]
    assert {json.loads(m.value())["id"]: m.timestamp()[1] - 3_600_000 for m in found} == read
    assert [m.headers() for m in found] == [[("trace", b"x")]] * 2


def test_a_batch_does_not_begin_with_a_topic_that_has_no_end(kafka: KafkaBroker, tmp_path: Path) -> None:
    script = (
        table("rows_in", "id BIGINT", kafka.bootstrap, "t", "'format' = 'json'", "'scan.startup.mode' = 'earliest-offset'")
        + "INSERT INTO gone SELECT id FROM rows_in;"
    )  # fmt: skip
    script = script.replace("INSERT", "CREATE TABLE gone (id BIGINT) WITH ('connector' = 'blackhole');\nINSERT")
    assert "has no end (connector kafka)" in flowrun(tmp_path, script, "--mode", "batch", code=2)


def test_messages_that_are_no_rows_are_kept_with_their_place(kafka: KafkaBroker, tmp_path: Path) -> None:
    source, target = kafka.create_topic(1), kafka.create_topic(1)
    kafka.produce(source, [b'{"id": 1}', b"\xff{", b'{"id": 2}'])
    letters = f"'format.on-error' = 'dead-letter', 'format.dead-letter.path' = '{tmp_path}/letters'"
    script = (
        table("rows_in", "id BIGINT", kafka.bootstrap, source, "'format' = 'json'", BOUNDED, letters)
        + table("rows_out", "id BIGINT", kafka.bootstrap, target, "'format' = 'json'")
        + "INSERT INTO rows_out SELECT id FROM rows_in;"
    )
    flowrun(tmp_path, script)
    assert sorted(kafka.values(target)) == [b'{"id":1}', b'{"id":2}']
    (letter,) = json_rows(tmp_path / "letters")
    assert (letter["file"], letter["offset"]) == (f"{source}/0", 1)
    assert base64.b64decode(str(letter["raw"])) == b"\xff{"


def test_secrets_are_in_nothing_that_is_said(kafka: KafkaBroker, tmp_path: Path) -> None:
    topic = kafka.create_topic(1)
    kafka.produce(topic, [b'{"id": 1}'])
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="{}";'
    for password, code in ((PASSWORD, 0), ("another-secret-word", 1)):
        properties = {
            k.replace("_", "."): v
            for k, v in login(kafka, password).items()
            if "sasl_username" not in k and "password" not in k
        }
        properties["properties.sasl.jaas.config"] = jaas.format(password)
        options = [f"'{k}' = '{v}'" for k, v in properties.items() if k != "properties.bootstrap.servers"]
        script = (
            table("rows_in", "id BIGINT", kafka.sasl, topic, "'format' = 'json'", BOUNDED, *options)
            + "CREATE TABLE gone (id BIGINT) WITH ('connector' = 'blackhole');\nINSERT INTO gone SELECT id FROM rows_in;"
        )  # fmt: skip
        for command in ("explain", "run"):
            said = flowrun(tmp_path, script, command=command, code=code if command == "run" else 0)
            assert password not in said
    assert "refuses the login" in said


LETTERS = (
    "id STRING, `source` STRING, kind STRING, topic STRING, `partition` INT, `offset` BIGINT, `timestamp` TIMESTAMP_LTZ(3), "
    "`key` BYTES, headers STRING, raw BYTES"
)


def test_dead_letters_name_topic_partition_offset_key_and_headers(
    kafka: KafkaBroker, postgres: PostgresDatabase, tmp_path: Path
) -> None:
    source, letters = kafka.create_topic(2), kafka.create_topic(1)
    headers = [("trace", b"\xff1"), ("trace", None)]
    values = [b'{"id": 1}', b"\xff{", b'{"id": "x"}']
    kafka.produce(source, values, partition=1, keys=[b"k0", b"\x00\xff", None], headers=headers)
    kafka.produce(source, [b'{"id": 2}', b"{"], partition=0)
    script = (
        "SET 'flowrun.dead_letters.sink' = 'letters';"
        + table(
            "rows_in", "id BIGINT", kafka.bootstrap, source, "'format' = 'json'", BOUNDED, "'on-error' = 'dead-letter'"
        )
        + "CREATE TABLE rows_out (id BIGINT) WITH ('connector' = 'blackhole');\n"
        + "INSERT INTO rows_out SELECT id FROM rows_in;"
    )
    to_kafka = table("letters", LETTERS, kafka.bootstrap, letters, "'format' = 'json'")
    said = flowrun(tmp_path, to_kafka + script)
    assert f"the first: topic '{source}', partition " in said
    found = sorted((json.loads(v) for v in kafka.values(letters)), key=lambda r: (r["partition"], r["offset"]))
    assert [(r["topic"], r["partition"], r["offset"]) for r in found] == [
        (source, 0, 1),
        (source, 1, 1),
        (source, 1, 2),
    ]
    assert [base64.b64decode(r["raw"]) for r in found] == [b"{", b"\xff{", b'{"id": "x"}']
    assert [r["key"] and base64.b64decode(r["key"]) for r in found] == [None, b"\x00\xff", None]
    assert decode_headers(found[1]["headers"]) == headers
    assert found[0]["headers"] is None
    assert {r["timestamp"][:2] for r in found} == {"20"}
    postgres.execute(
        'CREATE TABLE letters (id TEXT PRIMARY KEY, source TEXT, kind TEXT, topic TEXT, partition INT, "offset" BIGINT, '
        '"timestamp" TIMESTAMPTZ, key BYTEA, headers TEXT, raw BYTEA)'
    )
    to_postgres = (
        f"CREATE TABLE letters ({LETTERS}, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'jdbc', "
        f"'url' = '{postgres.jdbc_url}', 'table-name' = 'letters', 'username' = '{postgres.user}', "
        f"'password' = '{postgres.password}');\n"
    )
    for _ in range(2):
        flowrun(tmp_path, to_postgres + script)
    rows = postgres.execute('SELECT id, topic, partition, "offset", key, raw FROM letters ORDER BY partition, "offset"')
    assert [r[0] for r in rows] == [r["id"] for r in found]
    assert [bytes(r[5]) for r in rows] == [b"{", b"\xff{", b'{"id": "x"}']


def dead_letters(folder: Path, command: str, *words: str) -> str:
    """What the command says of `job.sql`."""
    done = subprocess.run(
        [sys.executable, "-m", "flowrun", "dead-letters", command, "job.sql", *words],
        cwd=folder, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_messages_are_replayed_to_their_topic_once(kafka: KafkaBroker, tmp_path: Path) -> None:
    source, letters = kafka.create_topic(2), kafka.create_topic(1)
    headers = [("trace", b"\xff1"), ("trace", None)]
    kafka.produce(source, [b"\xff{"], partition=1, keys=[b"\x00k"], headers=headers, timestamp=1_700_000_000_123)
    kafka.produce(source, [b'{"id": 2}', b"{"], partition=0)
    before = len(kafka.messages(source))
    script = (
        "SET 'flowrun.dead_letters.sink' = 'letters'; SET 'pipeline.name' = 'shop';"
        + table(
            "rows_in", "id BIGINT", kafka.bootstrap, source, "'format' = 'json'", BOUNDED, "'on-error' = 'dead-letter'"
        )
        + table(
            "letters",
            f"{LETTERS}, file STRING, pipeline STRING, `time` TIMESTAMP_LTZ(3)",
            kafka.bootstrap,
            letters,
            "'format' = 'json'",
        )
        + "CREATE TABLE rows_out (id BIGINT) WITH ('connector' = 'blackhole');\nINSERT INTO rows_out SELECT id FROM rows_in;"
    )
    flowrun(tmp_path, script)
    ledger = tmp_path / ".flowrun/dead-letters/shop/replayed.jsonl"
    ledger.parent.mkdir(parents=True)
    target = {"kind": "topic", "source": "rows_in", "place": source, "topic": source, "number": 1, "commit": "a"}
    begun = {"replay": "a", "state": "begun", "letters": ["x"], "target": target}
    ledger.write_text(json.dumps(begun) + "\n")  # of a process that was killed before it wrote anything
    said = dead_letters(tmp_path, "replay", "--all")
    assert f"a replay to topic '{source}' that was interrupted did not take place" in said
    assert f"2 letters replayed to topic '{source}'" in said
    entries = ledger.read_text().splitlines(keepends=True)
    ledger.write_text("".join(entries[:-1]))  # of one that was killed before it wrote down the end
    said = dead_letters(tmp_path, "replay", "--all")
    assert f"a replay to topic '{source}' that was interrupted took place" in said
    assert "2 letters replayed before: not again" in said
    found = [m for m in kafka.messages(source) if "flowrun-dead-letter" in dict(m.headers() or ())]
    assert len(kafka.messages(source)) == before + 2
    assert [(m.partition(), m.key(), m.value()) for m in found] == [(0, None, b"{"), (1, b"\x00k", b"\xff{")]
    assert found[1].timestamp() == (1, 1_700_000_000_123)
    listed = [json.loads(line) for line in dead_letters(tmp_path, "list", "--json").splitlines()]
    letter = next(r["id"] for r in listed if r["file"] == f"{source}/1")
    assert found[1].headers() == [*headers, ("flowrun-dead-letter", letter.encode())]
