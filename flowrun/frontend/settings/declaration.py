"""The declaration of the settings of a pipeline: every key, its kind, default and meaning. This is the one place that says so."""

from __future__ import annotations

from flowrun.frontend.settings.recovery import CHECKPOINT, RESTART
from flowrun.frontend.settings.slots import SLOT_SHARING_GROUPS, SLOTS
from flowrun.frontend.trees.spec import (
    BooleanValue,
    ChoiceValue,
    DurationValue,
    IntegerValue,
    KeySpec,
    ListValue,
    NumberValue,
    RecordSpec,
    RecordValue,
    TextValue,
)

PARALLELISM = IntegerValue(1, 32_768)

LIMITS = (
    KeySpec(
        "max_records",
        IntegerValue(0),
        "How many records of a source a subtask may put aside; one more fails the job.",
        default="any number",
    ),
    KeySpec(
        "max_percent",
        NumberValue(positive=True, maximum=100),
        "How many of 100 records of a source a subtask may put aside, once it has read 100 and at the end of input; more fail the job.",
        default="100",
    ),
)
"""How many records of a source may be dead letters."""
DEAD_LETTERS = RecordSpec(
    "dead_letters",
    "dead_letters",
    "Where dead letters go, and how many there may be. See docs/dead-letters.md.",
    (
        KeySpec("folder", TextValue("a folder"), "Folder for them, as JSON lines."),
        KeySpec("sink", TextValue("the name of a sink"), "Sink for them, one without `from`, instead of a folder."),
        *LIMITS,
    ),
)
TELEMETRY = RecordSpec(
    "telemetry",
    "telemetry",
    "What the job reports to others. See docs/metrics.md.",
    (
        KeySpec(
            "traces",
            ChoiceValue(("none", "otlp")),
            "`otlp`: checkpoints, starts and restarts go as traces to a collector of OpenTelemetry, which `OTEL_EXPORTER_OTLP_ENDPOINT` "
            "names (extra `[otel]`).",
            default="none",
        ),
    ),
)
SETTINGS = RecordSpec(
    "settings",
    "settings",
    "Settings of the whole pipeline.",
    (
        KeySpec(
            "parallelism",
            IntegerValue(1, 32_768, auto=True),
            "Subtasks of every operator that sets no parallelism of its own; `auto`: as many as this process may use processor cores.",
            default="1",
        ),
        KeySpec(
            "max_parallelism",
            PARALLELISM,
            "Number of key groups: the highest parallelism that state can ever be rescaled to.",
            default="from the parallelism, at least 128",
        ),
        KeySpec(
            "buffer_timeout",
            DurationValue(zero=True),
            "Longest wait before a part-filled buffer is sent on; small values lower latency, large ones raise throughput.",
            default="100ms",
        ),
        KeySpec(
            "object_reuse",
            BooleanValue(),
            "`false`: every operator gets a copy of its rows, for functions that change them in place.",
            default="true",
        ),
        KeySpec("chaining", BooleanValue(), "`false`: every operator runs in a task of its own.", default="true"),
        KeySpec("mode", ChoiceValue(("streaming", "batch")), "Which engine runs the pipeline.", default="streaming"),
        KeySpec(
            "embedded_mode",
            ChoiceValue(("streaming", "batch", "automatic")),
            "How the embedded engine runs the pipeline, if that is `mode`: `streaming`, all steps at once; `batch`, stage by stage over "
            "sources that end, with inputs sorted by key and without checkpoints; `automatic`, `batch` if all sources end and no "
            "checkpoints are asked for.",
            default="streaming",
        ),
        KeySpec("batch_rows", IntegerValue(1, 1 << 24), "Rows that sources aim for in one batch.", default="131072"),
        KeySpec("latency_interval", DurationValue(), "Time between latency markers.", default="off"),
        KeySpec(
            "cancellation_timeout",
            DurationValue(zero=True),
            "How long subtasks may take to end after they were cancelled, and to answer SIGTERM; then the process ends and says which "
            "operator hung. 0: for ever.",
            default="20s",
        ),
        KeySpec(
            "memory_watch",
            BooleanValue(),
            "Whether the job ends, and says so, when less than a sixteenth (at most 256 MiB) of the machine's memory or of a control "
            "group's limit is left. The system would soon end the process without a word.",
            default="true",
        ),
        KeySpec(
            "local_aggregation",
            BooleanValue(),
            "Aggregate before rows are sent to their key's subtask.",
            default="true",
        ),
        KeySpec(
            "split_distinct",
            BooleanValue(),
            "Compute updating aggregates over DISTINCT values in two levels, so that the values of one key are spread over subtasks.",
            default="false",
        ),
        KeySpec(
            "split_distinct_buckets",
            IntegerValue(1, 1 << 20),
            "Into how many parts the values of a key are split then.",
            default="1024",
        ),
        KeySpec(
            "join_reorder",
            BooleanValue(),
            "`false`: inner joins run in the order that is written, also where all sources end and their sizes make another one cheap.",
            default="true",
        ),
        KeySpec(
            "state_ttl",
            DurationValue(zero=True),
            "How long updating steps (aggregates without window, joins, top-N, …) keep the state of a key that gets no rows; 0: for ever.",
            default="0",
        ),
        KeySpec(
            "time_zone",
            TextValue("a time zone"),
            "The session's zone, an id such as `Europe/Berlin` or an offset: in whose local time SQL windows over TIMESTAMP_LTZ begin, and "
            "functions and casts read one.",
            default="UTC",
        ),
        KeySpec(
            "cdc_events_duplicate",
            BooleanValue(),
            "Sources of changes may give a change twice: repeated ones are left out, by the source's primary key.",
            default="false",
        ),
        KeySpec(
            "not_null_enforcer",
            ChoiceValue(("error", "drop")),
            "What a sink does with a row that has NULL in a NOT NULL column: the job fails, or the row is dropped and counted.",
            default="error",
        ),
        KeySpec(
            "nested_constraint_enforcer",
            ChoiceValue(("ignore", "rows", "rows_and_collections")),
            "Where NOT NULL and lengths are enforced inside of the values that sinks get: nowhere, in ROWs, or in ARRAYs and MAPs, too.",
            default="ignore",
        ),
        KeySpec(
            "type_length_enforcer",
            ChoiceValue(("ignore", "trim_pad", "error")),
            "What a sink does with a value of CHAR(n), VARCHAR(n), BINARY(n) or VARBINARY(n) of another length: nothing, it is cut and "
            "filled up, or the job fails.",
            default="ignore",
        ),
        KeySpec(
            "functions",
            ListValue(TextValue("a package")),
            "Installed packages, `company` or `company.functions`, whose Python functions the pipeline may name beside those of modules "
            "in its own folder.",
            default="none",
        ),
        KeySpec(
            "on_error",
            ChoiceValue(("fail", "skip", "dead-letter")),
            "What becomes of a row that cannot be processed: the job fails, or the row is left out and counted, or kept aside.",
            default="fail",
        ),
        KeySpec(
            "dead_letters",
            RecordValue(DEAD_LETTERS, TextValue("a folder")),
            "Where the rows go that `on_error: dead-letter` keeps aside. A text alone is a folder.",
        ),
        KeySpec("checkpoint", RecordValue(CHECKPOINT), "Checkpoints.", default="none are taken"),
        KeySpec("slots", RecordValue(SLOTS), "Slots of the embedded engine.", default="as many as the job needs"),
        KeySpec(
            "slot_sharing_groups",
            SLOT_SHARING_GROUPS,
            "What each slot of a group has, for groups that `slot_sharing_group` names, and for `default`.",
            default="what their operators need",
        ),
        KeySpec("telemetry", RecordValue(TELEMETRY), "What the job reports to others.", default="nothing"),
        KeySpec("restart", RESTART, "What happens after a failure.", default="exponential with checkpoints, else none"),
    ),
)
