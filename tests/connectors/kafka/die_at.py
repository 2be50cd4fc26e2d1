"""`python -m tests.connectors.kafka.die_at PHASE N ARGUMENT…`: as `tests.recovery.die_at`, with the phases of a transaction, too."""

from __future__ import annotations

import sys

from flowrun.cli.main import main
from flowrun.connectors.kafka.producing import MessageProducer
from flowrun.connectors.kafka.transactions import KafkaTransactions
from tests.recovery.die_at import PHASES, Countdown, wrap

TRANSACTION_PHASES = {
    "before a transaction": (KafkaTransactions, "write_together", False),
    "within a transaction": (MessageProducer, "send", True),
    "after a transaction": (KafkaTransactions, "write_together", True),
}

if __name__ == "__main__":
    PHASES.update(TRANSACTION_PHASES)
    wrap(sys.argv[1], Countdown(int(sys.argv[2])))
    sys.argv = ["flowrun", *sys.argv[3:]]
    main()
