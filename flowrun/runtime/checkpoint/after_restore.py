"""What a user can say about rows that were committed after the checkpoint or savepoint that a job restores from."""

from __future__ import annotations

from enum import Enum


class AfterRestore(Enum):
    """What becomes of rows that were committed after the checkpoint or savepoint that a job restores from."""

    REFUSE = "refuse"
    """If there are any, the job does not start."""
    REMOVE = "remove"
    """They are taken back before the job starts; if some are no longer where they were committed, it does not start."""
    REMOVE_EXISTING = "remove-existing"
    """Those that are still where they were committed are taken back."""
    KEEP = "keep"
    """They stay, and the job writes them once more."""
