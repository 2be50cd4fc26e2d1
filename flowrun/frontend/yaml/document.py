"""The specification of a pipeline document: every key, its kind, default and meaning. This is the one place that says so."""

from __future__ import annotations

from flowrun.frontend.settings.declaration import PARALLELISM, SETTINGS
from flowrun.frontend.trees.spec import (
    AnyValue,
    BooleanValue,
    ChoiceValue,
    DurationValue,
    IntegerValue,
    KeySpec,
    ListValue,
    MapValue,
    NumberValue,
    RecordSpec,
    RecordValue,
    TextValue,
    VariantValue,
)
from flowrun.frontend.yaml.relational import RELATIONAL_KEYS, SET_KEYS
from flowrun.frontend.yaml.vocabulary import (
    COLUMN,
    COLUMN_NAME,
    EXPRESSION,
    FUNCTION_NAME,
    NODE_NAME,
    PYTHON_NAME,
    REFERENCE,
    TYPE,
)

_HINT_KEYS = (
    KeySpec(
        "uid",
        TextValue("a stable id"),
        "Stable id: state in a savepoint is found again by it.",
        default="its place, such as `steps.totals`",
    ),
    KeySpec("name", TextValue("a display name"), "Name shown in `explain`, metrics and messages.", default="its key"),
    KeySpec("parallelism", PARALLELISM, "Number of parallel subtasks.", default="`settings.parallelism`"),
    KeySpec(
        "on_error",
        ChoiceValue(("fail", "skip", "dead-letter")),
        "What becomes of rows that cannot be read, evaluated or written here.",
        default="`settings.on_error`",
    ),
)
_STEP_HINT_KEYS = (
    *_HINT_KEYS,
    KeySpec(
        "slot_sharing_group",
        TextValue("a group name"),
        "Subtasks of different groups never share a slot.",
        default="that of the inputs",
    ),
    KeySpec("chaining", BooleanValue(), "`false`: the step's operators run in tasks of their own.", default="true"),
)

WATERMARK = RecordSpec(
    "watermark",
    "watermark",
    "Event time of a source and how its progress is measured.",
    (
        KeySpec("column", COLUMN, "The TIMESTAMP or TIMESTAMP_LTZ column that holds the event time."),
        KeySpec("time", EXPRESSION, "Instead of `column`: an expression over the source's columns."),
        KeySpec(
            "type",
            ChoiceValue(("bounded", "monotonous", "punctuated", "source", "none")),
            "`bounded`: highest event time minus `delay`; `monotonous`: times never go back; `punctuated`: from `expression`; "
            "`source`: the connector sends them itself, if it can; "
            "`none`: rows have event times, but time only advances at the end of input.",
            default="bounded",
        ),
        KeySpec("delay", DurationValue(zero=True), "How late rows may be (bounded).", default="0s"),
        KeySpec("expression", EXPRESSION, "The watermark that a row carries, or NULL (punctuated)."),
        KeySpec(
            "idle_timeout", DurationValue(), "Without rows for so long, the source no longer holds event time back."
        ),
        KeySpec(
            "on_disorder",
            ChoiceValue(("fail", "warn", "ignore")),
            "What a row that is older than one before it causes (monotonous).",
            default="fail",
        ),
    ),
)
_TABLE_OPTIONS_DOC = "Every other key is an option of the connector or format; nested mappings are joined by dots."
_TABLE_KEYS = (
    KeySpec(
        "connector",
        TextValue("a connector"),
        "Which connector reads or writes; see `flowrun connectors`.",
        required=True,
    ),
    KeySpec("format", TextValue("a format"), "How rows are written in files, for connectors with formats."),
)
_SCHEMA_DOC = "Column names and SQL types, in order"
SOURCE = RecordSpec(
    "source",
    "a source",
    "Where rows come from.",
    (
        *_TABLE_KEYS,
        KeySpec(
            "schema",
            MapValue(TYPE, COLUMN_NAME),
            f"{_SCHEMA_DOC}. May be left out for connectors with columns of their own.",
        ),
        KeySpec(
            "computed",
            MapValue(EXPRESSION, COLUMN_NAME),
            "Further columns: name and SQL expression over those before it.",
        ),
        KeySpec("watermark", RecordValue(WATERMARK), "Event time; without it only processing time can be used."),
        KeySpec(
            "partition_by", ListValue(COLUMN), "Columns of the schema whose values are in the folders' names, `k=v`."
        ),
        KeySpec(
            "primary_key",
            ListValue(COLUMN),
            "Columns whose values name one row each, not checked: rows of the source are versions of it for temporal joins.",
        ),
        *_STEP_HINT_KEYS,
    ),
    open_doc=_TABLE_OPTIONS_DOC,
)
SINK = RecordSpec(
    "sink",
    "a sink",
    "Where rows go.",
    (
        KeySpec(
            "from",
            REFERENCE,
            "What is written: the name of a source, step, split branch or late output.",
            required=True,
        ),
        *_TABLE_KEYS,
        KeySpec(
            "schema",
            MapValue(TYPE, COLUMN_NAME),
            f"{_SCHEMA_DOC}: picks, reorders and converts the input's columns.",
            default="the input's columns",
        ),
        KeySpec("partition_by", ListValue(COLUMN), "Columns whose values become folders."),
        KeySpec(
            "primary_key",
            ListValue(COLUMN),
            "Columns that name a row: a sink that can keeps one row a key, the newest, and takes updates that way.",
        ),
        *_STEP_HINT_KEYS,
    ),
    open_doc=_TABLE_OPTIONS_DOC,
)

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
    ),
)
EVICTOR = RecordSpec(
    "evictor",
    "evictor",
    "Which rows are dropped before a firing.",
    (
        KeySpec("count", IntegerValue(1), "Keep only the last so many rows."),
        KeySpec("time", DurationValue(), "Keep only rows that are less than so much older than the newest."),
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
    ),
)
PYTHON = RecordSpec(
    "python",
    "a Python function",
    "A Python function over rows. `module:function` alone stands for `{function: module:function}`.",
    (
        KeySpec("function", PYTHON_NAME, "`module:function`, importable from the pipeline's folder.", required=True),
        KeySpec("row", BooleanValue(), "Call it with one row (a dict) at a time: easy, but slow.", default="false"),
        KeySpec(
            "schema",
            MapValue(TYPE, COLUMN_NAME),
            f"{_SCHEMA_DOC}, of what it returns.",
            default="the columns it is given",
        ),
    ),
)
PROCESS = RecordSpec(
    "process",
    "a process function",
    "A Python class that sees every row or batch, with state and timers a key if the step has `key_by`. `module:Class` alone stands for "
    "`{function: module:Class}`.",
    (
        KeySpec(
            "function",
            TextValue("a Python class", r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", "written module:Class"),
            "`module:Class`, importable from the pipeline's folder; extends `KeyedProcessFunction` or `ProcessFunction`.",
            required=True,
        ),
        KeySpec("with", MapValue(AnyValue(), TextValue("a name")), "Arguments of the class, by name."),
        KeySpec(
            "schema",
            MapValue(TYPE, COLUMN_NAME),
            f"{_SCHEMA_DOC}, of what it sends.",
            default="the columns it is given",
        ),
        KeySpec(
            "side_outputs",
            MapValue(MapValue(TYPE, COLUMN_NAME), NODE_NAME),
            "Further outputs: names that can be read like steps, and their columns.",
        ),
    ),
)
STEP = RecordSpec(
    "step",
    "a step",
    "What happens to rows. Its parts apply in this order, whatever order they are written in: join, unnest, filter, select, map or "
    "flat_map, match_recognize, window, distinct, over, key_by with process, aggregate or deduplicate, having, top_n, order_by and limit, "
    "split.",
    (
        KeySpec("from", REFERENCE, "The input. A step has one of `from`, `sql`, `union`, `intersect` and `except`."),
        KeySpec(
            "union", ListValue(REFERENCE, minimum=2, single=False), "Several inputs with equal columns: all their rows."
        ),
        *SET_KEYS,
        *RELATIONAL_KEYS,
        KeySpec("filter", EXPRESSION, "Keeps the rows for which this is true; over the input's columns."),
        KeySpec(
            "select",
            ListValue(TextValue("a SQL expression, or *")),
            "The columns to go on with: names, `expression AS name`, or `*` for all.",
        ),
        KeySpec("map", RecordValue(PYTHON, PYTHON_NAME), "A Python function: as many rows out as in."),
        KeySpec("flat_map", RecordValue(PYTHON, PYTHON_NAME), "A Python function: any number of rows out."),
        KeySpec(
            "process",
            RecordValue(
                PROCESS, TextValue("a Python class", r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", "written module:Class")
            ),
            "A Python class with state and timers.",
        ),
        KeySpec(
            "key_by",
            ListValue(TextValue("a column, or an expression AS name")),
            "Columns that rows are grouped by; without it an aggregate spans all rows at parallelism 1, and a process function has no "
            "state.",
        ),
        KeySpec(
            "null_keys",
            ChoiceValue(("fail", "group", "drop")),
            "Rows with a NULL key: fail the job, form a group of their own as in SQL, or are dropped.",
            default="`fail` with `window` or `process`, else `group`",
        ),
        KeySpec(
            "window",
            WINDOW,
            "Which rows are aggregated together. Without `aggregate`: every row once for each of its windows, with the columns "
            "window_start, window_end and window_time, by which steps can group, join and rank.",
        ),
        KeySpec(
            "aggregate",
            ListValue(TextValue("an aggregate AS name")),
            "Aggregates, e.g. `COUNT(*) AS n`. The step's columns are the keys, window_start, window_end, and these; "
            "with `window_time` in the list also their event time, by which SQL can go on. Without `window` "
            "results are kept up to date: they change with every row.",
        ),
        KeySpec("having", EXPRESSION, "Keeps the results for which this is true; over the columns of `aggregate`."),
        KeySpec(
            "split",
            MapValue(EXPRESSION, NODE_NAME, partial=True),
            "Names and predicates: each row goes to every branch whose predicate is true. Rows of no branch are the step's output.",
        ),
        *_STEP_HINT_KEYS,
    ),
    reserved={
        "intersect_all": "number equal rows with over: ROW_NUMBER(), then use intersect",
        "except_all": "number equal rows with over: ROW_NUMBER(), then use except",
        "union_all": "'union' keeps all rows; with distinct: true each once",
        "group_by": "use key_by",
        "input": "use from",
        "inputs": "use union",
        "where": "use filter",
        "order": "use order_by",
    },
)
PIPELINE = RecordSpec(
    "pipeline",
    "a pipeline",
    "The document. Keys that begin with `x-` are not looked at: a place for anchors.",
    (
        KeySpec("name", TextValue("a name"), "Name of the job.", default="the file's name"),
        KeySpec("settings", RecordValue(SETTINGS), "Settings of the whole pipeline."),
        KeySpec(
            "sources", MapValue(RecordValue(SOURCE), NODE_NAME, partial=True), "Where rows come from.", required=True
        ),
        KeySpec(
            "functions",
            MapValue(PYTHON_NAME, FUNCTION_NAME, partial=True),
            "The user's own functions for SQL: name and `module:attribute`, importable from the pipeline's folder. Known in `sql`, "
            "`filter`, `select`, `join`, `unnest`, `over`, `key_by`, `aggregate`, `having` and `top_n`.",
        ),
        KeySpec("steps", MapValue(RecordValue(STEP), NODE_NAME, partial=True), "What happens to them, in any order."),
        KeySpec("sinks", MapValue(RecordValue(SINK), NODE_NAME, partial=True), "Where they go.", required=True),
    ),
    free_prefix="x-",
)
DOCUMENT = RecordValue(PIPELINE)
