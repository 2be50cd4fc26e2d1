"""Kafka as the outside system of a staged sink: messages and the record of their commit in one transaction.

The record is an offset of a consumer group that exists for it alone (`send_offsets_to_transaction`): its number is the commit's, so it is
visible if and only if the messages are, and one number says of any commit of a writer whether it took place.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

import pyarrow as pa

from flowrun.connectors.kafka.cluster import ClientErrors, KafkaCluster, is_refused, library, may_pass
from flowrun.connectors.kafka.producing import MessageProducer
from flowrun.connectors.staged.commit import StagedCommit
from flowrun.errors import ConnectorError, OptionError

TRANSACTION_TIMEOUT_MS = 600_000
"""After which the broker aborts a transaction, where the user says nothing: below the 15 minutes that brokers allow."""
_CALL_S = 30.0
_RELEASE_S = 5.0
_ATTEMPT_S = 10.0
_T = TypeVar("_T")


class KafkaTransactions:
    """A `TransactionalTarget` on one cluster.

    For each job and sink there is one `transactional.id`, so that a commit of an older process, which may still be under way, is over
    before anything is asked: its producer is fenced.

    Args:
        cluster: where the topics are.
        topic: of messages that name none; its first partition names the record in the group.
        prefix: what the names of transactions and groups begin with.
    """

    def __init__(self, cluster: KafkaCluster, topic: str, prefix: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._prefix = prefix
        self._producers: dict[str, MessageProducer] = {}
        self._records: dict[str, Any] = {}
        self._numbers: dict[str, int] = {}
        """Writer → the number of its last commit, as far as it is known. Nobody else can change it: their producers are fenced."""

    def committed_number(self, writer: str) -> int:
        """The number of the last commit of a writer. It blocks on I/O.

        Raises:
            ConnectorError: the cluster cannot be reached or refuses.
        """
        if writer in self._numbers:
            return self._numbers[writer]
        self._producer_of(writer)
        place = library().TopicPartition(self._topic, 0)

        def ask() -> int:
            (found,) = self._record_of(writer).committed([place], timeout=_ATTEMPT_S)
            if found.error is not None:
                raise library().KafkaException(found.error)
            return max(int(found.offset), 0)

        self._numbers[writer] = _patiently(ask, self._cluster)
        return self._numbers[writer]

    def write(self, commit: StagedCommit, batches: Iterator[pa.RecordBatch]) -> None:
        """Write messages and the record of their commit in one transaction. It blocks on I/O. Raises as `write_together`."""
        self.write_together([(commit, batches)])

    def write_together(self, commits: Sequence[tuple[StagedCommit, Iterator[pa.RecordBatch]]]) -> None:
        """Write messages and the records of their commits in one transaction. It blocks on I/O.

        Args:
            commits: of different writers of one sink, and their messages.

        Raises:
            ConnectorError: the cluster cannot be reached or refuses, or somebody else commits under the same name.
            DataError: a message is larger than the cluster takes.
        """
        kafka = library()
        producer = self._producer_of(commits[0][0].writer)
        client = producer.client
        for commit, _ in commits:
            self._numbers.pop(commit.writer, None)  # until the outcome is known
        try:
            client.begin_transaction()
            for _, batches in commits:
                for batch in batches:
                    producer.send(batch)
            for commit, _ in commits:
                self._send_record(producer, commit)
            _patiently(lambda: client.commit_transaction(_ATTEMPT_S), self._cluster)
        except kafka.KafkaException as error:
            raise _failure(error.args[0], self._cluster) from error
        except ConnectorError:
            producer.check_messages()  # which say more
            raise
        self._numbers.update((commit.writer, commit.number) for commit, _ in commits)

    def _send_record(self, producer: MessageProducer, commit: StagedCommit) -> None:
        place = library().TopicPartition(self._topic, 0, commit.number, commit.commit_id)
        group = self._record_of(commit.writer).consumer_group_metadata()
        send = producer.client.send_offsets_to_transaction
        _patiently(lambda: send([place], group, _ATTEMPT_S), self._cluster)

    def _producer_of(self, writer: str) -> MessageProducer:
        """The producer of the writer's job and sink, whose earlier transactions are over."""
        name = transactional_id(self._prefix, writer)
        if name not in self._producers:
            settings = {"transactional.id": name, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
            producer = MessageProducer(self._cluster, self._topic, settings)
            self._producers[name] = producer
            begin(producer, self._cluster)
        return self._producers[name]

    def _record_of(self, writer: str) -> Any:
        """The consumer that stands for the group of a writer's record. It reads nothing."""
        if writer not in self._records:
            settings = {
                "group.id": group_id(self._prefix, writer),
                "enable.auto.commit": False,
                "isolation.level": "read_committed",  # an offset of a transaction whose outcome is not known yet is waited for
            }
            errors = ClientErrors(self._cluster.bootstrap)
            self._records[writer] = self._cluster.client(library().Consumer, errors, settings)
        return self._records[writer]

    def close(self) -> None:
        """Release the clients; a transaction that is open is left to who comes next, or to its time-out."""
        self._numbers.clear()
        producers, self._producers = list(self._producers.values()), {}
        records, self._records = list(self._records.values()), {}
        for producer in producers:
            for release in (producer.abort, producer.close):
                with suppress(library().KafkaException, ConnectorError):
                    _within(release, _RELEASE_S)
        for record in records:
            with suppress(ConnectorError):
                _within(record.close, _RELEASE_S)


def begin(producer: MessageProducer, cluster: KafkaCluster) -> None:
    """Make a producer the only one of its `transactional.id`: others are fenced, and their transactions ended. It blocks on I/O.

    Raises:
        OptionError: the cluster does not allow transactions to last as long as they may here.
        ConnectorError: the cluster cannot be reached or refuses.
    """
    try:
        _patiently(lambda: producer.client.init_transactions(_ATTEMPT_S), cluster)
    except ConnectorError:
        producer.check_login()  # which says more
        raise


def transactional_id(prefix: str, writer: str) -> str:
    """The same for all subtasks of one sink of one job.

    >>> transactional_id("p", "job/sink/0") == transactional_id("p", "job/sink/1")
    True
    """
    sink = writer.rpartition("/")[0]
    return f"{prefix}-{hashlib.sha256(sink.encode()).hexdigest()[:16]}"


def group_id(prefix: str, writer: str) -> str:
    """The group that holds the record of one subtask.

    >>> group_id("p", "job/sink/3").rpartition("-")[2]
    '3'
    """
    return f"{transactional_id(prefix, writer)}-{writer.rpartition('/')[2]}"


def _patiently(call: Callable[[], _T], cluster: KafkaCluster) -> _T:
    """What a call gives, which is made again while its error may pass, for half a minute or so.

    Raises:
        OptionError: the cluster does not allow transactions to last as long as they may here.
        ConnectorError: it fails for another reason, or does not return.
    """
    deadline = time.monotonic() + _CALL_S
    while True:
        try:
            return _within(call, _CALL_S)
        except library().KafkaException as error:
            problem = error.args[0]
            if problem.fatal() or problem.txn_requires_abort() or not may_pass(problem):
                raise _failure(problem, cluster) from error
            if time.monotonic() > deadline:
                raise _failure(problem, cluster) from error
            time.sleep(0.05)


def _within(call: Callable[[], _T], seconds: float) -> _T:
    """What a call gives, if it returns in time.

    The time-outs of the client library do not end all of its calls: some wait for an answer that a broker forgot as it died. Such a call is
    left behind in a thread of its own, with its client, which whoever comes next fences.

    Raises:
        ConnectorError: it does not return.
    """
    ended: list[tuple[_T | None, BaseException | None]] = []

    def run() -> None:
        try:
            ended.append((call(), None))
        except BaseException as error:  # raised below
            ended.append((None, error))

    thread = threading.Thread(target=run, name="kafka-call", daemon=True)
    thread.start()
    thread.join(seconds)
    if not ended:
        raise ConnectorError(f"Kafka's client has not answered for {seconds:.0f} s", retryable=True)
    result, problem = ended[0]
    if problem is not None:
        raise problem
    return cast(_T, result)


def _failure(error: Any, cluster: KafkaCluster) -> ConnectorError | OptionError:
    kinds = library().KafkaError
    if error.code() == kinds.INVALID_TRANSACTION_TIMEOUT:
        return OptionError(
            "properties.transaction.timeout.ms",
            f"Kafka at {cluster.bootstrap} does not allow transactions of "
            f"{cluster.properties.get('transaction.timeout.ms', TRANSACTION_TIMEOUT_MS)} ms",
            hint="its setting transaction.max.timeout.ms is the most that 'properties.transaction.timeout.ms' may be",
        )
    if error.code() in (kinds._FENCED, kinds.INVALID_PRODUCER_EPOCH, kinds.PRODUCER_FENCED, kinds._FATAL):
        return ConnectorError(
            f"Kafka at {cluster.bootstrap}: a commit was ended from outside: {error.str()}",
            retryable=True,
            hint="another run of this job commits, or the transaction took longer than 'properties.transaction.timeout.ms'",
        )
    retryable = not is_refused(error)
    return ConnectorError(f"Kafka at {cluster.bootstrap}: a commit failed: {error.str()}", retryable=retryable)
