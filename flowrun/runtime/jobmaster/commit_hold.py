"""Holding back what a job commits until somebody has accepted it: a new version of a pipeline on trial."""

from __future__ import annotations

from typing import Protocol


class CommitHold(Protocol):
    """Why a job commits nothing of its own yet; see `JobStateOptions.hold`."""

    def accept(self) -> None:
        """From now on what the job does counts. It is called on the job master's thread before the first commit, and may be called again.

        Raises:
            StateError: it must not count any more, or that cannot be noted.
        """
        ...
