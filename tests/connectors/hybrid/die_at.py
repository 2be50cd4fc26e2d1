"""`python -m tests.connectors.hybrid.die_at PHASE N ARGUMENT…`: as `tests.recovery.die_at`, with the phases of a switch, too."""

from __future__ import annotations

import sys
import time
from typing import Any

from flowrun.cli.main import main
from flowrun.connectors.hybrid.enumerator import HybridEnumerator
from flowrun.connectors.hybrid.reader import HybridReader
from tests.recovery.die_at import PHASES, Countdown, wrap

SWITCH_PHASES = {
    "after the start": (HybridEnumerator, "start", True),
    "when one reader has read to the end": (HybridReader, "_close_reader", True),
    "before the switch": (HybridEnumerator, "_switch", False),
    "after the switch": (HybridEnumerator, "_switch", True),
    "when a reader of the stream begins": (HybridReader, "_open", True),
}
COUNTS = {"when a reader of the stream begins": 3}
"""The how-manieth time it is, of a job of two subtasks; else the first."""


def slow_down() -> None:
    """History is read as from a slow disk, so that there are checkpoints of it."""
    poll = HybridReader.poll

    def slow(self: HybridReader, output: Any) -> Any:
        time.sleep(0.02)
        return poll(self, output)

    HybridReader.poll = slow  # type: ignore[method-assign]


if __name__ == "__main__":
    slow_down()
    PHASES.update(SWITCH_PHASES)
    wrap(sys.argv[1], Countdown(int(sys.argv[2])))
    sys.argv = ["flowrun", *sys.argv[3:]]
    main()
