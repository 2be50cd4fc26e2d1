"""The settings `checkpoint` and `restart`: their specification, and what is read from them."""

from __future__ import annotations

from typing import TypeVar

from flowrun.core.recovery import CheckpointSettings, RestartSettings
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.trees.spec import (
    BooleanValue,
    ChoiceValue,
    DurationValue,
    IntegerValue,
    KeySpec,
    NumberValue,
    RecordSpec,
    Section,
    TextValue,
    VariantValue,
)

T = TypeVar("T")

_FOLDER = TextValue("a folder or URI", r"[^\x00]*[^\x00\s][^\x00]*", "a path is not empty and has no NUL character")

CHECKPOINT = RecordSpec(
    "checkpoint",
    "checkpoint",
    "Periodic checkpoints: a job that failed or was killed goes on from the last one.",
    (
        KeySpec("interval", DurationValue(), "Time between the starts of two checkpoints.", required=True),
        KeySpec(
            "mode",
            ChoiceValue(("exactly_once", "at_least_once")),
            "Guarantee for state. `at_least_once`: no subtask waits for its slower inputs; after a restart rows may count twice.",
            default="exactly_once",
        ),
        KeySpec(
            "dir",
            _FOLDER,
            "Where checkpoints are kept, each pipeline's in a folder of its own.",
            default=".flowrun/state",
        ),
        KeySpec(
            "savepoints",
            _FOLDER,
            "Where `flowrun savepoint` and `flowrun stop` put savepoints unless they are told.",
            default="`dir`",
        ),
        KeySpec(
            "permissions",
            ChoiceValue(("owner", "umask")),
            "Who may use folders and files of state on the local disk: `owner` makes them with modes 0700 and 0600, `umask` as "
            "the process's umask says.",
            default="owner",
        ),
        KeySpec("retain", IntegerValue(1), "How many completed checkpoints are kept.", default="1"),
        KeySpec(
            "unaligned",
            BooleanValue(),
            "Let barriers overtake buffered rows, which become part of the checkpoint: quick under back pressure, but larger.",
            default="false",
        ),
        KeySpec(
            "alignment_timeout",
            DurationValue(zero=True),
            "With `unaligned`: overtake only if a checkpoint has not got through after this time.",
            default="0s",
        ),
        KeySpec("timeout", DurationValue(), "A checkpoint that takes longer is given up.", default="10m"),
        KeySpec(
            "min_pause",
            DurationValue(zero=True),
            "Least time between the end of a checkpoint and the start of the next.",
            default="0s",
        ),
        KeySpec(
            "max_concurrent",
            IntegerValue(1),
            "How many checkpoints may be under way at a time; 1 with `unaligned` or `min_pause`.",
            default="1",
        ),
        KeySpec(
            "tolerable_failures",
            IntegerValue(0),
            "How many checkpoints in a row may fail before the job does.",
            default="0",
        ),
    ),
)
_WITHOUT_PROGRESS = KeySpec(
    "attempts_without_progress",
    IntegerValue(1),
    "After so many restarts in a row, between which no checkpoint was completed, the job ends.",
    default="60",
)
_RESTART_DELAY = KeySpec("delay", DurationValue(zero=True), "Wait before each restart.", default="1s")
RESTART = VariantValue(
    "strategy",
    "How a failed job is restarted: in the same process, from its last checkpoint; without checkpoints from the beginning.",
    (
        (
            "none",
            RecordSpec("restart_none", "the restart strategy 'none'", "A failure ends the job.", ()),
        ),
        (
            "fixed_delay",
            RecordSpec(
                "restart_fixed_delay",
                "the restart strategy 'fixed_delay'",
                "A limited number of restarts, the same time apart.",
                (KeySpec("attempts", IntegerValue(1), "How many restarts.", default="1"), _RESTART_DELAY),
            ),
        ),
        (
            "failure_rate",
            RecordSpec(
                "restart_failure_rate",
                "the restart strategy 'failure_rate'",
                "Restarts as long as failures are rare enough.",
                (
                    KeySpec("max_failures", IntegerValue(1), "Failures allowed within `interval`.", default="1"),
                    KeySpec("interval", DurationValue(), "The period in which failures are counted.", default="1m"),
                    _RESTART_DELAY,
                    _WITHOUT_PROGRESS,
                ),
            ),
        ),
        (
            "exponential",
            RecordSpec(
                "restart_exponential",
                "the restart strategy 'exponential'",
                "Restarts, further and further apart, as long as they lead somewhere.",
                (
                    KeySpec("initial_delay", DurationValue(), "Wait before the first restart.", default="1s"),
                    KeySpec("max_delay", DurationValue(), "The longest wait.", default="1m"),
                    KeySpec("multiplier", NumberValue(positive=True), "Growth of the wait, at least 1.", default="1.5"),
                    KeySpec(
                        "reset_after",
                        DurationValue(),
                        "After so long without a failure the wait starts over.",
                        default="1h",
                    ),
                    _WITHOUT_PROGRESS,
                ),
            ),
        ),
    ),
)


def read_checkpoint(section: Section | None, diagnostics: Diagnostics) -> CheckpointSettings | None:
    """Checkpoint settings with defaults for what is absent, None without an interval; reports what contradicts itself."""
    interval = None if section is None else section.integer("interval")
    if section is None:
        return None
    _check_checkpoint(section, diagnostics)
    if interval is None:  # reported: it is required
        return None
    default = CheckpointSettings(interval)
    return CheckpointSettings(
        interval_ms=interval,
        mode=section.text("mode") or default.mode,
        directory=section.text("dir"),
        retain=or_default(section.integer("retain"), default.retain),
        unaligned=or_default(section.flag("unaligned"), default.unaligned),
        alignment_timeout_ms=or_default(section.integer("alignment_timeout"), default.alignment_timeout_ms),
        timeout_ms=or_default(section.integer("timeout"), default.timeout_ms),
        min_pause_ms=or_default(section.integer("min_pause"), default.min_pause_ms),
        max_concurrent=or_default(section.integer("max_concurrent"), default.max_concurrent),
        tolerable_failures=or_default(section.integer("tolerable_failures"), default.tolerable_failures),
        savepoint_directory=section.text("savepoints"),
        permissions=section.text("permissions") or "owner",
    )


def _check_checkpoint(section: Section, diagnostics: Diagnostics) -> None:
    unaligned = bool(section.flag("unaligned"))
    if unaligned and section.text("mode") == "at_least_once":
        diagnostics.error(
            "'unaligned' needs the mode exactly_once",
            section.at("unaligned"),
            hint="in the mode at_least_once nothing is aligned: leave 'unaligned' out",
        )
    if section.has("alignment_timeout") and not unaligned and not section.broken("unaligned"):
        diagnostics.error(
            "'alignment_timeout' has no effect without 'unaligned'",
            section.at("alignment_timeout"),
            hint="add unaligned: true, or leave it out",
        )
    if (section.integer("max_concurrent") or 1) > 1:
        for key in ("unaligned", "min_pause"):
            if section.values.get(key):
                diagnostics.error(
                    f"'max_concurrent' is more than 1, which '{key}' rules out",
                    section.value_at("max_concurrent"),
                    hint=f"leave out 'max_concurrent' or '{key}'",
                )


def read_restart(section: Section | None, diagnostics: Diagnostics) -> RestartSettings | None:
    """Restart settings with defaults for what is absent; reports what contradicts itself."""
    if section is None:
        return None
    default = RestartSettings(section.variant)
    settings = RestartSettings(
        strategy=section.variant,
        attempts=or_default(section.integer("attempts"), default.attempts),
        attempts_without_progress=or_default(
            section.integer("attempts_without_progress"), default.attempts_without_progress
        ),
        delay_ms=or_default(section.integer("delay"), default.delay_ms),
        max_failures=or_default(section.integer("max_failures"), default.max_failures),
        interval_ms=or_default(section.integer("interval"), default.interval_ms),
        initial_delay_ms=or_default(section.integer("initial_delay"), default.initial_delay_ms),
        max_delay_ms=or_default(section.integer("max_delay"), default.max_delay_ms),
        multiplier=or_default(section.number("multiplier"), default.multiplier),
        reset_after_ms=or_default(section.integer("reset_after"), default.reset_after_ms),
    )
    if settings.multiplier < 1:
        diagnostics.error(
            f"'multiplier' must be at least 1, got {settings.multiplier:g}",
            section.value_at("multiplier"),
            hint="1 keeps the wait the same",
        )
    if settings.max_delay_ms < settings.initial_delay_ms:
        diagnostics.error(
            "'max_delay' is less than 'initial_delay'",
            section.value_at("max_delay" if section.has("max_delay") else "initial_delay"),
            hint="the wait begins at initial_delay (default 1s) and grows up to max_delay (default 1m)",
        )
    return settings


def or_default(value: T | None, default: T) -> T:
    """The value, or the default if there is none; 0 and False are values."""
    return default if value is None else value
