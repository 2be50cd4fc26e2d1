"""The declaration of windows, with their triggers and evictors."""

from __future__ import annotations

from flowrun.frontend.trees.spec import (
    AnyValue,
    BooleanValue,
    ChoiceValue,
    DurationValue,
    IntegerValue,
    KeySpec,
    MapValue,
    NumberValue,
    RecordSpec,
    RecordValue,
    TextValue,
    VariantValue,
)
from flowrun.frontend.yaml.declaration.vocabulary import (
    COLUMN,
    EXPRESSION,
    NODE_NAME,
)

_CLASS = TextValue("a Python class", r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", "written module:Class")
_WITH = KeySpec("with", MapValue(AnyValue(), TextValue("a name")), "Arguments of the class of `function`, by name.")
TRIGGER = RecordSpec(
    "trigger",
    "trigger",
    "When a window fires besides its default.",
    (
        KeySpec("count", IntegerValue(1), "After so many rows since the last firing."),
        KeySpec("every", DurationValue(), "At this interval of the window's time while it is open."),
        KeySpec("late_count", IntegerValue(1), "Past the window's end: after so many late rows.", default="1"),
        KeySpec("delta", EXPRESSION, "When this number has moved more than `threshold` since the last firing."),
        KeySpec("threshold", NumberValue(), "See `delta`."),
        KeySpec("purge", BooleanValue(), "Forget the window's rows after each firing.", default="false"),
        KeySpec(
            "function",
            _CLASS,
            "`module:Class`, importable from the pipeline's folder; extends `Trigger` of `flowrun.api.windowing`, and decides alone.",
        ),
        _WITH,
    ),
)
EVICTOR = RecordSpec(
    "evictor",
    "evictor",
    "Which rows are dropped before a firing.",
    (
        KeySpec("count", IntegerValue(1), "Keep only the last so many rows."),
        KeySpec("time", DurationValue(), "Keep only rows that are less than so much older than the newest."),
        KeySpec(
            "function",
            _CLASS,
            "`module:Class`, importable from the pipeline's folder; extends `Evictor` of `flowrun.api.windowing`.",
        ),
        _WITH,
    ),
)
_TIME = KeySpec("time", ChoiceValue(("event", "processing")), "Which clock the window follows.", default="event")
_COLUMN = KeySpec(
    "column", COLUMN, "The time attribute that windows without `aggregate` follow.", default="the input's event time"
)
_SIZE = KeySpec("size", DurationValue(), "Length of a window.", required=True)
_OFFSET = KeySpec("offset", TextValue("a duration, possibly negative"), "Shifts the windows' starts.", default="0s")
_ZONE = KeySpec(
    "time_zone",
    TextValue("a time zone"),
    "The zone by whose clocks the window goes: a day begins at its midnight, and `window_start` and `window_end` are its local times. "
    "The event time must be an instant then, not a local time.",
    default="UTC",
)
_FIRING_KEYS = (
    KeySpec("trigger", RecordValue(TRIGGER), "Early, repeated or custom firing."),
    KeySpec("evictor", RecordValue(EVICTOR), "Rows dropped before a firing."),
)
_LATENESS_KEYS = (
    KeySpec(
        "output_mode",
        ChoiceValue(("append", "update", "complete")),
        "What comes of windows that fire more than once: each one's last result when it is final; changes; or all results each time.",
        default="a row for each firing",
    ),
    KeySpec(
        "allowed_lateness", DurationValue(zero=True), "Late rows fire their window again for so long.", default="0s"
    ),
    KeySpec(
        "late_output", NODE_NAME, "Name under which rows that are later than that can be read; else they are dropped."
    ),
)
WINDOW = VariantValue(
    "type",
    "Kind of window.",
    (
        (
            "tumbling",
            RecordSpec(
                "window_tumbling",
                "a tumbling window",
                "Back to back.",
                (_SIZE, _OFFSET, _ZONE, _TIME, _COLUMN, *_LATENESS_KEYS, *_FIRING_KEYS),
            ),
        ),
        (
            "sliding",
            RecordSpec(
                "window_sliding",
                "a sliding window",
                "Overlapping: one begins every `slide`.",
                (
                    _SIZE,
                    KeySpec("slide", DurationValue(), "Time between two starts.", required=True),
                    _OFFSET,
                    _ZONE,
                    _TIME,
                    _COLUMN,
                    *_LATENESS_KEYS,
                    *_FIRING_KEYS,
                ),
            ),
        ),
        (
            "cumulative",
            RecordSpec(
                "window_cumulative",
                "a cumulative window",
                "Back to back, with a result for the part so far every `step`.",
                (
                    _SIZE,
                    KeySpec("step", DurationValue(), "Time between two results; divides `size`.", required=True),
                    _OFFSET,
                    _ZONE,
                    _TIME,
                    _COLUMN,
                    *_LATENESS_KEYS,
                ),
            ),
        ),
        (
            "session",
            RecordSpec(
                "window_session",
                "a session window",
                "Per key, as long as rows follow each other within `gap`.",
                (
                    KeySpec("gap", DurationValue(), "Time without rows that ends a session.", required=True),
                    _ZONE,
                    _TIME,
                    _COLUMN,
                    *_LATENESS_KEYS,
                    *_FIRING_KEYS,
                ),
            ),
        ),
        (
            "count",
            RecordSpec(
                "window_count",
                "a count window",
                "Per key, over the last `size` rows.",
                (
                    KeySpec("size", IntegerValue(1), "Number of rows.", required=True),
                    KeySpec("slide", IntegerValue(1), "Rows between two firings.", default="`size`"),
                ),
            ),
        ),
        (
            "global",
            RecordSpec(
                "window_global",
                "a global window",
                "One for ever per key; fires by its trigger, or once at the end of bounded input.",
                (_TIME, *_FIRING_KEYS),
            ),
        ),
        (
            "custom",
            RecordSpec(
                "window_custom",
                "a window of one's own",
                "As a Python class assigns rows to windows.",
                (
                    KeySpec(
                        "function",
                        _CLASS,
                        "`module:Class`, importable from the pipeline's folder; extends `WindowAssigner` or `MergingWindowAssigner` of "
                        "`flowrun.api.windowing`.",
                        required=True,
                    ),
                    _WITH,
                    *_LATENESS_KEYS,
                    *_FIRING_KEYS,
                ),
            ),
        ),
    ),
)
