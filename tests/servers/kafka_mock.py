"""A cluster of Kafka that starts at once: librdkafka's own, which speaks the protocol over sockets and keeps messages in memory.

It has no transactions that are read back, no logins and no certificates; tests of those need the broker of `kafka`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

_TIMEOUT_S = 10


class MockCluster:
    """One broker, which lives in a client of this process. Its topics are made when they are written to, with four partitions.

    Attributes:
        bootstrap: its address.
    """

    def __init__(self) -> None:
        from confluent_kafka import Producer

        self._producer: Any = Producer({"test.mock.num.brokers": 1, "log_level": 0})
        brokers = self._producer.list_topics(timeout=_TIMEOUT_S).brokers.values()
        self.bootstrap = ",".join(f"{b.host}:{b.port}" for b in brokers)
        self._topics = 0

    def topic(self, *parts: Sequence[tuple[bytes | None, bytes | None]], start_ms: int = 1_700_000_000_000) -> str:
        """A new topic with messages (key, value) in its partitions, whose times are a second apart; its name."""
        self._topics += 1
        name = f"orders-{self._topics}"
        for number, messages in enumerate(parts):
            for i, (key, value) in enumerate(messages):
                self._producer.produce(name, value, key, number, timestamp=start_ms + 1_000 * i)
                self._producer.poll(0)
        assert self._producer.flush(_TIMEOUT_S) == 0
        return name


@pytest.fixture
def mock_kafka() -> MockCluster:
    """A cluster for one test."""
    pytest.importorskip("confluent_kafka")
    return MockCluster()
