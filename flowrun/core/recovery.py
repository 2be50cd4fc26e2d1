"""What a job does about failures: how it takes checkpoints, and how it is restarted. Values only; all durations in ms."""

from __future__ import annotations

from flowrun.core.record import record

DEFAULT_CANCELLATION_TIMEOUT_MS = 20_000
"""How long subtasks may take to end after they were cancelled: shorter than the 30 s that Kubernetes leaves to a process after SIGTERM."""


@record
class CheckpointSettings:
    """Periodic checkpoints.

    Attributes:
        interval_ms: between the triggers of two checkpoints.
        mode: `exactly_once` (barriers are aligned, or overtake) or `at_least_once` (nothing waits for a barrier).
        directory: folder or URI below which each pipeline has a folder of its own; None: a default of the runner.
        retain: how many completed checkpoints are kept, at least 1.
        unaligned: barriers overtake buffered rows, which become part of the checkpoint.
        alignment_timeout_ms: with `unaligned`, begin aligned and overtake only after this time; 0: overtake at once.
        timeout_ms: a checkpoint that takes longer is given up.
        min_pause_ms: least time between the end of one and the trigger of the next.
        max_concurrent: how many may be under way at a time; 1 if unaligned or with a pause.
        tolerable_failures: how many checkpoints in a row may fail before the job does.
        savepoint_directory: where savepoints go when nobody says where; None: into `directory`.
        permissions: of folders and files that are made: `owner` (nobody else reads them) or `umask` (what the process gives).
    """

    interval_ms: int
    mode: str = "exactly_once"
    directory: str | None = None
    retain: int = 1
    unaligned: bool = False
    alignment_timeout_ms: int = 0
    timeout_ms: int = 600_000
    min_pause_ms: int = 0
    max_concurrent: int = 1
    tolerable_failures: int = 0
    savepoint_directory: str | None = None
    permissions: str = "owner"


@record
class RestartSettings:
    """What happens after a failure: `strategy` is none, fixed_delay, failure_rate or exponential; the rest applies as it needs.

    Attributes:
        attempts: restarts in the life of the job (fixed_delay).
        attempts_without_progress: restarts in a row between which no checkpoint is completed (failure_rate, exponential).
        delay_ms: wait before a restart (fixed_delay, failure_rate).
        max_failures: failures within `interval_ms` that are followed by a restart (failure_rate).
        interval_ms: see `max_failures`.
        initial_delay_ms: first wait (exponential).
        max_delay_ms: longest wait (exponential).
        multiplier: growth of the wait with each failure (exponential).
        reset_after_ms: time without a failure after which the wait starts over (exponential).
    """

    strategy: str
    attempts: int = 1
    attempts_without_progress: int = 60
    delay_ms: int = 1_000
    max_failures: int = 1
    interval_ms: int = 60_000
    initial_delay_ms: int = 1_000
    max_delay_ms: int = 60_000
    multiplier: float = 1.5
    reset_after_ms: int = 3_600_000
