"""Calls of a commit are made again while their errors may pass, as those of a coordinator that has just begun do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flowrun.connectors.kafka import transactions
from flowrun.connectors.kafka.cluster import KafkaCluster
from flowrun.errors import ConnectorError

CLUSTER = KafkaCluster({"bootstrap.servers": "nowhere:1"})


def failing(times: int, code: str) -> Callable[[], int]:
    """A call that fails so often with an error of that name, and then gives how often it was made."""
    from confluent_kafka import KafkaError, KafkaException

    calls = 0

    def call() -> int:
        nonlocal calls
        calls += 1
        if calls <= times:
            raise KafkaException(KafkaError(getattr(KafkaError, code)))
        return calls

    return call


@pytest.mark.parametrize(
    "code",
    [
        "NOT_COORDINATOR",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "CONCURRENT_TRANSACTIONS",
        "UNSTABLE_OFFSET_COMMIT",
        "_TIMED_OUT",
    ],
)
def test_what_passes_is_waited_for(code: str) -> None:
    assert transactions._patiently(failing(2, code), CLUSTER) == 3


@pytest.mark.parametrize("code", ["GROUP_AUTHORIZATION_FAILED", "INVALID_PRODUCER_EPOCH", "UNKNOWN_TOPIC_OR_PART"])
def test_what_does_not_pass_is_an_error_at_once(code: str) -> None:
    call = failing(1, code)
    with pytest.raises(ConnectorError, match="Kafka at nowhere:1: a commit"):
        transactions._patiently(call, CLUSTER)
    assert call() == 2, "it was made once"


def test_it_is_not_waited_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "_CALL_S", 0.2)
    with pytest.raises(ConnectorError, match="Not coordinator"):
        transactions._patiently(failing(10**6, "NOT_COORDINATOR"), CLUSTER)
