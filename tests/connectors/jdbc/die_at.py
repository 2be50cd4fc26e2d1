"""`python -m tests.connectors.jdbc.die_at PHASE N ARGUMENT…`: as `tests.recovery.die_at`, with the phases of a transaction, too."""

from __future__ import annotations

import sys

from flowrun.cli.main import main
from flowrun.connectors.jdbc.duckdb.writing import DuckDbWriter
from flowrun.connectors.jdbc.postgres.writing import PostgresWriter
from flowrun.connectors.jdbc.sink import JdbcTarget
from flowrun.connectors.jdbc.sqlite.writing import SqliteWriter
from tests.recovery.die_at import PHASES, Countdown, wrap

TRANSACTION_PHASES = {
    "before a transaction": (JdbcTarget, "write", False),
    "between the number and the rows": (PostgresWriter, "record_number", True),
    "before the end of a transaction": (PostgresWriter, "append", True),
    "after a transaction": (JdbcTarget, "write", True),
}

FILE_PHASES = {
    f"{phase} of {scheme}": (writer, method, True)
    for scheme, writer in (("duckdb", DuckDbWriter), ("sqlite", SqliteWriter))
    for phase, method in (
        ("between the number and the rows", "record_number"),
        ("before the end of a transaction", "append"),
    )
}

if __name__ == "__main__":
    PHASES.update({**TRANSACTION_PHASES, **FILE_PHASES})
    wrap(sys.argv[1], Countdown(int(sys.argv[2])))
    sys.argv = ["flowrun", *sys.argv[3:]]
    main()
