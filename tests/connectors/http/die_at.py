"""`python -m tests.connectors.http.die_at PHASE N ARGUMENT…`: as `tests.recovery.die_at`, with the phases of a commit, too."""

from __future__ import annotations

import sys

from flowrun.cli.main import main
from flowrun.connectors.http.commit import HttpTarget
from flowrun.connectors.http.lanes import RequestLanes
from tests.recovery.die_at import PHASES, Countdown, wrap

COMMIT_PHASES = {
    "in the middle of a commit": (RequestLanes, "send", True),
    "between the last answer and the record": (RequestLanes, "drain", True),
    "between the record and the removal of the rows": (HttpTarget, "write", True),
}

if __name__ == "__main__":
    PHASES.update(COMMIT_PHASES)
    wrap(sys.argv[1], Countdown(int(sys.argv[2])))
    sys.argv = ["flowrun", *sys.argv[3:]]
    main()
