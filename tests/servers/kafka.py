"""An Apache Kafka broker in KRaft mode, from the jars that `.ci/install_servers` puts into a folder outside the repository."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.rpc.certificates import make_authority, make_identity
from tests.servers.needed import give_up

KAFKA_VERSION = "4.1.1"
USER, PASSWORD = "alice", "alice-secret-word"
_START_TIMEOUT_S = 90
_STOP_TIMEOUT_S = 30


def kafka_folder() -> Path:
    """Where the jars of the broker are."""
    cache = os.environ.get("FLOWRUN_TEST_SERVERS") or Path.home() / ".cache/flowrun-tests"
    return Path(cache) / f"kafka-{KAFKA_VERSION}"


class KafkaBroker:
    """One broker, which is its own controller. Its ports stay the same when it is started again.

    Args:
        folder: for its data and logs.
        heap: the most memory of Java's heap.
        fast_start: compile little: it starts sooner, and is slower under load.

    Attributes:
        bootstrap: its address without authentication.
        sasl: its address for SASL/PLAIN, which lets in `USER` with `PASSWORD`.
        tls: its address for TLS; None where there is no `openssl` to make certificates with.
        authority: the certificate of who signed its own one, as PEM.
    """

    def __init__(self, folder: Path, heap: str = "384m", *, fast_start: bool = True) -> None:
        self._folder = folder
        self._options = [f"-Xmx{heap}", "-XX:+UseSerialGC", *(["-XX:TieredStopAtLevel=1"] if fast_start else [])]
        self._process: subprocess.Popen[bytes] | None = None
        plain, sasl, controller, tls = free_ports(4)
        self.bootstrap = f"127.0.0.1:{plain}"
        self.sasl = f"127.0.0.1:{sasl}"
        folder.mkdir(parents=True, exist_ok=True)
        properties = _properties(folder / "data", plain, sasl, controller)
        self.tls: str | None = None
        self.authority = folder / "authority" / "ca.pem"
        if shutil.which("openssl"):
            self.tls = f"127.0.0.1:{tls}"
            properties = properties.replace("\nlisteners=", f"\nlisteners=SSL://{self.tls},") + _tls_properties(folder)
        (folder / "server.properties").write_text(properties)
        self._run(
            "kafka.tools.StorageTool",
            ["format", "-t", _cluster_id(), "-c", str(folder / "server.properties")],
        )

    def _command(self, main: str, arguments: list[str]) -> list[str]:
        options = [*self._options, "-Dlog4j2.level=WARN", "-Djava.awt.headless=true"]
        return ["java", *options, "-cp", f"{kafka_folder() / 'libs'}/*", main, *arguments]

    def _run(self, main: str, arguments: list[str]) -> None:
        done = subprocess.run(self._command(main, arguments), check=False, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise RuntimeError(f"{main} failed: {done.stdout}{done.stderr}")

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self._folder / "server.log").open("ab") as log:
            command = self._command("kafka.Kafka", [str(self._folder / "server.properties")])
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=self._folder)
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = (self._folder / "server.log").read_text()[-3000:]
                raise RuntimeError(f"the broker did not start: {tail}")

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException

        if not _is_open(self.bootstrap):
            time.sleep(0.1)
            return False
        try:
            return bool(self.admin().list_topics(timeout=5).brokers)
        except KafkaException:
            return False

    def stop(self) -> None:
        """Stop it in good order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it, as a machine dies."""
        self._end(signal.SIGKILL)

    def hang(self) -> None:
        """Let it neither answer nor end, as a machine that swaps."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """End what `hang` began."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    # -- what tests do with it

    def admin(self) -> Any:
        """A client that manages topics."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def _wait(self, ask: Callable[[Any], dict[Any, Any]]) -> None:
        admin = self.admin()  # what it began ends with it
        for future in ask(admin).values():
            future.result()

    def create_topic(self, partitions: int = 1, name: str | None = None, **config: str) -> str:
        """A new topic; its name."""
        from confluent_kafka.admin import NewTopic

        topic = name or f"t-{uuid.uuid4().hex[:10]}"
        new = NewTopic(topic, partitions, 1, config={k.replace("_", "."): v for k, v in config.items()})
        self._wait(lambda admin: admin.create_topics([new]))
        return topic

    def add_partitions(self, topic: str, total: int) -> None:
        """Raise the number of partitions of a topic."""
        from confluent_kafka.admin import NewPartitions

        self._wait(lambda admin: admin.create_partitions([NewPartitions(topic, total)]))

    def clear_topics(self, *topics: str) -> None:
        """Delete those of these topics that are there: tests of examples, which name theirs, share a broker."""
        for topic in self.admin().list_topics(timeout=10).topics.keys() & {*topics}:
            self.delete_topic(topic)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic."""
        self._wait(lambda admin: admin.delete_topics([topic]))

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete the records of a partition before an offset, as retention does."""
        from confluent_kafka import TopicPartition

        self._wait(lambda admin: admin.delete_records([TopicPartition(topic, partition, before)]))

    def produce(
        self,
        topic: str,
        values: list[bytes | None],
        *,
        partition: int = -1,
        keys: list[bytes | None] | None = None,
        timestamps: list[int] | None = None,
        **more: Any,
    ) -> None:
        """Write messages, and wait until they are there. `timestamps` are in ms; `more` goes to `Producer.produce`."""
        from confluent_kafka import Producer

        limits = {"queue.buffering.max.messages": 10_000_000, "queue.buffering.max.kbytes": 2_000_000}
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 1, "acks": "all", **limits})
        for i, value in enumerate(values):
            key = None if keys is None else keys[i]
            timed = more if timestamps is None else {**more, "timestamp": timestamps[i]}
            producer.produce(topic, value, key, partition, **timed)
            producer.poll(0)
        assert producer.flush(30) == 0

    def messages(self, topic: str) -> list[Any]:
        """All committed messages of a topic that are there now, partition by partition in the order of their offsets."""
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        config = {
            "bootstrap.servers": self.bootstrap, "group.id": "reader", "isolation.level": "read_committed",
            "enable.partition.eof": True, "enable.auto.commit": False,
        }  # fmt: skip
        found: list[Any] = []
        with closing(Consumer(config)) as consumer:
            partitions = sorted(consumer.list_topics(topic, 10).topics[topic].partitions)
            consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
            ended = 0
            while ended < len(partitions):
                for message in consumer.consume(10_000, 1.0):
                    error = message.error()
                    if error is None:
                        found.append(message)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        ended += 1
                    else:
                        raise RuntimeError(str(error))
        return sorted(found, key=lambda m: (m.partition(), m.offset()))

    def values(self, topic: str) -> list[bytes]:
        """The values of all committed messages of a topic."""
        return [m.value() for m in self.messages(topic)]


def _properties(data: Path, plain: int, sasl: int, controller: int) -> str:
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    return f"""
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl},CONTROLLER://127.0.0.1:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config={login}
log.dirs={data}
auto.create.topics.enable=false
delete.topic.enable=true
num.network.threads=2
num.io.threads=2
num.recovery.threads.per.data.dir=1
background.threads=2
log.cleaner.enable=false
log.retention.ms=-1
offsets.topic.num.partitions=2
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=2
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
group.initial.rebalance.delay.ms=0
"""


def _tls_properties(folder: Path) -> str:
    """A listener for TLS, with a certificate of its own."""
    authority = make_authority(folder / "authority")
    identity = make_identity(folder / "broker", authority)
    store = folder / "broker.pem"
    store.write_text((identity / "key.pem").read_text() + (identity / "cert.pem").read_text())
    return f"""
listener.name.ssl.ssl.keystore.type=PEM
listener.name.ssl.ssl.keystore.location={store}
"""


def _cluster_id() -> str:
    import base64

    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A", 1)


def free_ports(count: int) -> list[int]:
    """Ports of the loopback address that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _is_open(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
        return True
    return False


def why_not() -> str | None:
    """Why no broker can be started here; None: it can."""
    if not (kafka_folder() / "complete").exists():
        return f"no broker in {kafka_folder()}: run .ci/install_servers"
    return None if shutil.which("java") else "no java: run .ci/install_servers"


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """The broker of the test run. Who stops it must start it again."""
    reason = why_not()
    if reason is not None:
        give_up(reason)
    broker = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()
