"""`python -m tests.connectors.kafka_and_postgres.die_at PHASE N ARGUMENT…`: as `tests.recovery.die_at`, with the phases of both kinds
of transactions, too."""

from __future__ import annotations

import sys

from flowrun.cli.main import main
from tests.connectors.jdbc.die_at import TRANSACTION_PHASES as POSTGRES_PHASES
from tests.connectors.kafka.die_at import TRANSACTION_PHASES as KAFKA_PHASES
from tests.recovery.die_at import PHASES, Countdown, wrap

TRANSACTION_PHASES = {
    **{f"{phase} of Kafka": call for phase, call in KAFKA_PHASES.items()},
    **{f"{phase} of PostgreSQL": call for phase, call in POSTGRES_PHASES.items()},
}

if __name__ == "__main__":
    PHASES.update(TRANSACTION_PHASES)
    wrap(sys.argv[1], Countdown(int(sys.argv[2])))
    sys.argv = ["flowrun", *sys.argv[3:]]
    main()
